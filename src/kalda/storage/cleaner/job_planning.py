"""Collects the state of a log that the cleaner process needs into a job.

The state changes while this runs and while the job runs. That is harmless: new records lie above the part
that is cleaned, and a producer that wrote again only keeps a batch longer than necessary.
"""

import asyncio
from itertools import pairwise
from typing import Final

from kalda.storage.cleaner.cleaner_config import CleanerConfig
from kalda.storage.cleaner.job import CleaningJob, LastRecord, SourceSegment
from kalda.storage.cleaner.log_to_clean import LogToClean
from kalda.storage.log_segment import LogSegment
from kalda.storage.missing_offsets import MissingOffsets

_PER_STEP: Final = 2_000
"""Producers or segments per turn of the event loop: about a millisecond."""


async def plan_job(candidate: LogToClean, config: CleanerConfig, now_ms: int) -> CleaningJob:
    """Return the job; yields to the event loop between slices of a large state."""
    log = candidate.log
    log_config = log.config
    segments = log.segments
    sources = await _sources(segments, log.missing)
    threads = max(1, config.threads)
    return CleaningJob(
        directory=log.directory,
        segments=tuple(sources),
        first_dirty_offset=candidate.first_dirty_offset,
        first_uncleanable_offset=candidate.first_uncleanable_offset,
        aborted=tuple(segments[-1].transaction_index.entries()),
        last_records=tuple(await _last_records(candidate)),
        now_ms=now_ms,
        delete_retention_ms=log_config.delete_retention_ms,
        segment_bytes=log_config.segment_bytes,
        segment_index_bytes=log_config.segment_index_bytes,
        index_interval_bytes=log_config.index_interval_bytes,
        map_bytes=int(config.dedupe_buffer_bytes / threads * config.load_factor),
        io_buffer_bytes=config.io_buffer_bytes // threads // 2,
        bytes_per_second=config.io_bytes_per_second / threads,
    )


async def _sources(segments: tuple[LogSegment, ...], missing: MissingOffsets) -> list[SourceSegment]:
    """Describe the closed segments."""
    sources = []
    for count, (segment, following) in enumerate(pairwise(segments), 1):
        if not count % _PER_STEP:
            await asyncio.sleep(0)
        offsets, times = segment.offset_index, segment.time_index
        sources.append(
            SourceSegment(
                segment.base_offset,
                following.base_offset,
                segment.size,
                offsets.entries * offsets.entry.size,
                times.entries * times.entry.size,
                segment.transaction_index.size,
                missing.overlaps(segment.base_offset, following.base_offset),
            )
        )
    return sources


async def _last_records(candidate: LogToClean) -> list[LastRecord]:
    """Return the last record of each producer that has none above the part to clean."""
    end = candidate.first_uncleanable_offset
    found = []
    for count, entry in enumerate(tuple(candidate.log.producer_state.producers.values()), 1):
        if not count % _PER_STEP:
            await asyncio.sleep(0)
        if entry.last_data_offset < end:
            found.append((entry.producer_id, entry.last_data_offset, entry.producer_epoch))
    return found
