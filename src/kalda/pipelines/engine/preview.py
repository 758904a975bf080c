"""Shows what a pipeline makes of the newest records of its topics: without Spark, and nothing is written.

The records go through the job of direct execution, with a target and a dead-letter queue that only collect.
What the table or topic itself refuses is not known here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.formats import FormatError, RegistryError
from kalda.formats.merging import merged_all, settled
from kalda.pipelines.direct.columns_job import ColumnsJob
from kalda.pipelines.direct.range_job import RangeJob
from kalda.pipelines.direct.range_records import ReadMeter, read_columns
from kalda.pipelines.direct.row_plan import DecodeFailure, RowPlan, RowPlanError
from kalda.pipelines.direct.row_steps import OFFSET_COLUMN, StepError
from kalda.pipelines.direct.rows_target import Written
from kalda.pipelines.direct.upsert_marks import PARTITION_COLUMN
from kalda.pipelines.engine.planner import TopicPlan, plan_topic_pipeline
from kalda.pipelines.engine.source_settings import ANSWER_MS_MAX, quick_discovery
from kalda.pipelines.engine.targets import upsert_marks
from kalda.pipelines.expectations import Expectations
from kalda.pipelines.spec.model import OnFail, PipelineFile, PipelineSpec, TableSpec
from kalda.pipelines.sql.nodes import SqlError
from kalda.pipelines.tables.fitting import Fitted
from kalda.records.columnar import ColumnarBatch
from kalda.spark.source.data_loss import DataLossError
from kalda.spark.source.options import SourceOptions, parse_stream_options
from kalda.spark.source.plan import OffsetRange
from kalda.spark.worker import close_readers, pooled_reader

_NAME: Final = "preview"

Tail = Sequence[tuple[int, int]]
"""Timestamp and offset of the last records of a partition, in their order."""


class PreviewError(Exception):
    """The pipeline cannot process these records; the message says why."""


@dataclass(frozen=True, slots=True)
class DeadRecord:
    """A record that would be a dead letter."""

    topic_partition: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None
    stage: str
    error_class: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a pipeline makes of some records."""

    pipeline: str
    records: int
    filtered: int
    """Records that steps and expectations drop."""
    columns: tuple[str, ...]
    rows: list[dict[str, object]]
    dead: list[DeadRecord]
    note: str | None
    """What is not shown, if anything."""


def preview_pipeline(spec: PipelineSpec, file: PipelineFile, count: int) -> Preview:
    """Process the newest `count` records of the topics that a pipeline reads.

    Raises:
        PipelineFileError: the file is wrong.
        PreviewError: a topic does not exist, or a step fails for all records.
        ClientError: the cluster could not be read.
    """
    plan = plan_topic_pipeline(spec, file)
    options = {"kafka.default.api.timeout.ms": ANSWER_MS_MAX, **plan.options}
    source = parse_stream_options(options)
    try:
        ranges = _newest_ranges(plan, source, count)
        return _process(plan, source, ranges)
    except (DataLossError, FormatError, RegistryError, RowPlanError, SqlError, StepError) as error:
        raise PreviewError(f"{spec.name}: {error}") from error
    finally:
        close_readers()


def newest_starts(tails: Mapping[TopicPartition, Tail], count: int) -> dict[TopicPartition, int]:
    """Return where to read partitions from to get the newest records of all of them.

    Example: with the tails (timestamp, offset) [(1, 7), (5, 8)] and [(3, 20), (4, 21)], the newest three
    records begin at the offsets 8 and 20.
    """
    left = {partition: list(tail) for partition, tail in tails.items() if tail}
    starts: dict[TopicPartition, int] = {}
    for _ in range(min(count, sum(map(len, left.values())))):
        newest = max(left, key=lambda each: left[each][-1])
        starts[newest] = left[newest].pop()[1]
        if not left[newest]:
            del left[newest]
    return starts


def _newest_ranges(plan: TopicPlan, source: SourceOptions, count: int) -> list[OffsetRange]:
    discovery = quick_discovery(plan.options)
    try:
        found = discovery.find_partitions()
        missing = [each for each in found.missing_topics if each != plan.spec.retry_topic]
        if missing:
            raise PreviewError(f"{plan.spec.name}: topic {', '.join(missing)} does not exist")
        partitions = [each for each in found.partitions if each.topic != plan.spec.retry_topic]
        firsts, ends = discovery.beginning_offsets(partitions), discovery.end_offsets(partitions)
    finally:
        discovery.close()

    def part(partition: TopicPartition, start: int) -> OffsetRange:
        topic_id = found.topic_ids.get(partition.topic, ZERO_UUID)
        return OffsetRange(partition, start, ends[partition], topic_id=topic_id)

    # A transaction of one record has two offsets.
    windows = [part(each, max(firsts[each], ends[each] - 2 * count)) for each in partitions]
    tails = {each.topic_partition: _tail(source, each, count) for each in windows if each.offset_count > 0}
    return [part(each, start) for each, start in sorted(newest_starts(tails, count).items())]


def _tail(source: SourceOptions, window: OffsetRange, count: int) -> Tail:
    last: list[tuple[int, int]] = []
    with pooled_reader(source.client) as reader:
        for each in read_columns(
            reader,
            source,
            window,
            want_headers=False,
            want_keys=False,
            want_values=False,
            meter=ReadMeter(),
        ):
            last += zip(each.timestamps_ms.to_pylist(), each.offsets.to_pylist(), strict=True)
    return last[-count:]


def _process(plan: TopicPlan, source: SourceOptions, ranges: Sequence[OffsetRange]) -> Preview:
    spec = plan.spec
    rows, dead = _Rows(), _DeadRecords()
    job = RangeJob(
        query_id=_NAME,
        batch_id=0,
        source=source,
        rows=plan.rows,
        target=rows,
        dead_letters=dead,
        expectations=_expectations(spec) if plan.is_direct else None,
        upsert=upsert_marks(spec.target, is_spark=False)
        if isinstance(spec.target, TableSpec) and plan.is_direct
        else None,
    )
    if plan.rows.input_schema() is None:
        job = _with_columns(job, ranges)
    accounts = [job.run(each, part).account for part, each in enumerate(ranges)]
    return Preview(
        pipeline=spec.name,
        records=sum(each.records for each in accounts),
        filtered=sum(each.filtered for each in accounts),
        columns=tuple(rows.batches[0].schema.names) if rows.batches else (),
        rows=[row for each in rows.batches for row in each.to_pylist()],
        dead=dead.records,
        note=None
        if plan.is_direct
        else f"Spark executes it ({plan.reason}), so these are the rows before the transform",
    )


def _expectations(spec: PipelineSpec) -> Expectations | None:
    """Return the expectations; a row that would stop the pipeline is shown as a dead letter."""
    shown = [
        replace(each, on_fail=OnFail.DLQ) if each.on_fail is OnFail.FAIL else each for each in spec.expect
    ]
    return Expectations(shown) if shown else None


def _with_columns(job: RangeJob, ranges: Sequence[OffsetRange]) -> RangeJob:
    """Return the job for the columns that the values of these records show."""
    finding = ColumnsJob(job.batch_id, job.source, job.rows)
    found = settled(merged_all(finding.run(each, part) for part, each in enumerate(ranges)))
    rows = job.rows.with_columns(found)
    if len(found) or rows.keep:
        return replace(job, rows=rows)
    # No value shows a column, so that no step has anything to work on.
    return replace(job, rows=RowPlan(keep=(), decoder=rows.decoder), expectations=None, upsert=None)


@dataclass(slots=True)
class _Rows:
    """Collects rows."""

    batches: list[pa.RecordBatch] = field(default_factory=list)

    def fit(self, rows: pa.RecordBatch) -> Fitted:
        """Return all rows, without what finds them again."""
        hidden = [name for name in (OFFSET_COLUMN, PARTITION_COLUMN) if name in rows.schema.names]
        return Fitted(rows.drop_columns(hidden) if hidden else rows)

    def write(self, batches: Iterable[pa.RecordBatch], query_id: str, batch_id: int, part: int) -> Written:
        """Keep the rows."""
        before = len(self.batches)
        self.batches += batches
        return Written(sum(each.num_rows for each in self.batches[before:]))


@dataclass(slots=True)
class _DeadRecords:
    """Collects dead letters, of all tasks."""

    records: list[DeadRecord] = field(default_factory=list)

    def open(self, query_id: str, batch_id: int, part: int) -> "_DeadRecords":
        """Return the same for each task: they run one after the other."""
        return self

    def add(
        self,
        records: ColumnarBatch,
        topic_partition: TopicPartition,
        failures: Sequence[DecodeFailure],
        stage: str,
    ) -> None:
        """Keep the records."""
        self.records += [
            DeadRecord(
                topic_partition,
                records.offsets[each.row].as_py(),
                records.keys[each.row].as_py(),
                records.values[each.row].as_py(),
                stage,
                each.error_class,
                each.message,
            )
            for each in failures
        ]

    def finish(self) -> Written:
        """Return how many there are."""
        return Written(len(self.records))

    def abandon(self) -> None:
        """Keep what came before the failure."""
