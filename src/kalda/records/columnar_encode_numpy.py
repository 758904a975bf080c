"""Encodes Arrow columns to the records of a batch with numpy.

numpy writes the varints of one field of all records at once. Arrow joins them with keys, values and headers
row by row, and the bytes of the joined column are the records section. Headers and CRC of the batch are the
caller's.

This module defines what the compiled code (`columnar_encode_compiled`) has to write, and runs where that was
not built. Invariant: the bytes equal those of `record.RecordBatchBuilder` for the same rows.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kalda.records.columnar_binary import Integers, as_binary, binary_ends, binary_sizes, is_null
from kalda.records.varint import VARLONG_BYTES_MAX, varint

# How many offset deltas have a varint of one byte.
_SHORT_OFFSETS: Final = 64


def encode_records(
    keys: pa.Array | None, values: pa.Array, times: Integers, header_bytes: pa.Array | None
) -> memoryview:
    """Return the records section. Columns are ``binary``; `header_bytes` is what `header_bytes` returns."""
    records = None if header_bytes is not None else _uniform_records(keys, values, times)
    return _joined_records(keys, values, times, header_bytes) if records is None else records


def header_bytes(headers: pa.Array) -> pa.Array:
    """Return each row's encoded headers, the count first. Raises `ValueError` for a null key."""
    entries = headers.flatten()
    keys = as_binary(entries.field("key"))
    values = as_binary(entries.field("value"))
    if keys.null_count:
        raise ValueError("a header's key is null")
    joined = pc.binary_join_element_wise(
        _joined([_varints(binary_sizes(keys))]),
        keys,
        _joined([_varints(np.where(is_null(values), -1, binary_sizes(values)))]),
        values,
        pa.scalar(b"", pa.binary()),
        null_handling="replace",
        null_replacement="",
    )
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = np.zeros(len(headers) + 1, np.int32)
    offsets[1:] = np.cumsum(counts)
    rows = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), joined), pa.scalar(b"", pa.binary()))
    return pc.binary_join_element_wise(_joined([_varints(counts)]), rows, pa.scalar(b"", pa.binary()))


def _joined_records(
    keys: pa.Array | None, values: pa.Array, times: Integers, header_bytes: pa.Array | None
) -> memoryview:
    """Return the records section for rows of any sizes."""
    count = len(values)
    value_sizes = binary_sizes(values)
    fields = [_varints(times - times[0]), _varints(np.arange(count, dtype=np.int64))]
    sizes = 1 + fields[0][1] + fields[1][1] + value_sizes
    if keys is None:
        fields.append((np.ones((count, 1), np.uint8), np.ones(count, np.int64)))
    else:
        key_sizes = binary_sizes(keys)
        fields.append(_varints(np.where(is_null(keys), -1, key_sizes)))
        sizes += key_sizes
    value_field = _varints(np.where(is_null(values), -1, value_sizes) if values.null_count else value_sizes)
    sizes += fields[2][1] + value_field[1] + (1 if header_bytes is None else binary_sizes(header_bytes))
    attributes = np.zeros((count, 1), np.uint8), np.ones(count, np.int64)
    head = [_varints(sizes), attributes, *fields]
    parts = [_joined([*head, value_field])] if keys is None else [_joined(head), keys, _joined([value_field])]
    records = pc.binary_join_element_wise(
        *parts,
        values,
        pa.scalar(b"\x00", pa.binary()) if header_bytes is None else header_bytes,
        pa.scalar(b"", pa.binary()),
        null_handling="replace",
        null_replacement="",
    )
    return _contents(records)


def _uniform_records(keys: pa.Array | None, values: pa.Array, times: Integers) -> memoryview | None:
    """Return the records section for keys, values and times that take the same bytes in each row, else None.

    Rows whose offsets have varints of one length then form a matrix, which is filled column by column.
    """
    key_size, value_size = -1 if keys is None else _uniform_size(keys), _uniform_size(values)
    if key_size is None or value_size is None or value_size < 0 or (times != times[0]).any():
        return None
    count = len(values)
    pieces = []
    for start, end in _offset_varint_runs(count):
        offsets, _ = _varints(np.arange(start, end, dtype=np.int64))
        width = offsets.shape[1]
        tail = varint(value_size)
        body = 2 + width + len(varint(key_size)) + max(key_size, 0) + len(tail) + value_size + 1
        columns: list[npt.NDArray[np.uint8] | bytes] = [varint(body) + b"\x00\x00", offsets, varint(key_size)]
        if keys is not None:
            columns.append(_matrix(keys[start:end], key_size))
        columns += [tail, _matrix(values[start:end], value_size), b"\x00"]
        rows = np.empty((end - start, body + len(varint(body))), np.uint8)
        position = 0
        for column in columns:
            if isinstance(column, bytes):
                rows[:, position : position + len(column)] = np.frombuffer(column, np.uint8)
                position += len(column)
            else:
                rows[:, position : position + column.shape[1]] = column
                position += column.shape[1]
        pieces.append(rows.reshape(-1))
    return memoryview((pieces[0] if len(pieces) == 1 else np.concatenate(pieces)).data)


def _offset_varint_runs(count: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of offsets whose zigzag varints have the same length: 0 to 63, to 8191, ..."""
    start, bits = 0, 6
    while start < count:
        end = min(count, 1 << bits)
        yield start, end
        start = end
        bits += 7


def _uniform_size(column: pa.Array) -> int | None:
    """Return the length that all values have, -1 if all are null, None if they differ."""
    if column.null_count:
        return -1 if column.null_count == len(column) else None
    lengths = np.diff(binary_ends(column))
    return int(lengths[0]) if (lengths == lengths[0]).all() else None


def _matrix(column: pa.Array, size: int) -> npt.NDArray[np.uint8]:
    """Return the values of a ``binary`` column without nulls, all of `size` bytes, as rows."""
    ends = binary_ends(column)
    contents = np.frombuffer(_contents(column), np.uint8) if size > 0 else np.empty(0, np.uint8)
    return contents.reshape(len(ends) - 1, max(size, 0))


def _varints(numbers: Integers) -> tuple[npt.NDArray[np.uint8], Integers]:
    """Return zigzag varints as rows of bytes, padded to the longest, and their lengths."""
    raw = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    lengths = np.ones(len(raw), np.int64)
    width = 1
    while width < VARLONG_BYTES_MAX:
        is_longer = raw >= np.uint64(1 << 7 * width)
        if not is_longer.any():
            break
        lengths += is_longer
        width += 1
    rows = np.empty((len(raw), width), np.uint8)
    for index in range(width):
        rows[:, index] = ((raw >> np.uint64(7 * index)) & np.uint64(0x7F)).astype(np.uint8)
        rows[:, index] |= (lengths > index + 1).view(np.uint8) << 7
    return rows, lengths


def _joined(fields: list[tuple[npt.NDArray[np.uint8], Integers]]) -> pa.Array:
    """Return fields side by side as one ``binary`` value per row, without the padding.

    Beyond the first 64 rows, which have shorter offsets, the fields of most batches have no padding.
    """
    rows = np.hstack([field for field, _ in fields])
    padded = _padded_rows(fields)
    contents = rows.reshape(-1)
    if padded:
        keep = np.hstack(
            [np.arange(field.shape[1]) < lengths[:padded, np.newaxis] for field, lengths in fields]
        )
        contents = np.concatenate([rows[:padded][keep], rows[padded:].reshape(-1)])
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(sum(lengths for _, lengths in fields), out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(contents)]
    )


def _padded_rows(fields: list[tuple[npt.NDArray[np.uint8], Integers]]) -> int:
    """Return up to which row fields are shorter than their columns: 0, 64, or all."""
    count = len(fields[0][1])
    for padded in (0, _SHORT_OFFSETS):
        if all(
            field.shape[1] == 1 or (lengths[padded:] == field.shape[1]).all() for field, lengths in fields
        ):
            return min(padded, count)
    return count


def _contents(column: pa.Array) -> memoryview:
    """Return the bytes of a ``binary`` column's rows, which are contiguous."""
    data = column.buffers()[2]
    ends = binary_ends(column)
    return memoryview(b"" if data is None else data)[int(ends[0]) : int(ends[-1])]
