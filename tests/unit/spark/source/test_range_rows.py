"""`rows=ranges`: a task returns which offsets it stands for, and reads no record."""

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from kalda.common.types import TopicPartition
from kalda.spark.datasource import KaldaDataSource
from kalda.spark.source.option_values import OptionError
from kalda.spark.source.plan import OffsetRange
from kalda.spark.source.reader import RangePartition
from kalda.spark.source.schema import range_schema, source_schema

OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "t", "rows": "ranges"}


def test_one_row_for_each_range() -> None:
    """Nothing is fetched: the broker of the options does not exist."""
    source = KaldaDataSource(OPTIONS)
    reader = source.streamReader(source.schema())

    (row,) = reader.read(RangePartition((OffsetRange(TopicPartition("t", 3), 10, 25),)))

    assert isinstance(row, pa.RecordBatch)
    assert [{"topic": "t", "partition": 3, "start": 10, "end": 25}] == row.to_pylist()


def test_batch_and_stream_have_the_same_columns() -> None:
    source = KaldaDataSource(OPTIONS | {"includeHeaders": "true"})

    assert range_schema() == source.schema()
    source.reader(source.schema())


@pytest.mark.parametrize("schema", [source_schema(include_headers=False), StructType([])])
def test_another_schema_is_refused(schema: StructType) -> None:
    with pytest.raises(OptionError, match="start"):
        KaldaDataSource(OPTIONS).reader(schema)


def test_another_kind_of_row_is_refused() -> None:
    with pytest.raises(OptionError, match="neither records nor ranges"):
        KaldaDataSource(OPTIONS | {"rows": "columns"}).schema()
