"""Reads Fetch responses (key 1), versions 12-17, without message objects; followers use it.

The records of a partition are a slice of the frame, not a copy. Fields that a follower does not need (last
stable offset, aborted transactions, preferred replica, leader and endpoint hints) are skipped.
"""

import struct
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kalda.protocol.fast.implementation import is_compiled
from kalda.protocol.fast.wire import (
    read_array_count,
    read_tag,
    read_unsigned_varint,
    skip_tagged_fields,
)
from kalda.protocol.fetch_session import TOPIC_IDS_FROM
from kalda.protocol.protocol_errors import ProtocolError

if TYPE_CHECKING or is_compiled:
    from kalda.protocol.fast import _requests

LOWEST_VERSION: Final = 12
HIGHEST_VERSION: Final = 17
"""The versions that this module reads. Version 12 names topics by name, later ones by id."""

_TOP: Final = Struct(">ihi")
_PARTITION: Final = Struct(">ihqqq")
_DIVERGING: Final = Struct(">iq")
_DIVERGING_TAG: Final = 0
_ABORTED_BYTES: Final = 16
_PREFERRED_BYTES: Final = 4
_TOPIC_ID_BYTES: Final = 16


class FetchedPartition(NamedTuple):
    """The answer for one partition."""

    topic: bytes
    """The topic's id; its name in version 12."""
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging_epoch: tuple[int, int] | None
    """Epoch and end offset, where the follower's log is not the leader's (KIP-595)."""
    records: memoryview | None
    """Whole batches, and perhaps a part of one at the end; None if there are no bytes."""


class FetchResponseFields(NamedTuple):
    """One answer."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    partitions: list[FetchedPartition]


def parse_fetch_response(
    frame: memoryview, position: int = 0, version: int = HIGHEST_VERSION
) -> FetchResponseFields:
    """Read the body of a Fetch response that begins at `position`; bytes behind it are passed over.

    Raises:
        ProtocolError: the bytes are no response of this version.
    """
    is_by_id = version >= TOPIC_IDS_FROM
    if is_compiled and is_by_id:
        found = _requests.parse_fetched(frame, position, FetchedPartition._make)
        if found is not None:
            return FetchResponseFields._make(found)
    return _parse(frame, position, is_by_id)


def _parse(frame: memoryview, position: int, is_by_id: bool) -> FetchResponseFields:
    """Read any response."""
    limit = len(frame)
    partitions: list[FetchedPartition] = []
    try:
        throttle_time_ms, error_code, session_id = _TOP.unpack_from(frame, position)
        topic_count, position = read_array_count(frame, position + _TOP.size, limit, True)
        for _ in range(topic_count):
            if is_by_id:
                end = position + _TOPIC_ID_BYTES
            else:
                size, position = read_unsigned_varint(frame, position)
                if size < 1:
                    raise ProtocolError("a topic of the fetch response has no name")
                end = position + size - 1
            topic = bytes(frame[position:end])
            partition_count, position = read_array_count(frame, end, limit, True)
            for _ in range(partition_count):
                partition, position = _read_partition(frame, position, limit, topic)
                partitions.append(partition)
            position, _ = skip_tagged_fields(frame, position, limit)
        skip_tagged_fields(frame, position, limit)
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"fetch response ends too early: {error}") from None
    return FetchResponseFields(throttle_time_ms, error_code, session_id, partitions)


def _read_partition(
    frame: memoryview, position: int, limit: int, topic: bytes
) -> tuple[FetchedPartition, int]:
    index, error_code, high_watermark, _, log_start_offset = _PARTITION.unpack_from(frame, position)
    position += _PARTITION.size
    if frame[position] > 1:
        position = _skip_aborted(frame, position, limit)
    else:
        # No list, or an empty one: a follower does not get aborted transactions.
        position += 1
    size, position = read_unsigned_varint(frame, position + _PREFERRED_BYTES)
    records = None
    if size > 1:
        end = position + size - 1
        if end > limit:
            raise ProtocolError(f"records of {size - 1} bytes in {limit - position} bytes of a response")
        records = frame[position:end]
        position = end
    diverging = None
    if frame[position]:
        diverging, position = _read_tags(frame, position, limit)
    else:
        position += 1
    return (
        FetchedPartition(topic, index, error_code, high_watermark, log_start_offset, diverging, records),
        position,
    )


def _skip_aborted(frame: memoryview, position: int, limit: int) -> int:
    count, position = read_array_count(frame, position, limit, True)
    for _ in range(count):
        position, _ = skip_tagged_fields(frame, position + _ABORTED_BYTES, limit)
    return position


def _read_tags(frame: memoryview, position: int, limit: int) -> tuple[tuple[int, int] | None, int]:
    diverging: tuple[int, int] | None = None
    count, position = read_unsigned_varint(frame, position)
    tag = -1
    for _ in range(count):
        tag, length, position = read_tag(frame, position, limit, tag)
        if tag == _DIVERGING_TAG:
            epoch, end_offset = _DIVERGING.unpack_from(frame[position : position + length])
            diverging = epoch, end_offset
        position += length
    return diverging, position
