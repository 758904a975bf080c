"""Groups neighbouring segments that are cleaned into one, by their sizes and offsets.

Cleaned segments shrink. Without grouping, a log would end up as thousands of small segments.
"""

from collections.abc import Sequence

from kalda.storage.cleaner.job import SourceSegment
from kalda.storage.log_config import INT32_MAX


def group_segments(
    segments: Sequence[SourceSegment], segment_bytes: int, segment_index_bytes: int
) -> list[list[SourceSegment]]:
    """Group neighbouring segments while a group's log and indexes stay within a segment's limits.

    Sizes 60, 30, 30 and a limit of 100: [60, 30] and [30]. The offsets of a group fit an int32.
    """
    groups: list[list[SourceSegment]] = []
    log_size = offset_index_size = time_index_size = 0
    for segment in segments:
        log_size += segment.size
        offset_index_size += segment.offset_index_size
        time_index_size += segment.time_index_size
        if (
            groups
            # What is missing comes back as a segment between the two.
            and not groups[-1][-1].is_incomplete
            and log_size <= segment_bytes
            and max(offset_index_size, time_index_size) <= segment_index_bytes
            # An empty segment needs no offsets; otherwise one would remain every 2^31 offsets.
            and (segment.size == 0 or segment.end_offset - 1 - groups[-1][0].base_offset <= INT32_MAX)
        ):
            groups[-1].append(segment)
            continue
        groups.append([segment])
        log_size, offset_index_size, time_index_size = (
            segment.size,
            segment.offset_index_size,
            segment.time_index_size,
        )
    return groups
