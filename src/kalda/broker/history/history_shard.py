"""Keeps the state of ``__cluster_history`` on its leader, for the coordinator runtime."""

from collections.abc import Callable, Iterable
from typing import Final

from kalda.cluster.history.record_core import RecordCore
from kalda.common.overriding import override
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.runtime.coordinator_shard import CoordinatorShard, ShardContext


class HistoryShard(CoordinatorShard):
    """The last record of each znode. It calls back when this broker begins and ceases to record."""

    def __init__(
        self,
        core: RecordCore,
        on_loaded: "Callable[[HistoryShard, ShardContext], None]",
        on_unloaded: "Callable[[HistoryShard], None]",
    ) -> None:
        self.core: Final = core
        self._on_loaded: Final = on_loaded
        self._on_unloaded: Final = on_unloaded

    @override
    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        if record.value is not None:
            self.core.replay(record.key, record.value)

    @override
    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Nothing in the topic belongs to a transaction."""

    @override
    def check_invariants(self, records: Iterable[CoordinatorRecord] | None = None) -> None:
        """A state is any set of records."""

    @override
    def on_loaded(self, context: ShardContext) -> None:
        self._on_loaded(self, context)

    @override
    def on_unloaded(self) -> None:
        self._on_unloaded(self)
