"""A task of direct execution against a real broker, without Spark."""

import json
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kalda.common.types import TopicPartition
from kalda.formats import FormatSpec, open_decoder
from kalda.pipelines.accounts import RangeAccount
from kalda.pipelines.direct import range_job
from kalda.pipelines.direct.columns_job import ColumnsJob
from kalda.pipelines.direct.range_job import BadRecordError, LostRowsError, RangeJob
from kalda.pipelines.direct.row_plan import DecodeFailure, RowPlan
from kalda.pipelines.direct.row_steps import OFFSET_COLUMN, FunctionStep
from kalda.pipelines.direct.rows_target import SkipTarget, Written
from kalda.pipelines.engine.planner import plan_topic_pipeline
from kalda.pipelines.expectations import Expectations
from kalda.pipelines.spec.model import Expectation, OnFail
from kalda.pipelines.spec.parser import parse_pipeline_file
from kalda.pipelines.sql.nodes import SqlError
from kalda.pipelines.sql.row_query import RowQuery
from kalda.pipelines.tables.fitting import Fitted, Misfit
from kalda.records.columnar import ColumnarBatch
from kalda.spark.source.options import SourceOptions, parse_batch_options, parse_stream_options
from kalda.spark.source.plan import OffsetRange
from kalda.spark.worker import close_readers

T0 = 1_700_000_000_000


@dataclass(frozen=True)
class OneFile:
    """Writes a task's rows to one Parquet file."""

    directory: Path
    lost: int = 0

    def fit(self, rows: pa.RecordBatch) -> Fitted:
        return Fitted(rows)

    def write(self, batches: Iterable[pa.RecordBatch], query_id: str, batch_id: int, part: int) -> Written:
        rows = pa.Table.from_batches(batches)
        pq.write_table(rows, self.directory / f"{query_id}-{batch_id}-{part}.parquet")
        return Written(rows.num_rows - self.lost)


@dataclass(frozen=True)
class Failure:
    row: int
    error_class: str = "MalformedValue"
    message: str = "broken"
    schema_id: int | None = None


@dataclass(frozen=True)
class DecodedNumbers:
    columns: pa.StructArray
    errors: Sequence[Failure]


class Numbers:
    """Decodes ``{"n": 1}`` one by one."""

    def schema(self) -> pa.Schema:
        return pa.schema({"n": pa.int64()})

    def decode(self, values: pa.Array) -> DecodedNumbers:
        rows: list[dict[str, int] | None] = []
        errors = []
        for index, value in enumerate(values.to_pylist()):
            try:
                rows.append(None if value is None else json.loads(value))
            except ValueError:
                rows.append(None)
                errors.append(Failure(index))
        return DecodedNumbers(pa.array(rows, pa.struct({"n": pa.int64()})), errors)


@pytest.fixture
def options(bootstrap: str) -> Iterable[SourceOptions]:
    yield parse_batch_options({"kafka.bootstrap.servers": bootstrap, "subscribe": "unused"})
    close_readers()


@pytest.fixture
def topic(bootstrap: str, topic_name: Callable[[str], str]) -> str:
    """1,000 records in one partition, each hundredth is no JSON."""
    name = topic_name("direct")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(name, 1, 1)])[name].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 100})
    for number in range(1000):
        value = b"bad" if number % 100 == 7 else b'{"n": %d}' % number
        producer.produce(name, value, key=b"k%d" % number, partition=0, timestamp=T0 + number)
    assert 0 == producer.flush(30)
    return name


def test_a_range_is_written_with_the_records_own_columns(
    options: SourceOptions, topic: str, tmp_path: Path
) -> None:
    columns = ("key", "value", "topic", "partition", "offset", "timestamp")
    job = RangeJob(
        query_id="q",
        batch_id=3,
        source=options,
        rows=RowPlan(columns),
        target=OneFile(tmp_path),
        event_time="timestamp",
    )
    result = pickle.loads(pickle.dumps(job)).run(OffsetRange(TopicPartition(topic, 0), 100, 900), 5)

    rows = pq.read_table(tmp_path / "q-3-5.parquet")
    assert list(columns) == rows.schema.names
    assert job.rows.output_schema() == rows.schema
    assert list(range(100, 900)) == rows["offset"].to_pylist()
    assert b"k100" == rows["key"][0].as_py()
    account = result.account
    assert (800, 800, 0, 0, 0) == (
        account.records,
        account.rows_out,
        account.dlq,
        account.filtered,
        account.gaps,
    )
    assert (T0 + 100, T0 + 899) == (account.event_time_min, account.event_time_max)
    assert result.metrics.network_bytes + result.metrics.files_bytes > 800 * 10


def test_bad_and_filtered_records_are_counted_where_they_leave(
    options: SourceOptions, topic: str, tmp_path: Path
) -> None:
    large = RowQuery("select * where n >= 500", carried=(OFFSET_COLUMN,))
    job = RangeJob(
        query_id="q",
        batch_id=0,
        source=options,
        rows=RowPlan(("offset",), Numbers(), (large,)),
        target=OneFile(tmp_path),
        dead_letters=SkipTarget(),
    )
    result = job.run(OffsetRange(TopicPartition(topic, 0), 0, 1000), 0)

    account = result.account
    assert (1000, 495, 10, 495) == (account.records, account.rows_out, account.dlq, account.filtered)
    rows = pq.read_table(tmp_path / "q-0-0.parquet")
    assert ["n", "offset"] == rows.schema.names
    assert rows["n"].to_pylist() == rows["offset"].to_pylist()


def test_a_bad_record_stops_a_batch_that_has_no_place_for_it(
    options: SourceOptions, topic: str, tmp_path: Path
) -> None:
    job = RangeJob(
        query_id="q",
        batch_id=0,
        source=options,
        rows=RowPlan((), Numbers()),
        target=OneFile(tmp_path),
    )
    with pytest.raises(BadRecordError, match=rf"{topic}-0 at offset 107: MalformedValue: broken; set on_err"):
        job.run(OffsetRange(TopicPartition(topic, 0), 100, 900), 0)


@dataclass(frozen=True)
class NoHundreds(OneFile):
    """Takes no number that ends with 00."""

    def fit(self, rows: pa.RecordBatch) -> Fitted:
        bad = [row for row, number in enumerate(rows["n"].to_pylist()) if number % 100 == 0]
        good = pa.array([number % 100 != 0 for number in rows["n"].to_pylist()])
        return Fitted(rows.filter(good), tuple(Misfit(row, "ValueMisfit", f"row {row}") for row in bad))


class Letters:
    """Keeps the offset and the cause of each dead letter, by stage."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[int, str]]] = {}

    def open(self, query_id: str, batch_id: int, part: int) -> "Letters":
        return self

    def add(
        self,
        records: ColumnarBatch,
        topic_partition: TopicPartition,
        failures: Sequence[DecodeFailure],
        stage: str,
    ) -> None:
        places = [(records.offsets[each.row].as_py(), each.error_class) for each in failures]
        self.found.setdefault(stage, []).extend(places)

    def finish(self) -> Written:
        return Written(sum(map(len, self.found.values())))

    def abandon(self) -> None:
        pass


def reciprocal(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Raise an error for the number 555."""
    numbers = rows.column("n").to_pylist()
    if 555 in numbers:
        raise ZeroDivisionError("555 has no reciprocal")
    return rows


def test_each_record_that_cannot_be_written_is_named(
    options: SourceOptions, topic: str, tmp_path: Path
) -> None:
    """One bad value stopped the pipeline for good; the records beside it are written."""
    steps = (
        RowQuery("select *, 1000 / (n - 444) as r", carried=(OFFSET_COLUMN,)),
        FunctionStep(f"{__name__}:reciprocal"),
    )
    letters = Letters()
    job = RangeJob(
        query_id="q",
        batch_id=0,
        source=options,
        rows=RowPlan(("offset",), Numbers(), steps),
        target=NoHundreds(tmp_path),
        dead_letters=letters,
        expectations=Expectations(
            [Expectation(name="ratio", check="1 / (n - 333) < 2", on_fail=OnFail.DROP)]
        ),
    )
    account = job.run(OffsetRange(TopicPartition(topic, 0), 0, 1000), 0).account

    assert (1000, 977, 23, 0) == (account.records, account.rows_out, account.dlq, account.filtered)
    assert [(444, "StepFailed"), (555, "StepFailed")] == letters.found["transform"]
    assert [(number, "ValueMisfit") for number in range(0, 1000, 100)] == letters.found["target"]
    assert [(333, "ExpectationFailed")] == letters.found["expect"]
    assert {"decode", "transform", "expect", "target"} == set(letters.found)
    written = pq.read_table(tmp_path / "q-0-0.parquet")["n"].to_pylist()
    assert [n for n in range(1000) if n % 100 not in (0, 7) and n not in (333, 444, 555)] == written


def test_a_record_that_an_operator_passes_over_stops_nothing(
    options: SourceOptions, topic: str, tmp_path: Path
) -> None:
    """The account says so, also without a dead-letter queue; other bad records still stop the batch."""
    place = TopicPartition(topic, 0)
    job = RangeJob(
        query_id="q",
        batch_id=0,
        source=options,
        rows=RowPlan(("offset",), Numbers()),
        target=OneFile(tmp_path),
        passed={place: {7: "the producer was wrong", 9: "x"}},
    )
    account = job.run(OffsetRange(place, 0, 100), 0).account
    assert (100, 98, 2, 2) == (account.records, account.rows_out, account.dlq, account.passed)
    assert account == RangeAccount.from_json(account.to_json())
    with pytest.raises(BadRecordError, match="at offset 107"):
        job.run(OffsetRange(place, 0, 200), 0)

    letters = Letters()
    replace(job, dead_letters=letters).run(OffsetRange(place, 0, 200), 0)
    assert {"decode": [(7, "Passed"), (9, "Passed"), (107, "MalformedValue")]} == letters.found


def test_a_record_that_is_passed_over_shows_no_columns(options: SourceOptions, topic: str) -> None:
    """Else no command would help a pipeline that such columns stop."""
    place = TopicPartition(topic, 0)
    plan = RowPlan((), open_decoder(FormatSpec("json")))
    job = ColumnsJob(0, options, plan, {place: {3: "too many fields"}})

    assert [] == job.run(OffsetRange(place, 3, 4), 0).all.names
    assert ["n"] == job.run(OffsetRange(place, 3, 5), 0).all.names


def test_a_step_that_fails_for_each_record_ends(
    options: SourceOptions, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_job, "ATTEMPTS_MAX", 100)
    job = RangeJob(
        query_id="q",
        batch_id=0,
        source=options,
        rows=RowPlan(("offset",), Numbers(), (RowQuery("select 1 / 0 as n", carried=(OFFSET_COLUMN,)),)),
        target=OneFile(tmp_path),
        dead_letters=SkipTarget(),
    )
    with pytest.raises(SqlError, match="division by zero"):
        job.run(OffsetRange(TopicPartition(topic, 0), 0, 1000), 0)


def test_a_target_that_writes_fewer_rows_than_it_got_is_an_error(
    options: SourceOptions, topic: str, tmp_path: Path
) -> None:
    job = RangeJob(
        query_id="q",
        batch_id=0,
        source=options,
        rows=RowPlan(("value",)),
        target=OneFile(tmp_path, lost=1),
    )
    with pytest.raises(LostRowsError, match="the target wrote 799 of 800 rows"):
        job.run(OffsetRange(TopicPartition(topic, 0), 100, 900), 0)


def test_aborted_transactions_never_show(
    bootstrap: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """A pipeline reads committed records unless its file says otherwise; the others are gaps."""
    name = topic_name("aborted")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(name, 1, 1)])[name].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(name, b"%d" % number, partition=0)
        producer.flush(30)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)
    text = f"""
name: aborted
storage: state
cluster: {{bootstrap.servers: "{bootstrap}"}}
pipelines:
  - {{name: rows, from: {{topic: {name}}}, to: {{table: rows}}}}
"""
    file = parse_pipeline_file(text, "p.yml", directory=tmp_path, variables={})
    plan = plan_topic_pipeline(file.pipelines[0], file)
    source = parse_stream_options(plan.options)
    job = RangeJob(query_id="q", batch_id=0, source=source, rows=plan.rows, target=OneFile(tmp_path))

    result = job.run(OffsetRange(TopicPartition(name, 0), 0, 44), 0)
    close_readers()

    assert [b"0"] * 10 + [b"2"] * 10 == pq.read_table(tmp_path / "q-0-0.parquet")["value"].to_pylist()
    assert (20, 24) == (result.account.records, result.account.gaps)
