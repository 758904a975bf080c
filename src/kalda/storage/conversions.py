"""Converts and unpacks records for clients outside the event loop: `ConversionPool`.

Clients cause this work, and a request of some kilobytes can cause a second of it. So it has threads of its
own, apart from those that sync files (`background`). Connections take turns, work ends early where its
connection or the process goes, and memory is bounded: one job at a time may hold more than `SMALL_BYTES`.
Jobs come to a checkpoint between pieces of about a millisecond, where all this is decided.
"""

import asyncio
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, Protocol

from kalda.common.error_text import without_frames
from kalda.common.errors import ErrorCode
from kalda.records.compression import Checkpoint, go_on
from kalda.records.errors import RecordsError
from kalda.storage.errors import StorageError

logger: Final = logging.getLogger(__name__)

Done = Callable[[BaseException | None], None]
ConversionWork = Callable[[Checkpoint], None]

SMALL_BYTES: Final = 16 * 1024 * 1024
"""What each job may hold; of those that hold more, one goes on at a time."""

QUEUED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Copies of produced records that wait; a single request may have more."""

_THREADS_MAX: Final = 2
_TURN_SECONDS: Final = 0.001
_PAUSE_SECONDS: Final = 0.0001
"""For this long a thread lets the interpreter go after each turn; the event loop would wait 5 ms for it."""
_WAIT_SECONDS: Final = 0.05


class ConversionAbandonedError(StorageError):
    """The connection for which records were converted is gone, or the broker shuts down."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class ConversionOwner(Protocol):
    """What conversions are done for: a connection."""

    @property
    def is_closed(self) -> bool:
        """Whether no result is wanted any more; read from any thread."""
        ...


class Conversions(Protocol):
    """Runs conversions."""

    def submit(self, owner: ConversionOwner, size: int, work: ConversionWork, done: Done) -> None:
        """Run `work`, then `done` with its exception or None on the event loop; `size` bytes wait until then.

        `work` gets the checkpoint, which raises `ConversionAbandonedError`.
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


class _Job:
    """One piece of work of an owner."""

    __slots__ = ("done", "is_large", "loop", "owner", "paused_at", "size", "work")

    def __init__(self, owner: ConversionOwner, size: int, work: ConversionWork, done: Done) -> None:
        self.owner = owner
        self.size = size
        self.work = work
        self.done = done
        self.loop = asyncio.get_running_loop()
        self.is_large = False
        """Whether it is the one that may hold more than `SMALL_BYTES`."""
        self.paused_at = 0.0

    def finish(self, error: BaseException | None) -> None:
        """Call `done` on the event loop."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.done, error)


class ConversionPool:
    """A few threads that start with the first job; owners take turns, one job each."""

    def __init__(self) -> None:
        self._changed: Final = threading.Condition()
        # Guarded by the condition. Invariant: no queue is empty.
        self._queues: Final[OrderedDict[ConversionOwner, deque[_Job]]] = OrderedDict()
        self._threads: Final[list[threading.Thread]] = []
        self._idle_count = 0
        self._waiting_bytes = 0
        self._has_large = False
        self._is_closed = False

    def submit(self, owner: ConversionOwner, size: int, work: ConversionWork, done: Done) -> None:
        """Queue `work`; see `Conversions.submit`."""
        job = _Job(owner, size, work, done)
        with self._changed:
            if self._is_closed:
                job.finish(ConversionAbandonedError("the broker shuts down"))
                return
            self._queues.setdefault(owner, deque()).append(job)
            self._waiting_bytes += size
            if not self._idle_count and len(self._threads) < _THREADS_MAX:
                thread = threading.Thread(target=self._run, name=f"conversion-{len(self._threads)}")
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
            abandoned = [job for queue in self._queues.values() for job in queue]
            self._queues.clear()
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
                if job.owner.is_closed:
                    raise ConversionAbandonedError("the connection is closed")
                job.paused_at = time.monotonic()
                job.work(lambda held_bytes, job=job: self._checkpoint(job, held_bytes))  # type: ignore[misc]
            except (RecordsError, StorageError) as raised:
                error = without_frames(raised)
            except BaseException as raised:
                logger.exception("A conversion failed")
                error = without_frames(raised)
            with self._changed:
                self._waiting_bytes -= job.size
                if job.is_large:
                    self._has_large = False
                    self._changed.notify_all()
            job.finish(error)

    def _next(self) -> _Job | None:
        """Return the next job, of the owner whose turn it is; None at the end."""
        with self._changed:
            while not self._queues:
                if self._is_closed:
                    return None
                self._idle_count += 1
                self._changed.wait()
                self._idle_count -= 1
            owner, queue = next(iter(self._queues.items()))
            job = queue.popleft()
            if queue:
                self._queues.move_to_end(owner)
            else:
                del self._queues[owner]
            return job

    def _checkpoint(self, job: _Job, held_bytes: int) -> None:
        self._check(job)
        if held_bytes > SMALL_BYTES and not job.is_large:
            with self._changed:
                while self._has_large:
                    self._check(job)
                    self._changed.wait(_WAIT_SECONDS)
                self._has_large = job.is_large = True
        if time.monotonic() - job.paused_at > _TURN_SECONDS:
            time.sleep(_PAUSE_SECONDS)
            job.paused_at = time.monotonic()

    def _check(self, job: _Job) -> None:
        if self._is_closed:
            raise ConversionAbandonedError("the broker shuts down")
        if job.owner.is_closed:
            raise ConversionAbandonedError("the connection is closed")
