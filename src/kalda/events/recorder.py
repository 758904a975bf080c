"""Records the events of one broker: numbers them, bounds their rate, and writes them to its ring on disk.

`emit` appends to a list in memory. `run` writes the list outside the event loop some 50 ms later, so that a
burst of events is one write. Nothing is synced: a kill of the process loses at most the events of the last
50 ms, a crash of the machine some seconds. When a disk fails or is full the ring goes on in the next log
directory. Where there is none, the newest events wait in memory, and a process that ends loses them.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from kalda.events.event import (
    TEXT_MAX,
    CausalEvent,
    EventId,
    EventKind,
    Plain,
    Subject,
    bounded,
    decode_event,
    encode_event,
    event_number,
)
from kalda.events.ring import EventRing
from kalda.events.ring_file import CONTENT_BYTES_MAX, RECORD_HEADER, encode_record
from kalda.runtime.background import Background
from kalda.runtime.clock import Clock
from kalda.runtime.error_text import error_text
from kalda.runtime.filesystem import FileSystem

logger: Final = logging.getLogger(__name__)

LINGER_SECONDS: Final = 0.05
"""How long events wait for others before they are written."""

PENDING_MAX: Final = 4_096
"""Events that wait for a slow disk; 1 MiB. More are counted and dropped."""

RATE: Final = 100.0
"""Events a second that are kept in the long run: 1 % of the requests of a broker that serves 10,000."""
BURST: Final = 2_000.0
"""Events that are kept at once, as when a broker with thousands of partitions fails."""
CLIENTS_RATE: Final = 10.0
"""Of `CLIENTS_KINDS`, which have a bucket of their own: clients that join and leave in a loop must neither
take the place of elections and failures nor wear out the ring in minutes."""

TICK_SECONDS: Final = 1.0
"""How often `run` looks at the clock, so that it notices how long the process stood still."""
STALL_SECONDS: Final = 1.0
"""How long the process must have stood still for an event: a stopped process, a machine that swaps."""

CLOCK_MOVED_MS: Final = 1_000
"""How far the wall clock must have moved beside the monotonic one for an event: a clock that was set."""

REPEAT_SECONDS: Final = 60.0
"""How long equal events of `emit_seldom` are counted before one says how many there were."""
REPEATED_MAX: Final = 128
"""Equal events of one kind that are counted at a time: clients choose names, so there must be a bound."""

CLIENTS_KINDS: Final = frozenset(
    (
        EventKind.GROUP_REBALANCING,
        EventKind.GROUP_STABLE,
        EventKind.MEMBER_JOINED,
        EventKind.MEMBER_LEFT,
        EventKind.MEMBER_FAILED,
        EventKind.MEMBER_REPLACED,
        EventKind.MEMBER_REFUSED,
        EventKind.OFFSETS_DELETED,
        EventKind.OFFSETS_RESET,
        EventKind.PRODUCER_FENCED,
        EventKind.PRODUCER_REFUSED,
        EventKind.RECORDS_REFUSED,
        EventKind.TRANSACTION_ABORTED,
        EventKind.CLIENT_THROTTLED,
        EventKind.CONNECTION_REFUSED,
        EventKind.LOGIN_FAILED,
        EventKind.ACCESS_DENIED,
    )
)
"""What clients make happen as often as they like."""

SubjectFilter: TypeAlias = tuple[str, str]
"""A key of a subject and its value as a text: ``("topic", "orders")``."""


@dataclass(frozen=True, slots=True)
class EventQuery:
    """The events that a request asks for."""

    since_ms: int = 0
    until_ms: int = 2**63 - 1
    after_number: int = -1
    """Only events with higher numbers: where the last answer ended."""
    events_max: int = 5_000
    subjects: Sequence[SubjectFilter] = ()
    """Events with one of these in their subject, and those that name nothing but brokers; empty for all."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some events by ascending number, and what is behind them."""

    events: list[CausalEvent]
    has_more: bool
    oldest_ms: int
    """The time of the oldest event that the ring has; -1 if it has none."""


@dataclass(slots=True)
class _Repeated:
    """Equal events that are counted."""

    ends_at: float
    subject: Subject
    details: Mapping[str, Plain]
    first: EventId | None
    times: int = 0


@dataclass(slots=True)
class _Allowance:
    """A bucket of events."""

    rate: float
    at: float
    left: float = BURST

    def take(self, now: float) -> bool:
        """Take one event out; return False if there is none."""
        self.left = min(BURST, self.left + (now - self.at) * self.rate)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class EventRecorder:
    """The events of one broker; an `EventSink`. `open` it, then `run` it until cancelled, then `close`."""

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        file_system: FileSystem,
        background: Background,
        directories: Callable[[], Sequence[str]],
        bytes_max: int,
    ) -> None:
        """`directories` returns the log directories that are in service; the first one has the ring."""
        self._broker_id: Final = broker_id
        self._clock: Final = clock
        self._file_system: Final = file_system
        self._background: Final = background
        self._directories: Final = directories
        self._bytes_max: Final = bytes_max
        self._ring: EventRing | None = None
        self._failed: Final[set[str]] = set()
        """Directories in which the ring could not be written since the last success."""
        self._reported: Final[set[str]] = set()
        """Directories whose failure was logged."""
        self._is_kept = False
        """Whether there is a ring, or a log directory that may take one."""
        self._pending: list[bytes] = []
        self._writing: asyncio.Lock = asyncio.Lock()
        self._wake: Final = asyncio.Event()
        self._number = 0
        self._allowance: Final = _Allowance(RATE, clock.monotonic())
        self._clients_allowance: Final = _Allowance(CLIENTS_RATE, clock.monotonic())
        self._dropped = 0
        self._repeated_kinds: Final[Counter[str]] = Counter()
        self._repeated: Final[dict[tuple[object, ...], _Repeated]] = {}

    def open(self) -> CausalEvent | None:
        """Open the ring; returns the last event before this start, by which a kill shows itself."""
        last: CausalEvent | None = None
        if (ring := self._next_ring()) is not None:
            try:
                content = ring.open()
                last = None if content is None else decode_event(self._broker_id, content)
                self._ring = ring
            except OSError as error:
                self._give_up(ring, error)
        self._is_kept = self._ring is not None
        self._number = max(self._clock.time_ms(), 0 if last is None else last.id.number)
        return last

    def emit(
        self,
        kind: str,
        subject: Subject,
        details: Mapping[str, Plain] | None = None,
        *,
        cause: EventId | None = None,
    ) -> EventId | None:
        """Record one change of state; see `EventSink`."""
        allowance = self._clients_allowance if kind in CLIENTS_KINDS else self._allowance
        if not allowance.take(self._clock.monotonic()):
            self._dropped += 1
            return None
        return self._append(kind, subject, details or {}, cause)

    def emit_seldom(
        self, kind: str, subject: Subject, details: Mapping[str, Plain] | None = None
    ) -> EventId | None:
        """Record what clients can repeat at will; see `EventSink`."""
        details = details or {}
        key = (kind, *subject.items(), details.get("reason"), details.get("by_user"))
        known = self._repeated.get(key)
        if known is not None:
            known.times += 1
            return known.first
        if self._repeated_kinds[kind] >= REPEATED_MAX:
            self._dropped += 1
            return None
        first = self.emit(kind, subject, details)
        ends_at = self._clock.monotonic() + REPEAT_SECONDS
        self._repeated[key] = _Repeated(ends_at, subject, details, first)
        self._repeated_kinds[kind] += 1
        self._wake.set()
        return first

    async def run(self) -> None:
        """Write emitted events until cancelled; emit events for pauses and for a clock that is set."""
        loop = asyncio.get_running_loop()

        ticking: asyncio.TimerHandle

        def tick(last: float, last_ms: int) -> None:
            nonlocal ticking
            now, now_ms = self._clock.monotonic(), self._clock.time_ms()
            if now - last - TICK_SECONDS > STALL_SECONDS:
                self.emit(EventKind.PROCESS_STALLED, {}, {"seconds": round(now - last, 1)})
            moved_ms = now_ms - last_ms - round((now - last) * 1000)
            if abs(moved_ms) > CLOCK_MOVED_MS:
                details: dict[str, Plain] = {"milliseconds": moved_ms, "time_before_ms": last_ms}
                self.emit(EventKind.CLOCK_CHANGED, {}, details)
            ticking = loop.call_later(TICK_SECONDS, tick, now, now_ms)

        ticking = loop.call_later(TICK_SECONDS, tick, self._clock.monotonic(), self._clock.time_ms())
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REPEAT_SECONDS if self._repeated else None):
                        await self._wake.wait()
                self._wake.clear()
                await asyncio.sleep(LINGER_SECONDS)
                self.end_repeated(self._clock.monotonic())
                await self._write()
        finally:
            ticking.cancel()

    async def close(self) -> None:
        """Write the remaining events."""
        self.end_repeated(float("inf"))
        await self._write()

    async def read(self, query: EventQuery) -> EventPage:
        """Return events of the ring.

        Raises:
            OSError: the ring cannot be read.
        """
        await self._write()
        ring, pending = self._ring, tuple(self._pending)

        def read() -> EventPage:
            contents = [] if ring is None else ring.contents()
            # A full disk takes no events, which then wait here.
            contents += [each[RECORD_HEADER.size :] for each in pending]
            return _select(self._broker_id, contents, query)

        return await self._background.call(read)

    def _append(
        self, kind: str, subject: Subject, details: Mapping[str, Plain], cause: EventId | None
    ) -> EventId | None:
        if not self._is_kept or len(self._pending) >= PENDING_MAX:
            self._dropped += 1
            return None
        self._number += 1
        subject = subject or {"broker": self._broker_id}
        event = CausalEvent(
            id=EventId(self._broker_id, self._number),
            time_ms=self._clock.time_ms(),
            kind=kind,
            subject={
                key: value if isinstance(value, int) else value[:TEXT_MAX] for key, value in subject.items()
            },
            details={key: bounded(value) for key, value in details.items()},
            cause=cause,
        )
        content = encode_event(event)
        if len(content) > CONTENT_BYTES_MAX:
            return None
        self._pending.append(encode_record(content))
        self._wake.set()
        logger.debug("event %s: %s %s %s", event.id, kind, subject, details)
        return event.id

    def end_repeated(self, now: float) -> None:
        """Emit how many there were of the equal events whose time, in monotonic seconds, has passed."""
        ended = [key for key, each in self._repeated.items() if each.ends_at <= now]
        for key in ended:
            each = self._repeated.pop(key)
            self._repeated_kinds[str(key[0])] -= 1
            if each.times:
                details = {**each.details, "times": each.times}
                self._append(str(key[0]), each.subject, details, each.first)
        if self._dropped and self._allowance.left >= 1:
            dropped, self._dropped = self._dropped, 0
            self._append(EventKind.EVENTS_DROPPED, {"broker": self._broker_id}, {"times": dropped}, None)

    async def _write(self) -> None:
        """Write pending events: one writer at a time, in the order of the numbers."""
        async with self._writing:
            taken, self._pending = self._pending, []
            if not taken or self._ring is None:
                self._pending = [*taken, *self._pending]
                return
            ring: EventRing | None = self._ring
            data = b"".join(taken)
            while ring is not None:
                try:
                    if ring is not self._ring:
                        await self._background.call(ring.open)
                    await self._background.call(partial(ring.append, data))
                except OSError as error:
                    self._give_up(ring, error)
                    ring = self._next_ring()
                else:
                    self._ring = ring
                    return
            # No disk takes them: they stay in memory, and the next ones try again.
            self._failed.clear()
            self._pending = [*taken, *self._pending]

    def _next_ring(self) -> EventRing | None:
        for directory in self._directories():
            if directory not in self._failed:
                return EventRing(self._file_system, directory, self._broker_id, self._bytes_max)
        return None

    def _give_up(self, ring: EventRing, error: OSError) -> None:
        self._failed.add(ring.directory)
        if ring.directory in self._reported:
            return
        self._reported.add(ring.directory)
        logger.warning("%s: events cannot be kept there: %s", ring.directory, error_text(error))


def _select(broker_id: int, contents: Sequence[bytes], query: EventQuery) -> EventPage:
    """Return the events that a query asks for."""
    events: list[CausalEvent] = []
    oldest_ms = -1
    for content in contents:
        if oldest_ms >= 0 and event_number(content) <= query.after_number:
            # A page before had it.
            continue
        event = decode_event(broker_id, content)
        if event is None:
            continue
        if oldest_ms < 0:
            oldest_ms = event.time_ms
        if event.id.number <= query.after_number or not query.since_ms <= event.time_ms < query.until_ms:
            continue
        if not is_about(event, query.subjects):
            continue
        if len(events) >= query.events_max:
            return EventPage(events, has_more=True, oldest_ms=oldest_ms)
        events.append(event)
    return EventPage(events, has_more=False, oldest_ms=oldest_ms)


def is_about(event: CausalEvent, subjects: Sequence[SubjectFilter]) -> bool:
    """Return whether an event has one of the subjects, or names nothing but brokers; all have none."""
    if not subjects or event.subject.keys() <= {"broker"}:
        return True
    return any(str(event.subject.get(key, "")) == name for key, name in subjects)
