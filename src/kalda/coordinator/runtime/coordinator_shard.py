"""The ports of the coordinator runtime: the state it keeps, the log it writes to, the loop it runs on.

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
    """One internal topic as it lies on this broker; partitions are those that the broker hosts.

    Every method raises `ApiError` NOT_LEADER_OR_FOLLOWER for a partition that is not led here, and
    KAFKA_STORAGE_ERROR for one whose disk fails.
    """

    def append(self, partition: int, batch: bytearray) -> int:
        """Append one batch as the leader, which patches its offsets; return the new end offset.

        Raises:
            ApiError: NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE and others: nothing was appended.
        """
        ...

    def start_offset(self, partition: int) -> int:
        """The first offset of the log."""
        ...

    def end_offset(self, partition: int) -> int:
        """The offset that the next record gets."""
        ...

    def high_watermark(self, partition: int) -> int:
        """The offset below which records are replicated."""
        ...

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Batches from the one that holds `offset` or the next one on, up to the log's end.

        The first is whole, however large; the last may be cut off. Empty at the end.
        """
        ...


class Loop(Caller, Protocol):
    """What makes calls soon and later; an asyncio event loop is one."""

    def call_soon(self, callback: Callable[[], object], /) -> Cancellable:
        """Call in the next turn, after whatever else has become ready."""
        ...


OnWritten: TypeAlias = Callable[[ErrorCode], None]
"""Called with NONE when the records of an operation are committed, otherwise with the error of the write."""


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """What an operation decided: the records to write, and the response.

    Operations change nothing themselves: `CoordinatorShard.replay` does when the records are in the log. The
    runtime gives a plain response when the records, and everything that the operation could have seen, are
    committed; if the write fails, it gives the error. A pending response is given when the shard completes
    it, whatever becomes of the records: JoinGroup waits for other members, not for the log. The runtime then
    reports the outcome of the write to `on_written`.
    """

    records: Sequence[CoordinatorRecord]
    response: T | Pending[T]
    on_written: OnWritten | None = None
    """Only beside a pending response."""


class ShardContext(Protocol):
    """What a loaded shard may do by itself."""

    def time_ms(self) -> int:
        """The wall clock, in milliseconds since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """A clock that never goes back."""
        ...

    def schedule(self, key: str, delay_ms: int, operation: Callable[[], Result[Any]]) -> None:
        """Run `operation` after `delay_ms` and write what it decides; an earlier timer of that key is gone.

        If the append fails, the timer runs again a little later. Timers end with the leadership.
        """
        ...

    def cancel(self, key: str) -> None:
        """Forget the timer of that key; nothing happens if there is none."""
        ...

    def is_scheduled(self, key: str) -> bool:
        """Return whether a timer of that key is set."""
        ...

    def write(self, operation: Callable[[], Result[T]]) -> Pending[T]:
        """Write for the shard's own sake, as `CoordinatorRuntime.write` does for requests.

        It runs behind the operation under way if there is one.
        """
        ...


class CoordinatorShard(Protocol):
    """The state of one partition of an internal topic: a function of the records that were replayed."""

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Take one record in: the only way in which the state changes.

        `producer_id` is -1 for records outside transactions. The others count once the transaction ends.
        """
        ...

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Take in that a producer's transaction ended in this partition."""
        ...

    def check_invariants(self, records: Iterable[CoordinatorRecord] | None = None) -> None:
        """Assert that the state is consistent where records or a marker have changed it; None: everywhere.

        The runtime calls it, behind `invariants.enabled`, after loading and after each replayed batch.
        """
        ...

    def on_loaded(self, context: ShardContext) -> None:
        """Everything in the log was replayed and this broker leads: timers may be set."""
        ...

    def on_unloaded(self) -> None:
        """The leadership is gone: fail whatever waits with NOT_COORDINATOR. Once, loaded or not."""
        ...
