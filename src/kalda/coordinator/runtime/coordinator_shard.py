"""Defines the ports of the coordinator runtime: the shard's state, its log, and the event loop.

A coordinator implements `CoordinatorShard`: the state of one partition of an internal topic. The broker
implements `InternalLog`, one per internal topic. This module has protocols and values only.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from kalda.common.errors import ErrorCode
from kalda.common.loop_timer import Caller, Cancellable
from kalda.common.pending import Pending
from kalda.coordinator.coordinator_record import CoordinatorRecord

T = TypeVar("T")


class InternalLog(Protocol):
    """The replicas of one internal topic on this broker.

    Every method raises `ApiError` NOT_LEADER_OR_FOLLOWER for a partition that this broker does not lead, and
    KAFKA_STORAGE_ERROR for a partition whose disk fails.
    """

    def append(self, partition: int, batch: bytearray) -> int:
        """Append one batch as the leader, which patches its offsets; return the new end offset.

        Raises:
            ApiError: NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE and others: nothing was appended.
        """
        ...

    def start_offset(self, partition: int) -> int:
        """Return the first offset of the log."""
        ...

    def end_offset(self, partition: int) -> int:
        """Return the offset that the next record gets."""
        ...

    def high_watermark(self, partition: int) -> int:
        """Return the offset below which all records are committed."""
        ...

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Return batches from the one that holds `offset`, or the next one, up to the log's end.

        The first batch is complete, however large; the last may be cut off. At the end the result is empty.
        """
        ...


class Loop(Caller, Protocol):
    """Calls callbacks in the next turn or at a time, as an asyncio event loop does."""

    def call_soon(self, callback: Callable[[], object], /) -> Cancellable:
        """Call in the next turn, after all callbacks that are ready already."""
        ...


OnWritten: TypeAlias = Callable[[ErrorCode], None]
"""Called with NONE when the records of an operation are committed, otherwise with the error of the write."""


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """The result of an operation: the records to write, and the response.

    Operations change nothing themselves: `CoordinatorShard.replay` does when the records are in the log. The
    runtime gives a plain response when the records, and everything that the operation could have seen, are
    committed; if the write fails, it gives the error. A pending response is given when the shard completes
    it, whatever becomes of the records: JoinGroup waits for other members, not for the log. Either way the
    runtime reports the outcome of the write to `on_written`.
    """

    records: Sequence[CoordinatorRecord]
    response: T | Pending[T]
    on_written: OnWritten | None = None


class ShardContext(Protocol):
    """The clock, timers and writes of a loaded shard."""

    def time_ms(self) -> int:
        """Return the wall clock, in milliseconds since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Return a clock that never goes back, in milliseconds."""
        ...

    def schedule(self, key: str, delay_ms: int, operation: Callable[[], Result[Any]]) -> None:
        """Run `operation` after `delay_ms` and write its records; this replaces an earlier timer of that key.

        If the append fails, the timer runs again a little later. Timers end with the leadership.
        """
        ...

    def cancel(self, key: str) -> None:
        """Cancel the timer of that key, if one is set."""
        ...

    def is_scheduled(self, key: str) -> bool:
        """Return whether a timer of that key is set."""
        ...

    def write(self, operation: Callable[[], Result[T]]) -> Pending[T]:
        """Run a write that the shard starts itself, as `CoordinatorRuntime.write` does for requests.

        If an operation is running, the write runs after it.
        """
        ...


class CoordinatorShard(Protocol):
    """The state of one partition of an internal topic: a function of the replayed records."""

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Apply one record, which is the only way in which the state changes.

        `producer_id` is -1 for a record outside transactions. A record of a transaction takes effect when the
        transaction is committed.
        """
        ...

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Apply the marker that ends a producer's transaction in this partition."""
        ...

    def check_invariants(self, records: Iterable[CoordinatorRecord] | None = None) -> None:
        """Assert that the state is consistent where records or a marker have changed it; None: everywhere.

        The runtime calls it, behind `invariants.enabled`, after loading and after each replayed batch.
        """
        ...

    def on_loaded(self, context: ShardContext) -> None:
        """Start to act: the whole log was replayed and this broker leads, so timers may be set."""
        ...

    def on_unloaded(self) -> None:
        """Fail all waiting requests with NOT_COORDINATOR; called once, whether or not it was loaded."""
        ...
