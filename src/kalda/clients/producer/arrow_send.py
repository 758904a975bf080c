"""Turns an Arrow record batch into encoded producer batches, without one Python object for each record.

The columns are ``value`` (binary or string), and if present ``key`` (binary or string), ``headers``
(``list<struct<key: string, value: binary>>``), ``partition`` (integer) and ``timestamp`` (timestamp, or
integer milliseconds); null stands for "none given". Rows go to the partitions that `send` would choose.
Serializers and interceptors do not see them.

All rows are checked before the first one is appended, so that a call that raises for its rows has sent none
of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kalda.clients.producer.arrow_partitioning import UNASSIGNED, partitions_of
from kalda.clients.producer.partitioner import Partitioner
from kalda.records.batch import HEADER_SIZE
from kalda.records.columnar_encode import RecordColumns
from kalda.records.compression import Compression

COLUMNS: Final = ("value", "key", "headers", "partition", "timestamp")
CHUNK_BYTES_MAX: Final = 1_000_000
"""The size of an encoded batch before compression: what numpy does for each batch then costs nothing a row,
and the broker's default `max.message.bytes` allows it."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ArrowChunk:
    """Rows that become one batch."""

    columns: RecordColumns
    start: int
    end: int
    partition: int | None
    """None for the topic's sticky partition."""

    @property
    def record_count(self) -> int:
        """The number of rows."""
        return self.end - self.start

    @property
    def size_bound(self) -> int:
        """A bound of the bytes of the batch before compression."""
        return HEADER_SIZE + self.columns.size_bound(self.start, self.end)

    def encode(self, compression: Compression, compression_level: int | None) -> bytearray:
        """Return the batch."""
        return self.columns.encode(self.start, self.end, compression, compression_level)


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """The checked rows of one record batch."""

    columns: RecordColumns
    partitions: Integers | None
    """The partition that each row names, `UNASSIGNED` for none; None where no row names one."""

    @classmethod
    def read(cls, batch: pa.RecordBatch, now_ms: int) -> "ArrowRows":
        """Check the columns.

        Raises:
            ValueError: a column is missing, unknown or of another type, or a value is not allowed.
        """
        unknown = [name for name in batch.schema.names if name not in COLUMNS]
        if unknown:
            raise ValueError(f"column {unknown[0]!r} is not one of {', '.join(COLUMNS)}")
        columns = {name: batch.column(name) for name in batch.schema.names}
        if "value" not in columns:
            raise ValueError("the batch has no column 'value'; add one, of nulls for tombstones")
        keys = columns.get("key")
        for name in ("value", "key"):
            if name in columns and not _is_binary(columns[name].type):
                raise ValueError(f"column {name!r} is {columns[name].type}; cast it to binary or string")
        times = now_ms if "timestamp" not in columns else _milliseconds(columns["timestamp"], now_ms)
        partitions = None if "partition" not in columns else _partitions(columns["partition"])
        return cls(RecordColumns(keys, columns["value"], times, columns.get("headers")), partitions)

    @property
    def largest_row(self) -> int:
        """A bound of the bytes of a batch with only the largest row."""
        bounds = self.columns.bounds
        return HEADER_SIZE + (int(np.diff(bounds, prepend=0).max()) if len(bounds) else 0)

    @property
    def partition_max(self) -> int:
        """The highest partition that a row names, -1 if none does."""
        return -1 if self.partitions is None or not len(self.partitions) else int(self.partitions.max())

    def chunks(
        self,
        topic: str,
        partition_count: int,
        available: list[int],
        partitioner: Partitioner | None,
        *,
        uses_keys: bool,
        chunk_bytes: int,
    ) -> "Iterator[ArrowChunk]":
        """Yield the rows in batches of about `chunk_bytes`; those of a partition in their order."""
        partitions = self._choose(topic, partition_count, available, partitioner, uses_keys=uses_keys)
        if partitions is None or partition_count == 1:
            # All rows go to one partition, or a chunk at a time to the sticky one: their order stays.
            yield from _cut(self.columns, None if partitions is None else 0, chunk_bytes)
            return
        order = np.argsort(partitions, kind="stable")
        columns = self.columns.take(order)
        chosen, starts = np.unique(partitions[order], return_index=True)
        ends = [*starts[1:].tolist(), len(partitions)]
        for partition, start, end in zip(chosen.tolist(), starts.tolist(), ends, strict=True):
            yield from _cut(columns, None if partition == UNASSIGNED else partition, chunk_bytes, start, end)

    def _choose(
        self,
        topic: str,
        partition_count: int,
        available: list[int],
        partitioner: Partitioner | None,
        *,
        uses_keys: bool,
    ) -> Integers | None:
        """Return the partition of each row, None where all go to the sticky partition."""
        keys = self.columns.keys
        chosen: Integers | None = None
        if partitioner is not None:
            # A custom partitioner decides about one record at a time.
            each_key = [None] * len(self.columns) if keys is None else keys.to_pylist()
            each = [
                partitioner.partition(topic, key, value.as_py(), partition_count, available)
                for key, value in zip(each_key, self.columns.values, strict=True)
            ]
            chosen = np.array(each, np.int64)
            if each and not 0 <= min(each) <= max(each) < partition_count:
                raise ValueError(
                    f"the partitioner left the partitions 0 to {partition_count - 1} of topic {topic}"
                )
        elif keys is not None and uses_keys and keys.null_count < len(keys):
            chosen = partitions_of(keys, partition_count)
        if self.partitions is None:
            return chosen
        if chosen is None:
            return self.partitions
        return np.where(self.partitions == UNASSIGNED, chosen, self.partitions)


def _cut(
    columns: RecordColumns, partition: int | None, chunk_bytes: int, start: int = 0, end: int | None = None
) -> Iterator[ArrowChunk]:
    last = len(columns) if end is None else end
    while start < last:
        stop = min(last, columns.end_of_batch(start, chunk_bytes))
        yield ArrowChunk(columns, start, stop, partition)
        start = stop


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary_view(kind)
        or types.is_string_view(kind)
        or types.is_null(kind)
    )


def _milliseconds(column: pa.Array, now_ms: int) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    elif not pa.types.is_integer(column.type):
        raise ValueError(f"column 'timestamp' is {column.type}; it takes a timestamp or integer milliseconds")
    column = pc.fill_null(column.cast(pa.int64()), now_ms)
    if len(column) and pc.min(column).as_py() < 0:
        raise ValueError(f"column 'timestamp' has {pc.min(column).as_py()}, which is negative")
    return column


def _partitions(column: pa.Array) -> Integers:
    if not pa.types.is_integer(column.type):
        raise ValueError(f"column 'partition' is {column.type}; it takes integers")
    if len(column) and (lowest := pc.min(column).as_py()) is not None and lowest < 0:
        raise ValueError(f"column 'partition' has {lowest}, which is negative; use null for the partitioner")
    numbers: Integers = pc.fill_null(column.cast(pa.int64()), UNASSIGNED).to_numpy(zero_copy_only=False)
    return numbers
