"""Defines the columns of the source and converts decoded records to Arrow batches of these columns.

The columns are those of Spark's own Kafka connector.

What a maintainer must not break: Spark compares the first batch's Arrow schema with its own and rejects any
difference, and it checks no batch after that; so every batch is built against the one `arrow_schema`.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kalda.common.types import TopicPartition
from kalda.records.columnar import ColumnarBatch
from kalda.spark.source.options import OptionError, RowKind
from kalda.spark.source.plan import OffsetRange

ROWS_MAX: Final = 10_000
"""Rows of one Arrow batch: Spark's default for `spark.sql.execution.arrow.maxRecordsPerBatch`."""

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


def source_schema(*, include_headers: bool, rows: RowKind = RowKind.RECORDS) -> StructType:
    """Return the columns of the source; `includeHeaders` adds the last one of records."""
    if rows is RowKind.RANGES:
        return range_schema()
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if include_headers:
        entry = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(entry)))
    return StructType(fields)


def range_schema() -> StructType:
    """Return the columns under `rows=ranges`: one row says which offsets ``[start, end)`` a task reads."""
    return StructType(
        [
            StructField("topic", StringType(), nullable=False),
            StructField("partition", IntegerType(), nullable=False),
            StructField("start", LongType(), nullable=False),
            StructField("end", LongType(), nullable=False),
        ]
    )


def range_row(offset_range: OffsetRange) -> pa.RecordBatch:
    """Return the one row of a task under `rows=ranges`."""
    row = {
        "topic": offset_range.topic_partition.topic,
        "partition": offset_range.topic_partition.partition,
        "start": offset_range.start,
        "end": offset_range.end,
    }
    return pa.RecordBatch.from_pylist([row], schema=to_arrow_schema(range_schema(), timezone="UTC"))


def check_schema(requested: StructType, *, include_headers: bool, rows: RowKind = RowKind.RECORDS) -> None:
    """Accept the source's own schema and any choice of its columns, in any order.

    Spark does not pass the columns that a query uses to a Python source; naming fewer with ``.schema()``
    is the way to read, decode and transfer less, e.g. ``.schema("value binary, offset bigint")``.

    Raises:
        OptionError: a column does not exist or has another type here.
    """
    if rows is RowKind.RANGES:
        if requested != range_schema():
            raise OptionError(f"under `rows`=ranges the schema is {range_schema().simpleString()}")
        return
    known = {field.name: field.dataType for field in source_schema(include_headers=include_headers)}
    for field in requested:
        if known.get(field.name) != field.dataType:
            columns = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
            raise OptionError(
                f"the schema asks for {field.name} {field.dataType.simpleString()}; this source has {columns}"
                + ("" if include_headers else ", and headers with `includeHeaders`=true")
            )


def source_column(name: str, decoded: ColumnarBatch, topic_partition: TopicPartition) -> pa.Array:
    """Return a column of the source for decoded records, with the type that it has in Spark.

    Raises:
        KeyError: the source has no column of that name.
    """
    return _COLUMNS[name](decoded, topic_partition)


class RowBatches:
    """Turns the decoded records of one partition into Arrow batches of a requested schema."""

    def __init__(self, schema: StructType, topic_partition: TopicPartition) -> None:
        self._schema: Final = to_arrow_schema(schema, timezone="UTC")
        fill = _COLUMNS
        self._columns: Final = [fill[name] for name in self._schema.names]
        self._topic_partition: Final = topic_partition

    def of(self, decoded: ColumnarBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of at most `ROWS_MAX`."""
        count = len(decoded)
        if not count:
            return
        arrays = [column(decoded, self._topic_partition) for column in self._columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        for start in range(0, count, ROWS_MAX):
            yield batch.slice(start, ROWS_MAX)


def _topics(decoded: ColumnarBatch, topic_partition: TopicPartition) -> pa.Array:
    name = topic_partition.topic.encode("ascii")
    count = len(decoded)
    offsets = np.arange(0, (count + 1) * len(name), len(name), dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(name * count))


def _partitions(decoded: ColumnarBatch, topic_partition: TopicPartition) -> pa.Array:
    return pa.array(np.full(len(decoded), topic_partition.partition, np.int32))


def _timestamps(decoded: ColumnarBatch, topic_partition: TopicPartition) -> pa.Array:
    return pa.array(decoded.timestamps_ms.to_numpy() * 1000).view(_TIMESTAMP)


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
