"""One partition of ``__consumer_offsets`` with all that acts on it: the protocols and the housekeeping."""

from collections.abc import Callable
from typing import Final

from kalda.coordinator.group.classic.protocol import ClassicProtocol
from kalda.coordinator.group.config import GroupConfig
from kalda.coordinator.group.consumer.protocol import ConsumerProtocol
from kalda.coordinator.group.offset_operations import TOMBSTONES_MAX, cleanup
from kalda.coordinator.group.shard import GroupShard
from kalda.coordinator.group.statistics import GroupStatistics
from kalda.coordinator.runtime.ports import Result, ShardContext

__all__ = ["GroupPartition"]

_CLEANUP_TIMER: Final = "cleanup"
_NEXT_CLEANUP_MS: Final = 100
"""How soon a cleanup goes on that found more than one batch of tombstones may hold."""


class GroupPartition(GroupShard):
    """The state of a partition and the parts that change it."""

    def __init__(
        self,
        partition: int,
        config: GroupConfig,
        statistics: GroupStatistics,
        new_id: Callable[[], str],
    ) -> None:
        super().__init__(partition, config)
        self.statistics: Final = statistics
        self.consumer: ConsumerProtocol | None = None
        """The consumer protocol (KIP-848), where the broker has it."""
        self.classic: Final = ClassicProtocol(
            self, new_id=new_id, completed_rebalance=statistics.completed_rebalance
        )
        self.parts.extend((self.classic, _Housekeeping(self)))


class _Housekeeping:
    """Looks for expired offsets and unused groups every `offsets.retention.check.interval.ms`."""

    def __init__(self, shard: GroupPartition) -> None:
        self._shard: Final = shard

    def on_loaded(self, context: ShardContext) -> None:
        """Look for the first time after one interval: members need time to come back after a failover."""
        context.schedule(
            _CLEANUP_TIMER, self._shard.config.offsets_retention_check_interval_ms, self._clean_up
        )

    def on_unloaded(self) -> None:
        """Nothing waits here."""

    def _clean_up(self) -> Result[None]:
        shard = self._shard
        records, expired = cleanup(shard)
        shard.statistics.offset_expirations += expired
        is_more = len(records) >= TOMBSTONES_MAX
        interval_ms = shard.config.offsets_retention_check_interval_ms
        delay_ms = min(_NEXT_CLEANUP_MS, interval_ms) if is_more else interval_ms
        shard.context.schedule(_CLEANUP_TIMER, delay_ms, self._clean_up)
        return Result(records, None)
