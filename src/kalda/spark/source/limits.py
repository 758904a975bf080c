"""Limits the number of offsets in one micro-batch (`maxOffsetsPerTrigger`).

Pure functions on offsets. They compute the same limits as Spark's own connector, so that a query which moves
to this source keeps its batch sizes.
"""

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
