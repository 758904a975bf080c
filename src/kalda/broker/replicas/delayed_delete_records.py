"""A DeleteRecords that has raised the starts of logs here, and waits until every live replica has too.

A replica that became leader before it had would show the records again. When time is over, the partitions
that are not done are answered with REQUEST_TIMED_OUT: their starts are raised here, the others follow.
"""

from typing import Final

from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.partition_waits import DelayedByPartitions, LedPartitionWait
from kalda.common.errors import ErrorCode


class DeleteWait(LedPartitionWait):
    """One partition of a waiting request."""

    __slots__ = ("low_watermark", "offset")

    def __init__(self, partition: Partition, offset: int) -> None:
        super().__init__(partition)
        self.offset: Final = offset
        """The start that all live replicas must have reached."""
        self.low_watermark = -1

    def outcome(self) -> ErrorCode | None:
        """It is done when every live replica has raised its start."""
        low_watermark = self.partition.low_watermark
        if low_watermark < self.offset:
            return None
        self.low_watermark = low_watermark
        return ErrorCode.NONE


class DelayedDeleteRecords(DelayedByPartitions):
    """One waiting request; `respond` is called once, after every wait has its code."""

    __slots__ = ()
