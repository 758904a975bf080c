"""Makes the rows of `poll_arrow` from decoded columns; loaded on the first `poll_arrow`."""

from typing import Final

import pyarrow as pa

from kalda.common.types import TopicPartition
from kalda.records.columnar import ColumnarBatch
from kalda.records.columnar_fields import HEADERS_TYPE

_TIMESTAMP: Final = pa.timestamp("ms", "UTC")
ARROW_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIMESTAMP),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
    ]
)
"""The columns of `poll_arrow`. Keys and values are bytes; deserializers do not apply."""


class ArrowRows:
    """Adds the columns that say where the records are."""

    def __init__(self) -> None:
        self._names = _NameColumns(TopicPartition("", 0), 0)

    def of(self, partition: TopicPartition, decoded: ColumnarBatch) -> pa.RecordBatch:
        """Return the rows of one partition."""
        count = len(decoded)
        names = self._names
        if names.partition != partition or names.count < count:
            names = self._names = _NameColumns(partition, count)
        columns = [
            names.topics[:count],
            names.partitions[:count],
            decoded.offsets,
            decoded.timestamps_ms.view(_TIMESTAMP),
            decoded.timestamp_types,
            decoded.keys,
            decoded.values,
            decoded.headers,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


class _NameColumns:
    """The first two columns for up to `count` rows of one partition; the next fetch often has the same."""

    __slots__ = ("count", "partition", "partitions", "topics")

    def __init__(self, partition: TopicPartition, count: int) -> None:
        self.partition: Final = partition
        self.count: Final = count
        self.topics: Final = pa.repeat(pa.scalar(partition.topic, pa.string()), count)
        self.partitions: Final = pa.repeat(pa.scalar(partition.partition, pa.int32()), count)
