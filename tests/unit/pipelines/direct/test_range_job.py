"""One task on one range, with records from memory: what becomes of each record, and how it is counted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sqlglot")

from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.direct.range_job import BadRecordError, LostRowsError, RangeJob, RangeResult
from kalda.pipelines.direct.row_plan import DecodeFailure
from kalda.pipelines.direct.rows_target import DeadLetters, Written
from kalda.pipelines.direct.upsert_marks import UpsertMarks
from kalda.pipelines.engine.planner import plan_topic_pipeline
from kalda.pipelines.expectations import Expectations
from kalda.pipelines.spec.parser import parse_pipeline_file
from kalda.pipelines.sql.row_query import RowCondition
from kalda.pipelines.tables.fitting import Fitted, RowFit
from kalda.records.columnar import ColumnarBatch
from kalda.spark.source.options import parse_stream_options
from kalda.spark.source.plan import OffsetRange
from tests.unit.pipelines.engine.batches import Topic

FILE = """
name: shop
storage: state
pipelines:
  - name: orders
    from: {topic: orders, keep: [offset], value: {format: json, schema: 'id int, n int'}}
    transform:
      - select *, 10 div n as share where id >= 0
    expect:
      small: {check: "id < 90", on_fail: dlq}
      even: {check: "id % 2 = 0", on_fail: drop}
    to: {table: lake.orders}
"""
PLACE = TopicPartition("orders", 0)


@dataclass
class Letters:
    """A queue that keeps the offsets of bad records by stage."""

    found: list[tuple[int, str, str]] = field(default_factory=list)
    abandoned: int = 0
    finished: int = 0

    def open(self, query_id: str, batch_id: int, part: int) -> DeadLetters:
        return self

    def add(
        self,
        records: ColumnarBatch,
        topic_partition: TopicPartition,
        failures: Sequence[DecodeFailure],
        stage: str,
    ) -> None:
        offsets = records.offsets.to_pylist()
        self.found += [(offsets[each.row], stage, each.error_class) for each in failures]

    def finish(self) -> Written:
        self.finished += 1
        return Written(len(self.found))

    def abandon(self) -> None:
        self.abandoned += 1


@dataclass
class Rows:
    """A target that keeps rows, and may ask something of them or lose some."""

    rules: RowFit | None = None
    lost: int = 0
    failure: Exception | None = None
    found: list[dict[str, object]] = field(default_factory=list)

    def fit(self, rows: pa.RecordBatch) -> Fitted:
        return Fitted(rows, ()) if self.rules is None else self.rules.fit(rows)

    def write(self, batches: Iterable[pa.RecordBatch], query_id: str, batch_id: int, part: int) -> Written:
        for batch in batches:
            self.found += batch.to_pylist()
        if self.failure is not None:
            raise self.failure
        return Written(len(self.found) - self.lost)


def job_of(topic: Topic, target: Rows, letters: Letters | None, **options: object) -> RangeJob:
    file = parse_pipeline_file(FILE, "p.yml", directory=Path("/srv"), variables={})
    (spec,) = file.pipelines
    plan = plan_topic_pipeline(spec, file)
    job = RangeJob(
        query_id="query",
        batch_id=0,
        source=parse_stream_options(plan.options),
        rows=plan.rows,
        target=target,
        dead_letters=letters,
        expectations=Expectations(spec.expect),
        read=topic.read,
    )
    return replace(job, **options)  # type: ignore[arg-type]  # fields of the job


def span(start: int, end: int) -> OffsetRange:
    return OffsetRange(PLACE, start, end)


def value(number: int | None, n: int = 1) -> bytes:
    return b'{"id":%s,"n":%d}' % (b"null" if number is None else b"%d" % number, n)


def test_each_record_leaves_where_it_must_and_is_counted_there() -> None:
    values = [value(0), value(-1), value(3), value(95), b"bad", None, value(4, n=0), value(6)]
    target, letters = Rows(), Letters()
    job = job_of(Topic({0: [*values, *[None] * 4]}), target, letters)

    result = job.run(span(0, 8), 0)

    assert [0, 6] == [row["id"] for row in target.found]
    account = result.account
    assert (8, 2, 3, 3) == (account.records, account.rows_out, account.dlq, account.filtered)
    assert (1, 0) == (letters.finished, letters.abandoned)
    assert [(3, "expect"), (4, "decode"), (6, "transform")] == [
        (offset, stage) for offset, stage, _ in sorted(letters.found)
    ]


def test_without_a_queue_the_first_bad_record_is_named() -> None:
    target = Rows()
    job = job_of(Topic({0: [value(0), b"bad", b"worse"]}), target, None)
    with pytest.raises(BadRecordError, match=r"orders-0 at offset 1: .*; set on_error to dlq or skip"):
        job.run(span(0, 3), 0)


def test_records_that_are_passed_over_need_no_queue() -> None:
    target = Rows()
    passed = {PLACE: {1: "by hand", 2: "by hand"}}
    job = job_of(Topic({0: [value(0), b"bad", value(2), value(4)]}), target, None, passed=passed)
    account = job.run(span(0, 4), 0).account
    assert [0, 4] == [row["id"] for row in target.found]
    assert (2, 2, 2) == (account.rows_out, account.dlq, account.passed)


def test_rows_that_the_target_does_not_take_are_named() -> None:
    wanted = pa.schema([("id", pa.int8()), ("n", pa.int32()), ("offset", pa.int64()), ("share", pa.int64())])
    target, letters = Rows(RowFit("lake.orders", wanted)), Letters()
    job = job_of(Topic({0: [value(0), value(2, n=1), value(88)]}), target, letters, expectations=None)
    tall = job_of(Topic({0: [value(0), value(1 << 20), value(88)]}), target, letters, expectations=None)
    assert 3 == job.run(span(0, 3), 0).account.rows_out
    target.found.clear()
    result = tall.run(span(0, 3), 0)
    assert [0, 88] == [row["id"] for row in target.found]
    assert (2, 1) == (result.account.rows_out, result.account.dlq)
    assert [(1, "target")] == [(offset, stage) for offset, stage, _ in letters.found]


def test_rows_that_get_lost_are_an_error_and_letters_are_given_up() -> None:
    letters = Letters()
    job = job_of(Topic({0: [value(0), b"bad", value(2)]}), Rows(lost=1), letters)
    with pytest.raises(LostRowsError, match="orders-0: the target wrote 1 of 2 rows"):
        job.run(span(0, 3), 0)
    job = job_of(Topic({0: [value(0), b"bad"]}), Rows(failure=OSError("full")), letters)
    with pytest.raises(OSError, match="full"):
        job.run(span(0, 2), 0)
    assert (0, 2) == (letters.finished, letters.abandoned)


def test_rows_that_replace_each_other_are_marked_and_deletions_are_not_checked() -> None:
    target, letters = Rows(), Letters()
    upsert = UpsertMarks(("id",), RowCondition("n = 5"))
    job = job_of(
        Topic({0: [value(2), value(3, n=5), value(7), None]}),
        target,
        letters,
        upsert=upsert,
    )
    account = job.run(span(0, 4), 0).account
    marks = [
        (row["id"], row["__kalda_partition"], row["__kalda_offset"], row["__kalda_delete"])
        for row in target.found
    ]
    assert [(2, 0, 0, False), (3, 0, 1, True)] == marks
    assert (2, 2) == (account.rows_out, account.filtered)


records = st.lists(
    st.sampled_from([b"bad", None, value(None), value(3, n=0), *map(value, (-1, 0, 1, 2, 50, 95, 98))]),
    max_size=14,
)


@settings(max_examples=80, deadline=None)
@given(records, st.data())
def test_it_does_not_matter_how_a_topic_is_cut(values: list[bytes | None], data: st.DataObject) -> None:
    """Ranges, and the records of one read, are matters of speed: rows, letters and counts are the same."""
    whole, whole_letters = Rows(), Letters()
    expected = job_of(Topic({0: values}, chunk=100), whole, whole_letters).run(span(0, len(values)), 0)

    places = st.integers(1, max(1, len(values) - 1))
    cuts = sorted(data.draw(st.sets(places, max_size=3)) & {*range(1, len(values))})
    bounds = list(zip([0, *cuts], [*cuts, len(values)], strict=True))
    target, letters = Rows(), Letters()
    chunk = data.draw(st.integers(1, 5))
    results: list[RangeResult] = []
    for part, (start, end) in enumerate(bounds):
        one = Rows()
        results += [job_of(Topic({0: values}, chunk), one, letters).run(span(start, end), part)]
        target.found += one.found
    assert whole.found == target.found
    assert sorted(whole_letters.found) == sorted(letters.found)
    account = BatchAccount.of_parts("query", 0, [each.account for each in results])
    assert (expected.account,) == account.ranges
