"""Converts decoded records to Arrow batches of the source's columns, for Spark and for direct pipelines.

The columns and their types are those of `schema`; this module knows how each one is filled. It builds arrays
from buffers, because `pa.array` and `pa.scalar` import pandas, which takes 0.2 s in each new process.

Spark compares the first batch's Arrow schema with its own and rejects any difference, and it checks no batch
after that; so every batch is built with the one schema of `RowBatches`.
"""

from collections.abc import Callable, Iterator
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from kalda.common.types import TopicPartition
from kalda.records.columnar import ColumnarBatch
from kalda.spark.source.plan import OffsetRange
from kalda.spark.source.schema import range_schema

ROWS_MAX: Final = 10_000
"""Rows of one Arrow batch: Spark's default for `spark.sql.execution.arrow.maxRecordsPerBatch`."""

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_MICROSECONDS: Final = 1_000
_MILLISECONDS_MAX: Final = (1 << 63) // _MICROSECONDS


class MalformedTimestampError(ValueError):
    """The timestamp of a record is none that a column of microseconds holds."""


def range_row(offset_range: OffsetRange) -> pa.RecordBatch:
    """Return the one row of a task under `rows=ranges`."""
    row = {
        "topic": offset_range.topic_partition.topic,
        "partition": offset_range.topic_partition.partition,
        "start": offset_range.start,
        "end": offset_range.end,
    }
    return pa.RecordBatch.from_pylist([row], schema=to_arrow_schema(range_schema(), timezone="UTC"))


def source_column(name: str, decoded: ColumnarBatch, topic_partition: TopicPartition) -> pa.Array:
    """Return a column of the source for decoded records, with the type that it has in Spark.

    Raises:
        KeyError: the source has no column of that name.
    """
    return _COLUMNS[name](decoded, topic_partition)


class RowBatches:
    """Turns the decoded records of one partition into Arrow batches of a requested schema."""

    def __init__(
        self, schema: StructType, topic_partition: TopicPartition, *, null_timestamps: bool = False
    ) -> None:
        """Take the columns, and whether a timestamp that fits none is null instead of an error."""
        self._null_timestamps: Final = null_timestamps
        self._schema: Final = to_arrow_schema(schema, timezone="UTC")
        self._topic_partition: Final = topic_partition
        self._constants: Final[dict[str, pa.Array]] = {}
        """Columns of one value: the longest that was needed so far; each batch takes a part of it."""

    def of(self, decoded: ColumnarBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of at most `ROWS_MAX`.

        Raises:
            MalformedTimestampError: a record's timestamp fits no column.
        """
        count = len(decoded)
        if not count:
            return
        arrays = [self._column(name, decoded) for name in self._schema.names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        for start in range(0, count, ROWS_MAX):
            yield batch.slice(start, ROWS_MAX)

    def _column(self, name: str, decoded: ColumnarBatch) -> pa.Array:
        if name not in _CONSTANTS:
            found = _COLUMNS[name](decoded, self._topic_partition)
            if name == "timestamp" and found.null_count and not self._null_timestamps:
                self._refuse_timestamp(decoded, found)
            return found
        column = self._constants.get(name)
        if column is None or len(column) < len(decoded):
            column = self._constants[name] = _COLUMNS[name](decoded, self._topic_partition)
        return column.slice(0, len(decoded))

    def _refuse_timestamp(self, decoded: ColumnarBatch, timestamps: pa.Array) -> NoReturn:
        row = pc.index(timestamps.is_null(), pa.scalar(True)).as_py()
        raise MalformedTimestampError(
            f"{self._topic_partition} at offset {decoded.offsets[row].as_py()}: the timestamp "
            f"{decoded.timestamps_ms[row].as_py()} of the record is no count of milliseconds that a "
            "timestamp column holds; its producer may count in nanoseconds. Mend the producer, and read such "
            "records with `malformedTimestamps` set to null, or without the column (option `columns`)"
        )


def _topics(decoded: ColumnarBatch, topic_partition: TopicPartition) -> pa.Array:
    name = topic_partition.topic.encode("ascii")
    count = len(decoded)
    ends = np.arange(0, (count + 1) * len(name), len(name), dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(name * count)], 0
    )


def _partitions(decoded: ColumnarBatch, topic_partition: TopicPartition) -> pa.Array:
    numbers = np.full(len(decoded), topic_partition.partition, np.int32)
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)], 0)


def _timestamps(decoded: ColumnarBatch, topic_partition: TopicPartition) -> pa.Array:
    """Return the timestamps; one whose microseconds do not fit is null."""
    milliseconds = decoded.timestamps_ms.to_numpy()
    times = milliseconds * _MICROSECONDS
    column = pa.Array.from_buffers(_TIMESTAMP, len(times), [None, pa.py_buffer(times)], 0)
    if len(milliseconds) and not (
        milliseconds.min() >= -_MILLISECONDS_MAX and milliseconds.max() <= _MILLISECONDS_MAX
    ):
        fits = (milliseconds >= -_MILLISECONDS_MAX) & (milliseconds <= _MILLISECONDS_MAX)
        return pc.if_else(pa.array(fits), column, pa.nulls(len(column), _TIMESTAMP))
    return column


def _headers(decoded: ColumnarBatch, topic_partition: TopicPartition) -> pa.Array:
    """A record without headers has null in Spark's column, not an empty list."""
    headers = decoded.headers
    assert headers is not None, "headers were asked for"
    return pc.if_else(pc.equal(pc.list_value_length(headers), 0), pa.scalar(None, headers.type), headers)


_COLUMNS: Final[dict[str, Callable[[ColumnarBatch, TopicPartition], pa.Array]]] = {
    "key": lambda decoded, _: decoded.keys,
    "value": lambda decoded, _: decoded.values,
    "topic": _topics,
    "partition": _partitions,
    "offset": lambda decoded, _: decoded.offsets,
    "timestamp": _timestamps,
    "timestampType": lambda decoded, _: decoded.timestamp_types,
    "headers": _headers,
}

_CONSTANTS: Final = frozenset({"topic", "partition"})
