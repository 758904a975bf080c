"""Executes a batch in Spark's SQL engine, for transforms that Kalda does not evaluate itself.

The result is the same as that of direct execution: files, an account of each range, and dead letters. Where
a step sees all rows of the batch, the rows before it are counted first, and what it returns is written by
itself: `rows_out` then counts the rows that the step was given.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kalda.pipelines.direct.range_job import RangeJob, RangeResult
from kalda.pipelines.direct.row_steps import OFFSET_COLUMN, FunctionStep, without_offsets
from kalda.pipelines.direct.rows_target import RowsTarget, Written
from kalda.pipelines.engine.errors import PipelineStoppedError
from kalda.pipelines.engine.planner import TopicPlan
from kalda.pipelines.engine.spark_sql import (
    GOOD,
    HIDDEN_DDL,
    ROW,
    STATE,
    add_columns,
    apply_batch_steps,
    apply_row_sql,
    is_row_wise,
)
from kalda.pipelines.engine.spark_tasks import (
    RESULT_DDL,
    CountTarget,
    DecodeTask,
    FunctionTask,
    PlainWriteTask,
    WriteTask,
)
from kalda.pipelines.engine.targets import DELETES_FLAG, source_table
from kalda.pipelines.expectations import Expectations
from kalda.pipelines.spec.model import (
    Expectation,
    OnFail,
    PythonStep,
    SqlStep,
    TableSource,
    TableSpec,
    TransformStep,
)
from kalda.pipelines.sql.steps import RowSql, parse_step
from kalda.pipelines.tables import open_table
from kalda.spark.source.plan import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHECK: Final = "__kalda_check_"

OpenTarget = Callable[[pa.Schema], RowsTarget]
"""Opens the target for rows of these columns; creates or evolves a table."""


@dataclass(frozen=True, slots=True)
class SparkResults:
    """What the tasks of a batch returned."""

    ranges: list[RangeResult]
    written: list[Written]
    """What is committed."""


class SparkBatch:
    """Executes one batch."""

    def __init__(
        self,
        plan: TopicPlan,
        frame: "DataFrame",
        job: RangeJob,
        ranges: Sequence[OffsetRange],
        views: Mapping[str, "DataFrame"],
    ) -> None:
        self._plan: Final = plan
        self._frame: Final = frame
        self._session: Final[SparkSession] = frame.sparkSession
        self._job: Final = job
        self._ranges: Final = tuple(ranges)
        self._views: Final = views

    def run(self, schema: pa.Schema, open_target: OpenTarget) -> SparkResults:
        """Decode, transform and write the batch; `schema` has the columns before the transform.

        Raises:
            PipelineStoppedError: the transform does not fit its rows.
        """
        steps = self._plan.spec.transform
        count = next((index for index, each in enumerate(steps) if not is_row_wise(each)), len(steps))
        rows = self._decoded(schema)
        for step in steps[:count]:
            rows = self._apply(rows, step)
        if count == len(steps):
            return self._write_rows(rows, open_target)
        return self._write_batch(rows, steps[count:], open_target)

    def _decoded(self, schema: pa.Schema) -> "DataFrame":
        task = DecodeTask(self._plan.rows, schema)
        return self._frame.mapInArrow(task, f"{ROW} {_ddl(schema)}, {HIDDEN_DDL}")

    def _apply(self, rows: "DataFrame", step: TransformStep) -> "DataFrame":
        if isinstance(step, PythonStep):
            function = FunctionStep(step.function)
            schema = _schema_behind(function, _row_schema(rows))
            return rows.mapInArrow(FunctionTask(function, schema), f"{ROW} {_ddl(schema)}, {HIDDEN_DDL}")
        parsed = parse_step(step.text)
        assert isinstance(parsed, RowSql), step
        return apply_row_sql(self._session, rows, parsed)

    def _write_rows(self, rows: "DataFrame", open_target: OpenTarget) -> SparkResults:
        schema = _row_schema(rows)
        rows = add_columns(self._session, rows, self._flags())
        checks = {each.name: each.check for each in self._plan.spec.expect}
        task = WriteTask(self._flagged(open_target(schema)), self._ranges, tuple(self._flags()), checks)
        results: list[RangeResult] = _collected(rows.mapInArrow(task, RESULT_DDL))
        return SparkResults(results, [each.rows for each in results])

    def _write_batch(
        self, rows: "DataFrame", steps: Sequence[TransformStep], open_target: OpenTarget
    ) -> SparkResults:
        sql = [each for each in steps if isinstance(each, SqlStep)]
        if len(sql) < len(steps) or self._job.upsert is not None or self._has_dead_rows():
            raise PipelineStoppedError(
                f"{self._plan.spec.name}: a step that needs all rows of a batch allows no Python step after "
                "it, no upsert and no expectation with on_fail: dlq; its rows come from no single record"
            )
        rows = rows.persist()
        try:
            job = replace(self._job, target=CountTarget(), expectations=None, event_time=None)
            counted: list[RangeResult] = _collected(rows.mapInArrow(WriteTask(job, self._ranges), RESULT_DDL))
            good = rows.where(f"{STATE} = {GOOD}").select(f"{ROW}.*")
            made = apply_batch_steps(self._session, good, sql, self._views)
            if not isinstance(self._plan.spec.target, TableSpec):
                # A repeated task of a topic must have the same rows, and a shuffle may spread them otherwise.
                made = made.coalesce(1)
            target = open_target(_arrow_schema(made))
            flags = self._flags()
            flagged = made.selectExpr("*", *(f"({text}) AS {name}" for name, text in flags.items()))
            task = PlainWriteTask(
                target, self._job.query_id, self._job.batch_id, self._expectations(), tuple(flags)
            )
            return SparkResults(counted, _collected(flagged.mapInArrow(task, RESULT_DDL)))
        finally:
            rows.unpersist()

    def _has_dead_rows(self) -> bool:
        return any(each.on_fail is OnFail.DLQ for each in self._plan.spec.expect)

    def _flags(self) -> dict[str, str]:
        """Return the conditions that Spark evaluates for the task that writes, by column."""
        spec = self._plan.spec
        flags = {f"{_CHECK}{index}": each.check for index, each in enumerate(spec.expect)}
        if isinstance(spec.target, TableSpec) and spec.target.deletes is not None:
            flags[DELETES_FLAG] = spec.target.deletes
        return flags

    def _expectations(self) -> Expectations | None:
        spec = self._plan.spec
        checks = [
            Expectation(name=each.name, check=f"{_CHECK}{index}", on_fail=each.on_fail)
            for index, each in enumerate(spec.expect)
        ]
        return Expectations(checks) if checks else None

    def _flagged(self, target: RowsTarget) -> RangeJob:
        return replace(self._job, target=target, expectations=self._expectations())


def view_frame(session: "SparkSession", source: TableSource) -> "DataFrame":
    """Return a table as it is now, for SQL steps that join it."""
    table = open_table(source_table(source))
    schema = table.schema()
    if schema is None:
        raise PipelineStoppedError(f"the table {source.table} of a view does not exist at {source.path}")
    return session.createDataFrame(pa.Table.from_batches(table.read(), schema))


def _collected(frame: "DataFrame") -> list:  # type: ignore[type-arg]  # what the tasks pickled
    return [pickle.loads(row["result"]) for row in frame.collect()]


def _ddl(schema: pa.Schema) -> str:
    from pyspark.sql.pandas.types import from_arrow_schema

    return str(from_arrow_schema(schema).simpleString())


def _arrow_schema(frame: "DataFrame") -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema, timezone="UTC")


def _row_schema(rows: "DataFrame") -> pa.Schema:
    return _arrow_schema(rows.select(f"{ROW}.*"))


def _schema_behind(step: FunctionStep, schema: pa.Schema) -> pa.Schema:
    empty = pa.RecordBatch.from_pylist([], schema=schema.append(pa.field(OFFSET_COLUMN, pa.int64())))
    return without_offsets(step.apply(empty)).schema
