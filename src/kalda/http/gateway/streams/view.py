"""Shares one form of a topic's records among all readers that want the same and have read as far.

Each event is rendered once, and the bytes go to all of them. A reader *in step* has the view's position, so
that even the ids of its events are those of the others. A reader *ahead* has read further than the view in
some partition, which happens after it read on another instance or by itself; it gets events of its own until
the view has caught up.

Nothing here waits or does I/O. `Membership` is the queue between the view and the task that writes to the
reader's connection, with a bound: a reader that does not take what it gets leaves the view with the position
up to which it got everything.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kalda.http.gateway.streams.event_form import EventForm
from kalda.http.gateway.streams.recent_records import BytesRecord, RecentRecords

QUEUED_BYTES_MAX: Final = 256 * 1024
"""What waits for a reader beyond its connection's own buffer. Shared bytes count for each reader."""
JOINING_BYTES_MAX: Final = 64 * 1024
"""What a reader that joins gets at once of the records before."""
SLICE: Final = 200
"""Readers that are woken in one turn of the event loop: some 5 ms of writes."""


class Leaving(Enum):
    """Why a reader is no longer in a view."""

    SLOW = auto()
    """It does not take its events; it may come back when it does."""
    RESET = auto()
    """The view has lost its place; the reader goes on from its position."""
    ENDED = auto()
    """There is nothing more to read."""


class Membership:
    """A reader of a view, and the bytes queued for it."""

    __slots__ = ("_queue", "_waiter", "end", "leaving", "position", "queued_bytes")

    def __init__(self, position: dict[int, int]) -> None:
        self.leaving: Leaving | None = None
        self.position = position
        """The position behind what was queued. Of a reader in step it is set when the reader leaves."""
        self.end: tuple[str, str] | None = None
        """The reason and the message of `Leaving.ENDED`."""
        self.queued_bytes = 0
        self._queue: Final[deque[bytes]] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, chunk: bytes) -> bool:
        """Queue bytes for the reader; return False if too many wait already."""
        if self.queued_bytes + len(chunk) > QUEUED_BYTES_MAX and self._queue:
            return False
        self._queue.append(chunk)
        self.queued_bytes += len(chunk)
        self._wake()
        return True

    def take(self) -> list[bytes]:
        """Remove and return the queued bytes."""
        chunks = list(self._queue)
        self._queue.clear()
        self.queued_bytes = 0
        return chunks

    def leave(self, leaving: Leaving, position: dict[int, int]) -> None:
        """End the membership after the queued bytes."""
        if self.leaving is None:
            self.leaving, self.position = leaving, position
            self._wake()

    async def wait_ready(self) -> None:
        """Wait until something is queued, or the membership has ended."""
        if not self._queue and self.leaving is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
            self._waiter = None


@dataclass(frozen=True, slots=True)
class _Write:
    """A chunk on its way to the members that were in step when it was made."""

    chunk: bytes
    before: dict[int, int]
    """The position in front of it, for a member that cannot take it."""
    members: Iterator[Membership]


class View:
    """One form of the records of a feed: some partitions, some conditions, one rendering.

    Args:
        form: The conditions and the rendering.
        recent: The feed's records.
        reads: Returns whether a partition is read.
    """

    def __init__(self, form: EventForm, recent: RecentRecords, reads: Callable[[int], bool]) -> None:
        self.form: Final = form
        self._recent: Final = recent
        self._reads: Final = reads
        self.position: Final[dict[int, int]] = {}
        """The next offsets of the readers in step, behind what is rendered."""
        self._rendered: Final[list[bytes]] = []
        self._writes: Final[deque[_Write]] = deque()
        self._in_step: Final[dict[Membership, None]] = {}
        self._ahead: Final[dict[Membership, None]] = {}
        self.sync_position()
        self._flushed = dict(self.position)
        """The position behind the last write."""
        self._named = self._flushed
        """The position of the last id that readers in step got."""
        self._has_written = False
        """Whether there was a write since the last heartbeat."""

    @property
    def readers(self) -> int:
        """How many readers there are."""
        return len(self._in_step) + len(self._ahead)

    @property
    def has_rendered(self) -> bool:
        """Whether events wait for `flush`."""
        return bool(self._rendered)

    def join(self, position: Mapping[int, int]) -> Membership:
        """Add a reader, with all records between its position and the view's.

        The feed's records cover the position. Partitions of the view that the position lacks are read from
        where they begin in the feed.
        """
        self.flush()
        own = {each: position.get(each, self._recent.first[each]) for each in self.position}
        member = Membership(own)
        events: list[bytes] = []
        size = 0
        for record in self._recent.since(own):
            own[record.partition] = record.offset + 1
            event = self.form.event(record, own)
            if event is not None:
                events.append(event)
                size += len(event)
            if size > JOINING_BYTES_MAX:
                # The rest follows when the reader has taken these.
                member.put(self.form.chunk(events))
                member.leave(Leaving.SLOW, own)
                return member
        if events:
            member.put(self.form.chunk(events))
        for partition, at in self.position.items():
            own[partition] = max(own[partition], at)
        if own == self.position:
            self._in_step[member] = None
        else:
            self._ahead[member] = None
        return member

    def remove(self, member: Membership) -> None:
        """Forget a reader that left by itself."""
        self._in_step.pop(member, None)
        self._ahead.pop(member, None)

    def add(self, records: Iterable[BytesRecord]) -> None:
        """Render records behind those before; readers get them with the next `flush`."""
        position, form, reads = self.position, self.form, self._reads
        for record in records:
            if not reads(record.partition):
                continue
            position[record.partition] = record.offset + 1
            if self._in_step:
                event = form.event(record, position)
                if event is not None:
                    self._rendered.append(event)
            for member in list(self._ahead):
                self._add_ahead(member, record)

    def sync_position(self) -> None:
        """Take over the feed's position, which passes offsets without records and has added partitions."""
        for partition, at in self._recent.next.items():
            if self._reads(partition):
                self.position[partition] = at
        for member in self._ahead:
            for partition, at in self.position.items():
                member.position[partition] = max(member.position.get(partition, 0), at)

    def flush(self) -> None:
        """Make a write of what is rendered; `pump` queues it for the readers."""
        before, self._flushed = self._flushed, dict(self.position)
        if self._rendered:
            self._named = self._flushed
            self._write(self.form.chunk(self._rendered), before)
            self._rendered.clear()
        # Nothing is rendered now that a reader ahead has got already.
        for member in [each for each in self._ahead if each.position == self.position]:
            del self._ahead[member]
            self._in_step[member] = None

    def heartbeat(self) -> None:
        """Make a write that is a sign of life; it has the position where that moved without an event."""
        self.flush()
        if not self._has_written:
            is_moved = self._named != self._flushed
            self._named = self._flushed
            self._write(self.form.position(self._named) if is_moved else self.form.heartbeat, self._flushed)
        self._has_written = False

    def pump(self) -> bool:
        """Queue a part of the writes for their readers; return whether there is more to do."""
        if not self._writes:
            return False
        write = self._writes[0]
        for count, member in enumerate(write.members, 1):
            # One that left is a member no more, also if its reader is back with another membership.
            if member in self._in_step and not member.put(write.chunk):
                del self._in_step[member]
                member.leave(Leaving.SLOW, dict(write.before))
            if count == SLICE:
                return True
        self._writes.popleft()
        return bool(self._writes)

    def end(self, leaving: Leaving, reason: tuple[str, str] | None = None) -> None:
        """End all memberships behind what is rendered."""
        self.flush()
        while self.pump():
            pass
        for member in [*self._in_step, *self._ahead]:
            member.end = reason
            member.leave(leaving, dict(self._flushed) if member in self._in_step else member.position)
        self._in_step.clear()
        self._ahead.clear()

    def _write(self, chunk: bytes, before: dict[int, int]) -> None:
        self._has_written = True
        self._writes.append(_Write(chunk, before, iter(list(self._in_step))))

    def _add_ahead(self, member: Membership, record: BytesRecord) -> None:
        own = member.position
        before = own.get(record.partition, record.offset)
        if record.offset < before:
            return
        own[record.partition] = record.offset + 1
        event = self.form.event(record, own)
        if event is not None and not member.put(self.form.chunk([event])):
            own[record.partition] = before
            del self._ahead[member]
            member.leave(Leaving.SLOW, own)
