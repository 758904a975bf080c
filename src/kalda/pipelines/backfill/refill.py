"""Runs replays and backfills: batches of their own query, committed to the same table and the same ledger.

They may run beside the pipeline. Their staged files, dead letters and transactions have names of their own,
and with a checkpoint they stay behind what the pipeline has committed. Where rows replace each other, the
pipeline must not run, and a refill ends where the table is: what it writes is older than the rest. A refill
that crashed is completed before the ledger is read; its last batch may be in the table only.
"""

import json
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.backfill.bounds import Bound, RefillPlan, plan_refill, resolve
from kalda.pipelines.checkpoint import Checkpoint
from kalda.pipelines.engine.batch_log import BatchLog
from kalda.pipelines.engine.batch_runner import BatchRunner
from kalda.pipelines.engine.planner import TopicPlan
from kalda.pipelines.ledger.topic import LedgerTopic, read_ledger
from kalda.pipelines.query_ids import REFILL_PREFIX
from kalda.pipelines.repair import ends_of
from kalda.pipelines.spec.model import PipelineFile, TableSpec, WriteMode
from kalda.pipelines.tables import open_table
from kalda.spark.source.discovery import Discovery
from kalda.spark.source.offsets import to_spark_offset
from kalda.spark.source.options import SourceOptions, parse_stream_options
from kalda.spark.source.plan import OffsetRange
from kalda.spark.worker import pooled_reader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROLE: Final = "-refill"
_STREAM_OPTIONS: Final = (
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
)
_TASK_OPTIONS: Final = ("minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition")
"""Options that cut ranges; those of a refill are cut already, and each one is a task."""


class RefillError(ValueError):
    """A replay or a backfill is not possible; the message says what to do instead."""


@dataclass(frozen=True, slots=True)
class RefillResult:
    """What was processed."""

    accounts: tuple[BatchAccount, ...]

    def total(self, name: str) -> int:
        """Return the sum of a count over all batches."""
        return sum(each.total(name) for each in self.accounts)


class Refill:
    """Replays and backfills of one pipeline.

    Raises:
        RefillError: the pipeline has no ledger, which says what the table holds already.
    """

    def __init__(self, plan: TopicPlan, file: PipelineFile) -> None:
        spec = plan.spec
        if not spec.ledger:
            raise RefillError(
                f"{spec.name} has `ledger: false`, and the ledger says which offsets the table has already; "
                "leave the setting out"
            )
        self._plan: Final = plan
        self._file: Final = file
        self._log: Final = BatchLog(file.refill_storage, spec.name)
        self._query_id = self._find_query_id()
        self._properties: Final = file.cluster(plan.cluster).properties
        self._source: Final[SourceOptions] = parse_stream_options(plan.options)
        self._checkpoint: Final = file.checkpoint(spec.name)

    @property
    def replaces_rows(self) -> bool:
        """Whether rows replace each other by key: offsets are read again, and the pipeline must not run."""
        target = self._plan.spec.target
        return isinstance(target, TableSpec) and target.mode is WriteMode.UPSERT

    def plan(self, start: Bound | None, end: Bound | None) -> tuple[RefillPlan, dict[TopicPartition, int]]:
        """Return the offsets between two bounds that are not in the table, and each partition's end.

        Without a bound, the range begins where the logs begin and ends where they end. A pipeline with a
        checkpoint processes what it has not reached yet by itself, so the range ends there.

        Raises:
            RefillError: rows replace each other, and the table has later ones than the range.
            ClientError: the cluster cannot be reached.
        """
        records = read_ledger(self._properties, frozenset([self._plan.spec.name])).records
        held = ends_of(each.account for each in records) if self.replaces_rows else {}
        discovery = Discovery(self._source)
        try:
            partitions = discovery.find_partitions().partitions
            starts, ends = discovery.beginning_offsets(partitions), discovery.end_offsets(partitions)
        finally:
            discovery.close()
        reached = self._reached()
        if reached is not None:
            ends = {
                each: max(min(offset, max(reached.get(each, 0), held.get(each, 0))), starts[each])
                for each, offset in ends.items()
            }
        first = resolve(start, starts, starts, ends, self._at_time)
        last = resolve(end, ends, starts, ends, self._at_time)
        for each in sorted(first.keys() & last.keys()):
            if first[each] < last[each] < min(held.get(each, 0), ends[each]):
                raise RefillError(
                    f"{self._plan.spec.name} replaces rows by key, and its table has {each} up to offset "
                    f"{held[each]}: rows up to {last[each]} would replace newer ones. Leave out the end, so "
                    "that all that follows is processed again"
                )
        with closing(self._runner()) as runner:
            unfinished = runner.unfinished()
        pending = () if unfinished is None else unfinished.ranges
        return plan_refill(first, last, records, pending, may_repeat=self.replaces_rows), last

    def run(
        self, session: "SparkSession", plan: RefillPlan, report: Callable[[BatchAccount], None]
    ) -> RefillResult:
        """Process the batches of a plan; `report` gets each one that is committed.

        Raises:
            Exception: whatever a task or a commit raised; what was committed stays, and a new plan leaves it
                out.
        """
        accounts = []
        with closing(self._runner()) as runner:
            runner.open()
            batch_id = runner.next_batch(self._query_id)
            for ranges in plan.batches:
                frame = self._frame(session, ranges)
                outcome = runner.process(frame, self._query_id, batch_id, partial(tuple, ranges))
                assert outcome is not None, "a batch of a plan has ranges"
                accounts.append(outcome.account)
                report(outcome.account)
                batch_id += 1
        return RefillResult(tuple(accounts))

    def complete(self) -> None:
        """Finish the last batch of a refill that crashed; call it before `plan`.

        Where rows replace each other, also that of the pipeline: the refill has to reach as far.
        """
        with closing(self._runner()) as runner:
            runner.next_batch(self._query_id)
        if self.replaces_rows:
            with closing(BatchRunner(self._plan, self._file)) as runner:
                runner.complete_decided()

    def begin_at(self, offsets: dict[TopicPartition, int]) -> bool:
        """Let a pipeline that has never run begin at these offsets; return False if it has a checkpoint."""
        checkpoint = Checkpoint(self._checkpoint)
        if checkpoint.last_planned() is not None:
            return False
        checkpoint.create(offsets, query_id=uuid.uuid4(), now_ms=time.time_ns() // 1_000_000)
        return True

    def forget(self) -> int:
        """Delete the ledger of a table that is rebuilt; return how many records it had.

        Raises:
            RefillError: the table has rows, or the pipeline has a checkpoint.
        """
        target = self._plan.spec.target
        if not isinstance(target, TableSpec):
            raise RefillError(f"{self._plan.spec.name} writes a topic, which cannot be rebuilt")
        table = open_table(target)
        if table.version() is not None and any(rows.num_rows for rows in table.read()):
            raise RefillError(
                f"{target.table} has rows; delete {target.path}, or name another table, before it is rebuilt"
            )
        if Checkpoint(self._checkpoint).last_planned() is not None:
            raise RefillError(
                f"{self._plan.spec.name} has a checkpoint; stop it and delete {self._checkpoint} before its "
                "table is rebuilt"
            )
        records = read_ledger(self._properties, frozenset([self._plan.spec.name])).records
        with LedgerTopic(self._properties) as ledger:
            ledger.delete(records)
        # The next batches have the numbers of former ones; under their query's id, topics would know them.
        self._log.clear()
        self._query_id = self._find_query_id()
        return len(records)

    def _find_query_id(self) -> str:
        """Return the id under which refills go on; a new one where nothing is left of former ones."""
        planned, intent = self._log.read_plan(), self._log.read()
        if planned is not None:
            return planned.query_id
        if intent is not None:
            return intent.account.query_id
        return f"{REFILL_PREFIX}{self._plan.spec.name}-{uuid.uuid4().hex[:12]}"

    def _runner(self) -> BatchRunner:
        apart = replace(self._file, storage=self._file.refill_storage)
        return BatchRunner(self._plan, apart, role=_ROLE)

    def _reached(self) -> dict[TopicPartition, int] | None:
        """Return the offsets that the pipeline has committed; None for one that never ran."""
        checkpoint = Checkpoint(self._checkpoint)
        last = checkpoint.last_committed()
        if last is not None:
            return checkpoint.offsets(last) or {}
        return None if checkpoint.last_planned() is None else {}

    def _at_time(self, timestamp_ms: int) -> dict[TopicPartition, int]:
        discovery = Discovery(self._source)
        try:
            partitions = discovery.find_partitions().partitions
        finally:
            discovery.close()
        with pooled_reader(self._source.client) as reader:
            found = reader.list_offsets(dict.fromkeys(partitions, timestamp_ms))
        return {each: answer.offset for each, answer in found.items() if answer is not None}

    def _frame(self, session: "SparkSession", ranges: tuple[OffsetRange, ...]) -> "DataFrame":
        """Return the records of the ranges, for a transform that Spark executes."""
        left_out = {name.lower() for name in (*_STREAM_OPTIONS, *_TASK_OPTIONS)}
        options = {name: value for name, value in self._plan.options.items() if name.lower() not in left_out}
        assigned: dict[str, list[int]] = {}
        for each in ranges:
            assigned.setdefault(each.topic_partition.topic, []).append(each.topic_partition.partition)
        starts = {each.topic_partition: each.start for each in ranges}
        ends = {each.topic_partition: each.end for each in ranges}
        options |= {
            "assign": json.dumps(assigned),
            "startingOffsets": json.dumps(to_spark_offset(starts)),
            "endingOffsets": json.dumps(to_spark_offset(ends)),
            "minPartitions": "1",  # without it the source joins short ranges to one task
        }
        return session.read.format("kalda").options(**options).load()
