"""Reads only what the cleaner needs of a batch's records: keys, tombstones and where records start.

`note_keys` runs once per record of every byte that is cleaned. It reads the bytes in place, creates two
objects per record (the key and its place) and never reads values. `scan_keys` and `note_keys` run in compiled
code where the package was built with it; that code leaves records that it does not accept to the code here.

Invariant: whatever the bytes are, the functions return or raise `CorruptRecordError`, so that a log with
invalid content stops only its own cleaning.
"""

from collections.abc import Sequence
from itertools import chain, repeat
from struct import Struct
from typing import Final, NamedTuple

from kalda.records.errors import CorruptRecordError, NeedMoreBytes
from kalda.records.implementation import is_built, is_compiled
from kalda.records.varint import read_raw_varint, read_varint, read_varlong
from kalda.storage.cleaner.offset_map import KEY_BYTES_MAX, PLACES_PER_OFFSET, shorten

if is_built:
    from kalda.records import _records

NULL: Final = 1
"""The length -1 as a zigzag varint, one byte."""

_RUN_MIN: Final = 16
"""The shortest run of records of one layout that is worth one step."""

RAW_KEY_SIZE_MAX: Final = 2 * KEY_BYTES_MAX
"""The largest key size as a zigzag varint: longer keys are shortened."""


class ScannedRecords(NamedTuple):
    """The records of one batch: `keys` in order, with ``None`` for a record without a key."""

    keys: list[bytes | None]
    starts: list[int]
    """The start of each record."""
    tombstones: list[int]
    """Indices of the records without a value."""


def scan_keys(data: bytes, position: int, end: int, count: int) -> ScannedRecords:
    """Read the `count` records in `data` from `position` to `end`.

    Raises:
        CorruptRecordError: the bytes are not such records.
    """
    if is_compiled():
        scanned = _records.scan_keys(data, position, end, count)
        if scanned is not None:
            return ScannedRecords(*scanned)
    keys: list[bytes | None] = []
    starts: list[int] = []
    tombstones: list[int] = []
    at = position
    try:
        while len(keys) < count:
            left = count - len(keys)
            if left >= _RUN_MIN:
                run = _run_of_one_layout(data, at, end, left)
                if run is not None:
                    stop = at + run.records * run.size
                    keys.extend(chain.from_iterable(run.keys.iter_unpack(memoryview(data)[at:stop])))
                    starts.extend(range(at, stop, run.size))
                    at = stop
                    continue
            at = _walk(data, at, end, min(left, _RUN_MIN * 8), keys, starts, tombstones)
    except (IndexError, NeedMoreBytes):
        at = -1
    if at != end:
        raise _not_records(position, end, count)
    return ScannedRecords(keys, starts, tombstones)


class NotedKeys(NamedTuple):
    """The result of `note_keys` besides the keys."""

    has_tombstones: bool
    keyless: int
    """Records without a key."""


def note_keys(
    places: dict[bytes, int], data: bytes, position: int, end: int, count: int, place: int
) -> NotedKeys:
    """Set in `places` the last place of each key of the `count` records from `position` to `end`.

    `place` is the first record's; offsets have no gaps. Long keys are shortened, as in the offset map.

    Raises:
        CorruptRecordError: the bytes are not such records; some keys may have been set.
    """
    if is_compiled():
        noted = _records.note_keys(places, data, position, end, count, place, KEY_BYTES_MAX, shorten)
        if noted is not None:
            return NotedKeys(*noted)
    has_tombstones = False
    keyless = 0
    at = position
    left = count
    # A record's place is this plus its position in `data`.
    base = place - position
    try:
        while left:
            run = _run_of_one_layout(data, at, end, left) if left >= _RUN_MIN else None
            if run is not None:
                stop = at + run.records * run.size
                keys = chain.from_iterable(run.keys.iter_unpack(memoryview(data)[at:stop]))
                first = base + at
                step = PLACES_PER_OFFSET + run.size
                ascending = range(first, first + run.records * step, step)
                places.update(zip(map(shorten, keys) if run.is_long else keys, ascending, strict=True))
                at = stop
                done = run.records
            else:
                done = min(left, _RUN_MIN * 8)
                at, without, deleted = _note(places, data, at, base, done)
                keyless += without
                has_tombstones = has_tombstones or deleted
            left -= done
            base += done * PLACES_PER_OFFSET
    except (IndexError, NeedMoreBytes):
        at = -1
    if at != end:
        raise _not_records(position, end, count)
    return NotedKeys(has_tombstones, keyless)


def note_one(places: dict[bytes, int], data: bytes, position: int, end: int, base: int) -> tuple[bool, int]:
    """Do the same as `note_keys` for one record, whose place is `base` plus `position`.

    Raises:
        CorruptRecordError: the bytes are not such records.
    """
    try:
        at, keyless, has_tombstones = _note(places, data, position, base, 1)
    except (IndexError, NeedMoreBytes):
        at = -1
    if at != end:
        raise _not_records(position, end, 1)
    return has_tombstones, keyless


def _not_records(position: int, end: int, count: int) -> CorruptRecordError:
    return CorruptRecordError(f"what lies between bytes {position} and {end} are not {count} records")


def record_starts(data: bytes, position: int, end: int, count: int) -> list[int]:
    """Return the start of each of the `count` records, reading only their lengths.

    Raises:
        CorruptRecordError: the lengths do not add up.
    """
    starts: list[int] = []
    at = position
    try:
        for _ in repeat(None, count):
            starts.append(at)
            size, at = read_varint(data, at)
            if size < 0:
                raise CorruptRecordError(f"record at byte {starts[-1]} has size {size}")
            at += size
    except NeedMoreBytes:
        at = -1
    if at != end:
        raise _not_records(position, end, count)
    return starts


def _run_of_one_size(data: bytes, at: int, limit: int, count: int) -> tuple[int, int]:
    """Return how many records from `at` on have the size of the first, and that size with its varint.

    If the varints at p, p+s, p+2s, … all encode the size s, each record ends where the next begins.
    """
    first = data[at]
    if first < 0x80:
        size, width = 1 + (first >> 1), 1
    elif (second := data[at + 1]) < 0x80:
        size, width = (first >> 1) + (second << 6) - 62, 2
    else:
        return 0, 1
    run = min(count, (limit - at) // size) if size > 0 else 0
    # Checking the second record first saves the rest for most records of varying size.
    if run < _RUN_MIN or data[at + size : at + size + width] != data[at : at + width]:
        return 0, 1
    for same in range(at, at + width):
        column = data[same : at + run * size : size]
        run -= len(column.lstrip(column[:1]))
    return run, size


def _walk(
    data: bytes,
    at: int,
    limit: int,
    count: int,
    keys: list[bytes | None],
    starts: list[int],
    tombstones: list[int],
) -> int:
    """Read record by record; return the end of the last one."""
    add_key = keys.append
    add_start = starts.append
    for _ in repeat(None, count):
        add_start(at)
        raw = data[at]
        if raw < 0x80:
            # Behind the length and the attributes, which format 2 does not use.
            at += 2
            end = at - 1 + (raw >> 1)
        elif (second := data[at + 1]) < 0x80:
            end = at + (raw >> 1) + (second << 6) - 62
            at += 3
        else:
            size, at = read_varint(data, at)
            end = at + size
            at += 1
        # Skip the timestamp delta and the offset delta.
        while data[at] > 0x7F:
            at += 1
        at += 1
        while data[at] > 0x7F:
            at += 1
        raw = data[at + 1]
        at += 2
        if raw > 0x7F:
            raw, at = read_raw_varint(data, at - 1)
        if raw & 1:
            stop = at
            add_key(None)
        else:
            stop = at + (raw >> 1)
            add_key(data[at:stop])
        # A record has at least its value's length and its header count.
        if stop + 2 > end or end > limit:
            raise CorruptRecordError(f"record at byte {starts[-1]} does not end where its length says")
        if data[stop] == NULL:
            tombstones.append(len(keys) - 1)
        at = end
    return at


def _note(places: dict[bytes, int], data: bytes, at: int, base: int, count: int) -> tuple[int, int, bool]:
    """Set places record by record; return the last end, the count without key, whether one has no value.

    `_walk` does the same for lists. The check after the last record detects one that passes the batch's end.
    """
    keyless = 0
    has_tombstones = False
    for offset_base in range(base, base + count * PLACES_PER_OFFSET, PLACES_PER_OFFSET):
        start = at
        raw = data[at]
        if raw < 0x80:
            at += 2
            end = start + 1 + (raw >> 1)
        elif (second := data[at + 1]) < 0x80:
            end = at + (raw >> 1) + (second << 6) - 62
            at += 3
        else:
            size, at = read_varint(data, at)
            end = at + size
            at += 1
        while data[at] > 0x7F:
            at += 1
        at += 1
        while data[at] > 0x7F:
            at += 1
        raw = data[at + 1]
        at += 2
        if raw > 0x7F:
            raw, at = read_raw_varint(data, at - 1)
        if raw & 1:
            keyless += 1
        else:
            key_at = at
            at += raw >> 1
            if raw <= RAW_KEY_SIZE_MAX:
                places[data[key_at:at]] = offset_base + start
            else:
                places[shorten(data[key_at:at])] = offset_base + start
        if at + 2 > end:
            raise CorruptRecordError(f"record at byte {start} does not end where its length says")
        if data[at] == NULL:
            has_tombstones = True
        at = end
    return at, keyless, has_tombstones


class _Run(NamedTuple):
    """Consecutive records of one size whose keys have one distance from their starts."""

    records: int
    size: int
    keys: Struct
    """Returns the key of a record."""
    is_long: bool
    """Whether the keys must be shortened."""


def _run_of_one_layout(data: bytes, at: int, limit: int, count: int) -> _Run | None:
    """Return the run of records with the layout of the first, with keys and values; ``None`` if too short.

    Records of one size whose fields before the key have one width have their keys at one distance. A strided
    slice for each byte of those fields shows how long the run is.
    """
    run, size = _run_of_one_size(data, at, limit, count)
    if run < _RUN_MIN:
        return None
    fields: list[int] = []
    # Behind the length, of one byte or two, and the attributes.
    position = at + 2 if data[at] < 0x80 else at + 3
    for _ in range(2):
        while data[position] > 0x7F:
            fields.append(position)
            position += 1
        fields.append(position)
        position += 1
    raw = data[position]
    key_size = raw >> 1
    value_at = position + 1 + key_size
    if raw > 0x7F or raw & 1 or value_at + 2 > at + size or data[value_at] == NULL:
        return None
    column = data[position : at + run * size : size]
    run -= len(column.lstrip(column[:1]))
    for field in fields:
        run = _count_alike(data[field : at + run * size : size], run)
    column = data[value_at : at + run * size : size]
    tombstone = column.find(NULL)
    if tombstone >= 0:
        run = tombstone
    if run < _RUN_MIN:
        return None
    before = position + 1 - at
    return _Run(
        run, size, Struct(f"{before}x{key_size}s{size - before - key_size}x"), key_size > KEY_BYTES_MAX
    )


_CONTINUES: Final = bytes(0 if byte < 0x80 else 1 for byte in range(256))


def _count_alike(column: bytes, count: int) -> int:
    """Return how many bytes, from the first on, have the same varint continuation bit as the first."""
    if column.isascii():
        return count
    continues = column.translate(_CONTINUES)
    return len(continues) - len(continues.lstrip(continues[:1]))


def offset_deltas(data: bytes, starts: Sequence[int]) -> list[int]:
    """Return the offset delta of each record; only batches that were cleaned before have gaps."""
    deltas = []
    for at in starts:
        _, at = read_varint(data, at)
        at += 1
        while data[at] > 0x7F:
            at += 1
        raw = data[at + 1]
        if raw > 0x7F:
            raw, _ = read_raw_varint(data, at + 1)
        deltas.append((raw >> 1) ^ -(raw & 1))
    return deltas


def record_end(data: bytes, start: int) -> int:
    """Return the end of the record that begins at `start`."""
    raw = data[start]
    if raw < 0x80:
        return start + 1 + (raw >> 1)
    second = data[start + 1]
    if second < 0x80:
        return start + (raw >> 1) + (second << 6) - 62
    size, at = read_varint(data, start)
    return at + size


def timestamp_delta(data: bytes, start: int) -> int:
    """Return a record's timestamp delta to its batch's base timestamp."""
    _, at = read_varint(data, start)
    return read_varlong(data, at + 1)[0]
