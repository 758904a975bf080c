"""Limits what one micro-batch holds: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger`, `maxBytesPerTrigger`.

No I/O. The first two compute the same limits as Spark's own connector, so that a query which moves to this
source keeps its batch sizes.
"""

from collections.abc import Mapping

from kalda.common.types import TopicPartition
from kalda.spark.source.offsets import PartitionOffsets


def limit_offsets(
    offsets_max: int, start: PartitionOffsets, available: PartitionOffsets
) -> dict[TopicPartition, int]:
    """Return the ends of a batch of about `offsets_max` offsets, shared out in proportion to each backlog.

    A share below one is rounded up, so that a partition with a small backlog does not wait for ever beside
    a large one; other shares are rounded down. Partitions without a known start, or with an end before it,
    keep their available end: planning reports those.

    Example: a limit of 100 takes 90 and 10 from backlogs of 900 and 100, 99 and 1 from 10,000 and 1.
    """
    backlogs = {
        each: end - start[each] for each, end in available.items() if each in start and end > start[each]
    }
    total = sum(backlogs.values())
    ends = dict(available)
    for each, backlog in backlogs.items():
        # Integer arithmetic: offsets near 2**63 do not survive a float.
        share = max(offsets_max * backlog // total, 1)
        ends[each] = min(available[each], start[each] + share)
    return ends


def limit_bytes(
    bytes_max: int,
    start: PartitionOffsets,
    available: PartitionOffsets,
    bytes_per_offset: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Return the ends of a batch of about `bytes_max` bytes: the same part of each partition's backlog.

    A part below one offset is rounded up. Partitions without a known start or size keep their available end.

    Example: a limit of 1 MB takes 2,500 and 500 from backlogs of 10,000 records of 100 B and 2,000 of 1.5 KB.
    """
    backlogs = {
        each: end - start[each]
        for each, end in available.items()
        if each in start and end > start[each] and bytes_per_offset.get(each, 0) > 0
    }
    total = sum(backlog * bytes_per_offset[each] for each, backlog in backlogs.items())
    ends = dict(available)
    if total <= bytes_max:
        return ends
    # Per mille of a million, as integers: offsets near 2**63 do not survive a float.
    part = int(bytes_max / total * 1_000_000_000)
    for each, backlog in backlogs.items():
        ends[each] = start[each] + max(backlog * part // 1_000_000_000, 1)
    return ends


class BatchDelay:
    """Leaves out triggers until there is enough to read, or until enough time has passed.

    As in Spark's own connector, the first trigger after a start of the query is never left out, whatever
    state it resumes from, and the time counts from the latest trigger that was not.
    """

    def __init__(self, offsets_min: int, delay_ms_max: int) -> None:
        self._offsets_min = offsets_min
        self._delay_ms_max = delay_ms_max
        self._last_batch_ms: float | None = None

    def leaves_out(self, start: PartitionOffsets, available: PartitionOffsets, now_ms: float) -> bool:
        """Return whether this trigger reads nothing; a partition without a known start counts from 0."""
        is_due = self._last_batch_ms is None or now_ms - self._last_batch_ms >= self._delay_ms_max
        if (
            not is_due
            and sum(end - start.get(each, 0) for each, end in available.items()) < self._offsets_min
        ):
            return True
        self._last_batch_ms = now_ms
        return False
