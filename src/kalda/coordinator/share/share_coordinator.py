"""The share coordinator of one broker: stores the state of share partitions, of whatever leader.

The hash of group, topic id and partition maps a share partition to a partition of ``__share_group_state``.
Kafka's counterpart is ``ShareCoordinatorService``.
"""

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from kalda.coordinator.runtime.coordinator_runtime import PartitionState as LoadState
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.coordinator.share.delivery_state import PartitionState
from kalda.coordinator.share.share_config import ShareCoordinatorConfig
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.coordinator.share.share_shard import ShareShard, StateChange

T = TypeVar("T")

ShareRuntime: TypeAlias = CoordinatorRuntime[ShareShard]


class ShareCoordinator:
    """The share partitions whose state this broker keeps.

    Every operation fails with `ApiError`: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, what the shard
    raises, or COORDINATOR_NOT_AVAILABLE if too few replicas are in sync or the write is not replicated in
    time.
    """

    def __init__(
        self, runtime: ShareRuntime, config: ShareCoordinatorConfig, partition_for: Callable[[str], int]
    ) -> None:
        """`partition_for` returns the partition of the topic for a share partition's coordinator key."""
        self.runtime: Final = runtime
        self._config: Final = config
        self.partition_for: Final = partition_for

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Pending[None]:
        """Store a share partition that begins at an offset; -1 leaves the choice to its leader."""
        return self._write(key, lambda shard: shard.initialize(key, state_epoch, start_offset))

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Pending[PartitionState]:
        """Return the stored state to the leader of a share partition, and fence earlier leaders."""
        return self._write(key, lambda shard: shard.read(key, leader_epoch))

    def summary(self, key: SharePartitionKey) -> Pending[PartitionState | None]:
        """Return the stored state, None if there is none."""
        return self._write(key, lambda shard: Result((), shard.state(key)))

    def write(self, key: SharePartitionKey, change: StateChange) -> Pending[None]:
        """Store a change."""
        return self._write(key, lambda shard: shard.write(key, change))

    def delete(self, key: SharePartitionKey) -> Pending[None]:
        """Delete what is stored."""
        return self._write(key, lambda shard: shard.delete(key))

    def redundant_offsets(self) -> dict[int, int]:
        """Return, by partition that this broker coordinates, the offset below which no record is needed."""
        return {
            number: self.runtime.shard(number).redundant_offset
            for number, state in self.runtime.states().items()
            if state is LoadState.ACTIVE
        }

    def _write(self, key: SharePartitionKey, operation: Callable[[ShareShard], Result[T]]) -> Pending[T]:
        if not key.group_id or key.partition < 0:
            failed: Pending[T] = Pending()
            failed.fail(ApiError(ErrorCode.INVALID_REQUEST, f"{key} is not a share partition."))
            return failed
        written = self.runtime.write(
            self.partition_for(key.coordinator_key),
            operation,
            timeout_ms=self._config.share_coordinator_write_timeout_ms,
        )
        return written.then(_translated)


def _translated(done: Pending[T]) -> T:
    error = done.error
    if isinstance(error, ApiError) and error.code is ErrorCode.REQUEST_TIMED_OUT:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    return done.value
