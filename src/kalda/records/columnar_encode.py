"""Encodes Arrow columns to record batches without creating an object per record.

Compiled code writes record after record where the package was built with it. Else numpy writes the varints of
one field of all records at once (`columnar_encode_numpy`). The producer sets sequence numbers when it sends a
batch, so they are not encoded here.

Invariant: the bytes equal those of `record.RecordBatchBuilder` for the same rows, in either implementation.
The compiled one returns None for what it does not accept, and numpy then raises the error.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from kalda.records import columnar_encode_numpy
from kalda.records.batch import (
    HEADER_SIZE,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Buffer,
    pack_batch,
    pack_header,
)
from kalda.records.columnar_binary import Integers, as_binary, binary_sizes
from kalda.records.compression import Compression, compress
from kalda.records.implementation import is_built, is_compiled
from kalda.records.varint import VARINT_BYTES_MAX, VARLONG_BYTES_MAX

if is_built:
    from kalda.records import columnar_encode_compiled

# The longest varints and attributes of a record, added to its bytes to bound its size.
_OVERHEAD_MAX: Final = 1 + 5 * VARINT_BYTES_MAX + VARLONG_BYTES_MAX


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
        self.values: pa.Array = as_binary(values)
        self.keys: pa.Array | None = None if keys is None else as_binary(keys)
        self._times = _times(timestamps_ms, count)
        for column in (self.keys, self._times, headers):
            if column is not None and len(column) != count:
                raise ValueError(f"a column has {len(column)} rows, the values have {count}")
        if count and int(self._times.min()) < -1:
            raise ValueError(f"timestamp {int(self._times.min())} is below -1")
        self._header_bytes: pa.Array | None = None if headers is None else _header_bytes(headers)
        sizes = binary_sizes(self.values) + _OVERHEAD_MAX
        for column in (self.keys, self._header_bytes):
            if column is not None:
                sizes += binary_sizes(column)
        self.bounds: Integers = np.cumsum(sizes)
        """The running sum of the rows' sizes in a batch, each at most 35 bytes above the exact size."""

    def __len__(self) -> int:
        return len(self.values)

    def size_bound(self, start: int, end: int) -> int:
        """Return a bound of the bytes of the records from row `start` to before `end`."""
        assert 0 <= start < end <= len(self), f"rows [{start}, {end}) of {len(self)}"
        return int(self.bounds[end - 1]) - (int(self.bounds[start - 1]) if start else 0)

    def end_of_batch(self, start: int, batch_bytes_max: int) -> int:
        """Return the row after the last that fits into a batch from `start` on; at least one row does."""
        assert 0 <= start < len(self), f"row {start} of {len(self)}"
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
        assert 0 <= start < end <= len(self), f"rows [{start}, {end}) of {len(self)}"
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
    header = {
        "base_offset": 0,
        "partition_leader_epoch": NO_PARTITION_LEADER_EPOCH,
        "attributes": int(compression),
        "last_offset_delta": len(values) - 1,
        "base_timestamp": int(times[0]),
        "max_timestamp": int(times.max()),
        "producer_id": NO_PRODUCER_ID,
        "producer_epoch": NO_PRODUCER_EPOCH,
        "base_sequence": NO_SEQUENCE,
        "record_count": len(values),
    }
    is_plain = compression is Compression.NONE
    records: Buffer | None = None
    if is_compiled():
        prefix = HEADER_SIZE if is_plain else 0
        batch = columnar_encode_compiled.encode_records(keys, values, times, header_bytes, prefix)
        if is_plain and batch is not None:
            pack_header(batch, **header)
            return batch
        records = batch
    if records is None:
        records = columnar_encode_numpy.encode_records(keys, values, times, header_bytes)
    return pack_batch(records if is_plain else compress(compression, records, compression_level), **header)


def _header_bytes(headers: pa.Array) -> pa.Array:
    encoded = columnar_encode_compiled.header_bytes(headers) if is_compiled() else None
    return columnar_encode_numpy.header_bytes(headers) if encoded is None else encoded


def _times(timestamps_ms: pa.Array | int, count: int) -> Integers:
    if isinstance(timestamps_ms, int):
        return np.full(count, timestamps_ms, np.int64)
    if timestamps_ms.null_count:
        raise ValueError("the timestamps have nulls; fill them first")
    times: Integers = timestamps_ms.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return times
