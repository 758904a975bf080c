"""The cleaner's way through the records of a batch: keys, tombstones and where records start, nothing else.

`scan_keys` runs once per record of every byte that is cleaned, so it reads what is needed in place and makes
one object a record, the key. Values are never looked at.

The one thing not to break: whatever the bytes are, the outcome is an answer or `CorruptRecordError`; a log
whose content is nonsense must stop its own cleaning only.
"""

from collections.abc import Sequence
from itertools import repeat
from struct import Struct
from typing import Final, NamedTuple

from kalda.records.errors import CorruptRecordError, NeedMoreBytes
from kalda.records.varint import read_raw_varint, read_varint, read_varlong

NULL: Final = 1
"""The length -1 as a zigzag varint, one byte."""

_RUN_MIN: Final = 16
"""Records of one layout in a row that are worth taking in one step."""


class ScannedRecords(NamedTuple):
    """One batch: `keys` in order (``None`` where a record has none) and what else a cleaning asks."""

    keys: list[bytes | None]
    starts: list[int]
    """Where each record begins."""
    tombstones: list[int]
    """Indices of the records without a value."""


def scan_keys(data: bytes, position: int, end: int, count: int) -> ScannedRecords:
    """Read the `count` records in `data` from `position` to `end`.

    Raises:
        CorruptRecordError: these bytes are something else.
    """
    keys: list[bytes | None] = []
    starts: list[int] = []
    tombstones: list[int] = []
    at = position
    try:
        while len(keys) < count:
            left = count - len(keys)
            if left >= _RUN_MIN:
                taken, at = _take_run(data, at, end, left, keys, starts)
                if taken:
                    continue
            at = _walk(data, at, end, min(left, _RUN_MIN * 8), keys, starts, tombstones)
    except (IndexError, NeedMoreBytes):
        at = -1
    if at != end:
        raise CorruptRecordError(f"what lies between bytes {position} and {end} are not {count} records")
    return ScannedRecords(keys, starts, tombstones)


def record_starts(data: bytes, position: int, end: int, count: int) -> list[int]:
    """Return where each of the `count` records begins; only their lengths are read.

    Raises:
        CorruptRecordError: the lengths do not add up.
    """
    starts: list[int] = []
    add = starts.append
    at = position
    try:
        left = count
        while left:
            run, size = _run_of_one_size(data, at, end, left) if left >= _RUN_MIN else (0, 1)
            if run >= _RUN_MIN:
                starts.extend(range(at, at + run * size, size))
                at += run * size
                left -= run
                continue
            walk = min(left, _RUN_MIN * 8)
            left -= walk
            for _ in repeat(None, walk):
                add(at)
                raw = data[at]
                if raw < 0x80:
                    at += 1 + (raw >> 1)
                elif (second := data[at + 1]) < 0x80:
                    at += (raw >> 1) + (second << 6) - 62
                else:
                    size, at = read_varint(data, at)
                    if size < 0:
                        raise CorruptRecordError(f"record at byte {starts[-1]} has size {size}")
                    at += size
    except (IndexError, NeedMoreBytes):
        at = -1
    if at != end:
        raise CorruptRecordError(f"what lies between bytes {position} and {end} are not {count} records")
    return starts


def _run_of_one_size(data: bytes, at: int, limit: int, count: int) -> tuple[int, int]:
    """Return how many records from `at` on have the size of the first, and that size with its varint.

    If the varints at p, p+s, p+2s, … are all that of size s, each record ends where the next begins.
    """
    first = data[at]
    if first < 0x80:
        size, width = 1 + (first >> 1), 1
    elif (second := data[at + 1]) < 0x80:
        size, width = (first >> 1) + (second << 6) - 62, 2
    else:
        return 0, 1
    run = min(count, (limit - at) // size) if size > 0 else 0
    # A look at the second record spares most of those that vary the rest.
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
    """Read record by record; return where the last one ends."""
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
        # The deltas of time and offset are passed over.
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
        # A record ends behind its value's length and its count of headers at the earliest.
        if stop + 2 > end or end > limit:
            raise CorruptRecordError(f"record at byte {starts[-1]} does not end where its length says")
        if data[stop] == NULL:
            tombstones.append(len(keys) - 1)
        at = end
    return at


def _take_run(
    data: bytes, at: int, limit: int, count: int, keys: list[bytes | None], starts: list[int]
) -> tuple[int, int]:
    """Take records that are laid out like the first one, with keys and values, in one step.

    Returns how many were taken (0 if too few are alike) and where they end. Records of one size whose fields
    before the key have one width have their keys at one distance; a strided slice for each byte of those
    fields tells how far that holds.
    """
    run, size = _run_of_one_size(data, at, limit, count)
    if run < _RUN_MIN:
        return 0, at
    fields: list[int] = []
    # Behind the length, of one byte or two, and the attributes.
    position = at + 2 if data[at] < 0x80 else at + 3
    for _ in range(2):
        while data[position] > 0x7F:
            fields.append(position)
            position += 1
        fields.append(position)
        position += 1
    key_size = data[position]
    value_at = position + 1 + (key_size >> 1)
    if key_size > 0x7F or key_size & 1 or value_at + 2 > at + size or data[value_at] == NULL:
        return 0, at
    column = data[position : at + run * size : size]
    run -= len(column.lstrip(column[:1]))
    for field in fields:
        run = _count_alike(data[field : at + run * size : size], run)
    column = data[value_at : at + run * size : size]
    tombstone = column.find(NULL)
    if tombstone >= 0:
        run = tombstone
    if run < _RUN_MIN:
        return 0, at
    before = position + 1 - at
    end = at + run * size
    layout = Struct(f"{before}x{key_size >> 1}s{size - before - (key_size >> 1)}x")
    keys.extend([key for (key,) in layout.iter_unpack(memoryview(data)[at:end])])
    starts.extend(range(at, end, size))
    return run, end


_CONTINUES: Final = bytes(0 if byte < 0x80 else 1 for byte in range(256))


def _count_alike(column: bytes, count: int) -> int:
    """Return how many bytes from the first on agree with it in whether a varint goes on."""
    if column.isascii():
        return count
    continues = column.translate(_CONTINUES)
    return len(continues) - len(continues.lstrip(continues[:1]))


def offset_deltas(data: bytes, starts: Sequence[int]) -> list[int]:
    """Read the offset delta of each record: only batches that were cleaned before have gaps."""
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


def timestamp_delta(data: bytes, start: int) -> int:
    """Read one record's time, relative to its batch's base timestamp."""
    _, at = read_varint(data, start)
    return read_varlong(data, at + 1)[0]
