"""Serves the page of a topic's history: who changed its partitions, leaders, settings and ACLs, and when."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from kalda.clients.errors import BrokerResponseError, UnknownTopicOrPartitionError
from kalda.cluster.history.changes import TOPIC, decode_record
from kalda.cluster.history.subjects import JsonValue, Subject, subject_of
from kalda.cluster.history.timeline import HistoryEntry, Timeline, differences
from kalda.http.callers import Caller
from kalda.http.console import command_lines
from kalda.http.console.listing_pages import Part, listing_page
from kalda.http.console.listings import Cell, Column, Row, listing
from kalda.http.console.reading import Reading
from kalda.http.console.record_reading import log_ranges, read_ranges
from kalda.http.console.record_views import Record
from kalda.http.console.texts import UNKNOWN, time_text
from kalda.http.console.topic_pages import TRAIL, topic_tabs
from kalda.http.console.visits import Visit, path_of

_RECORDS_MAX: Final = 20_000
"""The latest records of the history that a page reads; the command reads all."""
_RECORDS_BYTES_MAX: Final = 8 * 1024 * 1024
"""Their bytes: a record may have a quarter of a megabyte, and what was read is kept for each visitor."""
_CHANGE_CHARACTERS: Final = 400
_COLUMNS: Final = (
    Column("time", "Time (UTC)"),
    Column("what", "What"),
    Column("change", "Change"),
    Column("author", "By", is_secondary=True),
)


@dataclass(frozen=True, slots=True)
class _History:
    """The recorded changes of the cluster that a page shows."""

    entries: Sequence[HistoryEntry] = ()
    is_cut: bool = False
    """Whether there are older records that were not read."""
    problem: str = ""
    """Why there are none."""


async def topic_history(visit: Visit, reading: Reading) -> Response:
    """Show the changes of a topic, of one partition if the address names it, the newest first."""
    topic = visit.request.path_params["topic"]
    partition = visit.parameter("partition")

    async def read() -> _History:
        return await _read(visit.caller)

    history = await reading.snapshots.get(visit.caller, "history", read)
    rows = history_rows(topic, partition, history.entries, is_cut=history.is_cut)
    table = listing(
        f"{path_of('topics', topic)}/history",
        visit.parameters,
        _COLUMNS,
        rows,
        one="change",
        many="changes",
        empty=(
            "No changes are recorded",
            history.problem or "Brokers record them from their first start on.",
        ),
        kept=("partition",),
        sort="-time",
    )
    intro = "Changes of partitions, leaders, settings and ACLs, as brokers recorded them."
    if history.is_cut:
        intro += " Only the latest changes of the cluster were read; the command reads all."
    return listing_page(
        visit,
        [Part(table)],
        title=topic,
        section="Topics",
        trail=TRAIL,
        tabs=topic_tabs(topic),
        tab="History",
        command=command_lines.line("cluster", "history", "topic", topic),
        intro=intro,
    )


def history_rows(topic: str, partition: str, entries: Sequence[HistoryEntry], *, is_cut: bool) -> list[Row]:
    """Return the changes of a topic, the newest first.

    Args:
        topic: Its name.
        partition: The number of the partition to show; empty for all.
        entries: What is known of the cluster, in order.
        is_cut: Whether older entries were not read, so that what was before may not be known.
    """
    rows = []
    for entry in reversed(entries):
        subject, change = _subject(entry), entry.change
        if subject.topic != topic or (partition and str(subject.partition) != partition):
            continue
        own = f"{path_of('topics', topic)}/history?partition={subject.partition}"
        rows.append(
            Row(
                [
                    Cell(time_text(change.time_ms), is_code=True, value=change.time_ms),
                    Cell(str(subject), "" if subject.partition is None else own),
                    Cell(_described(entry, is_cut=is_cut), is_code=True),
                    Cell(UNKNOWN if change.author is None else str(change.author), note=change.origin.value),
                ]
            )
        )
    return rows


async def _read(caller: Caller) -> _History:
    try:
        first, end = (await log_ranges(caller, TOPIC))[0]
        lower = max(first, end - _RECORDS_MAX)
        records = await read_ranges(caller, TOPIC, {0: (lower, end)}, bytes_max=_RECORDS_BYTES_MAX)
    except UnknownTopicOrPartitionError:
        return _History(problem=f"There is no topic {TOPIC}: the brokers record none, or are Apache Kafka's.")
    except BrokerResponseError as error:
        return _History(problem=f"{TOPIC} cannot be read: {error}")
    return _History(await asyncio.to_thread(_entries, records), is_cut=_is_cut(records, first))


def _is_cut(records: Sequence[Record], first: int) -> bool:
    """Return whether the log, which begins at `first`, has older records."""
    return bool(records) and records[0].offset > first


def _entries(records: Sequence[Record]) -> list[HistoryEntry]:
    timeline = Timeline()
    timeline.add_all(decode_record(each.key or b"", each.value) for each in records if each.value is not None)
    return timeline.entries


def _subject(entry: HistoryEntry) -> Subject:
    subject = subject_of(entry.change.path)
    assert subject is not None, f"{entry.change.path} is recorded and has no subject"
    return subject


def _described(entry: HistoryEntry, *, is_cut: bool) -> str:
    """Return what changed, field by field; what was before is not known if the beginning was not read."""
    change = entry.change
    if change.is_deleted:
        return "deleted"
    if change.is_omitted:
        return "changed; its data is too large to be recorded"
    parts = []
    for name, before, after in differences(entry.before_value, change.value):
        value = _text(after) if before is None else f"{_text(before)} → {_text(after)}"
        parts.append(f"{name.removeprefix('config.')}={value}")
    if entry.before is None:
        verb = "set" if is_cut else "created"
    else:
        verb = "changed" if parts else "written again"
    text = f"{verb}: {', '.join(parts)}" if parts else verb
    return text if len(text) <= _CHANGE_CHARACTERS else f"{text[:_CHANGE_CHARACTERS]}…"


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
