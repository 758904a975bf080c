"""Looks through the records of a topic with a condition in SQL, in a thread, bounded in time and memory.

A search reads the topic in windows, from its end or its beginning on, each one larger than the one before,
and ends with the window in which it has found enough. So the first hits of a large topic come at once, and a
search that finds little says how far it came, and can go on there.
"""

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event, Timer
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request

from kalda.common.types import TopicPartition
from kalda.http.callers import Caller
from kalda.http.console.record_views import Decode, Ranges, Record, RecordQuery
from kalda.http.console.search_conditions import ConditionError, condition_of, statement_of
from kalda.http.decoding import SchemaDecoders
from kalda.http.errors import HttpError
from kalda.records.batch import TimestampType
from kalda.schemas.payloads.framing import HEADER_BYTES

if TYPE_CHECKING:
    import duckdb

    from kalda.topic_queries.topic_source import ClusterSource

SEARCHES_MAX: Final = 2
"""At once; each takes a core."""
WAITING_MAX: Final = 8
SECONDS_MAX: Final = 20.0
_MEMORY: Final = "512MB"
_FIRST_WINDOW: Final = 20_000
_WINDOW_GROWTH: Final = 4
_WINDOW_MAX: Final = 1_000_000
_HEADS_MAX: Final = 1_000
"""Schema ids of one search; values that only look framed would name any number of them."""
_DISCONNECT_POLL_SECONDS: Final = 0.25
_SETTINGS: Final = {
    "client.id": "kalda-console-search",
    "default.api.timeout.ms": "15000",
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "enable.metrics.push": "false",
    "allow.auto.create.topics": "false",
    "max.partition.fetch.bytes": str(8 << 20),
}


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found."""

    records: list[Record]
    next_at: Mapping[int, int] | None
    """Where it can go on; None if it looked at everything."""
    read: int
    """Records that were looked at."""
    seconds: float
    is_out_of_time: bool


class Searches:
    """The searches of a process."""

    def __init__(self) -> None:
        self._threads: Final = ThreadPoolExecutor(SEARCHES_MAX, thread_name_prefix="kalda-search")
        self._waiting = 0

    async def run(
        self,
        request: Request,
        caller: Caller,
        topic: str,
        query: RecordQuery,
        logs: Ranges,
        decoders: SchemaDecoders | None = None,
    ) -> Found:
        """Return the first records that match; a visitor who leaves ends the search.

        With `decoders`, keys and values that have a schema are searched as JSON.

        Raises:
            ConditionError: what was entered is no condition.
            HttpError: too many searches wait (503).
            ClientError: the topic cannot be read.
        """
        if self._waiting >= SEARCHES_MAX + WAITING_MAX:
            raise HttpError(503, "too many searches are under way; try again in a moment")
        await caller.authenticate()
        loop = asyncio.get_running_loop()
        decode = None if decoders is None else _ThreadDecode(decoders, loop)
        search = _Search(caller.properties, topic, query, logs, decode)
        self._waiting += 1
        try:
            running = loop.run_in_executor(self._threads, search.run)
            while not (await asyncio.wait([running], timeout=_DISCONNECT_POLL_SECONDS))[0]:
                if await request.is_disconnected():
                    search.stop()
            return await running
        finally:
            search.stop()
            self._waiting -= 1


class _ThreadDecode:
    """Decodes payloads in the thread of a search; schemas are made ready on the loop, which has them."""

    def __init__(self, decoders: SchemaDecoders, loop: asyncio.AbstractEventLoop) -> None:
        self._decoders: Final = decoders
        self._loop: Final = loop
        self._prepared: Final[set[bytes]] = set()

    def __call__(self, data: bytes) -> str | None:
        head = data[:HEADER_BYTES]
        if head not in self._prepared:
            if len(self._prepared) >= _HEADS_MAX:
                return None
            self._prepared.add(head)
            ready = asyncio.run_coroutine_threadsafe(self._decoders.prepare_payloads([data]), self._loop)
            ready.result(SECONDS_MAX)
        return self._decoders.decode(data)


class _Search:
    """One search, in a thread."""

    def __init__(
        self,
        properties: Mapping[str, str],
        topic: str,
        query: RecordQuery,
        logs: Ranges,
        decode: Decode | None,
    ) -> None:
        self._decode: Final = decode
        self._properties: Final = properties
        self._topic: Final = topic
        self._query: Final = query
        self._condition: Final = condition_of(query)
        self._logs: Final = logs
        self._stopped: Final = Event()
        self._source: ClusterSource | None = None
        self._database: duckdb.DuckDBPyConnection | None = None
        self._read = 0

    def stop(self) -> None:
        """End the search; from any thread."""
        self._stopped.set()
        source, database = self._source, self._database
        if source is not None:
            source.stop()
        if database is not None:
            database.interrupt()

    def run(self) -> Found:
        import duckdb

        began = time.monotonic()
        timer = Timer(SECONDS_MAX, self.stop)
        timer.daemon = True
        timer.start()
        try:
            with _open_database() as database:
                self._database = database
                found = self._in_windows(database)
        except duckdb.Error as error:
            raise ConditionError(_explained(error)) from None
        finally:
            timer.cancel()
            self._database = None
        records, places = found
        is_stopped = self._stopped.is_set()
        return Found(records, places, self._read, time.monotonic() - began, is_stopped)

    def _in_windows(
        self, database: "duckdb.DuckDBPyConnection"
    ) -> tuple[list[Record], Mapping[int, int] | None]:
        query = self._query
        records: list[Record] = []
        places = dict(self._start())
        size = _FIRST_WINDOW
        while True:
            window = self._window(places, size)
            if not any(lower < upper for lower, upper in window.values()):
                return records, None
            try:
                hits = self._hits(database, window, query.limit - len(records))
            except Exception:
                if self._stopped.is_set():  # the window was not looked through
                    return records, places
                raise
            if self._stopped.is_set():
                return records, places
            is_cut = len(hits) > query.limit - len(records)
            taken = hits[: query.limit - len(records)]
            records += taken
            if is_cut:
                return records, _places_behind(taken, window, is_backward=query.is_backward)
            places = {
                number: lower if query.is_backward else upper for number, (lower, upper) in window.items()
            }
            if len(records) >= query.limit:
                return records, places if self._is_more(places) else None
            size = min(size * _WINDOW_GROWTH, _WINDOW_MAX)

    def _is_more(self, places: Mapping[int, int]) -> bool:
        end = 0 if self._query.is_backward else 1
        return any(place != self._logs[number][end] for number, place in places.items())

    def _start(self) -> Mapping[int, int]:
        """Return where each partition's search begins."""
        query = self._query
        chosen = {n: log for n, log in self._logs.items() if query.partition in (None, n)}
        if query.at is not None:
            return {
                number: min(max(query.at.get(number, end if query.is_backward else first), first), end)
                for number, (first, end) in chosen.items()
            }
        if query.is_backward:
            return {number: end for number, (_, end) in chosen.items()}
        if query.start == "offset":
            return {number: min(max(query.offset, first), end) for number, (first, end) in chosen.items()}
        return {number: first for number, (first, _) in chosen.items()}

    def _window(self, places: Mapping[int, int], size: int) -> dict[int, tuple[int, int]]:
        """Return the next offsets of each partition, about `size` together."""
        each = max(1_000, size // max(1, len(places)))
        if self._query.is_backward:
            return {
                number: (max(self._logs[number][0], place - each), place) for number, place in places.items()
            }
        return {number: (place, min(self._logs[number][1], place + each)) for number, place in places.items()}

    def _hits(self, database: "duckdb.DuckDBPyConnection", window: Ranges, count: int) -> list[Record]:
        """Return the first records of a window that match, one more than wanted if there are more."""
        from kalda.topic_queries.columns import Columns
        from kalda.topic_queries.topic_source import ClusterSource
        from kalda.topic_queries.topic_table import TopicTable

        ranges = {TopicPartition(self._topic, number): range(*each) for number, each in window.items()}
        settings = {**self._properties, **_SETTINGS}
        with ClusterSource(settings, {self._topic: ranges}) as source:
            self._source = source
            if self._stopped.is_set():
                source.stop()
            table = TopicTable(self._topic, source, Columns(has_raw=True, decode=self._decode))
            database.register("records", table)
            try:
                text = statement_of(self._condition, is_backward=self._query.is_backward)
                statement = _only_statement(database, text)
                rows = database.execute(statement, [*self._condition.values, count + 1]).fetchall()
            except Exception:
                if table.failure is not None and not self._stopped.is_set():
                    raise table.failure from None  # DuckDB passes on only its text
                raise
            finally:
                self._source = None
                self._read += source.read_count
                database.unregister("records")
        return [_record(self._topic, row) for row in rows]


def _places_behind(records: list[Record], window: Ranges, *, is_backward: bool) -> dict[int, int]:
    """Return where each partition goes on behind records that were cut off from more."""
    places = {}
    for number, (lower, upper) in window.items():
        own = [each.offset for each in records if each.partition == number]
        if is_backward:
            places[number] = min(own) if own else upper
        else:
            places[number] = max(own) + 1 if own else lower
    return places


def _open_database() -> "duckdb.DuckDBPyConnection":
    """Open a database in memory that reaches nothing else: no file, no network, no extension, no setting."""
    import duckdb

    database = duckdb.connect(
        config={
            "python_enable_replacements": "false",
            "memory_limit": _MEMORY,
            "threads": "1",
            "temp_directory": "",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
    )
    for setting in ("TimeZone = 'UTC'", "enable_external_access = false", "lock_configuration = true"):
        database.execute(f"SET {setting}")
    return database


def _only_statement(database: "duckdb.DuckDBPyConnection", text: str) -> "duckdb.Statement":
    """Return the one statement that a text is; a condition may have ended it and begun another.

    Raises:
        ConditionError: it is not one SELECT.
    """
    import duckdb

    statements = database.extract_statements(text)
    if len(statements) != 1 or statements[0].type is not duckdb.StatementType.SELECT:
        raise ConditionError("SQL condition: it is not one condition, as amount > 3 AND key = 'a' is")
    return statements[0]


def _record(topic: str, row: tuple[Any, ...]) -> Record:
    partition, offset, timestamp, key, value, headers, _ = row
    time_ms = -1 if timestamp is None else round(timestamp.timestamp() * 1000)
    return Record(
        topic,
        partition,
        offset,
        time_ms,
        TimestampType.CREATE_TIME,
        key,
        value,
        tuple((each["key"], each["value"]) for each in headers or ()),
        -1 if key is None else len(key),
        -1 if value is None else len(value),
        None,
    )


def _explained(error: Exception) -> str:
    text = " ".join(str(error).partition("\n\nLINE ")[0].split())
    if "offset" in text and "syntax" in text:
        text += '; offset is a word of SQL: write "offset" in double quotes'
    return text[:500]
