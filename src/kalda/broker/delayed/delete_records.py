"""A DeleteRecords that has raised the starts of logs here, and waits until every live replica has too.

A replica that became leader before it had would show the records again. When time is over, the partitions
that are not done are answered with REQUEST_TIMED_OUT: their starts are raised here, the others follow.
"""

from collections.abc import Callable, Hashable
from typing import Final

from kalda.broker.partition import Partition
from kalda.broker.purgatory import DelayedOperation
from kalda.common.errors import ErrorCode


class DeleteWait:
    """One partition of a waiting request."""

    __slots__ = ("code", "leader_epoch", "low_watermark", "offset", "partition")

    def __init__(self, partition: Partition, offset: int) -> None:
        self.partition: Final = partition
        self.offset: Final = offset
        """The start that all live replicas must have reached."""
        self.leader_epoch: Final = partition.leader_epoch
        self.code = ErrorCode.REQUEST_TIMED_OUT
        """The answer: what it stays unless the partition gets done in time."""
        self.low_watermark = -1

    def check(self) -> bool:
        """Settle the partition if it can be; return whether it is settled."""
        partition = self.partition
        if partition.is_offline:
            self.code = ErrorCode.KAFKA_STORAGE_ERROR
        elif not partition.is_leader or partition.leader_epoch != self.leader_epoch:
            self.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            low_watermark = partition.low_watermark
            if low_watermark < self.offset:
                return False
            self.code, self.low_watermark = ErrorCode.NONE, low_watermark
        return True


class DelayedDeleteRecords(DelayedOperation):
    """One waiting request; `respond` is called once, after every wait has its code."""

    __slots__ = ("_respond", "_unsettled")

    def __init__(self, timeout_ms: int, waits: list[DeleteWait], respond: Callable[[], None]) -> None:
        super().__init__(timeout_ms)
        self._respond: Final = respond
        self._unsettled: Final[dict[Hashable, list[DeleteWait]]] = {}
        for wait in waits:
            self._unsettled.setdefault(wait.partition, []).append(wait)

    @property
    def partitions(self) -> list[Hashable]:
        """What it waits for: the keys under which the purgatory watches it."""
        return list(self._unsettled)

    def try_complete(self) -> bool:
        """Complete if every partition is settled; return whether this call did."""
        for partition in tuple(self._unsettled):
            self._check(partition)
        return not self._unsettled and self.force_complete()

    def try_complete_for(self, key: Hashable) -> bool:
        """Complete if this was the last partition that was not settled."""
        self._check(key)
        return not self._unsettled and self.force_complete()

    def _check(self, partition: Hashable) -> None:
        settled = [wait.check() for wait in self._unsettled.get(partition, ())]
        if settled and all(settled):
            del self._unsettled[partition]

    def on_complete(self) -> None:
        """Answer."""
        self._respond()

    def on_expiration(self) -> None:
        """Time is over; the codes say which partitions were not done."""
