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
from kalda.records.varint import VARINT_BYTES_MAX, VARLONG_BYTES_MAX

# The longest varints and attributes of a record, added to its bytes to bound its size.
_OVERHEAD_MAX: Final = 1 + 5 * VARINT_BYTES_MAX + VARLONG_BYTES_MAX

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
    count = len(values)
    values = _as_binary(values)
    keys = pa.nulls(count, pa.binary()) if keys is None else _as_binary(keys)
    times = _times(timestamps_ms, count)
    header_bytes = None if headers is None else _header_bytes(headers)
    for column in (keys, times, headers):
        if column is not None and len(column) != count:
            raise ValueError(f"a column has {len(column)} rows, the values have {count}")
    if count and int(times.min()) < -1:
        raise ValueError(f"timestamp {int(times.min())} is below -1")
    bounds = np.cumsum(
        _sizes(keys) + _sizes(values) + (0 if header_bytes is None else _sizes(header_bytes)) + _OVERHEAD_MAX
    )
    start = 0
    while start < count:
        taken = int(bounds[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(bounds, taken + batch_bytes_max, side="right")))
        rows = slice(start, end)
        yield _encode_batch(
            keys[rows],
            values[rows],
            times[rows],
            None if header_bytes is None else header_bytes[rows],
            compression,
            compression_level,
        )
        start = end


def _encode_batch(
    keys: pa.Array,
    values: pa.Array,
    times: Integers,
    header_bytes: pa.Array | None,
    compression: Compression,
    compression_level: int | None,
) -> bytearray:
    count = len(values)
    key_sizes, value_sizes = _sizes(keys), _sizes(values)
    times_field = _varints(times - times[0])
    offsets_field = _varints(np.arange(count, dtype=np.int64))
    key_field = _varints(np.where(_nulls(keys), -1, key_sizes))
    value_field = _varints(np.where(_nulls(values), -1, value_sizes))
    header_sizes: Integers | int = 1 if header_bytes is None else _sizes(header_bytes)
    field_sizes = sum(field[1] for field in (times_field, offsets_field, key_field, value_field))
    sizes = 1 + field_sizes + key_sizes + value_sizes + header_sizes
    attributes = np.zeros((count, 1), np.uint8), np.ones(count, np.int64)
    records = pc.binary_join_element_wise(
        _joined([_varints(sizes), attributes, times_field, offsets_field, key_field]),
        keys,
        _joined([value_field]),
        values,
        pa.scalar(b"\x00", pa.binary()) if header_bytes is None else header_bytes,
        pa.scalar(b"", pa.binary()),
        null_handling="replace",
        null_replacement="",
    )
    return pack_batch(
        compress(compression, _contents(records), compression_level),
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
    """Return fields side by side as one ``binary`` value per row, without the padding."""
    rows = np.hstack([field for field, _ in fields])
    keep = np.hstack([np.arange(field.shape[1]) < lengths[:, np.newaxis] for field, lengths in fields])
    offsets = np.zeros(len(rows) + 1, np.int32)
    offsets[1:] = np.cumsum(sum(lengths for _, lengths in fields))
    return pa.Array.from_buffers(
        pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(rows[keep])]
    )


def _contents(column: pa.Array) -> memoryview:
    """Return the bytes of a ``binary`` column's rows, which are contiguous."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])]


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
