"""`kalda cluster history`: who changed which metadata, and what it was at a time."""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from kalda.cluster.history.changes import TOPIC, Change, SnapshotMark, decode_record
from kalda.cluster.history.subjects import JsonValue, Kind, Subject, subject_of
from kalda.cluster.history.timeline import NOT_KNOWN, HistoryEntry, Timeline, differences
from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.output import Json
from kalda.command.tables import Table
from kalda.command.values import parse_time_or_age_ms
from kalda.common.types import TopicPartition
from kalda.runtime.system.clock import SystemClock

if TYPE_CHECKING:
    from kalda.clients.consumer.async_consumer import AsyncConsumer

cluster = noun("Show brokers, versions, health, history; take a broker out.")

_SHOWN_MAX: Final = 200
"""Characters of a change in a row; `--json` has all."""

_SILENT_POLLS_MAX: Final = 30
"""Seconds without progress after which the reading ends: the topic may have lost its leader."""

_SNAPSHOTS_APART_MS: Final = 25 * 60 * 60 * 1000
"""The recorder looks every hour whether a day has passed since it copied the whole state."""

_KINDS: Final = ", ".join(Kind)


@command("history", cluster)
@click.argument("what", metavar="[WHAT]...", nargs=-1)
@click.option("--since", metavar="TIME", help="Not before this time, or so long ago: 2h, PT30M.")
@click.option("--until", metavar="TIME", help="Not after this time, or so long ago.")
@click.option("--at", metavar="TIME", help="Show the state at this time in place of the changes.")
async def history(
    tool: Tool, what: tuple[str, ...], since: str | None, until: str | None, at: str | None
) -> None:
    """List the changes of the cluster's metadata with time, author, and the values before and after.

    WHAT is a kind and a name (`topic orders`, `broker 2`, `user alice`), a kind, or the path of a znode and
    all below it (`/brokers/topics/orders`). TIME is as in 2026-11-29T10:00:00Z, in UTC if it names no zone,
    or a duration before now. ORIGIN is `written` where the broker that made the change noted it, `seen` where
    another one saw it, and `found` where a later comparison did.
    """
    now_ms = SystemClock().time_ms()
    if at is not None and (since is not None or until is not None):
        raise ToolUsageError("--at shows the state at one time; --since and --until are for lists of changes")
    selects = _selection(what)
    at_ms = None if at is None else parse_time_or_age_ms("--at", at, now_ms)
    since_ms = None if since is None else parse_time_or_age_ms("--since", since, now_ms)
    until_ms = None if until is None else parse_time_or_age_ms("--until", until, now_ms)
    timeline = await _read_timeline(tool, at_ms, since_ms if at_ms is None else at_ms)
    if at_ms is not None:
        _show_state(tool, timeline, at_ms, selects)
        return
    entries = [
        each
        for each in timeline.entries
        if (since_ms is None or each.change.time_ms >= since_ms)
        and (until_ms is None or each.change.time_ms <= until_ms)
        and selects(each)
    ]
    tool.output.result(
        {"changes": [_entry_json(each) for each in entries]},
        Table(
            ("TIME", "AUTHOR", "ORIGIN", "WHAT", "CHANGE"),
            [
                (
                    _time_text(each.change.time_ms),
                    "-" if each.change.author is None else str(each.change.author),
                    each.change.origin.value,
                    str(_subject(each.change)),
                    describe(each),
                )
                for each in entries
            ],
        ),
    )


def _show_state(tool: Tool, timeline: Timeline, at_ms: int, selects: Callable[[HistoryEntry], bool]) -> None:
    if timeline.known_from_ms == NOT_KNOWN or at_ms < timeline.known_from_ms:
        begin = (
            "nothing is recorded yet"
            if timeline.known_from_ms == NOT_KNOWN
            else f"the state is known from {_time_text(timeline.known_from_ms)} on"
        )
        raise ToolError(f"the state at {_time_text(at_ms)} is not known: {begin}")
    found = [each for _, each in sorted(timeline.state.items()) if selects(HistoryEntry(each, None))]
    tool.output.result(
        {"at": at_ms, "state": {each.path: each.value for each in found}},
        Table(
            ("WHAT", "STATE", "SINCE"),
            [(str(_subject(each)), _value_text(each), _time_text(each.time_ms)) for each in found],
        ),
    )


async def _read_timeline(tool: Tool, at_ms: int | None, from_ms: int | None) -> Timeline:
    """Read the history, of the changes before `from_ms` only what is needed to know the state then."""
    if from_ms is not None:
        timeline = Timeline(at_ms)
        records, is_whole = await _read_history(tool, max(from_ms - _SNAPSHOTS_APART_MS, 0))
        timeline.add_all(records)
        if is_whole or NOT_KNOWN < timeline.known_from_ms <= from_ms:
            return timeline
    timeline = Timeline(at_ms)
    records, _ = await _read_history(tool, None)
    timeline.add_all(records)
    return timeline


async def _read_history(tool: Tool, from_ms: int | None) -> tuple[list[Change | SnapshotMark | None], bool]:
    """Read the records of the topic that were written at a time or later, or all; return if it is all."""
    from kalda.clients.consumer.async_consumer import AsyncConsumer
    from kalda.clients.consumer.consumer_config import ConsumerConfig

    async with tool.admin() as admin:
        if TOPIC not in await admin.list_topics(include_internal=True):
            raise ToolError(
                f"the cluster has no history: there is no topic {TOPIC}. Brokers create it with the first "
                "change of metadata, unless kalda.cluster.history.enable is false"
            )
    partition = TopicPartition(TOPIC, 0)
    settings = {
        **tool.settings_for(ConsumerConfig),
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
    }
    async with AsyncConsumer.from_config(settings) as consumer:
        await consumer.assign([partition])
        begin = first = (await consumer.beginning_offsets([partition]))[partition]
        if from_ms is not None:
            found = (await consumer.offsets_for_times({partition: from_ms}))[partition]
            begin = first if found is None else found.offset
        await consumer.seek(partition, begin)
        end = (await consumer.end_offsets([partition]))[partition]
        return await _records_until(consumer, partition, end), begin == first


async def _records_until(
    consumer: "AsyncConsumer[bytes | None, bytes | None]", partition: TopicPartition, end: int
) -> list[Change | SnapshotMark | None]:
    """Read up to an offset.

    Raises:
        ToolError: nothing came for some time, because the topic has no leader or was cut off meanwhile.
    """
    records: list[Change | SnapshotMark | None] = []
    position, silent = -1, 0
    while (reached := await consumer.position(partition)) < end:
        position, silent = reached, silent + 1 if reached == position else 0
        if silent > _SILENT_POLLS_MAX:
            raise ToolError(
                f"{TOPIC} cannot be read to its end: nothing came for {_SILENT_POLLS_MAX} s behind offset "
                f"{reached}, and it should end at {end}. See that the topic has a leader: "
                f"kalda topics describe --topic {TOPIC}"
            )
        polled = await consumer.poll(timeout_s=1.0)
        records += [
            decode_record(each.key or b"", each.value)
            for each in polled
            if each.offset < end and each.value is not None
        ]
    return records


# Selecting.


def _selection(what: tuple[str, ...]) -> Callable[[HistoryEntry], bool]:
    """Return the test of the changes that the arguments select.

    Raises:
        ToolUsageError: they are not understood.
    """
    if not what:
        return lambda entry: True
    first = what[0]
    if first.startswith("/"):
        if len(what) > 1:
            raise ToolUsageError(f"{' '.join(what)}: a path stands alone")
        root = first.rstrip("/")
        return lambda entry: entry.change.path == root or entry.change.path.startswith(f"{root}/")
    if first not in set(Kind) or len(what) > 2:
        raise ToolUsageError(f"{' '.join(what)} is no path and no kind with a name; the kinds are {_KINDS}")
    kind = Kind(first)
    if len(what) == 1:
        return lambda entry: _subject(entry.change).kind is kind
    name = what[1]
    if kind is Kind.TOPIC:
        return lambda entry: _subject(entry.change).topic == name
    if kind is Kind.BROKER:
        return lambda entry: _concerns_broker(entry, name)
    return lambda entry: _subject(entry.change).kind is kind and _subject(entry.change).name == name


def _concerns_broker(entry: HistoryEntry, broker: str) -> bool:
    """Return whether a change is of a broker, or lets it begin or cease to lead, be in sync or control."""
    subject = _subject(entry.change)
    if subject.kind in (Kind.BROKER, Kind.BROKER_CONFIG):
        return subject.name == broker
    if subject.kind not in (Kind.PARTITION, Kind.CONTROLLER):
        return False
    before, after = _roles(entry.before_value, broker), _roles(entry.change.value, broker)
    return before != after


def _roles(value: JsonValue, broker: str) -> tuple[bool, bool, bool]:
    if not isinstance(value, dict):
        return False, False, False
    isr = value.get("isr")
    return (
        str(value.get("leader")) == broker,
        isinstance(isr, list) and broker in map(str, isr),
        str(value.get("brokerid")) == broker,
    )


def _subject(change: Change) -> Subject:
    subject = subject_of(change.path)
    assert subject is not None, f"{change.path} is recorded and has no subject"
    return subject


# Showing.


def describe(entry: HistoryEntry) -> str:
    """Return a change in words: what was created or deleted, or what differs."""
    change = entry.change
    if _subject(change).kind is Kind.TOPIC_DELETION:
        return "no longer requested" if change.is_deleted else "requested"
    if change.is_deleted:
        return "deleted"
    if change.is_omitted:
        return "changed; its data is too large to be recorded"
    parts = [_difference(*each) for each in differences(entry.before_value, change.value)]
    verb = "created" if entry.before is None else "changed" if parts else "written again"
    return _cut(f"{verb}: {', '.join(parts)}" if parts else verb)


def _difference(name: str, before: JsonValue, after: JsonValue) -> str:
    shown = name.removeprefix("config.")
    if before is None:
        return f"{shown}={_text(after)}"
    return f"{shown}={_text(before)} → {_text(after)}"


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _value_text(change: Change) -> str:
    return _cut(", ".join(_difference(*each) for each in differences(None, change.value)) or "-")


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 1]}…"


def _time_text(time_ms: int) -> str:
    found = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{found:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"


def _entry_json(entry: HistoryEntry) -> Json:
    change, subject = entry.change, _subject(entry.change)
    return {
        "time": change.time_ms,
        "path": change.path,
        "kind": subject.kind.value,
        "name": subject.name,
        "is_deleted": change.is_deleted,
        "before": entry.before_value,
        "after": change.value,
        "author": None if change.author is None else dict(_json_items(change.author.to_json().items())),
        "origin": change.origin.value,
        "version": None if change.version < 0 else change.version,
        "transaction": None if change.zxid < 0 else change.zxid,
    }


def _json_items(items: Iterable[tuple[str, object]]) -> Iterable[tuple[str, Json]]:
    for name, value in items:
        yield name, value if isinstance(value, str | int) else None
