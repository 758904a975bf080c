"""Decodes one field of many records at once: varints to numpy arrays, bytes to Arrow views.

This module sees one byte buffer and arrays of positions in it; `columnar` handles batches.

Invariant: positions only grow, and reads past the buffer are clipped instead of refused. The caller must
therefore compare the end of each record's last field with the end of the record; that one comparison
validates every earlier read.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kalda.records.errors import CorruptRecordError, NeedMoreBytes
from kalda.records.varint import VARINT_BYTES_MAX, VARLONG_BYTES_MAX, read_varint

Positions = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
# Not `pa.array([])`, which imports pandas: 0.2 s of each new process.
_NO_HEADER_ENTRIES: Final = pa.nulls(0, HEADERS_TYPE.value_type)
# Arrow keeps values of up to 12 bytes inside the view and points to longer ones.
_INLINE_SIZE: Final = 12
# Below this many rows numpy's calls cost more than reading the headers one by one.
_ROWS_PER_TURN_MIN: Final = 12
_FIRST_WORD_MASKS: Final = np.frombuffer(
    b"".join(b"\xff" * min(size, 8) + b"\x00" * (8 - min(size, 8)) for size in range(_INLINE_SIZE + 1)),
    np.uint64,
)
_LAST_WORD_MASKS: Final = np.frombuffer(
    b"".join(b"\xff" * max(size - 8, 0) + b"\x00" * (12 - max(size, 8)) for size in range(_INLINE_SIZE + 1)),
    np.uint32,
)


@dataclass(frozen=True, slots=True)
class WantedFields:
    """The fields of variable size that a reader wants; without the first two, their columns are all null."""

    keys: bool = True
    values: bool = True
    headers: bool = False


def read_varints(data: Bytes, positions: Positions) -> tuple[Positions, Positions]:
    """Read a 32-bit zigzag varint at each position; return the values and the positions behind them.

    Raises `CorruptRecordError` if one is longer than 5 bytes.
    """
    raw, after = _read_unsigned(data, positions, VARINT_BYTES_MAX)
    return _zigzag(raw & np.uint64(0xFFFFFFFF)), after


def read_varlongs(data: Bytes, positions: Positions) -> tuple[Positions, Positions]:
    """Read a 64-bit zigzag varint at each position; raises `CorruptRecordError` beyond 10 bytes."""
    raw, after = _read_unsigned(data, positions, VARLONG_BYTES_MAX)
    return _zigzag(raw), after


def _zigzag(raw: npt.NDArray[np.uint64]) -> Positions:
    one = np.uint64(1)
    return (raw >> one).view(np.int64) ^ -((raw & one).view(np.int64))


def _read_unsigned(
    data: Bytes, positions: Positions, bytes_max: int
) -> tuple[npt.NDArray[np.uint64], Positions]:
    first = data.take(positions, mode="clip")
    after = positions + 1
    if first.max() < 0x80:
        return first.astype(np.uint64), after
    raw = (first & 0x7F).astype(np.uint64)
    # Rows whose varint has more bytes; each pass reads one more byte of these rows only.
    rows = np.flatnonzero(first >= 0x80)
    for index in range(1, bytes_max):
        more = data.take(after[rows], mode="clip")
        raw[rows] |= (more & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        after[rows] += 1
        rows = rows[more >= 0x80]
        if not rows.size:
            return raw, after
    raise CorruptRecordError(f"varint before byte {after[rows[0]]} is longer than {bytes_max} bytes")


def binary_views(data: bytes, starts: Positions, sizes: Positions) -> pa.Array:
    """Return a ``binary_view`` array over ``data[start:start + size]`` of each row; negative size is null.

    Rows must be in ascending order of start. Arrow copies into the view only values up to 12 bytes and the
    first 4 bytes of longer ones. The array keeps `data` alive.
    """
    count = len(starts)
    nulls = sizes < 0
    validity = None
    if nulls.any():
        validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
        sizes = np.where(nulls, 0, sizes)
    views = np.zeros((count, 4), np.uint32)
    views[:, 0] = sizes
    # Four bytes are read at once, so rows that start in the buffer's last bytes are filled one by one.
    safe = int(np.searchsorted(starts, len(data) - _INLINE_SIZE, side="right"))
    if safe:
        words = np.ndarray((len(data) - 3,), np.uint32, data, strides=(1,))
        views[:safe, 1] = words[starts[:safe]]
        views[:, 3] = starts
        short = np.flatnonzero(sizes[:safe] <= _INLINE_SIZE)
        if short.size:
            _fill_inline(data, words, views, short, starts[short], sizes[short])
    raw = views.view(np.uint8)
    for row in range(safe, count):
        _fill_view(data, raw[row], int(starts[row]), int(sizes[row]))
    return pa.Array.from_buffers(
        pa.binary_view(), count, [validity, pa.py_buffer(views), pa.py_buffer(data)], int(nulls.sum())
    )


def binary_copies(data: bytes, starts: Positions, sizes: Positions) -> pa.Array:
    """Return the same values as `binary_views` as a ``binary`` array of their own bytes.

    Arrow's older versions cannot cast views. The buffer therefore becomes one ``binary`` array in which each
    value is followed by the gap before the next one, and Arrow copies every second element.
    """
    count = len(starts)
    nulls = sizes < 0
    if nulls.all():
        return pa.nulls(count, pa.binary())
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = starts
    offsets[1::2] = starts + np.maximum(sizes, 0)
    values_and_gaps = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    rows = np.arange(0, 2 * count, 2)
    return values_and_gaps.take(pa.array(rows, mask=nulls if nulls.any() else None))


def _fill_inline(
    data: bytes,
    words: npt.NDArray[np.uint32],
    views: npt.NDArray[np.uint32],
    rows: Positions,
    starts: Positions,
    sizes: Positions,
) -> None:
    double_words = np.ndarray((len(data) - 7,), np.uint64, data, strides=(1,))
    first = double_words[starts] & _FIRST_WORD_MASKS[sizes]
    views[rows, 1:3] = first.view(np.uint32).reshape(-1, 2)
    views[rows, 3] = words[starts + 8] & _LAST_WORD_MASKS[sizes]


def _fill_view(data: bytes, view: Bytes, start: int, size: int) -> None:
    view[4:] = 0
    if size <= _INLINE_SIZE:
        view[4 : 4 + size] = np.frombuffer(data, np.uint8, size, start)
    else:
        view[4:8] = np.frombuffer(data, np.uint8, 4, start)
        view[12:16] = np.array([start], np.uint32).view(np.uint8)


def header_lists(data: bytes, positions: Positions, ends: Positions, counts: Positions) -> pa.Array:
    """Return the headers of each row as ``list<struct<key: string, value: binary>>``.

    `positions` are where the rows' first headers start, `ends` where the rows end: each row's headers must
    end exactly there. The caller has checked that the counts are not negative and fit the rows' bytes.
    Raises `CorruptRecordError` where headers end elsewhere, or for a null key.
    """
    if not counts.any():
        return _no_headers(positions, ends)
    array = np.frombuffer(data, np.uint8)
    first_slots = np.cumsum(counts) - counts
    # Key starts, key sizes, value starts, value sizes; one slot per header.
    fields = np.zeros((4, int(counts.sum())), np.int64)
    at = positions.copy()
    rows = np.flatnonzero(counts)
    turn = 0
    # Each pass reads one header of every row that has more, which is fast only for several rows. The
    # last few rows are read one by one, so that a record with a million headers is not a million passes.
    while rows.size >= _ROWS_PER_TURN_MIN:
        at[rows] = _read_headers(array, at[rows], fields, first_slots[rows] + turn)
        turn += 1
        rows = rows[counts[rows] > turn]
    for row in rows.tolist():
        slots = range(int(first_slots[row]) + turn, int(first_slots[row] + counts[row]))
        at[row] = _read_headers_of_row(data, int(at[row]), fields, slots)
    _check_header_ends(at, ends)
    keys = binary_copies(data, fields[0], fields[1])
    values = binary_copies(data, fields[2], fields[3])
    offsets = np.zeros(len(counts) + 1, np.int32)
    offsets[1:] = np.cumsum(counts)
    entries = pa.StructArray.from_arrays([as_strings(keys), values], names=["key", "value"])
    return pa.ListArray.from_arrays(pa.array(offsets), entries)


def _no_headers(positions: Positions, ends: Positions) -> pa.Array:
    """Return a row without headers for each position; most topics have no others."""
    _check_header_ends(positions, ends)
    offsets = pa.py_buffer(np.zeros(len(positions) + 1, np.int32))
    return pa.Array.from_buffers(
        HEADERS_TYPE, len(positions), [None, offsets], 0, children=[_NO_HEADER_ENTRIES]
    )


def _check_header_ends(after: Positions, ends: Positions) -> None:
    if (after != ends).any():
        raise CorruptRecordError("a record's headers do not end where the record does")


def _read_headers(array: Bytes, positions: Positions, fields: Positions, slots: Positions) -> Positions:
    """Read one header of each row into `fields`; return the positions behind them."""
    key_sizes, key_starts = read_varints(array, positions)
    if (key_sizes < 0).any():
        raise CorruptRecordError("a header's key is null")
    value_sizes, value_starts = read_varints(array, key_starts + key_sizes)
    after: Positions = value_starts + np.maximum(value_sizes, 0)
    fields[:, slots] = key_starts, key_sizes, value_starts, value_sizes
    return after


def _read_headers_of_row(data: bytes, position: int, fields: Positions, slots: range) -> int:
    """Read all of one row's remaining headers into `fields`; return the position behind them."""
    for slot in slots:
        try:
            key_size, key_start = read_varint(data, position)
            if key_size < 0:
                raise CorruptRecordError("a header's key is null")
            value_size, value_start = read_varint(data, key_start + key_size)
        except NeedMoreBytes:
            raise CorruptRecordError("a header passes the end of the records") from None
        position = value_start + max(value_size, 0)
        fields[:, slot] = key_start, key_size, value_start, value_size
    return position


def as_strings(keys: pa.Array) -> pa.Array:
    """Return a ``binary`` array as ``string``; bytes that are not UTF-8 become U+FFFD."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        # Java replaces invalid UTF-8 too; a producer's bad header must not stop a consumer.
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
