"""Delays a DeleteRecords response until every live replica has raised its log start offset.

This leader has raised its own. A replica that became leader before it raises its own would show the deleted
records again. At expiry the partitions that are not done get REQUEST_TIMED_OUT: the start is raised here, and
the followers still raise theirs later.
"""

from typing import Final

from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.partition_waits import DelayedByPartitions, LedPartitionWait
from kalda.common.errors import ErrorCode


class DeleteWait(LedPartitionWait):
    """One partition of a waiting DeleteRecords request."""

    __slots__ = ("low_watermark", "offset")

    def __init__(self, partition: Partition, offset: int) -> None:
        super().__init__(partition)
        self.offset: Final = offset
        """The log start offset that every live replica must have reached."""
        self.low_watermark = -1

    def outcome(self) -> ErrorCode | None:
        """Return NONE once every live replica has raised its log start offset."""
        low_watermark = self.partition.low_watermark
        if low_watermark < self.offset:
            return None
        self.low_watermark = low_watermark
        return ErrorCode.NONE


class DelayedDeleteRecords(DelayedByPartitions):
    """One waiting request; it calls `respond` once, after every wait has its code."""

    __slots__ = ()
