"""A DeleteRecords that has raised the starts of logs here, and waits until every live replica has too.

A replica that became leader before it had would show the records again. When time is over, the partitions
that are not done are answered with REQUEST_TIMED_OUT: their starts are raised here, the others follow.
"""

from typing import Final

from kalda.broker.delayed.partition_waits import DelayedByPartitions
from kalda.broker.partition import Partition
from kalda.common.errors import ErrorCode


class DeleteWait:
    """One partition of a waiting request."""

    __slots__ = ("code", "leading_since", "low_watermark", "offset", "partition")

    def __init__(self, partition: Partition, offset: int) -> None:
        self.partition: Final = partition
        self.offset: Final = offset
        """The start that all live replicas must have reached."""
        self.leading_since: Final = partition.leading_since
        self.code = ErrorCode.REQUEST_TIMED_OUT
        """The answer: what it stays unless the partition gets done in time."""
        self.low_watermark = -1

    def check(self) -> bool:
        """Settle the partition if it can be; return whether it is settled."""
        partition = self.partition
        if partition.is_offline:
            self.code = ErrorCode.KAFKA_STORAGE_ERROR
        elif not partition.is_leader or partition.leading_since != self.leading_since:
            self.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            low_watermark = partition.low_watermark
            if low_watermark < self.offset:
                return False
            self.code, self.low_watermark = ErrorCode.NONE, low_watermark
        return True


class DelayedDeleteRecords(DelayedByPartitions):
    """One waiting request; `respond` is called once, after every wait has its code."""

    __slots__ = ()
