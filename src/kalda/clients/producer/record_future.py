"""Holds the results of records: one `BatchResult` for each batch, and a light `RecordFuture` for each record.

The counterpart of Java's `ProduceRequestResult` and `FutureRecordMetadata`. A future holds only its place in
the batch, and a batch does not know its futures: a record whose future the program drops costs 16 bytes here,
which is what bounds the memory of a producer whose brokers are gone.

A result completes exactly once. When a batch is split, its result has successors in its place, and everything
that waits for it moves on to the successor that holds the record.
"""

import asyncio
import contextlib
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final

from kalda.clients.foreign_attributes import FUTURE, names_counterparts
from kalda.clients.producer.record_metadata import NO_OFFSET, RecordMetadata
from kalda.common.public import public
from kalda.common.types import TopicPartition
from kalda.runtime.system.clock import monotonic
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

NO_TIMESTAMP: Final = -1
_LOOK_SECONDS: Final = 1.0
"""The time within which a waiting thread notices a result for which it was not woken."""

Delivery = Callable[[RecordMetadata, Exception | None], None]
"""The option `on_delivery` of `send`: gets the metadata, with offset -1 after an error, and the error."""


class BatchResult:
    """The result of a batch; threads may wait for it, and callbacks may be added at any time."""

    __slots__ = (
        "_callbacks",
        "_gate",
        "_lock",
        "_record_errors",
        "_splits",
        "base_offset",
        "error",
        "is_delivered",
        "is_done",
        "key_sizes",
        "log_append_time_ms",
        "partition",
        "timestamps_ms",
        "topic",
        "value_sizes",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic: Final = topic
        self.partition: Final = partition
        # Of each record, by index.
        self.timestamps_ms: Final = array("q")
        self.key_sizes: Final = array("i")
        self.value_sizes: Final = array("i")
        self.base_offset = NO_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP
        self.error: Exception | None = None
        self.is_done = False
        """Whether the result is final here; after a split, the successors have it instead."""
        self.is_delivered = False
        """Whether the callbacks of the records have run as well."""
        self._record_errors: Mapping[int, Exception] | None = None
        self._splits: tuple[Sequence[int], Sequence[BatchResult]] | None = None
        # Guards `_gate` and `_callbacks`. Reentrant: a signal handler may look at the future that its thread
        # is about to wait for.
        self._lock: Final = threading.RLock()
        # Locked until the result is there; None while nobody waits. A `threading.Event` can stay locked when
        # an exception of a signal handler ends a wait; the thread of the loop would wait for it for ever.
        self._gate: threading.Lock | None = None
        self._callbacks: list[tuple[int, Callable[[], None]]] = []

    def add_record(self, timestamp_ms: int, key_size: int, value_size: int) -> None:
        """Append a record's sizes and timestamp; a size of -1 is null."""
        self.timestamps_ms.append(timestamp_ms)
        self.key_sizes.append(key_size)
        self.value_sizes.append(value_size)

    def complete_record(self, index: int, timestamp_ms: int, key_size: int, value_size: int) -> None:
        """Complete an `add_record` that was interrupted."""
        for values, value in (
            (self.timestamps_ms, timestamp_ms),
            (self.key_sizes, key_size),
            (self.value_sizes, value_size),
        ):
            if len(values) == index:
                values.append(value)

    def metadata_of(self, index: int) -> RecordMetadata:
        """Return a record's metadata as known now; the offset is -1 until it was written."""
        result, at = self.of_record(index)
        offset = result.base_offset
        return RecordMetadata(
            result.topic,
            result.partition,
            offset if offset < 0 else offset + at,
            self.timestamps_ms[index] if result.log_append_time_ms < 0 else result.log_append_time_ms,
            self.key_sizes[index],
            self.value_sizes[index],
        )

    def complete(
        self,
        base_offset: int,
        log_append_time_ms: int = NO_TIMESTAMP,
        deliver: Callable[[], None] | None = None,
    ) -> None:
        """Set the offset of the first record; -1 where the broker did not send one.

        `deliver` runs the callbacks of the records; waiting threads wake after it, as with Java's client.
        """
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._finish(deliver)

    def fail(
        self,
        error: Exception,
        record_errors: Mapping[int, Exception] | None = None,
        deliver: Callable[[], None] | None = None,
    ) -> None:
        """Set the error of all records; `record_errors` holds those of single records by index (KIP-467).

        `deliver` is that of `complete`.
        """
        self.error = error
        self._record_errors = record_errors
        self._finish(deliver)

    def split(self, first_indexes: Sequence[int], successors: "Sequence[BatchResult]") -> None:
        """Replace this result with `successors`; each begins with the record at its first index."""
        assert not self.is_done, f"the batch of {self.topic}-{self.partition} is complete already"
        # Before the lock: its holder may be interrupted by a handler that waits for this.
        self._splits = (first_indexes, successors)
        with self._lock:
            gate, callbacks = self._gate, self._callbacks
            self._callbacks = []
        for index, callback in callbacks:
            result, at = self.of_record(index)
            result.add_callback(at, callback)
        _open(gate)

    def of_record(self, index: int) -> "tuple[BatchResult, int]":
        """Return the result that a record's outcome is in, and the record's index there."""
        if self._splits is None:
            return self, index
        first_indexes, successors = self._splits
        at = bisect_right(first_indexes, index) - 1
        return successors[at].of_record(index - first_indexes[at])

    @property
    def successors(self) -> "Sequence[BatchResult]":
        """The results that have taken the place of this one; empty without a split."""
        return () if self._splits is None else self._splits[1]

    def successor_ranges(self, count: int) -> "list[tuple[BatchResult, int, int]]":
        """Return each successor with its first index and the one after its last, of `count` records."""
        if self._splits is None:
            return []
        first_indexes, successors = self._splits
        return list(zip(successors, first_indexes, [*first_indexes[1:], count], strict=True))

    def error_of(self, index: int) -> Exception | None:
        """Return the error of the record at `index`, None where it was written."""
        if self._record_errors is None:
            return self.error
        return self._record_errors.get(index, self.error)

    def add_callback(self, index: int, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the result of the record at `index` is final; now if it already is."""
        with self._lock:
            if not self.is_done and self._splits is None:
                self._callbacks.append((index, callback))
                return
        if self._splits is not None:
            result, at = self.of_record(index)
            result.add_callback(at, callback)
        else:
            _run(callback)

    def wait(self, timeout_s: float | None, *, is_delivered: bool = False) -> bool:
        """Block until the result is final or replaced by a split; return False after the time-out.

        With `is_delivered`, block until the callbacks of the records have run, too.
        """
        with self._lock:
            if self._is_settled(is_delivered):
                return True
            gate = self._gate
            if gate is None:
                gate = threading.Lock()
                gate.acquire()
                self._gate = gate
        deadline = None if timeout_s is None else monotonic() + timeout_s
        while not self._is_settled(is_delivered):
            left = _LOOK_SECONDS if deadline is None else deadline - monotonic()
            if left <= 0:
                return False
            if gate.acquire(timeout=min(left, _LOOK_SECONDS)):
                # For the next who waits. One who was interrupted here keeps others waiting until they look.
                _open(gate)
        return True

    def _is_settled(self, is_delivered: bool) -> bool:
        return (self.is_delivered if is_delivered else self.is_done) or self._splits is not None

    def _finish(self, deliver: Callable[[], None] | None) -> None:
        assert not self.is_done, f"the batch of {self.topic}-{self.partition} completes a second time"
        assert self._splits is None, f"the batch of {self.topic}-{self.partition} was split"
        # Before the lock: its holder may be interrupted by a handler that waits for this.
        self.is_done = True
        try:
            if deliver is not None:
                deliver()
        finally:
            self.is_delivered = True
            with self._lock:
                gate, callbacks = self._gate, self._callbacks
                self._callbacks = []
            _open(gate)
            for _, callback in callbacks:
                _run(callback)


@public
@names_counterparts(FUTURE)
class RecordFuture:
    """The future of one record: ``future.result(10)`` in a thread, ``await future`` on an event loop.

    It cannot be cancelled: a record that is on its way to the broker cannot be taken back.
    """

    __slots__ = ("_index", "_result")

    def __init__(self, result: BatchResult, index: int) -> None:
        self._result = result
        self._index = index

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the record goes to."""
        return TopicPartition(self._result.topic, self._result.partition)

    def done(self) -> bool:
        """Return whether the record was written or failed."""
        return self._result.of_record(self._index)[0].is_done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return the record's metadata; wait up to `timeout` seconds for it, without end by default.

        Raises:
            TimeoutError: the time is over; the record may still be written.
            ClientError: the record was not written, or the producer cannot know; the type says why.
        """
        error = self.exception(timeout)
        if error is not None:
            # The records of a batch share the error; its traceback would grow with each of them.
            raise error.with_traceback(None)
        return self.metadata()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Return the record's error, None if it was written; wait as `result` does.

        Raises:
            TimeoutError: the time is over.
        """
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            result, index = self._result.of_record(self._index)
            if result.is_done:
                return result.error_of(index)
            left = None if deadline is None else deadline - monotonic()
            if not result.wait(None if left is None else max(0.0, left)):
                raise TimeoutError(
                    f"no result for the record of {result.topic}-{result.partition} within {timeout} "
                    "seconds; it may still be written until `delivery.timeout.ms` is over"
                )

    def add_done_callback(self, callback: "Callable[[RecordFuture], None]") -> None:
        """Call ``callback(future)`` once the future is done, on the loop's thread; now if it is done.

        An exception of the callback is logged.
        """
        self._result.add_callback(self._index, lambda: callback(self))

    def metadata(self) -> RecordMetadata:
        """Return the record's metadata as known now; the offset is -1 until it was written."""
        return self._result.metadata_of(self._index)

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        result, _ = self._result.of_record(self._index)
        if not result.is_done:
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._result.add_callback(self._index, lambda: set_from_any_thread(loop, waiter))
            yield from waiter
        return self.result(0)

    def __repr__(self) -> str:
        state = "done" if self.done() else "pending"
        return f"<RecordFuture {state} {self._result.topic}-{self._result.partition}>"


def set_from_any_thread(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
    """Complete a future of `loop`; without effect once it is done or its loop closed."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is loop:
        _set(waiter)
    elif not loop.is_closed():
        loop.call_soon_threadsafe(_set, waiter)


def _set(waiter: asyncio.Future[None]) -> None:
    # The program may have cancelled the task that awaited the record.
    if not waiter.done():
        waiter.set_result(None)


def _open(gate: "threading.Lock | None") -> None:
    if gate is not None:
        # Another thread may have been first.
        with contextlib.suppress(RuntimeError):
            gate.release()


def _run(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        logger.exception("A callback of a record's future raised an exception; it is ignored")
