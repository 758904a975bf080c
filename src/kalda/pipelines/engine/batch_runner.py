"""Processes one micro-batch of a pipeline, exactly once.

The order, each step repeatable: tasks write files and prepare transactions, the driver writes down what it is
about to commit, commits the target (the decision), completes the prepared transactions, and publishes the
ledger. A batch that was decided before a crash is only completed. Nothing of a batch is visible before the
decision, and after a crash the driver finds everything that the tasks staged or prepared.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.formats import FormatError
from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.checkpoint import Checkpoint, CheckpointError
from kalda.pipelines.direct.columns_job import ColumnsJob, ShownColumns
from kalda.pipelines.direct.range_job import RangeJob
from kalda.pipelines.direct.row_plan import RowPlan, RowPlanError
from kalda.pipelines.direct.row_steps import StepError
from kalda.pipelines.direct.rows_target import DeadLetterTarget, RowsTarget, SkipTarget
from kalda.pipelines.direct.spark_job import account_of, run_ranges
from kalda.pipelines.engine.batch_log import BatchIntent, BatchLog, PlannedBatch
from kalda.pipelines.engine.dead_letters import DeadLetterOutput
from kalda.pipelines.engine.error_limit import check_breaker
from kalda.pipelines.engine.errors import PipelineStoppedError
from kalda.pipelines.engine.passed import PassedRecords
from kalda.pipelines.engine.planner import TopicPlan
from kalda.pipelines.engine.spark_batch import SparkBatch, SparkResults, view_frame
from kalda.pipelines.engine.spark_tasks import CountTarget
from kalda.pipelines.engine.start_check import check_checkpoint, check_target
from kalda.pipelines.engine.targets import Target, open_target
from kalda.pipelines.expectations import Expectations
from kalda.pipelines.ledger.audit_record import records_of
from kalda.pipelines.ledger.continuity import Break, Continuity
from kalda.pipelines.ledger.topic import LedgerTopic
from kalda.pipelines.spec.model import OnError, PipelineFile
from kalda.pipelines.sql.nodes import SqlError
from kalda.spark.source.options import SourceOptions, parse_stream_options
from kalda.spark.source.plan import OffsetRange, plan_ranges
from kalda.spark.worker import pooled_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """The outcome of a batch, for status and metrics."""

    account: BatchAccount
    seconds: float
    bytes_read: int
    is_replay: bool
    bytes_in_place: int = 0
    """Of the bytes read: those that came from segment files, not over the network."""
    decode_seconds: float = 0.0
    """Time of all tasks in decoding record batches to columns."""
    breaks: tuple[Break, ...] = ()
    """Where the batch does not join the one before: offsets in no batch, or in two."""


class BatchRunner:
    """Processes the batches of one pipeline, one at a time."""

    def __init__(self, plan: TopicPlan, file: PipelineFile, *, role: str = "") -> None:
        """Create a runner; `role` distinguishes a second runner of the pipeline, e.g. of a replay."""
        self._plan: Final = plan
        self._spec: Final = plan.spec
        self._checkpoint: Final = Checkpoint(file.checkpoint(plan.spec.name))
        self._log: Final = BatchLog(file.storage, plan.spec.name)
        self._passed: Final = PassedRecords(file.storage, plan.spec.name)
        self._refill_log: Final = BatchLog(file.refill_storage, plan.spec.name)
        self._cluster: Final = file.cluster(plan.cluster)
        self._source: Final[SourceOptions] = parse_stream_options(plan.options)
        self._target: Final[Target] = open_target(plan.spec, file)
        self._dead_letters: Final = _open_dead_letters(plan, file, role)
        self._continuity: Final = None if role else Continuity()
        """Replays fill gaps, so their batches do not join."""
        self._ledger: Final = LedgerTopic(self._cluster.properties) if plan.spec.ledger else None
        self._schema: Final = plan.schema if plan.is_direct else plan.rows.input_schema()
        """The columns that are known before the batch: those of the target, or before Spark's transform."""
        self._columns: pa.StructType | None = None
        """Those that values have shown up to the current batch, where nothing declares them."""

    def check_start(self) -> None:
        """Check that a query resumes after the target's last batch.

        Raises:
            ProgressLostError: it would write rows again, or leave records out.
            ClientError: the cluster cannot be reached.
        """
        check_checkpoint(self._spec, self._checkpoint, self._source)
        if self._checkpoint.last_planned() is None:
            check_target(self._spec, self._target, (self._log, self._refill_log), self._cluster.properties)

    def decided(self) -> BatchAccount | None:
        """Return the account of the last batch, if the target has it; it may have to be completed."""
        intent = self._log.read()
        if intent is None:
            return None
        committed = self._target.committed_batch(intent.account.query_id)
        is_decided = committed is not None and committed >= intent.account.batch_id
        return intent.account if is_decided else None

    def complete_decided(self) -> BatchAccount | None:
        """Complete the last batch of a process that crashed, if the target has it; return its account.

        Raises:
            BatchLogError: the storage's record of it is damaged.
            ClientError: the cluster cannot be reached.
        """
        account = self.decided()
        if account is not None:
            self._finish(account.query_id, account.batch_id)
        return account

    def open(self) -> None:
        """Create the topics that the pipeline writes beside its target.

        Raises:
            ClientError: the cluster refuses them or cannot be reached.
        """
        if self._dead_letters is not None:
            self._dead_letters.create_topics()

    def close(self) -> None:
        """Close connections."""
        if self._ledger is not None:
            self._ledger.close()

    def run(self, frame: "DataFrame", batch_id: int) -> BatchOutcome | None:
        """Process a batch; None for one that reads nothing.

        Raises:
            PipelineStoppedError: starting again does not help.
            Exception: whatever a task or a commit raised; the batch is tried again.
        """
        query_id = self._checkpoint.query_id()
        if query_id is None:
            raise CheckpointError(f"{self._checkpoint.location} has no metadata; was it deleted?")
        return self.process(frame, query_id, batch_id, lambda: self.ranges(batch_id))

    def next_batch(self, query_id: str) -> int:
        """Complete the last batch of a query that was decided, and return the number of the next one."""
        committed = self._target.committed_batch(query_id)
        if committed is None:
            return 0
        self._finish(query_id, committed)
        return committed + 1

    def process(
        self, frame: "DataFrame", query_id: str, batch_id: int, find: Callable[[], Sequence[OffsetRange]]
    ) -> BatchOutcome | None:
        """Process the ranges that `find` returns as a batch; raises as `run`."""
        assert batch_id >= 0, f"batch {batch_id}"
        began = time.perf_counter()
        committed = self._target.committed_batch(query_id)
        if committed is not None and committed >= batch_id:
            account = self._finish(query_id, batch_id)
            if account is None:
                return None
            return BatchOutcome(account, time.perf_counter() - began, 0, is_replay=True)
        if self._dead_letters is not None:
            self._dead_letters.clean()
        ranges = find()
        if not ranges:
            return None
        if self._target.parts is not None:
            self._keep_plan(PlannedBatch(query_id, batch_id, tuple(ranges)))
        job = self._job(query_id, batch_id)
        results = self._results(frame, job, ranges)
        account = _with_late_rows(account_of(job, results.ranges), results)
        letters = [
            name for each in results.ranges if each.dead_letters for name in map(str, each.dead_letters.files)
        ]
        check_breaker(self._spec, account, lambda: self._bad_record(letters))
        assert account.starts().keys() == {each.topic_partition for each in ranges}, f"{account} of {ranges}"
        before = self._log.read()
        intent = BatchIntent(account, tuple(letters))
        self._log.write(intent)
        self._target.commit(account, results.written)
        if self._columns is not None and self._columns != self._log.read_columns():
            # Behind the commit, so that a table that refuses a column does not refuse it for ever.
            self._log.write_columns(self._columns)
        breaks = self._find_breaks(before, account)
        self._complete(intent)
        self._target.maintain()
        metrics = [each.metrics for each in results.ranges]
        in_place = sum(each.files_bytes for each in metrics)
        return BatchOutcome(
            account,
            time.perf_counter() - began,
            in_place + sum(each.network_bytes for each in metrics),
            is_replay=False,
            bytes_in_place=in_place,
            decode_seconds=sum(each.decode_seconds for each in metrics),
            breaks=breaks,
        )

    def unfinished(self) -> PlannedBatch | None:
        """Return the batch that has begun and is not decided, where tasks may have committed parts of it."""
        planned = None if self._target.parts is None else self._log.read_plan()
        if planned is None:
            return None
        committed = self._target.committed_batch(planned.query_id)
        return planned if committed is None or committed < planned.batch_id else None

    def abandon(self, planned: PlannedBatch) -> None:
        """End what an unfinished batch has left open; its query will not run again.

        Raises:
            ClientError: the cluster cannot be reached.
        """
        if self._target.parts is not None:
            self._target.parts.abandon(planned.query_id, planned.batch_id)

    def _bad_record(self, letters: Sequence[str]) -> str | None:
        """Return the first bad record of staged letters and what is wrong with it; None without letters."""
        letter = self._dead_letters.first(letters) if self._dead_letters is not None else None
        if letter is None:
            return None
        place = f"{letter.topic}-{letter.partition} at offset {letter.offset}"
        return f"{place}: {letter.error_class}: {letter.error_message}"

    def _keep_plan(self, planned: PlannedBatch) -> None:
        """Write down what the tasks of a batch read.

        Raises:
            PipelineStoppedError: an earlier attempt gave them other offsets.
        """
        before = self.unfinished()
        if before is not None and (before.query_id, before.batch_id) == (planned.query_id, planned.batch_id):
            # The start of a new partition may move by retention.
            found, expected = (
                [(part.topic_partition, part.end) for part in each.ranges] for each in (planned, before)
            )
            if found != expected:
                raise PipelineStoppedError(
                    f"batch {planned.batch_id} of {self._spec.name} was begun with other ranges of offsets, "
                    f"and {self._spec.target_name} may have some of them; set the `options` of `from` "
                    "(minPartitions, maxRecordsPerPartition) as they were, until this batch has ended"
                )
            return
        self._log.write_plan(planned)

    def _find_breaks(self, before: BatchIntent | None, account: BatchAccount) -> tuple[Break, ...]:
        """Return the gaps between a committed batch and the one before it, also one of another process."""
        continuity = self._continuity
        if continuity is None:
            return ()
        if not continuity.ends and before is not None and _is_before(before.account, account):
            continuity.follow(before.account)
        found = tuple(continuity.follow(account))
        for each in found:
            logger.warning("%s: %s; see `kalda pipeline audit`", self._spec.name, each)
        return found

    def ranges(self, batch_id: int) -> list[OffsetRange]:
        """Return the offset ranges of a batch, from the offset log of the query.

        Raises:
            CheckpointError: the log has no such batch.
        """
        ends = self._checkpoint.offsets(batch_id)
        starts = self._checkpoint.offsets(batch_id - 1) if batch_id else None
        if ends is None:
            raise CheckpointError(f"{self._checkpoint.location}/offsets has no batch {batch_id}")
        if starts is None:
            return []  # the batch that fixes where the query starts
        starts |= self._starts_of(ends.keys() - starts.keys())
        topic_ids = self._checkpoint.topic_ids(batch_id)
        whole = [
            OffsetRange(each, starts[each], ends[each], topic_id=topic_ids.get(each.topic, ZERO_UUID))
            for each in sorted(ends)
            if ends[each] > starts[each]
        ]
        return plan_ranges(
            whole,
            partitions_min=self._source.partitions_min,
            records_max=self._source.records_per_partition_max,
        )

    def _starts_of(self, found: set[TopicPartition]) -> dict[TopicPartition, int]:
        if not found:
            return {}
        with pooled_reader(self._source.client) as reader:
            return reader.beginning_offsets(found)

    def _job(self, query_id: str, batch_id: int) -> RangeJob:
        """Return the job of the tasks; the target is opened when the columns are known."""
        plan, spec = self._plan, self._spec
        dead_letters: DeadLetterTarget | None = self._dead_letters
        if spec.on_error is OnError.SKIP:
            dead_letters = SkipTarget()
        return RangeJob(
            query_id=query_id,
            batch_id=batch_id,
            source=self._source,
            rows=plan.rows,
            target=CountTarget(),
            dead_letters=dead_letters,
            event_time=self._target.event_time,
            expectations=Expectations(spec.expect) if spec.expect and plan.is_direct else None,
            upsert=self._target.upsert_marks(is_spark=not plan.is_direct),
            passed=self._passed.read(),
        )

    def _results(self, frame: "DataFrame", job: RangeJob, ranges: Sequence[OffsetRange]) -> SparkResults:
        is_inferred = self._schema is None

        def open_target(schema: pa.Schema) -> RowsTarget:
            return self._target.rows_target(schema, job.query_id, job.batch_id, is_inferred=is_inferred)

        plan, schema = self._plan, self._schema
        if schema is None:
            found = self._find_columns(frame.sparkSession, job, ranges)
            if not found:
                return self._without_columns(frame.sparkSession, job, ranges)
            plan, schema = found
            job = replace(job, rows=plan.rows)
        if not plan.is_direct:
            views = {name: view_frame(frame.sparkSession, each) for name, each in self._spec.views.items()}
            return SparkBatch(plan, frame, job, ranges, views).run(schema, open_target)
        job = replace(job, target=open_target(schema))
        results = run_ranges(frame.sparkSession, job, ranges)
        return SparkResults(results, [each.rows for each in results])

    def _find_columns(
        self, session: "SparkSession", job: RangeJob, ranges: Sequence[OffsetRange]
    ) -> tuple[TopicPlan, pa.Schema] | None:
        """Return the plan for the columns that the values of this batch and those before it have shown.

        It comes with the columns of the target, or before Spark's transform. None when there are none.

        Raises:
            PipelineStoppedError: the transform does not fit the columns, or there are too many.
        """
        known = self._log.read_columns()
        finding = ColumnsJob(job.batch_id, self._source, job.rows, job.passed, known)
        shown = ShownColumns.together(run_ranges(session, finding, ranges))
        self._columns = shown.beside(known)
        if not len(self._columns) and not job.rows.keep:
            return None
        try:
            rows = self._plan.rows.with_columns(self._columns, shown.texts_beside(self._columns))
            schema = rows.output_schema() if self._plan.is_direct else rows.input_schema()
        except (FormatError, RowPlanError, SqlError, StepError) as error:
            raise PipelineStoppedError(
                f"{self._spec.name} cannot process batch {job.batch_id}, whose values have the columns "
                f"{', '.join(field.name for field in self._columns)}: {error}"
            ) from error
        assert schema is not None, "columns were found"
        return (replace(self._plan, rows=rows), schema) if len(schema) else None

    def _without_columns(
        self, session: "SparkSession", job: RangeJob, ranges: Sequence[OffsetRange]
    ) -> SparkResults:
        """Process a batch in which no value shows a column: bad ones are put aside, others have no row."""
        rows = RowPlan(keep=(), decoder=self._plan.rows.with_columns(self._columns).decoder)
        job = replace(job, rows=rows, expectations=None, event_time=None, upsert=None)
        results = run_ranges(session, job, ranges)
        return SparkResults(results, [each.rows for each in results])

    def _finish(self, query_id: str, batch_id: int) -> BatchAccount | None:
        """Complete a batch that was decided before a crash."""
        intent = self._log.read()
        if intent is None or (intent.account.query_id, intent.account.batch_id) != (query_id, batch_id):
            return None
        if self._target.parts is not None:
            self._target.parts.complete(query_id)
        self._complete(intent)
        return intent.account

    def _complete(self, intent: BatchIntent) -> None:
        account = intent.account
        if self._dead_letters is not None:
            self._dead_letters.publish(account.query_id, account.batch_id, intent.dead_letters)
        if self._ledger is not None:
            now_ms = time.time_ns() // 1_000_000
            self._ledger.publish(records_of(self._spec.name, self._spec.target_name, intent.account, now_ms))


def _is_before(one: BatchAccount, other: BatchAccount) -> bool:
    """Return whether a batch was committed before another; the last intent may be an attempt of the same."""
    return one.query_id == other.query_id and one.batch_id < other.batch_id


def _with_late_rows(account: BatchAccount, results: SparkResults) -> BatchAccount:
    """Return the account with the numbers of late rows, which the tasks that write count."""
    late: dict[TopicPartition, int] = {}
    for each in results.ranges:
        late[each.account.topic_partition] = late.get(each.account.topic_partition, 0) + each.rows.late_rows
    ranges = tuple(replace(each, late=late.get(each.topic_partition, 0)) for each in account.ranges)
    return replace(account, ranges=ranges)


def _open_dead_letters(plan: TopicPlan, file: PipelineFile, role: str) -> DeadLetterOutput | None:
    spec = plan.spec
    if not spec.has_dead_letters:
        return None
    cluster = file.cluster(plan.cluster)
    return DeadLetterOutput(spec.name, spec.dlq_topic, spec.group_id + role, cluster, file.storage)
