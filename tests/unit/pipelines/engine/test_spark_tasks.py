"""The Python tasks around Spark's SQL engine, run one after the other without Spark."""

import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("sqlglot")

from kalda.formats.decoded import DecodeFailure
from kalda.formats.merging import ColumnsChangedError
from kalda.pipelines.direct.range_job import BadRecordError, LostRowsError, RangeJob, RangeResult
from kalda.pipelines.direct.range_records import ReadMeter
from kalda.pipelines.direct.row_steps import FunctionStep
from kalda.pipelines.direct.upsert_marks import UpsertMarks
from kalda.pipelines.engine import spark_tasks
from kalda.pipelines.engine.planner import plan_topic_pipeline
from kalda.pipelines.engine.spark_tasks import (
    CountTarget,
    DecodeTask,
    FunctionTask,
    KnownFailure,
    MisfitError,
    PlainWriteTask,
    WriteTask,
)
from kalda.pipelines.spec.parser import parse_pipeline_file
from kalda.pipelines.tables.fitting import RowFit
from kalda.records.columnar_fields import WantedFields
from kalda.spark.source.options import SourceOptions, parse_stream_options
from kalda.spark.source.plan import OffsetRange
from tests.unit.pipelines.direct.test_range_job import Letters, Rows, span, value
from tests.unit.pipelines.engine.batches import Topic

STEP = f"{__name__}:keep_even"
FILE = f"""
name: shop
storage: state
pipelines:
  - name: orders
    from: {{topic: orders, keep: [offset], value: {{format: json, schema: 'id int, n int'}}}}
    transform: [{{python: "{STEP}"}}]
    to: {{table: lake.orders}}
"""
COLUMNS = pa.schema([("id", pa.int32()), ("n", pa.int32()), ("offset", pa.int64())])


def keep_even(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Keep rows with an even id, and add a column; fail for one id."""
    if pc.any(pc.equal(batch.column("id"), 50)).as_py():
        raise ValueError("an id of 50 is not expected")
    even = pc.equal(pc.bit_wise_and(batch.column("id"), 1), 0)
    rows = batch.filter(even)
    return rows.append_column("twice", pc.multiply(rows.column("id"), 2))


def job_of(execution: str, topic: Topic, target: Rows, letters: Letters | None) -> RangeJob:
    text = FILE + f"    execution: {execution}\n"
    file = parse_pipeline_file(text, "p.yml", directory=Path("/srv"), variables={})
    (spec,) = file.pipelines
    plan = plan_topic_pipeline(spec, file)
    source = parse_stream_options(plan.options)
    return RangeJob(
        query_id="query",
        batch_id=0,
        source=source,
        rows=plan.rows,
        target=target,
        dead_letters=letters,
        read=topic.read,
    )


@contextmanager
def in_a_task(topic: Topic, part: int = 0) -> Iterator[None]:
    """Let tasks of Spark run here, as number `part`, and read bad records again from the topic."""

    def read(reader: object, options: SourceOptions, few: OffsetRange, **wanted: object) -> object:
        return topic.read(options, few, WantedFields(True, True, True), ReadMeter())

    class Reader:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *error: object) -> None:
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_tasks, "task_part", lambda: part)
        patch.setattr(spark_tasks, "prepare_worker", lambda: None)
        patch.setattr(spark_tasks, "pooled_reader", lambda client: Reader())
        patch.setattr(spark_tasks, "read_columns", read)
        yield


def batches_of(topic: Topic, job: RangeJob, found: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Return what Spark's source gives to the first task."""
    for records in topic.read(job.source, found, WantedFields(True, True, True), ReadMeter()):
        yield records.to_record_batch()


def through_spark(
    job: RangeJob,
    topic: Topic,
    found: OffsetRange,
    failing: Mapping[int, Mapping[int, KnownFailure]] | None = None,
) -> RangeResult:
    decode = DecodeTask(job.rows, COLUMNS, failing or {})
    behind = COLUMNS.append(pa.field("twice", pa.int32()))
    function = FunctionTask(FunctionStep(STEP), behind)
    write = WriteTask(job, (found,))
    with in_a_task(topic):
        (made,) = write(function(decode(batches_of(topic, job, found))))
    result: RangeResult = pickle.loads(made.column(0)[0].as_py())
    return result


records = st.lists(
    st.sampled_from([b"bad", None, b"{}", *map(value, (-2, -1, 0, 1, 2, 50, 98))]), min_size=1, max_size=12
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(records, st.integers(1, 5))
def test_both_ways_have_the_same_rows_letters_and_counts(values: list[bytes | None], chunk: int) -> None:
    """A pipeline may change between them from one batch to the next."""
    topic, found = Topic({0: values}, chunk), span(0, len(values))
    direct_rows, direct_letters = Rows(), Letters()
    direct = job_of("direct", topic, direct_rows, direct_letters).run(found, 0)
    rows, letters = Rows(), Letters()
    result = through_spark(job_of("spark", topic, rows, letters), topic, found)

    assert direct_rows.found == rows.found
    assert sorted(direct_letters.found) == sorted(letters.found)
    # Spark's way has no totals of the columns before the transform.
    assert replace(direct.account, decoded=None) == result.account
    assert (direct.dead_letters is None) == (result.dead_letters is None)


def test_a_function_that_fails_for_a_record_needs_no_job_of_spark() -> None:
    """The task finds the record itself, as direct execution does."""
    topic, found = Topic({0: [value(each) for each in (2, 50, 4, 3, 50)]}, 5), span(0, 5)
    rows, letters = Rows(), Letters()

    result = through_spark(job_of("spark", topic, rows, letters), topic, found)

    assert (2, 2, 1) == (result.account.rows_out, result.account.dlq, result.account.filtered)
    assert [2, 4] == [row["id"] for row in rows.found]
    assert [(1, "transform", "StepFailed"), (4, "transform", "StepFailed")] == letters.found


def test_records_that_are_known_to_fail_are_not_decoded() -> None:
    topic = Topic({0: [value(0), value(2), b"bad", value(4)]})
    rows, letters = Rows(), Letters()
    known = {0: {1: (DecodeFailure(0, "StepFailed", "it divides by zero"), "transform")}}
    account = through_spark(job_of("spark", topic, rows, letters), topic, span(0, 4), known).account
    assert [0, 4] == [row["id"] for row in rows.found]
    assert (2, 2) == (account.rows_out, account.dlq)
    assert [(1, "transform"), (2, "decode")] == [
        (offset, stage) for offset, stage, _ in sorted(letters.found)
    ]


@pytest.mark.parametrize("values", [[b"bad"], [value(1), b"bad"], [value(1)]])
def test_a_step_that_has_no_good_row_adds_its_columns_all_the_same(values: list[bytes | None]) -> None:
    """One bad record alone in a batch stopped the pipeline for good."""
    topic, rows, letters = Topic({0: values}, chunk=1), Rows(), Letters()
    account = through_spark(job_of("spark", topic, rows, letters), topic, span(0, len(values))).account
    assert (0, values.count(b"bad"), values.count(value(1))) == (
        account.rows_out,
        account.dlq,
        account.filtered,
    )


def test_without_a_queue_the_bad_record_is_named() -> None:
    topic = Topic({0: [value(0), b"bad"]})
    with pytest.raises(BadRecordError, match=r"orders-0 at offset 1: .*; set on_error to dlq or skip"):
        through_spark(job_of("spark", topic, Rows(), None), topic, span(0, 2))


def test_bad_records_that_the_log_has_no_longer_stop_the_batch() -> None:
    """The letter is the record itself, so that retention may overtake a slow batch."""
    topic, letters = Topic({0: [value(0), b"bad", b"worse"]}), Letters()
    job = job_of("spark", topic, Rows(), letters)
    decode = DecodeTask(job.rows, COLUMNS)
    with in_a_task(topic):
        decoded = list(decode(batches_of(topic, job, span(0, 3))))
    with (
        in_a_task(Topic({0: [value(0), b"bad"]})),
        pytest.raises(LostRowsError, match="the log has 1 of 2 bad"),
    ):
        list(WriteTask(job, (span(0, 3),))(decoded))
    assert 1 == letters.abandoned


def test_rows_that_the_target_loses_or_does_not_take() -> None:
    topic = Topic({0: [value(0), value(1 << 20), value(2)]})
    with pytest.raises(LostRowsError, match="orders-0: 2 of 3 rows were written"):
        through_spark(job_of("spark", topic, Rows(lost=1), Letters()), topic, span(0, 3))
    wanted = pa.schema([("id", pa.int8()), ("n", pa.int32()), ("offset", pa.int64()), ("twice", pa.int32())])
    rows, letters = Rows(RowFit("lake.orders", wanted)), Letters()
    account = through_spark(job_of("spark", topic, rows, letters), topic, span(0, 3)).account
    assert ([0, 2], 2, 1) == ([row["id"] for row in rows.found], account.rows_out, account.dlq)
    assert [(1, "target")] == [(offset, stage) for offset, stage, _ in letters.found]


def test_tombstones_delete_and_those_without_keys_are_filtered() -> None:
    topic = Topic({0: [value(2), None]})
    rows = Rows()
    job = replace(job_of("spark", topic, rows, Letters()), upsert=UpsertMarks(("offset",)))
    decode = DecodeTask(job.rows, COLUMNS)
    with in_a_task(topic):
        list(WriteTask(job, (span(0, 2),))(decode(batches_of(topic, job, span(0, 2)))))
    assert [(0, False), (1, True)] == [(row["offset"], row["__kalda_delete"]) for row in rows.found]
    rows.found.clear()
    job = replace(job, upsert=UpsertMarks(("id",)))
    with in_a_task(topic):
        (made,) = WriteTask(job, (span(0, 2),))(decode(batches_of(topic, job, span(0, 2))))
    result: RangeResult = pickle.loads(made.column(0)[0].as_py())
    assert (1, 1) == (result.account.rows_out, result.account.filtered)


def test_a_field_that_was_not_found_before_repeats_the_batch() -> None:
    """Columns are found by a task of their own; a record that came between must not lose its field."""
    topic = Topic({0: [value(0)]})
    job = job_of("spark", topic, Rows(), Letters())
    fewer = pa.schema([COLUMNS.field("id"), COLUMNS.field("offset")])
    with in_a_task(topic), pytest.raises(ColumnsChangedError, match="values have the fields n"):
        list(DecodeTask(job.rows, fewer)(batches_of(topic, job, span(0, 1))))


def test_rows_of_a_whole_batch_are_written_or_refused() -> None:
    """They come from no single record: none can be put aside."""
    batch = pa.record_batch({"id": pa.array([1, 2], pa.int64()), "extra": [True, False]})
    rows = Rows()
    task = PlainWriteTask(rows, "query", 0, None, ("extra",))
    with in_a_task(Topic({})):
        (made,) = task([batch, batch.slice(0, 0)])
    assert 2 == pickle.loads(made.column(0)[0].as_py()).rows
    assert [{"id": 1}, {"id": 2}] == rows.found
    narrow = Rows(RowFit("lake.orders", pa.schema([("id", pa.int8())])))
    great = pa.record_batch({"id": pa.array([1, 1 << 20], pa.int64())})
    with in_a_task(Topic({})), pytest.raises(MisfitError, match="1 of 2 rows cannot be written"):
        list(PlainWriteTask(narrow, "query", 0, None)([great]))
    counted = CountTarget().write([batch, batch], "query", 0, 0)
    assert (4, ()) == (counted.rows, counted.files)
