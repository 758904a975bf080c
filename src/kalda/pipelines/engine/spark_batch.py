"""Executes a batch in Spark's SQL engine, for transforms that Kalda does not evaluate itself.

The result is the same as that of direct execution: files, an account of each range, and dead letters. Where
a step sees all rows of the batch, the rows before it are counted first, and what it returns is written by
itself: `rows_out` then counts the rows that the step was given.
"""

import logging
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kalda.formats.decoded import DecodeFailure
from kalda.pipelines.direct.range_job import STEP_FAILED, RangeJob, RangeResult, passed_failure
from kalda.pipelines.direct.row_steps import OFFSET_COLUMN, FunctionStep, without_offsets
from kalda.pipelines.direct.rows_target import RowsTarget, Written
from kalda.pipelines.dlq.letters import DECODE, EXPECT, TRANSFORM
from kalda.pipelines.engine.errors import BreakerOpenError, PipelineStoppedError, PoisonBatchError
from kalda.pipelines.engine.failing_search import (
    FAILING_MAX,
    Breaker,
    Part,
    TooManyFailingError,
    find_failing,
)
from kalda.pipelines.engine.planner import TopicPlan
from kalda.pipelines.engine.restarts import first_line
from kalda.pipelines.engine.spark_sql import (
    GOOD,
    HIDDEN_DDL,
    OFFSET,
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
    Failing,
    FunctionTask,
    KnownFailure,
    PlainWriteTask,
    WriteTask,
)
from kalda.pipelines.engine.table_target import DELETES_FLAG, source_table
from kalda.pipelines.expectations import ERROR_CLASS, Expectations
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
    from pyspark.sql.types import StructType

logger: Final = logging.getLogger(__name__)

_CHECK: Final = "__kalda_check_"

_OF_A_VALUE: Final = re.compile(r"SQLSTATE: (22|P0001)|\bFailedRowsError\b")
"""An error of an expression for a value (SQL's class 22), of `raise_error`, or of a Python step."""

OpenTarget = Callable[[pa.Schema], RowsTarget]
"""Opens the target for rows of these columns; creates or evolves a table."""


@dataclass(frozen=True, slots=True)
class SparkResults:
    """The results of a batch's tasks."""

    ranges: list[RangeResult]
    written: list[Written]
    """The written files and transactions, which the driver commits."""


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
        try:
            return self._run(schema, open_target, self._passed())
        except Exception as error:
            if not _is_of_a_value(error):
                raise
            # It takes minutes where many records fail, and nothing else is printed meanwhile.
            logger.warning(
                "%s: looking for the records of a failure: %s", self._plan.spec.name, first_line(error)
            )
            failing = self._find_failing(schema, error)
        return self._run(schema, open_target, failing)

    def _run(self, schema: pa.Schema, open_target: OpenTarget, failing: Failing) -> SparkResults:
        steps = self._plan.spec.transform
        count = self._row_wise_count()
        rows = self._transformed(self._decoded(schema, failing))
        if count == len(steps):
            return self._write_rows(rows, open_target)
        return self._write_batch(rows, steps[count:], open_target)

    def _row_wise_count(self) -> int:
        steps = self._plan.spec.transform
        return next((index for index, each in enumerate(steps) if not is_row_wise(each)), len(steps))

    def _transformed(self, rows: "DataFrame") -> "DataFrame":
        """Return the rows behind the steps that make each row of one."""
        for step in self._plan.spec.transform[: self._row_wise_count()]:
            rows = self._apply(rows, step)
        return rows

    def _find_failing(self, schema: pa.Schema, error: Exception) -> Failing:
        """Return the records for which a row-wise step fails: parts of the decoded rows are tried.

        Raises:
            PipelineStoppedError: Too many fail.
            Exception: `error`, when no record is found alone.
        """
        passed = self._passed()
        retried = self._plan.spec.retry_topic
        parts = [
            Part(number, each.start, each.end, each.topic_partition.topic != retried)
            for number, each in enumerate(self._ranges)
        ]
        decoded = self._decoded(schema, passed).persist()
        try:
            found = find_failing(
                parts,
                lambda part, start, end: self._failure_of(decoded, part, start, end),
                self._breaker(decoded, parts),
            )
            failing = {
                part: {
                    offset: self._failure(decoded, part, offset, reason) for offset, reason in each.items()
                }
                for part, each in found.items()
            }
        except TooManyFailingError as many:
            raise self._too_many(many) from error
        finally:
            decoded.unpersist()
        if not found:
            raise error
        for part, known in passed.items():
            failing.setdefault(part, {}).update(known)
        return failing

    def _breaker(self, decoded: "DataFrame", parts: Sequence[Part]) -> Breaker | None:
        """Return the breaker for the records of the batch; None where it does not open."""
        from pyspark.sql.functions import spark_partition_id

        settings = self._plan.spec.breaker
        counts = decoded.groupBy(spark_partition_id().alias("part")).count().collect()
        counted = {each.number for each in parts if each.is_counted}
        records = sum(row["count"] for row in counts if row["part"] in counted)
        return None if records < settings.records_min else Breaker(settings.bad_max, records)

    def _too_many(self, many: TooManyFailingError) -> PipelineStoppedError:
        spec, place = self._plan.spec, self._ranges[many.part].topic_partition
        example = f"such as {place} at offset {many.offset}: {STEP_FAILED}: {many.reason}"
        batch = f"batch {self._job.batch_id}"
        if many.tried is None and many.found > FAILING_MAX:
            return PoisonBatchError(
                f"{spec.name}: more than {FAILING_MAX} records of {batch} fail in a step, {example}. It "
                "stays stopped; correct the step and start it again, it goes on with the same batch"
            )
        shown = (
            f"{many.found} of {many.tried} records tried" if many.tried else f"at least {many.found} records"
        )
        return BreakerOpenError(
            f"{spec.name}: a step fails for {shown} of {batch}, more than {spec.breaker.bad_max:.2%} of it, "
            f"{example}; nothing of the batch was written. Correct the steps or the records, or raise "
            "breaker.bad_max, and start the pipeline again"
        )

    def _failure(self, decoded: "DataFrame", part: int, offset: int, reason: str) -> KnownFailure:
        """Return the failure of a record: of a condition, if it does not fail without these."""
        is_of_check = bool(self._plan.spec.expect) and (
            self._failure_of(decoded, part, offset, offset + 1, has_checks=False) is None
        )
        if is_of_check:
            return DecodeFailure(0, ERROR_CLASS, reason), EXPECT
        return DecodeFailure(0, STEP_FAILED, reason), TRANSFORM

    def _passed(self) -> Failing:
        """Return the records that are passed over."""
        return {
            part: {offset: (passed_failure(0, reason), DECODE) for offset, reason in known.items()}
            for part, each in enumerate(self._ranges)
            if (known := self._job.passed.get(each.topic_partition))
        }

    def _failure_of(
        self, decoded: "DataFrame", part: int, start: int, end: int, *, has_checks: bool = True
    ) -> str | None:
        """Return why steps and conditions fail for the offsets of a part; None if they do not."""
        some = decoded.where(f"spark_partition_id() = {part} AND {OFFSET} >= {start} AND {OFFSET} < {end}")
        try:
            rows = self._transformed(some)
            if self._row_wise_count() == len(self._plan.spec.transform):
                flags = self._flags()
                chosen = {name: flags[name] for name in flags if has_checks or name == DELETES_FLAG}
                rows = add_columns(self._session, rows, chosen)
            rows.write.format("noop").mode("overwrite").save()
        except Exception as error:
            if not _is_of_a_value(error):
                raise
            return first_line(error)
        return None

    def _decoded(self, schema: pa.Schema, failing: Failing) -> "DataFrame":
        task = DecodeTask(self._plan.rows, schema, failing)
        return self._frame.mapInArrow(task, _hidden_beside(schema))

    def _apply(self, rows: "DataFrame", step: TransformStep) -> "DataFrame":
        if isinstance(step, PythonStep):
            function = FunctionStep(step.function)
            schema = _schema_behind(function, _row_schema(rows))
            return rows.mapInArrow(FunctionTask(function, schema), _hidden_beside(schema))
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


def _is_of_a_value(error: Exception) -> bool:
    """Return whether the values of some records may be the cause of a failure."""
    return _OF_A_VALUE.search(str(error)) is not None


def _collected(frame: "DataFrame") -> list:  # type: ignore[type-arg]  # what the tasks pickled
    return [pickle.loads(row["result"]) for row in frame.collect()]


def _hidden_beside(schema: pa.Schema) -> "StructType":
    """Return the columns of rows: not as DDL, in which names of many kinds would need quotes."""
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    hidden = StructType.fromDDL(HIDDEN_DDL)
    assert isinstance(hidden, StructType), hidden
    return StructType([StructField(ROW, from_arrow_schema(schema)), *hidden.fields])


def _arrow_schema(frame: "DataFrame") -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema, timezone="UTC")


def _row_schema(rows: "DataFrame") -> pa.Schema:
    return _arrow_schema(rows.select(f"{ROW}.*"))


def _schema_behind(step: FunctionStep, schema: pa.Schema) -> pa.Schema:
    empty = pa.RecordBatch.from_pylist([], schema=schema.append(pa.field(OFFSET_COLUMN, pa.int64())))
    return without_offsets(step.apply(empty)).schema
