"""Delays a produce response with acks=all until every in-sync replica has the records.

A partition is done when its high watermark has passed the last record, when the ISR has become too small, or
when this broker no longer leads it. A new epoch of the same leader ends nothing, as in Kafka: a broker that
fails gives a new epoch to every partition whose ISR it leaves, and the records stay where they are. At expiry
the partitions that are not done get REQUEST_TIMED_OUT: their records are in the log and may still be
committed.
"""

from typing import Final

from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.partition_waits import DelayedByPartitions, LedPartitionWait
from kalda.common.errors import ErrorCode


class ProduceWait(LedPartitionWait):
    """One partition of a waiting produce request."""

    __slots__ = ("required_offset",)

    def __init__(self, partition: Partition, required_offset: int) -> None:
        super().__init__(partition)
        self.required_offset: Final = required_offset
        """The high watermark at which every in-sync replica has the records: their last offset plus 1."""

    def outcome(self) -> ErrorCode | None:
        """Return a code once every in-sync replica has the records; an error if the ISR is too small."""
        partition = self.partition
        if partition.log.high_watermark < self.required_offset:
            return None
        if len(partition.maximal_isr) < partition.min_in_sync_replicas:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE


class DelayedProduce(DelayedByPartitions):
    """One waiting produce request; it calls `respond` once, after every wait has its code."""

    __slots__ = ()
