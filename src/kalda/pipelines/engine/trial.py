"""Processes some records as a run would, without Spark and without a target: for previews and tests.

The records go through the job of direct execution, with a target and a dead-letter queue that only collect.
What the table or topic itself refuses is not known here.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from typing import Final

import pyarrow as pa

from kalda.common.types import TopicPartition
from kalda.formats import FormatError, RegistryError
from kalda.pipelines.direct.columns_job import ColumnsJob, ShownColumns
from kalda.pipelines.direct.range_job import RangeJob
from kalda.pipelines.direct.range_records import RangeReader, read_range
from kalda.pipelines.direct.row_plan import DecodeFailure, RowPlan, RowPlanError
from kalda.pipelines.direct.row_steps import OFFSET_COLUMN, StepError
from kalda.pipelines.direct.rows_target import Written
from kalda.pipelines.direct.upsert_marks import PARTITION_COLUMN
from kalda.pipelines.engine.planner import TopicPlan
from kalda.pipelines.engine.table_target import upsert_marks
from kalda.pipelines.expectations import Expectations
from kalda.pipelines.spec.cases import Plain
from kalda.pipelines.spec.model import OnFail, PipelineSpec, TableSpec
from kalda.pipelines.sql.nodes import SqlError
from kalda.pipelines.tables.fitting import Fitted
from kalda.records.columnar import ColumnarBatch
from kalda.spark.source.data_loss import DataLossError
from kalda.spark.source.options import SourceOptions
from kalda.spark.source.plan import OffsetRange

_NAME: Final = "trial"


class TrialError(Exception):
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
class Trial:
    """The rows and dead letters that a pipeline makes of some records."""

    pipeline: str
    records: int
    filtered: int
    """Records that steps and expectations drop."""
    columns: tuple[str, ...]
    rows: list[dict[str, object]]
    dead: list[DeadRecord]
    note: str | None
    """The parts that are not shown, if any."""


def shown(value: object) -> Plain:
    """Return a value of a row as JSON has it; bytes that are no UTF-8 become Base64."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return b64encode(value).decode()
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            return {str(name): shown(each) for name, each in value.items()}
        case Sequence():
            return [shown(each) for each in value]
        case _:  # a decimal
            return str(value)


def try_ranges(
    plan: TopicPlan, source: SourceOptions, ranges: Sequence[OffsetRange], read: RangeReader = read_range
) -> Trial:
    """Process ranges of offsets; `read` says where their records come from.

    Raises:
        TrialError: a step fails for all records, or the records cannot be had.
        ClientError: the cluster could not be read.
    """
    try:
        return _process(plan, source, ranges, read)
    except (DataLossError, FormatError, RegistryError, RowPlanError, SqlError, StepError) as error:
        raise TrialError(f"{plan.spec.name}: {error}") from error


def _process(
    plan: TopicPlan, source: SourceOptions, ranges: Sequence[OffsetRange], read: RangeReader
) -> Trial:
    spec = plan.spec
    rows, dead = _Rows(), _DeadRecords()
    job = RangeJob(
        query_id=_NAME,
        batch_id=0,
        source=source,
        rows=plan.rows,
        target=rows,
        dead_letters=dead,
        read=read,
        expectations=_expectations(spec) if plan.is_direct else None,
        upsert=upsert_marks(spec.target, is_spark=False)
        if isinstance(spec.target, TableSpec) and plan.is_direct
        else None,
    )
    if plan.rows.input_schema() is None:
        job = _with_columns(job, ranges)
    accounts = [job.run(each, part).account for part, each in enumerate(ranges)]
    return Trial(
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
    finding = ColumnsJob(job.batch_id, job.source, job.rows, read=job.read)
    shown = ShownColumns.together(finding.run(each, part) for part, each in enumerate(ranges))
    found = shown.beside(pa.struct([]))
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
        """Return the number of collected records."""
        return Written(len(self.records))

    def abandon(self) -> None:
        """Keep what came before the failure."""
