"""Python tasks of a batch that Spark's SQL engine executes: decode at its beginning, write at its end.

Between the two, rows are a DataFrame with the hidden columns of `kalda.pipelines.engine.spark_sql`. A task
reads one range of offsets and its rows stay in that task, so the task that writes can account for the range.
The number of a task is the number of its range in the batch.
"""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kalda.formats.decoded import DecodeFailure
from kalda.formats.merging import ColumnsChangedError
from kalda.pipelines.accounts import RangeAccount
from kalda.pipelines.direct.range_job import (
    ATTEMPTS_MAX,
    PASSED,
    STEP_FAILED,
    BadRecordError,
    LostRowsError,
    RangeJob,
    RangeMetrics,
    RangeResult,
)
from kalda.pipelines.direct.range_records import OffsetCount, ReadMeter, read_columns
from kalda.pipelines.direct.row_plan import RowPlan
from kalda.pipelines.direct.row_steps import OFFSET_COLUMN, FailedRowsError, FunctionStep, apply_steps
from kalda.pipelines.direct.rows_target import RowsTarget, Written
from kalda.pipelines.direct.upsert_marks import DELETE_COLUMN, PARTITION_COLUMN
from kalda.pipelines.dlq.letters import DECODE, EXPECT, TARGET, TRANSFORM
from kalda.pipelines.engine.spark_sql import BAD, ERROR, FILTERED, GOOD, HIDDEN, OFFSET, ROW, STATE, TOMBSTONE
from kalda.pipelines.expectations import ERROR_CLASS, Expectations
from kalda.pipelines.tables.fitting import Fitted
from kalda.pipelines.value_totals import TotalCount, totals_of
from kalda.spark.source.plan import OffsetRange
from kalda.spark.worker import pooled_reader, prepare_worker

_ERROR_TYPE: Final = pa.struct(
    [("class", pa.string()), ("message", pa.string()), ("schema_id", pa.int32()), ("stage", pa.string())]
)

_UPSERT_COLUMNS: Final = (OFFSET_COLUMN, PARTITION_COLUMN, DELETE_COLUMN)

KnownFailure = tuple[DecodeFailure, str]
"""A failure, and its stage."""
Failing = Mapping[int, Mapping[int, KnownFailure]]
"""Records that become no rows: by the number of the task and the offset."""

RESULT_DDL: Final = "result binary"
_RESULT_SCHEMA: Final = pa.schema([("result", pa.binary())])


def packed(result: object) -> pa.RecordBatch:
    """Return a task's result as the one row of its output."""
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(result)], pa.binary())], schema=_RESULT_SCHEMA)


class MisfitError(ValueError):
    """The target does not take rows that a step made of all rows of a batch."""


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """Turns records of the source into rows with the hidden columns."""

    rows: RowPlan
    schema: pa.Schema
    """The columns of the rows."""
    failing: Failing = field(default_factory=dict)
    """Records that become no rows, and are not decoded."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode the batches of a task."""
        prepare_worker()
        failing = self.failing and self.failing.get(task_part(), {})
        for records in batches:
            yield self._decoded(records, failing or {})

    def _decoded(self, records: pa.RecordBatch, failing: Mapping[int, KnownFailure]) -> pa.RecordBatch:
        columns: dict[str, pa.Array] = {}
        failures: Sequence[DecodeFailure] = ()
        values = records.column("value")
        known = _known(records, failing)
        if known:
            mask = pc.is_in(records.column("offset"), pa.array(list(failing), pa.int64()))
            values = pc.if_else(mask, pa.scalar(None, values.type), values)
        if self.rows.decoder is not None:
            decoded = self.rows.decoder.decode(values)
            failures = decoded.errors  # type: ignore[assignment]  # the class behind the protocol
            names = [field.name for field in decoded.columns.type]
            columns |= zip(names, decoded.columns.flatten(), strict=True)
        kept = [records.column(name) for name in self.rows.keep]
        failures = self.rows.with_kept_failures(failures, kept)  # type: ignore[assignment]  # as above
        columns |= zip(self.rows.keep, kept, strict=True)
        count = records.num_rows
        state, error = _states(count, [*known, *((each, DECODE) for each in failures)])
        new = columns.keys() - set(self.schema.names)
        if new:
            raise ColumnsChangedError(
                f"values have the fields {', '.join(sorted(new))}, which were not there when the columns of "
                f"the batch were found ({', '.join(self.schema.names)}); the batch is tried again"
            )
        fields = [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in self.schema
        ]
        row = pa.StructArray.from_arrays(
            fields, fields=list(self.schema), mask=pc.not_equal(state, GOOD) if failures or known else None
        )
        hidden = [records.column("offset"), state, error, values.is_null()]
        return pa.RecordBatch.from_arrays([row, *hidden], names=[ROW, *HIDDEN])


def task_part() -> int:
    """Return the number of the task that calls."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "a task of Spark has a context"
    return int(context.partitionId())


def _known(records: pa.RecordBatch, failing: Mapping[int, KnownFailure]) -> list[tuple[DecodeFailure, str]]:
    """Return the failures that are known before the records are decoded, with their stage."""
    if not failing:
        return []
    offsets = pa.array(list(failing), pa.int64())
    rows = pc.indices_nonzero(pc.is_in(records.column("offset"), offsets)).to_pylist()
    column = records.column("offset")
    known = {row: failing[column[row].as_py()] for row in rows}
    return [(replace(failure, row=row), stage) for row, (failure, stage) in known.items()]


def _states(count: int, failures: Sequence[tuple[DecodeFailure, str]]) -> tuple[pa.Array, pa.Array]:
    """Return the columns that say which rows are bad, and why; the first failure of a row counts."""
    if not failures:
        return pa.repeat(pa.scalar(GOOD, pa.int32()), count), pa.nulls(count, _ERROR_TYPE)
    states: list[int] = [GOOD] * count
    errors: list[dict[str, str | int | None] | None] = [None] * count
    for each, stage in reversed(failures):
        states[each.row] = BAD
        errors[each.row] = _error(each, stage)
    return pa.array(states, pa.int32()), pa.array(errors, _ERROR_TYPE)


def _error(failure: DecodeFailure, stage: str) -> dict[str, str | int | None]:
    return {
        "class": failure.error_class,
        "message": failure.message,
        "schema_id": failure.schema_id,
        "stage": stage,
    }


@dataclass(frozen=True, slots=True)
class FunctionTask:
    """Calls a Python step of the transform with the good rows of each batch."""

    step: FunctionStep
    schema: pa.Schema
    """The columns behind the step."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Apply the step; rows that it drops and those for which it fails are marked."""
        attempts = count(1)
        for batch in batches:
            good = pc.equal(batch.column(STATE), GOOD)
            after, failures = self._applied(good_rows(batch), attempts)
            places = pc.index_in(batch.column(OFFSET), after.column(OFFSET_COLUMN))
            fields = [after.column(field.name).take(places) for field in self.schema]
            stays = places.is_valid()
            row = pa.StructArray.from_arrays(fields, fields=list(self.schema), mask=pc.invert(stays))
            dropped = pc.and_(good, pc.invert(stays))
            state = pc.if_else(dropped, pa.scalar(FILTERED, pa.int32()), batch.column(STATE))
            changed = {STATE: state}
            if failures:
                failed = pc.is_in(batch.column(OFFSET), pa.array(list(failures), pa.int64()))
                errors = [
                    _error(failures[offset], TRANSFORM) if offset in failures else error
                    for offset, error in zip(
                        batch.column(OFFSET).to_pylist(), batch.column(ERROR).to_pylist(), strict=True
                    )
                ]
                changed = {
                    STATE: pc.if_else(failed, pa.scalar(BAD, pa.int32()), state),
                    ERROR: pa.array(errors, _ERROR_TYPE),
                }
            hidden = [changed.get(name, batch.column(name)) for name in HIDDEN]
            yield pa.RecordBatch.from_arrays([row, *hidden], names=[ROW, *HIDDEN])

    def _applied(
        self, rows: pa.RecordBatch, attempts: Iterator[int]
    ) -> tuple[pa.RecordBatch, dict[int, DecodeFailure]]:
        """Return the rows behind the step, and the failures by offset: rows are halved where it fails."""
        schema = self.schema.append(pa.field(OFFSET_COLUMN, pa.int64()))
        # Without a good row the step does not run, and its columns are not there.
        made = [pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)]
        failures: dict[int, DecodeFailure] = {}
        waiting = [rows]
        while waiting:
            part = waiting.pop()
            try:
                after, _ = apply_steps(part, (self.step,))
            except FailedRowsError as error:
                if next(attempts) > ATTEMPTS_MAX:
                    raise
                if part.num_rows == 1:
                    offset = part.column(OFFSET_COLUMN)[0].as_py()
                    failures[offset] = DecodeFailure(0, STEP_FAILED, str(error))
                    continue
                half = part.num_rows // 2
                waiting += [part.slice(half), part.slice(0, half)]
                continue
            if after.num_rows:
                columns = [after.column(each.name).cast(each.type) for each in schema]
                made.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        return pa.concat_batches(made), failures


def good_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the good rows of a batch with the hidden column that steps on Arrow batches follow."""
    good = batch.filter(pc.equal(batch.column(STATE), GOOD))
    row = good.column(ROW)
    names = [row.type.field(index).name for index in range(row.type.num_fields)]
    return pa.RecordBatch.from_arrays([*row.flatten(), good.column(OFFSET)], names=[*names, OFFSET_COLUMN])


@dataclass(frozen=True, slots=True)
class WriteTask:
    """Writes the rows of a task and accounts for its range; yields one pickled `RangeResult`."""

    job: RangeJob
    ranges: tuple[OffsetRange, ...]
    dropped_columns: tuple[str, ...] = ()
    """Columns of expectations and deletes, which the target does not get."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """The conditions of the expectations as the file has them, by name."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows."""
        part = task_part()
        result = _RangeWrite(self, self.ranges[part], part).run(batches)
        yield packed(result)


@dataclass(slots=True)
class _RangeWrite:
    """One task's run."""

    task: WriteTask
    range: OffsetRange
    part: int
    given: int = 0
    filtered: int = 0
    bad: list[tuple[int, DecodeFailure, str]] = field(default_factory=list)
    """Offset, failure and stage of each bad record: at most one entry for each record."""
    times: list[tuple[int, int]] = field(default_factory=list)
    values: TotalCount = field(default_factory=TotalCount)
    bad_count: int = 0
    passed: int = 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> RangeResult:
        job = self.task.job
        count = OffsetCount(self.range)
        written = job.target.write(self._rows(batches, count), job.query_id, job.batch_id, self.part)
        count.finish()
        if written.rows != self.given:
            raise LostRowsError(
                f"{self.range.topic_partition}: {written.rows} of {self.given} rows were written"
            )
        letters = self._letters() if self.bad else None
        account = RangeAccount(
            topic=self.range.topic_partition.topic,
            partition=self.range.topic_partition.partition,
            start=self.range.start,
            end=self.range.end,
            records=count.records,
            rows_out=written.rows,
            dlq=self.bad_count,
            passed=self.passed,
            filtered=self.filtered,
            gaps=count.gaps,
            event_time_min=min((least for least, _ in self.times), default=None),
            event_time_max=max((most for _, most in self.times), default=None),
            written=self.values.totals,
            topic_id=self.range.topic_id_text,
        )
        return RangeResult(account, written, letters, RangeMetrics(0.0, 0, 0, 0.0))

    def _rows(self, batches: Iterable[pa.RecordBatch], count: OffsetCount) -> Iterator[pa.RecordBatch]:
        job = self.task.job
        for batch in batches:
            count.add(batch.column(OFFSET))
            state = batch.column(STATE)
            self.filtered += pc.sum(pc.equal(state, FILTERED)).as_py() or 0
            self._note_bad(batch.filter(pc.equal(state, BAD)))
            rows = good_rows(batch)
            if job.upsert is not None and rows.num_rows:
                tombstones = batch.column(OFFSET).filter(batch.column(TOMBSTONE))
                marked = job.upsert.marked_by(rows, tombstones, self.range.topic_partition.partition)
                self.filtered += rows.num_rows - marked.num_rows
                rows = marked
            if job.expectations is not None and rows.num_rows:
                rows = self._checked(rows, job.expectations)
            if not rows.num_rows:
                continue
            hidden = (*self.task.dropped_columns, *(() if job.upsert is not None else (OFFSET_COLUMN,)))
            rows = self._fitted(
                rows.column(OFFSET_COLUMN), rows.drop_columns(list(hidden)) if hidden else rows
            )
            if not rows.num_rows:
                continue
            self.given += rows.num_rows
            if job.event_time is not None:
                self._note_times(rows.column(job.event_time))
            yield rows

    def _fitted(self, offsets: pa.Int64Array, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows as the target takes them; put the others aside."""
        fitted = self.task.job.target.fit(rows)
        for each in fitted.misfits:
            self._put_aside(
                offsets[each.row].as_py(), DecodeFailure(0, each.error_class, each.message), TARGET
            )
        given = rows.filter(fitted.good(rows.num_rows)) if fitted.misfits else rows
        self.values.add(given.num_rows, totals_of(given, _UPSERT_COLUMNS))
        return fitted.rows

    def _note_bad(self, bad: pa.RecordBatch) -> None:
        for offset, error in zip(bad.column(OFFSET).to_pylist(), bad.column(ERROR).to_pylist(), strict=True):
            failure = DecodeFailure(0, error["class"], error["message"], error["schema_id"])
            self._put_aside(offset, failure, error["stage"])

    def _put_aside(self, offset: int, failure: DecodeFailure, stage: str) -> None:
        self.bad_count += 1
        if failure.error_class == PASSED:
            self.passed += 1
        if self.task.job.dead_letters is None:
            if failure.error_class == PASSED:
                return
            raise BadRecordError(
                f"{self.range.topic_partition} at offset {offset}: {failure.error_class}: {failure.message}; "
                "set on_error to dlq or skip to go on without such records"
            )
        self.bad.append((offset, failure, stage))

    def _checked(self, rows: pa.RecordBatch, expectations: Expectations) -> pa.RecordBatch:
        exempt = rows.column(DELETE_COLUMN) if self.task.job.upsert is not None else None
        checked = expectations.check(rows, exempt)
        self.filtered += checked.dropped
        for each in checked.dead:
            offset = rows.column(OFFSET_COLUMN)[each.row].as_py()
            message = f"{each.expectation}: {self.task.checks[each.expectation]} is not true"
            self._put_aside(offset, DecodeFailure(0, ERROR_CLASS, message), EXPECT)
        return rows if checked.dropped + len(checked.dead) == 0 else rows.filter(checked.good)

    def _note_times(self, column: pa.Array) -> None:
        bounds = pc.min_max(column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False))
        if bounds["min"].is_valid:
            self.times.append((bounds["min"].value, bounds["max"].value))

    def _letters(self) -> Written:
        """Read the bad records again, as they are in the log, and hand them over."""
        job = self.task.job
        assert job.dead_letters is not None, "a bad record without a queue stops the task"
        letters = job.dead_letters.open(job.query_id, job.batch_id, self.part)
        self.bad.sort(key=lambda each: each[0])
        by_offset = {offset: (failure, stage) for offset, failure, stage in self.bad}
        offsets = pa.array(list(by_offset), pa.int64())
        few = replace(self.range, start=self.bad[0][0], end=self.bad[-1][0] + 1)
        found = 0
        try:
            with pooled_reader(job.source.client) as reader:
                for records in read_columns(reader, job.source, few, want_headers=True, meter=ReadMeter()):
                    rows = pc.indices_nonzero(pc.is_in(records.offsets, offsets)).to_pylist()
                    by_stage: dict[str, list[DecodeFailure]] = {}
                    for row in rows:
                        failure, stage = by_offset[records.offsets[row].as_py()]
                        by_stage.setdefault(stage, []).append(replace(failure, row=row))
                    for stage, failures in by_stage.items():
                        letters.add(records, self.range.topic_partition, failures, stage)
                    found += len(rows)
            if found != len(self.bad):
                place = self.range.topic_partition
                raise LostRowsError(f"{place}: the log has {found} of {len(self.bad)} bad records still")
            return letters.finish()
        except BaseException:
            letters.abandon()
            raise


@dataclass(frozen=True, slots=True)
class CountTarget:
    """Counts rows and writes none: they are written behind a step that sees all of them."""

    def fit(self, rows: pa.RecordBatch) -> Fitted:
        """Return all rows."""
        return Fitted(rows)

    def write(self, batches: Iterable[pa.RecordBatch], query_id: str, batch_id: int, part: int) -> Written:
        """Count the rows."""
        return Written(sum(batch.num_rows for batch in batches))


@dataclass(frozen=True, slots=True)
class PlainWriteTask:
    """Writes rows that do not belong to one record each; yields one pickled `Written`."""

    target: RowsTarget
    query_id: str
    batch_id: int
    expectations: Expectations | None
    dropped_columns: tuple[str, ...] = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all rows that meet the expectations."""
        prepare_worker()
        yield packed(self.target.write(self._rows(batches), self.query_id, self.batch_id, task_part()))

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            if self.expectations is not None:
                rows = rows.filter(self.expectations.check(rows).good)
            rows = rows.drop_columns(list(self.dropped_columns)) if self.dropped_columns else rows
            fitted = self.target.fit(rows)
            if fitted.misfits:
                raise MisfitError(
                    f"{len(fitted.misfits)} of {rows.num_rows} rows cannot be written, first: "
                    f"{fitted.misfits[0].message}. They come from no single record, so that none can be put "
                    "aside; correct the transform"
                )
            if fitted.rows.num_rows:
                yield fitted.rows
