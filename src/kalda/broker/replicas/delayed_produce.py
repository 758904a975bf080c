"""A produce with acks=all that has been written here and waits until every in-sync replica has it.

A partition is done when its high watermark has passed the last record, when the in-sync replicas became too
few, or when it is no longer led here. A new epoch of the same leader ends nothing, as in Kafka: a broker that
dies gives one to every partition it was in sync with, and the records are where they were. When time is over
the partitions that are not done are answered with REQUEST_TIMED_OUT: the records are in the log and may still
become visible.
"""

from typing import Final

from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.partition_waits import DelayedByPartitions, LedPartitionWait
from kalda.common.errors import ErrorCode


class ProduceWait(LedPartitionWait):
    """One partition of a waiting produce."""

    __slots__ = ("required_offset",)

    def __init__(self, partition: Partition, required_offset: int) -> None:
        super().__init__(partition)
        self.required_offset: Final = required_offset
        """The high watermark at which every in-sync replica has the records: their last offset plus 1."""

    def outcome(self) -> ErrorCode | None:
        """It is done when every in-sync replica has the records, well or with too few of them."""
        partition = self.partition
        if partition.log.high_watermark < self.required_offset:
            return None
        if len(partition.maximal_isr) < partition.min_in_sync_replicas:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE


class DelayedProduce(DelayedByPartitions):
    """One waiting produce request; `respond` is called once, after every wait has its code."""

    __slots__ = ()
