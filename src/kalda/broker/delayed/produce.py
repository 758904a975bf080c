"""A produce with acks=all that has been written here and waits until every in-sync replica has it.

A partition is done when its high watermark has passed the last record, when the in-sync replicas became too
few, or when it is no longer led here. When time is over the partitions that are not done are answered with
REQUEST_TIMED_OUT: the records are in the log and may still become visible.
"""

from collections.abc import Callable, Hashable
from typing import Final

from kalda.broker.partition import Partition
from kalda.broker.purgatory import DelayedOperation
from kalda.common.errors import ErrorCode


class ProduceWait:
    """One partition of a waiting produce."""

    __slots__ = ("code", "is_done", "leader_epoch", "partition", "required_offset")

    def __init__(self, partition: Partition, required_offset: int) -> None:
        self.partition: Final = partition
        self.required_offset: Final = required_offset
        """The high watermark at which every in-sync replica has the records: their last offset plus 1."""
        self.leader_epoch: Final = partition.leader_epoch
        self.is_done = False
        self.code = ErrorCode.REQUEST_TIMED_OUT
        """The answer: what it stays unless the partition gets done in time."""

    def check(self) -> bool:
        """Settle the partition if it can be; return whether it is settled."""
        if self.is_done:
            return True
        partition = self.partition
        if partition.is_offline:
            self.code = ErrorCode.KAFKA_STORAGE_ERROR
        elif not partition.is_leader or partition.leader_epoch != self.leader_epoch:
            self.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif partition.log.high_watermark >= self.required_offset:
            if len(partition.maximal_isr) >= partition.min_in_sync_replicas:
                self.code = ErrorCode.NONE
            else:
                self.code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        else:
            return False
        self.is_done = True
        return True


class DelayedProduce(DelayedOperation):
    """One waiting produce request; `respond` is called once, after every wait has its code."""

    __slots__ = ("_respond", "_unsettled")

    def __init__(self, timeout_ms: int, waits: list[ProduceWait], respond: Callable[[], None]) -> None:
        super().__init__(timeout_ms)
        self._respond: Final = respond
        # A request may name a partition twice.
        self._unsettled: Final[dict[Hashable, list[ProduceWait]]] = {}
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
        waits = self._unsettled.get(partition)
        if waits is None:
            return
        # Each is checked, whatever the others say: its code is the answer.
        settled = [wait.check() for wait in waits]
        if all(settled):
            del self._unsettled[partition]

    def on_complete(self) -> None:
        """Answer."""
        self._respond()

    def on_expiration(self) -> None:
        """Time is over; the codes say which partitions were not done."""
