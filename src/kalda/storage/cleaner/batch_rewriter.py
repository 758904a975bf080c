"""Builds cleaned batches: some of a batch's records, or none, under its original header.

Offsets, deltas, the base sequence and the last offset delta stay, so a producer's last sequence number
outlives the record that had it. The caller decides which records stay.
"""

from array import array
from collections.abc import Iterable, Sequence

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
from kalda.records.implementation import is_built, is_compiled
from kalda.records.varint import read_varint, read_varlong, write_varint
from kalda.storage.cleaner.offset_map import PLACES_PER_OFFSET, Places
from kalda.storage.cleaner.record_fields import record_end, timestamp_delta

if is_built:
    from kalda.records import _records

Spans = Sequence[tuple[int, int]]
"""Start and end of each run of neighbouring records that stay."""


def spans_of_indices(starts: Sequence[int], end: int, kept: Sequence[int]) -> list[tuple[int, int]]:
    """Return the spans of the records with the ascending indices `kept`; all records begin at `starts`."""
    bounds = [*starts, end]
    if 2 * len(kept) < len(starts):
        return [(bounds[index], bounds[index + 1]) for index in kept]
    spans = []
    first = 0
    for gone in sorted(set(range(len(starts))).difference(kept)):
        spans.append((bounds[first], bounds[gone]))
        first = gone + 1
    spans.append((bounds[first], end))
    return spans


def spans_of_places(data: bytes, start: int, places: Sequence[int]) -> list[tuple[int, int]]:
    """Return the spans of the records at `places`, in a batch whose records begin at `start`.

    A record ends where the record with the next offset begins; only before a gap its length must be read.
    """
    assert places, "no record stays"
    bounds = []
    first = before = places[0]
    for place in places:
        if place - before >= 2 * PLACES_PER_OFFSET:
            bounds.append((first, before))
            first = place
        before = place
    bounds.append((first, before))
    return [
        (start + first % PLACES_PER_OFFSET, record_end(data, start + last % PLACES_PER_OFFSET))
        for first, last in bounds
    ]


def keep_places(header: BatchHeader, data: bytes, start: int, end: int, places: Places) -> bytearray:
    """Return the batch with the records at `places`; its records lie between `start` and `end` in `data`."""
    if is_compiled() and isinstance(places, array):
        base, highest = header.base_timestamp, header.max_timestamp
        copied = _records.copy_records(data, start, end, places, base, highest)
        if copied is not None:
            records, found = copied
            max_timestamp = highest if header.attributes & LOG_APPEND_TIME_FLAG else found
            return _pack(header, records, len(places), base, max_timestamp, header.attributes)
    spans = spans_of_places(data, start, places)
    backwards = (start + place % PLACES_PER_OFFSET for place in reversed(places))
    return keep_records(header, data, spans, len(places), backwards)


def keep_records(
    header: BatchHeader, data: bytes, spans: Spans, count: int, starts_backwards: Iterable[int]
) -> bytearray:
    """Return the batch with the `count` records in `spans`, whose bytes do not change.

    `starts_backwards` yields the start of the last record, then of the one before it, and so on.
    """
    assert spans, f"a batch at {header.base_offset} without records is empty_batch's"
    records = b"".join([data[first:end] for first, end in spans])
    max_timestamp = _max_timestamp(header, data, starts_backwards)
    return _pack(header, records, count, header.base_timestamp, max_timestamp, header.attributes)


def set_delete_horizon(
    header: BatchHeader, data: bytes, starts: Sequence[int], end: int, kept: Sequence[int], horizon_ms: int
) -> bytearray:
    """Return the batch with the records `kept` and the delete horizon of its tombstones or its marker.

    The horizon replaces the base timestamp (KIP-534), so every record's timestamp delta is rewritten.
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
    max_timestamp = _max_timestamp(header, data, (starts[index] for index in reversed(kept)))
    attributes = header.attributes | DELETE_HORIZON_FLAG
    return _pack(header, bytes(records), len(kept), horizon_ms, max_timestamp, attributes)


def empty_batch(header: BatchHeader) -> bytearray:
    """Return the batch without its records, which keeps a producer's sequence number and epoch."""
    flags = LOG_APPEND_TIME_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG
    return _pack(header, b"", 0, NO_TIMESTAMP, header.max_timestamp, header.attributes & flags)


def _max_timestamp(header: BatchHeader, data: bytes, starts_backwards: Iterable[int]) -> int:
    """Return the largest timestamp of some records."""
    if header.attributes & LOG_APPEND_TIME_FLAG:
        return header.max_timestamp
    base, highest = header.base_timestamp, header.max_timestamp
    found = NO_TIMESTAMP
    # Timestamps mostly ascend, so the last record usually has the batch's maximum.
    for start in starts_backwards:
        timestamp = base + timestamp_delta(data, start)
        if timestamp > found:
            found = timestamp
            if found >= highest:
                break
    return found


def _pack(
    header: BatchHeader,
    records: bytes | bytearray,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    attributes: int,
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
