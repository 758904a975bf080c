"""Chooses where a share partition begins that its group has not read: ``share.auto.offset.reset``."""

from typing import Final

from kalda.broker.replicas.partition import Partition
from kalda.common.errors import ApiError
from kalda.common.iso_duration import parse_duration_ms
from kalda.records.batch import BatchHeader
from kalda.runtime.clock import Clock
from kalda.storage.errors import LOG_ERRORS
from kalda.storage.offsets_for_times import offset_for_timestamp

EARLIEST: Final = "earliest"
_BY_DURATION: Final = "by_duration:"


def choose_start_offset(reset: str, clock: Clock, partition: Partition) -> int:
    """Return the first offset that a group gets; with a duration, that of a whole batch.

    Raises:
        ApiError: the disk failed.
    """
    log = partition.log
    if reset == EARLIEST:
        return log.log_start_offset
    if not reset.startswith(_BY_DURATION):
        return log.high_watermark
    duration_ms = parse_duration_ms(reset.removeprefix(_BY_DURATION)) or 0
    try:
        found = offset_for_timestamp(log, clock.time_ms() - duration_ms, 0, _first_of_batch)
    except LOG_ERRORS as error:
        raise ApiError(error.code, str(error)) from error
    return log.high_watermark if found is None else min(found.offset, log.high_watermark)


def _first_of_batch(
    _: bytes, header: BatchHeader, timestamp: int, start_offset: int
) -> tuple[int, int] | None:
    if header.max_timestamp < timestamp or header.last_offset < start_offset:
        return None
    return header.max_timestamp, max(header.base_offset, start_offset)
