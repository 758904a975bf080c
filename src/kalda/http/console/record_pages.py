"""Serves the pages of records: browsing, one record, live tail."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response, StreamingResponse

from kalda.clients.errors import ClientError
from kalda.http.console import command_lines
from kalda.http.console.reading import Reading
from kalda.http.console.record_reading import log_ranges, new_records, offsets_at, read_one, read_ranges
from kalda.http.console.record_search import SECONDS_MAX, Searches
from kalda.http.console.record_views import (
    LIMITS,
    PAGE_BYTES,
    Decode,
    Ranges,
    Record,
    RecordQuery,
    RecordRow,
    record_row,
    shown_of,
    time_ms_of,
    wanted_ranges,
)
from kalda.http.console.search_conditions import ConditionError, equivalent_command
from kalda.http.console.texts import counted, time_text
from kalda.http.console.topic_pages import TRAIL, topic_tabs
from kalda.http.console.visits import SECURITY_HEADERS, Visit, path_of
from kalda.http.decoding import SchemaDecoders
from kalda.http.errors import HttpError

TAILS_MAX: Final = 200
_TAIL_SECONDS_MAX: Final = 1_800.0
"""A page that is forgotten in a tab does not read for ever."""
_TAIL_RECORDS_SECOND: Final = 50
"""More than anyone can read; the page shows how many were left out."""


@dataclass(frozen=True, slots=True)
class _Table:
    """The records of a page."""

    records: Sequence[Record]
    next_at: Mapping[int, int] | None
    remark: str = ""
    error: str = ""


class RecordPages:
    """The pages that read records, with the searches of the process."""

    def __init__(self) -> None:
        self._searches: Final = Searches()

    async def records(self, visit: Visit, reading: Reading) -> Response:
        """Show records of a topic: the newest, those from a place on, or those that match."""
        topic = visit.request.path_params["topic"]
        base = path_of("topics", topic)
        query = RecordQuery.of(f"{base}/records", visit.parameters)
        logs = await log_ranges(visit.caller, topic)
        table = await self._table(visit, topic, query, logs)
        decode = await _ready(visit, table.records)
        return visit.page(
            "records.html",
            title=topic,
            section="Topics",
            trail=TRAIL,
            command=_command(topic, query) if not table.error else "",
            status=422 if table.error else 200,
            tabs=topic_tabs(topic),
            base=base,
            query=query,
            partitions=sorted(logs),
            limits=LIMITS,
            rows=[record_row(each, decode=decode) for each in table.records],
            next_link=None if table.next_at is None else query.going_on(table.next_at).link,
            first_link=query.from_the_start().link if query.at is not None else None,
            total=sum(end - first for first, end in logs.values()),
            error=table.error,
            search=table.remark,
        )

    async def _table(self, visit: Visit, topic: str, query: RecordQuery, logs: Ranges) -> _Table:
        found: dict[int, int | None] = {}
        if query.partition is not None and query.partition not in logs:
            return _Table([], None, error=f"The topic has the partitions 0 to {len(logs) - 1}.")
        if query.start == "time":
            time_ms = time_ms_of(query.time)
            if time_ms is None:
                return _Table(
                    [],
                    None,
                    error=f"{query.time!r} is no time: write 2026-11-22T14:30 (UTC), or milliseconds.",
                )
            found = await offsets_at(visit.caller, topic, logs, time_ms)
        if not query.is_search:
            ranges = wanted_ranges(query, logs, found)
            shown = shown_of(query, await read_ranges(visit.caller, topic, ranges), ranges, logs)
            return _Table(shown.records, shown.next_at)
        started = query
        if query.start == "time" and query.at is None:
            started = query.going_on(
                {n: end if found.get(n) is None else found[n] or 0 for n, (_, end) in logs.items()}
            )
        try:
            hits = await self._searches.run(
                visit.request, visit.caller, topic, started, logs, visit.services.decoders
            )
        except ConditionError as error:
            return _Table([], None, error=str(error))
        remark = f"{counted(hits.read, 'record')} looked through in {hits.seconds:.1f} s"
        if hits.is_out_of_time:
            remark += f"; the search ended after {SECONDS_MAX:.0f} s and can go on"
        elif hits.next_at is not None:
            remark += "; there may be more"
        return _Table(hits.records, hits.next_at, remark + ".")


def _command(topic: str, query: RecordQuery) -> str:
    if query.is_search:
        return command_lines.line("sql", equivalent_command(topic, query))
    options: list[tuple[str, str | int | bool | None]] = [("partition", query.partition)]
    if query.start == "time":
        options.append(("from-time", query.time))
    elif query.start == "offset":
        options.append(("offset", query.offset))
    elif query.start == "newest":
        options.append(("offset", f"-{query.limit}"))
    options += [
        ("max-messages", query.limit),
        ("until-end", True),
        ("print-key", True),
        ("print-offset", True),
    ]
    return command_lines.line("consume", topic, options=options)


async def record(visit: Visit, reading: Reading) -> Response:
    """Show one record with its whole value, up to a bound."""
    topic = visit.request.path_params["topic"]
    number, offset = int(visit.request.path_params["partition"]), int(visit.request.path_params["offset"])
    base = path_of("topics", topic)
    found = await read_one(visit.caller, topic, number, offset)
    if found is None:
        raise HttpError(
            404,
            f"offset {offset} of {topic}-{number} holds no record: it was deleted or compacted, belongs "
            "to an aborted transaction, or is not written yet",
        )
    decode = await _ready(visit, [found])
    row = record_row(found, PAGE_BYTES, decode)
    return visit.page(
        "record.html",
        title=f"{topic}-{number} at {offset}",
        heading=f"Record {offset}",
        section="Topics",
        trail=(
            *TRAIL,
            (topic, f"{base}/records"),
            (f"partition {number}", f"{base}/records?partition={number}"),
        ),
        command=command_lines.line(
            "consume",
            topic,
            options={
                "partition": number,
                "offset": offset,
                "max-messages": 1,
                "print-key": True,
                "print-headers": True,
                "print-timestamp": True,
            },
        ),
        row=row,
        key=None if found.key is None else record_row(found._replace(value=found.key), PAGE_BYTES, decode),
        base=base,
        leader_epoch=found.leader_epoch,
        timestamp_type=found.timestamp_type.name.lower().replace("_", " "),
    )


async def live(visit: Visit, reading: Reading) -> Response:
    """Show records as they come."""
    topic = visit.request.path_params["topic"]
    base = path_of("topics", topic)
    logs = await log_ranges(visit.caller, topic)
    partition = visit.parameter("partition")
    return visit.page(
        "live.html",
        title=topic,
        section="Topics",
        trail=TRAIL,
        command=command_lines.line(
            "consume", topic, options={"follow": True, "partition": partition or None, "print-key": True}
        ),
        tabs=topic_tabs(topic),
        base=base,
        partitions=sorted(logs),
        partition=partition,
    )


class Tails:
    """The live tails of a process, which are bounded."""

    def __init__(self) -> None:
        self.count = 0

    async def events(self, visit: Visit, reading: Reading) -> Response:
        """Stream new records as server-sent events.

        Raises:
            HttpError: there are too many tails (503).
        """
        topic = visit.request.path_params["topic"]
        text = visit.parameter("partition")
        if text and not (text.isascii() and text.isdigit() and len(text) < 10):
            raise HttpError(422, f"partition={text[:20]!r} is no number")
        if self.count >= TAILS_MAX:
            raise HttpError(503, f"{TAILS_MAX} live tails are open; close one")
        source = new_records(visit.caller, topic, int(text) if text else None)
        decoders = visit.services.decoders
        await anext(source)  # an error becomes a status, which it cannot behind the head of a response
        headers = {**SECURITY_HEADERS, "X-Accel-Buffering": "no"}
        events = self._events(source, decoders)
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    async def _events(
        self, source: AsyncGenerator[list[Record], None], decoders: SchemaDecoders | None
    ) -> AsyncIterator[str]:
        self.count += 1
        began = time.monotonic()
        try:
            yield "retry: 3000\n\n"
            second, left = began, _TAIL_RECORDS_SECOND
            async for batch in source:
                now = time.monotonic()
                if now - began > _TAIL_SECONDS_MAX:
                    yield _event("end", {"reason": "The tail ended after half an hour; load the page again"})
                    return
                if now - second >= 1:
                    second, left = now, _TAIL_RECORDS_SECOND
                if not batch:
                    yield ": nothing new\n\n"
                shown = batch[-left:] if left else []
                if decoders is not None:
                    await decoders.prepare(shown)
                for each in shown:
                    row = record_row(each, decode=None if decoders is None else decoders.decode)
                    yield _event("record", _event_of(row))
                left = max(0, left - len(batch))
        except (ClientError, HttpError) as error:
            yield _event("end", {"reason": str(error)})
        finally:
            self.count -= 1
            await asyncio.shield(source.aclose())


def _event(name: str, document: object) -> str:
    return f"event: {name}\ndata: {json.dumps(document)}\n\n"


def _event_of(row: RecordRow) -> dict[str, str | None]:
    return {
        "partition": str(row.partition),
        "offset": str(row.offset),
        "time": time_text(row.timestamp_ms),
        "key": row.key,
        "value": row.line,
    }


async def _ready(visit: Visit, records: Sequence[Record]) -> Decode | None:
    """Return the decoder of records with schemas; None where the process serves no registry."""
    decoders = visit.services.decoders
    if decoders is None:
        return None
    await decoders.prepare(records)
    return decoders.decode
