"""A produce with acks=all that has been written here and waits until every in-sync replica has it.

A partition is done when its high watermark has passed the last record, when the in-sync replicas became too
few, or when it is no longer led here. A new epoch of the same leader ends nothing, as in Kafka: a broker that
dies gives one to every partition it was in sync with, and the records are where they were. When time is over
the partitions that are not done are answered with REQUEST_TIMED_OUT: the records are in the log and may still
become visible.
"""

from typing import Final

from kalda.broker.delayed.partition_waits import DelayedByPartitions
from kalda.broker.partition import Partition
from kalda.common.errors import ErrorCode


class ProduceWait:
    """One partition of a waiting produce."""

    __slots__ = ("code", "leading_since", "partition", "required_offset")

    def __init__(self, partition: Partition, required_offset: int) -> None:
        self.partition: Final = partition
        self.required_offset: Final = required_offset
        """The high watermark at which every in-sync replica has the records: their last offset plus 1."""
        self.leading_since: Final = partition.leading_since
        self.code = ErrorCode.REQUEST_TIMED_OUT
        """The answer: what it stays unless the partition gets done in time."""

    def check(self) -> bool:
        """Settle the partition if it can be; return whether it is settled."""
        partition = self.partition
        if partition.is_offline:
            self.code = ErrorCode.KAFKA_STORAGE_ERROR
        elif not partition.is_leader or partition.leading_since != self.leading_since:
            self.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif partition.log.high_watermark >= self.required_offset:
            if len(partition.maximal_isr) >= partition.min_in_sync_replicas:
                self.code = ErrorCode.NONE
            else:
                self.code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        else:
            return False
        return True


class DelayedProduce(DelayedByPartitions):
    """One waiting produce request; `respond` is called once, after every wait has its code."""

    __slots__ = ()
