"""Direct execution and Spark make the same rows of values that declare no schema."""

import json
from dataclasses import replace

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.common.types import TopicPartition
from kalda.formats import FormatSpec, open_decoder
from kalda.formats.merging import merged_all, settled
from kalda.pipelines.direct.row_plan import RowPlan
from kalda.pipelines.direct.row_steps import without_offsets
from kalda.pipelines.engine.spark_sql import GOOD, ROW, STATE
from kalda.pipelines.engine.spark_tasks import DecodeTask
from kalda.records.columnar import ColumnarBatch

texts = st.text("ab1", max_size=2)
scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | texts
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("kl"), inner, max_size=2),
    max_leaves=4,
)
objects = st.lists(st.tuples(st.sampled_from(["id", "first", "last", "n", "amount"]), anything), max_size=5)
values = objects.map(lambda pairs: json.dumps(dict(pairs)).encode()) | st.sampled_from([None, b"junk", b"{}"])
topics = st.lists(st.lists(values, min_size=1, max_size=5), min_size=1, max_size=4)


def direct_rows(plan: RowPlan, found: pa.BinaryArray) -> pa.RecordBatch:
    count = len(found)
    records = ColumnarBatch(
        offsets=pa.array(range(count), pa.int64()),
        timestamps_ms=pa.array([0] * count, pa.int64()),
        timestamp_types=pa.array([0] * count, pa.int32()),
        keys=pa.nulls(count, pa.binary()),
        values=found,
        headers=None,
        next_offset=count,
        consumed_bytes=0,
    )
    return without_offsets(plan.rows_of(records, TopicPartition("t", 0)).rows)


def spark_rows(plan: RowPlan, schema: pa.Schema, found: pa.BinaryArray) -> list[object]:
    records = pa.record_batch({"value": found, "offset": pa.array(range(len(found)), pa.int64())})
    (batch,) = DecodeTask(plan, schema)([records])
    pairs = zip(batch.column(ROW).to_pylist(), batch.column(STATE).to_pylist(), strict=True)
    return [row for row, state in pairs if state == GOOD]


@settings(max_examples=100, deadline=None)
@given(topics)
def test_the_rows_are_the_same_either_way(batch: list[list[bytes | None]]) -> None:
    """Whatever the order of keys, and whichever topic or range a field comes in: names decide."""
    plan = RowPlan(keep=(), decoder=open_decoder(FormatSpec("json")))
    parts = [pa.array(each, pa.binary()) for each in batch]
    bound = plan.with_columns(settled(merged_all(plan.columns_of(each) for each in parts)))
    schema = bound.input_schema()
    assert schema is not None

    for found in parts:
        rows = direct_rows(bound, found)
        if not len(schema):
            continue
        assert schema == rows.schema
        spark = spark_rows(bound, schema, found)
        assert len(rows) == len(spark)
        for name in schema.names:
            expected = [row and row[name] for row in spark]  # type: ignore[index]  # a row is a mapping
            assert repr(rows.column(name).to_pylist()) == repr(expected), name
        other = replace(bound, decoder=plan.with_columns(pa.struct(list(schema)[::-1])).decoder)
        assert repr(spark) == repr(spark_rows(other, schema, found)), "the order of columns has no meaning"
