"""Encodes Arrow columns to record batches without creating an object per record.

numpy writes the varints of one field of all records at once. Arrow joins them with keys, values and headers
row by row, and the bytes of the joined column are the records section. The producer sets sequence numbers
when it sends a batch, so they are not encoded here.

Invariant: the bytes equal those of `record.RecordBatchBuilder` for the same rows.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kalda.records.batch import (
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    pack_batch,
)
from kalda.records.compression import Compression, compress
from kalda.records.varint import VARINT_BYTES_MAX, VARLONG_BYTES_MAX, varint

# The longest varints and attributes of a record, added to its bytes to bound its size.
_OVERHEAD_MAX: Final = 1 + 5 * VARINT_BYTES_MAX + VARLONG_BYTES_MAX

# How many offset deltas have a varint of one byte.
_SHORT_OFFSETS: Final = 64

Integers = npt.NDArray[np.int64]


def encode_batches(
    keys: pa.Array | None,
    values: pa.Array,
    timestamps_ms: pa.Array | int,
    headers: pa.Array | None = None,
    *,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    batch_bytes_max: int = 1_000_000,
) -> Iterator[bytearray]:
    """Yield batches that hold the rows in order, each at most `batch_bytes_max` before compression.

    A row that is larger by itself becomes a batch of its own, which the broker may refuse. `keys` and
    `values` are of any binary or string type, null where the record has none; `timestamps_ms` is a column
    without nulls or one time for all; `headers` is ``list<struct<key: string, value: binary>>``, a null list
    meaning none. Raises `ValueError` for columns of different lengths or a time before -1.
    """
    columns = RecordColumns(keys, values, timestamps_ms, headers)
    start = 0
    while start < len(columns):
        end = columns.end_of_batch(start, batch_bytes_max)
        yield columns.encode(start, end, compression, compression_level)
        start = end


class RecordColumns:
    """The columns of records, checked and ready to be encoded row by row range.

    Arguments and exceptions are those of `encode_batches`.
    """

    def __init__(
        self,
        keys: pa.Array | None,
        values: pa.Array,
        timestamps_ms: pa.Array | int,
        headers: pa.Array | None = None,
    ) -> None:
        count = len(values)
        self.values: pa.Array = _as_binary(values)
        self.keys: pa.Array | None = None if keys is None else _as_binary(keys)
        self._times = _times(timestamps_ms, count)
        for column in (self.keys, self._times, headers):
            if column is not None and len(column) != count:
                raise ValueError(f"a column has {len(column)} rows, the values have {count}")
        if count and int(self._times.min()) < -1:
            raise ValueError(f"timestamp {int(self._times.min())} is below -1")
        self._header_bytes: pa.Array | None = None if headers is None else _header_bytes(headers)
        sizes = _sizes(self.values) + _OVERHEAD_MAX
        for column in (self.keys, self._header_bytes):
            if column is not None:
                sizes += _sizes(column)
        self.bounds: Integers = np.cumsum(sizes)
        """The running sum of the rows' sizes in a batch, each a bound at most 35 bytes above the exact
        size."""

    def __len__(self) -> int:
        return len(self.values)

    def size_bound(self, start: int, end: int) -> int:
        """Return a bound of the bytes of the records from row `start` to before `end`."""
        return int(self.bounds[end - 1]) - (int(self.bounds[start - 1]) if start else 0)

    def end_of_batch(self, start: int, batch_bytes_max: int) -> int:
        """Return the row after the last that fits into a batch from `start` on; at least one row does."""
        taken = int(self.bounds[start - 1]) if start else 0
        return max(start + 1, int(np.searchsorted(self.bounds, taken + batch_bytes_max, side="right")))

    def take(self, rows: Integers) -> "RecordColumns":
        """Return the given rows in the given order."""
        indices = pa.array(rows)
        taken = RecordColumns.__new__(RecordColumns)
        taken.values = self.values.take(indices)
        taken.keys = None if self.keys is None else self.keys.take(indices)
        taken._times = self._times[rows]
        taken._header_bytes = None if self._header_bytes is None else self._header_bytes.take(indices)
        taken.bounds = np.cumsum(np.diff(self.bounds, prepend=0)[rows])
        return taken

    def encode(
        self, start: int, end: int, compression: Compression, compression_level: int | None
    ) -> bytearray:
        """Return a batch of the records from row `start` to before `end`, at least one."""
        rows = slice(start, end)
        return _encode_batch(
            None if self.keys is None else self.keys[rows],
            self.values[rows],
            self._times[rows],
            None if self._header_bytes is None else self._header_bytes[rows],
            compression,
            compression_level,
        )


def _encode_batch(
    keys: pa.Array | None,
    values: pa.Array,
    times: Integers,
    header_bytes: pa.Array | None,
    compression: Compression,
    compression_level: int | None,
) -> bytearray:
    count = len(values)
    records = None if header_bytes is not None else _uniform_records(keys, values, times)
    if records is None:
        records = _joined_records(keys, values, times, header_bytes)
    return pack_batch(
        records if compression is Compression.NONE else compress(compression, records, compression_level),
        base_offset=0,
        partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
        attributes=int(compression),
        last_offset_delta=count - 1,
        base_timestamp=int(times[0]),
        max_timestamp=int(times.max()),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=count,
    )


def _joined_records(
    keys: pa.Array | None, values: pa.Array, times: Integers, header_bytes: pa.Array | None
) -> memoryview:
    """Return the records section for rows of any sizes."""
    count = len(values)
    value_sizes = _sizes(values)
    fields = [_varints(times - times[0]), _varints(np.arange(count, dtype=np.int64))]
    sizes = 1 + fields[0][1] + fields[1][1] + value_sizes
    if keys is None:
        fields.append((np.ones((count, 1), np.uint8), np.ones(count, np.int64)))
    else:
        key_sizes = _sizes(keys)
        fields.append(_varints(np.where(_nulls(keys), -1, key_sizes)))
        sizes += key_sizes
    value_field = _varints(np.where(_nulls(values), -1, value_sizes) if values.null_count else value_sizes)
    sizes += fields[2][1] + value_field[1] + (1 if header_bytes is None else _sizes(header_bytes))
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
    lengths = np.diff(_ends(column))
    return int(lengths[0]) if (lengths == lengths[0]).all() else None


def _matrix(column: pa.Array, size: int) -> npt.NDArray[np.uint8]:
    """Return the values of a ``binary`` column without nulls, all of `size` bytes, as rows."""
    ends = _ends(column)
    contents = np.frombuffer(_contents(column), np.uint8) if size > 0 else np.empty(0, np.uint8)
    return contents.reshape(len(ends) - 1, max(size, 0))


def _ends(column: pa.Array) -> npt.NDArray[np.int32]:
    """Return where the values of a ``binary`` column begin and end in its data."""
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def _header_bytes(headers: pa.Array) -> pa.Array:
    """Return each row's headers as encoded in a record, the count first."""
    entries = headers.flatten()
    keys = _as_binary(entries.field("key"))
    values = _as_binary(entries.field("value"))
    if keys.null_count:
        raise ValueError("a header's key is null")
    joined = pc.binary_join_element_wise(
        _joined([_varints(_sizes(keys))]),
        keys,
        _joined([_varints(np.where(_nulls(values), -1, _sizes(values)))]),
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
    ends = _ends(column)
    return memoryview(b"" if data is None else data)[int(ends[0]) : int(ends[-1])]


def _as_binary(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _nulls(column: pa.Array) -> npt.NDArray[np.bool_]:
    if not column.null_count:
        return np.zeros(len(column), np.bool_)
    nulls: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _sizes(column: pa.Array) -> Integers:
    """Return the length of each value, 0 for nulls."""
    sizes = pc.binary_length(column)
    if column.null_count:
        sizes = pc.fill_null(sizes, 0)
    lengths: Integers = sizes.to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _times(timestamps_ms: pa.Array | int, count: int) -> Integers:
    if isinstance(timestamps_ms, int):
        return np.full(count, timestamps_ms, np.int64)
    if timestamps_ms.null_count:
        raise ValueError("the timestamps have nulls; fill them first")
    times: Integers = timestamps_ms.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return times
