"""What a cleaned batch looks like: some of its records, or none, under the header it had.

Offsets, deltas and the base sequence stay, and the last offset delta too, so that a producer's last sequence
number survives the record that had it. Decisions are the caller's.
"""

from collections.abc import Sequence

from kalda.records.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LOG_APPEND_TIME_FLAG,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    pack_batch,
)
from kalda.records.compression import Compression, compress
from kalda.records.varint import read_varint, read_varlong, write_varint
from kalda.storage.cleaner.record_fields import timestamp_delta


def keep_records(
    header: BatchHeader, data: bytes, starts: Sequence[int], end: int, kept: Sequence[int]
) -> bytearray:
    """Return the batch with the records `kept`, indices in ascending order; their bytes do not change."""
    assert kept, f"a batch at {header.base_offset} without records is empty_batch's"
    bounds = [*starts, end]
    if 2 * len(kept) < len(starts):
        parts = [data[bounds[index] : bounds[index + 1]] for index in kept]
    else:
        # What lies between two that go is copied as one.
        parts = []
        first = 0
        for gone in sorted(set(range(len(starts))).difference(kept)):
            parts.append(data[bounds[first] : bounds[gone]])
            first = gone + 1
        parts.append(data[bounds[first] : end])
    max_timestamp = _max_timestamp(header, data, starts, kept)
    return _pack(header, b"".join(parts), len(kept), header.base_timestamp, max_timestamp, header.attributes)


def set_delete_horizon(
    header: BatchHeader, data: bytes, starts: Sequence[int], end: int, kept: Sequence[int], horizon_ms: int
) -> bytearray:
    """Return the batch with the records `kept` and the time when its tombstones or its marker may go.

    The horizon takes the place of the base timestamp (KIP-534), so every record's delta is written anew.
    """
    assert kept, f"a batch at {header.base_offset} without records has nothing to delete"
    bounds = (*starts, end)
    records = bytearray()
    for index in kept:
        _, at = read_varint(data, bounds[index])
        delta, behind = read_varlong(data, at + 1)
        body = bytearray(data[at : at + 1])
        write_varint(body, header.base_timestamp + delta - horizon_ms)
        body += data[behind : bounds[index + 1]]
        write_varint(records, len(body))
        records += body
    max_timestamp = _max_timestamp(header, data, starts, kept)
    attributes = header.attributes | DELETE_HORIZON_FLAG
    return _pack(header, bytes(records), len(kept), horizon_ms, max_timestamp, attributes)


def empty_batch(header: BatchHeader) -> bytearray:
    """Return the batch without its records: what remembers a producer's sequence number and epoch."""
    flags = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG
    return _pack(header, b"", 0, NO_TIMESTAMP, header.max_timestamp, header.attributes & flags)


def _max_timestamp(header: BatchHeader, data: bytes, starts: Sequence[int], kept: Sequence[int]) -> int:
    """Return the largest time of the records `kept`."""
    if header.attributes & LOG_APPEND_TIME_FLAG:
        return header.max_timestamp
    base, highest = header.base_timestamp, header.max_timestamp
    found = NO_TIMESTAMP
    # Times mostly ascend, so the last record has the batch's maximum, which none exceeds.
    for index in reversed(kept):
        timestamp = base + timestamp_delta(data, starts[index])
        if timestamp > found:
            found = timestamp
            if found >= highest:
                break
    return found


def _pack(
    header: BatchHeader, records: bytes, count: int, base_timestamp: int, max_timestamp: int, attributes: int
) -> bytearray:
    codec = Compression.from_id(attributes & COMPRESSION_MASK)
    return pack_batch(
        records if codec is Compression.NONE else compress(codec, records),
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=count,
    )
