"""Converts and unpacks records for clients outside the event loop: `ConversionPool`.

Clients cause this work, and a request of some kilobytes can cause a second of it. So it has threads of its
own, apart from those that sync files (`background`). Jobs come to a checkpoint between pieces of less than a
millisecond, where their end is decided: jobs end early where their connection or the process goes.

A job is long after `PIECES_MAX` pieces, or when it holds more than `SMALL_BYTES`. One long job at a time is
done, so that the other thread is free for short ones, and memory is bounded. A job that becomes long beside
another one is stopped and begins again when it is its turn. The jobs of an owner whose last job was long are
taken for long ones until one of them is short:

    threads    long A        short B
    waiting    long C, D     short E: is next, and waits for `PIECES_MAX` pieces of B at most
"""

import asyncio
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias
from weakref import WeakSet

from kalda.common.errors import ErrorCode
from kalda.records.compression import Checkpoint, go_on
from kalda.records.errors import RecordsError
from kalda.runtime.error_text import without_frames
from kalda.runtime.system.clock import monotonic, sleep
from kalda.storage.errors import StorageError

logger: Final = logging.getLogger(__name__)

Done = Callable[[BaseException | None], None]
ConversionWork = Callable[[Checkpoint], None]

SMALL_BYTES: Final = 16 * 1024 * 1024
"""What a short job may hold."""

PIECES_MAX: Final = 128
"""Pieces of a short job: 32 MB of content in most codecs, where a usual batch has 1 MB, or 4,000 messages of
an old format."""

QUEUED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Copies of produced records that wait; a single request may have more."""

_THREADS_MAX: Final = 2
_TURN_SECONDS: Final = 0.00015
_LONG_TURN_SECONDS: Final = 0.00001
"""The turn of a long job is one piece, so the event loop waits for no more than that. Few clients have such
jobs, and no other job waits for one."""
_PAUSE_SECONDS: Final = 0.0001
"""For so long a thread lets the interpreter go after each turn: the event loop would wait 5 ms for it.

Codecs let it go too, but so briefly that the thread has it again before the event loop wakes up."""


class ConversionAbandonedError(StorageError):
    """The connection for which records were converted is gone, or the broker shuts down."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class ConversionOwner(Protocol):
    """The owner of conversions, a connection; it allows weak references."""

    @property
    def is_closed(self) -> bool:
        """Whether no result is wanted any more; read from any thread."""
        ...


class Conversions(Protocol):
    """Runs conversions."""

    def submit(self, owner: ConversionOwner, size: int, work: ConversionWork, done: Done) -> None:
        """Run `work`, then `done` with its exception or None on the event loop; `size` bytes wait until then.

        `work` gets the checkpoint. It must let through what the checkpoint raises, and may be called again.
        """
        ...

    def has_room(self, size: int) -> bool:
        """Return whether so many bytes more may wait."""
        ...

    def close(self) -> None:
        """End all work, at its next checkpoint; what is submitted later is abandoned too."""
        ...

    def join(self) -> None:
        """Wait for the end of all work, after `close`."""
        ...


class InlineConversions:
    """Converts at once on the caller's thread: for tests and for logs without a broker."""

    def submit(self, owner: ConversionOwner, size: int, work: ConversionWork, done: Done) -> None:
        """Run `work`, then `done`."""
        error: BaseException | None = None
        try:
            work(go_on)
        except Exception as raised:
            error = raised
        done(error)

    def has_room(self, size: int) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Do nothing."""

    def join(self) -> None:
        """Do nothing."""


class _LaterError(Exception):
    """A job became long beside another long one."""


class _Job:
    """One piece of work of an owner."""

    __slots__ = ("done", "has_long_work", "is_long", "loop", "owner", "paused_at", "pieces", "size", "work")

    def __init__(self, owner: ConversionOwner, size: int, work: ConversionWork, done: Done) -> None:
        self.owner = owner
        self.size = size
        self.work = work
        self.done = done
        self.loop = asyncio.get_running_loop()
        self.is_long = False
        """Whether it is in work, or was taken, as a long job."""
        self.has_long_work = False
        """Whether it turned out to be long."""
        self.pieces = 0
        self.paused_at = 0.0

    def finish(self, error: BaseException | None) -> None:
        """Call `done` on the event loop."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.done, error)


_Queues: TypeAlias = OrderedDict[ConversionOwner, deque[_Job]]
"""Invariant: no queue is empty."""


class ConversionPool:
    """Two threads that start with the first jobs; owners take turns, one job each."""

    def __init__(self) -> None:
        self._changed: Final = threading.Condition()
        # Guarded by the condition. No owner is in both.
        self._short: Final[_Queues] = OrderedDict()
        self._long: Final[_Queues] = OrderedDict()
        self._threads: Final[list[threading.Thread]] = []
        self._idle_count = 0
        self._long_owners: Final[WeakSet[ConversionOwner]] = WeakSet()
        """Owners whose last job was long."""
        self._waiting_bytes = 0
        self._does_long = False
        """Whether one of the threads has a long job."""
        self._is_closed = False

    def submit(self, owner: ConversionOwner, size: int, work: ConversionWork, done: Done) -> None:
        """Queue `work`; see `Conversions.submit`."""
        job = _Job(owner, size, work, done)
        with self._changed:
            if self._is_closed:
                job.finish(ConversionAbandonedError("the broker shuts down"))
                return
            is_long = owner in self._long or (owner in self._long_owners and owner not in self._short)
            queues = self._long if is_long else self._short
            queues.setdefault(owner, deque()).append(job)
            self._waiting_bytes += size
            if not self._idle_count and len(self._threads) < _THREADS_MAX:
                # A daemon: a broker that failed does not close the pool, and its process must end.
                name = f"conversion-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()

    def has_room(self, size: int) -> bool:
        """Return whether so many bytes more may wait."""
        return not self._waiting_bytes or self._waiting_bytes + size <= QUEUED_BYTES_MAX

    def close(self) -> None:
        """End all work, at its next checkpoint."""
        with self._changed:
            self._is_closed = True
            abandoned = [
                job for each in (self._short, self._long) for queue in each.values() for job in queue
            ]
            self._short.clear()
            self._long.clear()
            self._changed.notify_all()
        for job in abandoned:
            job.finish(ConversionAbandonedError("the broker shuts down"))

    def join(self) -> None:
        """Wait for the end of all work, after `close`."""
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (job := self._next()) is not None:
            error: BaseException | None = None
            try:
                self._check(job)
                job.paused_at = monotonic()
                job.work(lambda held_bytes, job=job: self._checkpoint(job, held_bytes))  # type: ignore[misc]
            except _LaterError:
                self._put_off(job)
                continue
            except (RecordsError, StorageError) as raised:
                error = without_frames(raised)
            except BaseException as raised:
                logger.exception("A conversion failed")
                error = without_frames(raised)
            with self._changed:
                self._waiting_bytes -= job.size
                if job.is_long:
                    self._does_long = False
                    self._changed.notify()
                    if job.has_long_work:
                        self._long_owners.add(job.owner)
                    else:
                        self._long_owners.discard(job.owner)
            job.finish(error)

    def _next(self) -> _Job | None:
        """Return the next job: a long one if none is in work, else a short one; None at the end."""
        with self._changed:
            while True:
                if self._long and not self._does_long:
                    self._does_long = True
                    job = _take(self._long)
                    job.is_long = True
                    return job
                if self._short:
                    return _take(self._short)
                if self._is_closed:
                    return None
                self._idle_count += 1
                self._changed.wait()
                self._idle_count -= 1

    def _put_off(self, job: _Job) -> None:
        """Queue a job behind the long ones, with all others of its owner: they are likely to be such too."""
        with self._changed:
            if not self._is_closed:
                self._long.setdefault(job.owner, deque()).extend((job, *self._short.pop(job.owner, ())))
                self._changed.notify()
                return
        job.finish(ConversionAbandonedError("the broker shuts down"))

    def _checkpoint(self, job: _Job, held_bytes: int) -> None:
        self._check(job)
        job.pieces += 1
        if not job.has_long_work and (job.pieces > PIECES_MAX or held_bytes > SMALL_BYTES):
            job.has_long_work = True
            if not job.is_long:
                with self._changed:
                    if self._does_long or self._long:
                        raise _LaterError
                    self._does_long = job.is_long = True
        if monotonic() - job.paused_at > (_LONG_TURN_SECONDS if job.is_long else _TURN_SECONDS):
            sleep(_PAUSE_SECONDS)
            job.paused_at = monotonic()

    def _check(self, job: _Job) -> None:
        if self._is_closed:
            raise ConversionAbandonedError("the broker shuts down")
        if job.owner.is_closed:
            raise ConversionAbandonedError("the connection is closed")


def _take(queues: _Queues) -> _Job:
    """Take a job of the owner whose turn it is."""
    owner, queue = next(iter(queues.items()))
    job = queue.popleft()
    if queue:
        queues.move_to_end(owner)
    else:
        del queues[owner]
    return job
