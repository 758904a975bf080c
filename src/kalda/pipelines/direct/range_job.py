"""Processes one range of offsets on an executor: read, decode, transform, write, account.

A job is a plain value, so that any scheduler can run it: Spark, or a test. Only the result goes back to the
driver: names and statistics of files, the account, and what the tasks left prepared in topics.

A job commits nothing, so that it can run twice for the same range. Its rows become visible by the driver's
commit, which names the files of one run.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kalda.common.types import TopicPartition
from kalda.formats.decoded import DecodeFailure as FormatFailure
from kalda.pipelines.accounts import RangeAccount
from kalda.pipelines.direct.range_records import (
    OffsetCount,
    RangeReader,
    ReadMeter,
    read_range,
    without_values,
)
from kalda.pipelines.direct.row_plan import DecodeFailure, RowPlan
from kalda.pipelines.direct.row_steps import OFFSET_COLUMN, FailedRowsError, without_offsets
from kalda.pipelines.direct.rows_target import DeadLetters, DeadLetterTarget, RowsTarget, Written
from kalda.pipelines.direct.upsert_marks import DELETE_COLUMN, PARTITION_COLUMN, UpsertMarks
from kalda.pipelines.dlq.letters import DECODE, EXPECT, TARGET, TRANSFORM
from kalda.pipelines.expectations import ERROR_CLASS, Checked, CheckError, Expectations
from kalda.pipelines.sql.nodes import SqlError
from kalda.pipelines.value_totals import TotalCount, Totals, totals_of
from kalda.records.columnar import ColumnarBatch
from kalda.records.columnar_fields import WantedFields
from kalda.spark.source.options import SourceOptions
from kalda.spark.source.plan import OffsetRange

_HIDDEN: Final = (OFFSET_COLUMN, PARTITION_COLUMN, DELETE_COLUMN)
PASSED: Final = "Passed"
"""An operator lets the pipeline pass over the record."""
STEP_FAILED: Final = "StepFailed"
"""A step of the transform fails for a record."""

ATTEMPTS_MAX: Final = 10_000
"""So often a task repeats a failing step with fewer rows: enough to name hundreds of bad records among a
million, and an end for a function that fails for each."""


class BadRecordError(ValueError):
    """A record cannot be decoded, and the pipeline's `on_error` is `fail`; the message names its place."""


class LostRowsError(ValueError):
    """A target wrote another number of rows than it was given."""


@dataclass(frozen=True, slots=True)
class RangeMetrics:
    """What processing one range took."""

    seconds: float
    network_bytes: int
    files_bytes: int
    """Bytes that were read in place."""
    decode_seconds: float
    """Time in decoding record batches to columns."""


@dataclass(frozen=True, slots=True)
class RangeResult:
    """What a task returns to the driver."""

    account: RangeAccount
    rows: Written
    dead_letters: Written | None
    """What the dead-letter queue got; None without one or without a bad record."""
    metrics: RangeMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeJob:
    """What every task of a batch does with its range.

    Args:
        source: what is read and how; its selection and positions have no effect here.
        rows: how records become rows.
        target: where rows go.
        dead_letters: where records go that are no rows; None refuses the batch at the first one.
        event_time: a timestamp column of the rows whose bounds go into the account.
        expectations: conditions that the rows behind the steps must meet.
    """

    query_id: str
    batch_id: int
    source: SourceOptions
    rows: RowPlan
    target: RowsTarget
    dead_letters: DeadLetterTarget | None = None
    event_time: str | None = None
    expectations: Expectations | None = None
    upsert: UpsertMarks | None = None
    """Adds the hidden columns of rows that replace each other; None where rows are appended."""
    passed: Mapping[TopicPartition, Mapping[int, str]] = field(default_factory=dict)
    """The records that are passed over, with the reason, by partition and offset."""
    read: RangeReader = read_range

    def run(self, offset_range: OffsetRange, part: int) -> RangeResult:
        """Process one range; `part` is its number in the batch.

        Raises:
            DataLossError: records of the range are gone, and `failOnDataLoss` is true.
            BadRecordError: a record cannot be decoded and there is no dead-letter queue.
            StepError: a step of the transform cannot be applied.
            ClientError, RecordsError, OSError: reading or writing failed.
        """
        return _RangeRun(self, offset_range, part).run()


def passed_failure(row: int, reason: str) -> FormatFailure:
    """Return the failure that the dead letter of a passed record names."""
    return FormatFailure(row, PASSED, f"`kalda pipeline pass` lets the pipeline pass over it: {reason}")


class _RangeRun:
    """One run of a job on one range."""

    def __init__(self, job: RangeJob, offset_range: OffsetRange, part: int) -> None:
        self._job: Final = job
        self._range: Final = offset_range
        self._part: Final = part
        self._count: Final = OffsetCount(offset_range)
        self._meter: Final = ReadMeter()
        self._given = 0
        self._filtered = 0
        self._bad = 0
        self._passed = 0
        self._attempts = 0
        self._values_decoded: Final = TotalCount()
        self._values_written: Final = TotalCount()
        self._totalled: tuple[pa.RecordBatch, Totals | None] | None = None
        self._times: list[tuple[int, int]] = []
        self._letters: DeadLetters | None = None

    def run(self) -> RangeResult:
        began = time.perf_counter()
        job, task = self._job, (self._job.query_id, self._job.batch_id, self._part)
        if job.dead_letters is not None:
            self._letters = job.dead_letters.open(*task)
        try:
            with closing(job.read(job.source, self._range, self._wanted(), self._meter)) as records:
                written = job.target.write(self._rows(records), *task)
            self._count.finish()
            if written.rows != self._given:
                raise LostRowsError(
                    f"{self._range.topic_partition}: the target wrote {written.rows} of {self._given} rows"
                )
            letters = self._letters.finish() if self._letters is not None and self._bad else None
        except BaseException:
            if self._letters is not None:
                self._letters.abandon()
            raise
        return RangeResult(self._account(written), written, letters, self._metrics(began))

    def _wanted(self) -> WantedFields:
        """Return the fields of records to read; a dead letter needs all of them."""
        rows, has_letters = self._job.rows, self._job.dead_letters is not None
        return WantedFields(
            keys="key" in rows.keep or has_letters,
            values=rows.want_values or has_letters,
            headers=rows.want_headers or has_letters,
        )

    def _rows(self, records: Iterator[ColumnarBatch]) -> Iterator[pa.RecordBatch]:
        job = self._job
        for decoded in records:
            self._count.add(decoded.offsets)
            passed = self._passed_rows(decoded)
            place = self._range.topic_partition
            known = without_values(decoded, job.passed.get(place, ()) if passed else ())
            made = job.rows.rows_of(known, place)
            failures = [each for each in made.failures if each.row not in passed] if passed else made.failures
            rows = made.rows
            if passed:
                self._passed += len(passed)
                failures = sorted([*failures, *passed.values()], key=lambda each: each.row)
                offsets = decoded.offsets.take(pa.array(list(passed)))
                rows = rows.filter(pc.invert(pc.is_in(rows.column(OFFSET_COLUMN), offsets)))
            if failures:
                self._put_aside(decoded, failures, DECODE)
            yield from self._written(decoded, rows)
            self._totalled = None
            del decoded, known, made, rows  # a batch may have hundreds of megabytes, as may the next one

    def _passed_rows(self, decoded: ColumnarBatch) -> dict[int, FormatFailure]:
        """Return the records that are passed over, by their row."""
        passed = self._job.passed.get(self._range.topic_partition)
        if not passed:
            return {}
        rows = pc.indices_nonzero(pc.is_in(decoded.offsets, pa.array(list(passed), pa.int64()))).to_pylist()
        return {row: passed_failure(row, passed[decoded.offsets[row].as_py()]) for row in rows}

    def _written(self, decoded: ColumnarBatch, made: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows that the target gets of those before the transform."""
        job = self._job
        kept: list[pa.Array] = []
        for rows in self._prepared(decoded, made):
            if rows.num_columns == 1:  # no value of the batch shows a column, so there is nothing to write
                self._filtered += rows.num_rows
                continue
            if rows.num_rows:
                rows = self._fitted(decoded, rows, kept)
            if not rows.num_rows:
                continue
            self._given += rows.num_rows
            if job.event_time is not None:
                self._note_times(rows.column(job.event_time))
            yield rows
        if kept:
            offsets = pa.concat_arrays(kept)
            if len(offsets) < made.num_rows:
                made = made.filter(pc.is_in(made.column(OFFSET_COLUMN), offsets))
            self._values_decoded.add(made.num_rows, self._totals_of(made))

    def _totals_of(self, rows: pa.RecordBatch) -> Totals | None:
        """Return the totals of rows; without a step the same rows come twice."""
        if self._totalled is None or self._totalled[0] is not rows:
            self._totalled = rows, totals_of(rows, _HIDDEN)
        return self._totalled[1]

    def _prepared(self, decoded: ColumnarBatch, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows behind the steps that meet the expectations, with the marks of an upsert.

        Where a step or a condition fails, the rows are halved until the one that it fails for stands alone.
        """
        try:
            made, dropped = self._job.rows.transform(rows)
            marked = self._marked(decoded, made)
            checked = self._checked(marked)
        except (SqlError, FailedRowsError) as error:
            self._attempts += 1
            if self._attempts > ATTEMPTS_MAX:
                raise
            if rows.num_rows == 1:
                is_condition = isinstance(error, CheckError)
                failure = FormatFailure(0, ERROR_CLASS if is_condition else STEP_FAILED, str(error))
                stage = EXPECT if is_condition else TRANSFORM
                self._put_aside_rows(decoded, rows.column(OFFSET_COLUMN), [failure], stage)
                return
            half = rows.num_rows // 2
            yield from self._prepared(decoded, rows.slice(0, half))
            yield from self._prepared(decoded, rows.slice(half))
            return
        self._filtered += dropped + made.num_rows - marked.num_rows
        if checked is not None:
            self._filtered += checked.dropped
            if checked.dead:
                failures = [FormatFailure(each.row, ERROR_CLASS, each.message) for each in checked.dead]
                self._put_aside_rows(decoded, marked.column(OFFSET_COLUMN), failures, EXPECT)
            if checked.dropped or checked.dead:
                marked = marked.filter(checked.good)
        yield marked

    def _marked(self, decoded: ColumnarBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
        upsert = self._job.upsert
        if upsert is None or not rows.num_rows:
            return rows
        return upsert.marked(rows, decoded, self._range.topic_partition.partition)

    def _checked(self, rows: pa.RecordBatch) -> Checked | None:
        if not self._job.expectations or not rows.num_rows:
            return None
        exempt = rows.column(DELETE_COLUMN) if self._job.upsert is not None else None
        return self._job.expectations.check(rows, exempt)

    def _fitted(self, decoded: ColumnarBatch, rows: pa.RecordBatch, kept: list[pa.Array]) -> pa.RecordBatch:
        """Return the rows as the target takes them; put the others aside. `kept` gets the rows' offsets."""
        offsets = rows.column(OFFSET_COLUMN)
        fitted = self._job.target.fit(rows if self._job.upsert is not None else without_offsets(rows))
        if fitted.misfits:
            self._put_aside_rows(decoded, offsets, fitted.misfits, TARGET)
            rows = rows.filter(fitted.good(rows.num_rows))
        if rows.num_rows:
            kept.append(rows.column(OFFSET_COLUMN))
            self._values_written.add(rows.num_rows, self._totals_of(rows))
        return fitted.rows

    def _put_aside_rows(
        self,
        decoded: ColumnarBatch,
        offsets: pa.Int64Array,
        failures: Sequence[DecodeFailure],
        stage: str,
    ) -> None:
        """Put the records of rows aside; the failures name rows, whose records have these offsets."""
        bad = offsets.take(pa.array([each.row for each in failures]))
        places = pc.index_in(bad, decoded.offsets).to_pylist()
        named = [
            FormatFailure(place, each.error_class, each.message, each.schema_id)
            for place, each in zip(places, failures, strict=True)
        ]
        self._put_aside(decoded, named, stage)

    def _put_aside(self, decoded: ColumnarBatch, failures: Sequence[DecodeFailure], stage: str) -> None:
        self._bad += len(failures)
        if self._letters is None:
            first = next((each for each in failures if each.error_class != PASSED), None)
            if first is None:
                return
            offset = decoded.offsets[first.row].as_py()
            raise BadRecordError(
                f"{self._range.topic_partition} at offset {offset}: {first.error_class}: {first.message}; "
                "set on_error to dlq or skip to go on without such records"
            )
        self._letters.add(decoded, self._range.topic_partition, failures, stage)

    def _note_times(self, column: pa.Array) -> None:
        bounds = pc.min_max(column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False))
        least, most = bounds["min"], bounds["max"]
        if least.is_valid:
            self._times.append((least.value, most.value))

    def _account(self, written: Written) -> RangeAccount:
        return RangeAccount(
            topic=self._range.topic_partition.topic,
            partition=self._range.topic_partition.partition,
            start=self._range.start,
            end=self._range.end,
            records=self._count.records,
            rows_out=written.rows,
            dlq=self._bad,
            passed=self._passed,
            filtered=self._filtered,
            gaps=self._count.gaps,
            event_time_min=min((least for least, _ in self._times), default=None),
            event_time_max=max((most for _, most in self._times), default=None),
            decoded=self._values_decoded.totals,
            written=self._values_written.totals,
            topic_id=self._range.topic_id_text,
        )

    def _metrics(self, began: float) -> RangeMetrics:
        return RangeMetrics(
            seconds=time.perf_counter() - began,
            network_bytes=self._meter.counters.bytes_fetched,
            files_bytes=self._meter.counters.bytes_in_place,
            decode_seconds=self._meter.decode_seconds,
        )
