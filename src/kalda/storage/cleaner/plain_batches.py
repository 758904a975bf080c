"""Cleans plain batches fast: uncompressed, without a transaction, markers or gaps in their offsets.

Nearly all batches of nearly all logs are plain, and many hold one record only, so the work done once per
batch decides how fast a log is cleaned. Compiled code does it where the package was built with it. The loops
here unpack only the fields that they need and call few functions. Both stop at the first batch that is not
plain, and `cleaner` then handles it in the general way, which is correct for every batch.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection
from functools import cache
from struct import Struct
from typing import Final, Protocol

from kalda.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_FLAG,
)
from kalda.records.crc import crc32c
from kalda.records.implementation import is_built, is_compiled
from kalda.records.varint import write_varint
from kalda.storage.cleaner.offset_map import (
    KEY_BYTES_MAX,
    PLACES_PER_OFFSET,
    OffsetMap,
    Survivors,
    shorten,
)
from kalda.storage.cleaner.record_fields import NULL, RAW_KEY_SIZE_MAX, note_keys, note_one

if is_built:
    from kalda.records import _records

_NOT_PLAIN: Final = COMPRESSION_MASK | CONTROL_FLAG | TRANSACTIONAL_FLAG
_BODY_SIZE_MIN: Final = HEADER_SIZE - LOG_OVERHEAD

# The delta and the count are read as unsigned, so a negative one cannot match the other.
_TO_MAP: Final = Struct(">qi4xbIhI30xI")
"""Base offset, length, magic, CRC, attributes, last offset delta, record count."""

_TO_JUDGE: Final = Struct(">qi4xb4xhI8xqq6xI")
"""Base offset, length, magic, attributes, last offset delta, max timestamp, producer id, record count."""

_USUAL_SIZE_MAX: Final = 8192
"""The largest single record that is checked for its usual form: its size varint has one or two bytes."""


@cache
def _usual_starts() -> dict[int, bytes]:
    """Return the usual first bytes of a single record by its total size: length, no attributes, zero deltas.

    Computed on first use, in the cleaner process: it takes 6 ms and 1 MB.
    """
    starts = {}
    for length in range(7, _USUAL_SIZE_MAX - 2):
        start = bytearray()
        write_varint(start, length)
        starts[len(start) + length] = bytes(start) + b"\0\0\0"
    return starts


def map_plain(table: OffsetMap, chunk: bytes, position: int, first_dirty: int) -> tuple[int, int]:
    """Add the keys of plain batches from `position` on to the offset map, as long as it has room.

    Returns the position of the first batch that was not added and the number of records without a key.

    Raises:
        CorruptRecordError: a batch with the right CRC has invalid records.
    """
    if is_compiled():
        position, keyless, last_offset, is_decided = _records.map_batches(
            table.places,
            chunk,
            position,
            first_dirty,
            table.room,
            KEY_BYTES_MAX,
            shorten,
            table.tombstone_batches,
            crc32c,
        )
        table.latest_offset = max(table.latest_offset, last_offset)
        if is_decided:
            return position, keyless
        position, more = _map_in_python(table, chunk, position, first_dirty)
        return position, keyless + more
    return _map_in_python(table, chunk, position, first_dirty)


def _map_in_python(table: OffsetMap, chunk: bytes, position: int, first_dirty: int) -> tuple[int, int]:
    """Do what `map_plain` does, in plain Python."""
    keyless = 0
    unpack = _TO_MAP.unpack_from
    usual_starts = _usual_starts()
    startswith = chunk.startswith
    places = table.places
    view = memoryview(chunk)
    size = len(chunk)
    limit = size - HEADER_SIZE
    room = table.room
    last_offset = -1
    while position <= limit:
        base_offset, length, magic, crc, attributes, delta, count = unpack(chunk, position)
        end = position + LOG_OVERHEAD + length
        room -= count
        if (
            end > size
            or length < _BODY_SIZE_MIN
            or magic != MAGIC
            or attributes & _NOT_PLAIN
            or base_offset < first_dirty
            or count != delta + 1
            or room < 0
            or crc32c(view[position + ATTRIBUTES_POSITION : end]) != crc
        ):
            break
        place = (base_offset - first_dirty) * PLACES_PER_OFFSET
        start = position + HEADER_SIZE
        if count == 1:
            usual = usual_starts.get(end - start)
            if usual is not None and startswith(usual, start):
                key_at = start + len(usual) + 1
                raw = chunk[key_at - 1]
                value_at = key_at + (raw >> 1)
                if (
                    raw <= RAW_KEY_SIZE_MAX
                    and not raw & 1
                    and value_at + 2 <= end
                    and chunk[value_at] != NULL
                ):
                    places[chunk[key_at:value_at]] = place
                    last_offset = base_offset
                    position = end
                    continue
            has_tombstones, without = note_one(places, chunk, start, end, place - start)
        else:
            has_tombstones, without = note_keys(places, chunk, start, end, count, place)
        if has_tombstones:
            table.note_tombstones(base_offset)
            room -= 1
        keyless += without
        last_offset = base_offset + delta
        position = end
    if last_offset > table.latest_offset:
        table.latest_offset = last_offset
    return position, keyless


class BatchNotes(Protocol):
    """Takes note of the batches that are kept: `CleanedSegment`."""

    def note(self, last_offset: int, size: int, max_timestamp: int) -> None:
        """Note one batch."""
        ...

    def note_batches(self, chunk: bytes, spans: list[tuple[int, int]]) -> None:
        """Note the plain batches in `spans`."""
        ...


class PlainBatchFilter:
    """Decides on dirty plain batches that are kept or dropped as a whole."""

    def __init__(
        self, survivors: Survivors, first_dirty: int, latest_offset: int, last_records: Collection[int]
    ) -> None:
        """Decide by `survivors`, whose places are relative to `first_dirty`, up to `latest_offset`.

        The producers of `last_records` may need a batch without records.
        """
        self._survivors: Final = survivors
        self._first_dirty: Final = first_dirty
        self._latest_offset: Final = latest_offset
        self._last_records: Final = last_records
        self.records_read = 0
        self.records_written = 0

    def filter(self, chunk: bytes, position: int, cleaned: BatchNotes) -> tuple[int, list[tuple[int, int]]]:
        """Decide on batches from `position` on; note each that is kept in `cleaned`.

        Returns the position of the first batch without a decision and the spans of the kept batches.
        """
        survivors = self._survivors
        if is_compiled() and isinstance(survivors.places, array):
            position, survivors.at, read, written, spans = _records.filter_batches(
                chunk,
                position,
                survivors.places,
                survivors.at,
                self._first_dirty,
                self._latest_offset,
                survivors.tombstone_batches,
                self._last_records,
            )
            if spans:
                cleaned.note_batches(chunk, spans)
            self.records_read += read
            self.records_written += written
            return position, spans
        return self._filter_in_python(chunk, position, cleaned.note)

    def _filter_in_python(
        self, chunk: bytes, position: int, note: Callable[[int, int, int], None]
    ) -> tuple[int, list[tuple[int, int]]]:
        survivors = self._survivors
        tombstone_batches = survivors.tombstone_batches
        last_records = self._last_records
        places, at = survivors.places, survivors.at
        places_count = len(places)
        first_dirty, latest_offset = self._first_dirty, self._latest_offset
        unpack = _TO_JUDGE.unpack_from
        size = len(chunk)
        limit = size - HEADER_SIZE
        read = written = 0
        spans: list[tuple[int, int]] = []
        whole_from = position
        while position <= limit:
            base_offset, length, magic, attributes, delta, max_timestamp, producer_id, count = unpack(
                chunk, position
            )
            end = position + LOG_OVERHEAD + length
            last_offset = base_offset + delta
            if (
                end > size
                or length < _BODY_SIZE_MIN
                or magic != MAGIC
                or attributes & _NOT_PLAIN
                or base_offset < first_dirty
                or last_offset > latest_offset
                or count != delta + 1
            ):
                break
            # The first place behind the batch, which has at most as many places as records.
            behind = (last_offset + 1 - first_dirty) * PLACES_PER_OFFSET
            if count == 1:
                alive = 1 if at < places_count and places[at] < behind else 0
            else:
                alive = bisect_left(places, behind, at, min(at + count, places_count)) - at
            if alive == count:
                if base_offset in tombstone_batches:
                    break
                note(last_offset, end - position, max_timestamp)
                written += count
            elif alive or producer_id in last_records:
                break
            else:
                if whole_from < position:
                    spans.append((whole_from, position))
                whole_from = end
            at += alive
            read += count
            position = end
        if whole_from < position:
            spans.append((whole_from, position))
        survivors.at = at
        self.records_read += read
        self.records_written += written
        return position, spans
