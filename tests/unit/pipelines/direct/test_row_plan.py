"""Records become rows, and those that cannot become failures with their place."""

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType, TimestampType

from kalda.common.types import TopicPartition
from kalda.formats import FormatSpec, open_decoder
from kalda.pipelines.direct.row_plan import RowPlan
from kalda.records.columnar import ColumnarBatch
from kalda.spark.source.arrow_rows import MalformedTimestampError, RowBatches

PARTITION = TopicPartition("orders", 0)
LAST_MS = (2**63 - 1) // 1000
TIMES = [1_700_000_000_000, 1_700_000_000_000_000_000, LAST_MS, LAST_MS + 1, -LAST_MS - 1, -1]


def records(times: list[int]) -> ColumnarBatch:
    count = len(times)
    return ColumnarBatch(
        offsets=pa.array(range(5, 5 + count), pa.int64()),
        timestamps_ms=pa.array(times, pa.int64()),
        timestamp_types=pa.array([0] * count, pa.int32()),
        keys=pa.nulls(count, pa.binary()),
        values=pa.array(
            [b"x" if index == 3 else b'{"id":%d}' % index for index in range(count)], pa.binary()
        ),
        headers=None,
        next_offset=5 + count,
        consumed_bytes=0,
    )


def test_a_timestamp_that_fits_no_column_makes_its_record_bad() -> None:
    """Its microseconds wrapped around: a time in nanoseconds became the year 93852."""
    plan = RowPlan(keep=("timestamp",), decoder=open_decoder(FormatSpec("json", "id bigint")))

    made = plan.rows_of(records(TIMES), PARTITION)

    assert [0, 2, 5] == made.rows.column("id").to_pylist()
    assert [t * 1000 for t in (TIMES[0], LAST_MS, -1)] == made.rows.column("timestamp").cast(
        pa.int64()
    ).to_pylist()
    assert [(1, "MalformedTimestamp"), (3, "MalformedValue"), (4, "MalformedTimestamp")] == [
        (each.row, each.error_class) for each in made.failures
    ]


def test_a_timestamp_that_is_not_kept_harms_nothing() -> None:
    plan = RowPlan(keep=("offset",), decoder=open_decoder(FormatSpec("json", "id bigint")))

    assert [3] == [each.row for each in plan.rows_of(records(TIMES), PARTITION).failures]


def test_the_source_refuses_such_a_timestamp_or_makes_it_null() -> None:
    """As Spark's own connector does, and with its place."""
    schema = StructType([StructField("timestamp", TimestampType())])
    few = records(TIMES[:2])

    with pytest.raises(
        MalformedTimestampError, match="orders-0 at offset 6: the timestamp 1700000000000000000 "
    ):
        list(RowBatches(schema, PARTITION).of(few))
    (batch,) = RowBatches(schema, PARTITION, null_timestamps=True).of(few)

    assert [True, False] == batch.column("timestamp").is_valid().to_pylist()


def test_a_field_called_like_a_column_of_kalda_makes_its_record_bad() -> None:
    """It stopped the pipeline, and no command passed over the record."""
    values = pa.array([b'{"id":1}', b'{"id":2,"__kalda_offset":7}', b"x", None], pa.binary())
    found = replace(records([0] * 4), values=values)
    plan = RowPlan(keep=(), decoder=open_decoder(FormatSpec("json")))

    made = plan.with_columns(plan.columns_of(values)).rows_of(found, PARTITION)

    assert [(1, "ReservedName"), (2, "MalformedValue")] == [
        (each.row, each.error_class) for each in made.failures
    ]
    assert [{"id": 1, "__kalda_offset": 5}, {"id": None, "__kalda_offset": 8}] == made.rows.to_pylist()


def test_a_field_called_like_a_kept_column_makes_its_record_bad() -> None:
    """Whatever its case, which SQL does not look at; it stopped the pipeline."""
    values = pa.array([b'{"id":1}', b'{"id":2,"Offset":7}', b'{"id":3}', None], pa.binary())
    found = replace(records([0] * 4), values=values)
    plan = RowPlan(keep=("offset",), decoder=open_decoder(FormatSpec("json")))

    made = plan.with_columns(plan.columns_of(values)).rows_of(found, PARTITION)

    assert [(1, "ReservedName")] == [(each.row, each.error_class) for each in made.failures]
    assert "Offset is called like a column of the record that is kept" in made.failures[0].message
    assert [5, 7, 8] == made.rows.column("offset").to_pylist()


def test_an_object_of_too_many_fields_does_not_hide_those_of_other_values() -> None:
    """The batch shows a text where earlier ones have a struct, and the field ``b`` was lost in silence."""
    wide = json.dumps({"s": {f"k{number}": 1 for number in range(1_001)}}).encode()
    values = pa.array([b'{"s":{"a":1}}', wide, b'{"s":{"b":2}}'], pa.binary())
    plan = RowPlan(keep=(), decoder=open_decoder(FormatSpec("json")))
    known = plan.columns_of(values.slice(0, 1))

    good = plan.good_columns_of(values, known, plan.columns_of(values))

    assert pa.struct([("s", pa.struct([("a", pa.int64()), ("b", pa.int64())]))]) == good
