"""Implements a topic as the target of a pipeline.

Each task sends its rows; how they become visible depends on the guarantee. The decision that a batch counts
is a file in the storage, written when all tasks have ended. With `exactly-once-batch` it is a record in
`__kalda_commits` before that, and the batch becomes visible as that of a sink does
(`kalda.spark.sink.batch_commit`). A task that runs again after the decision sends nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.direct.rows_target import RowsTarget, Written
from kalda.pipelines.direct.upsert_marks import UpsertMarks
from kalda.pipelines.engine.decision import DecisionFile
from kalda.pipelines.engine.target_settings import sink_options, topic_rows
from kalda.pipelines.engine.topic_fit import TopicFit, read_limits
from kalda.pipelines.ledger.evidence import log_bounds
from kalda.pipelines.spec.model import Cluster, Delivery, TopicTarget
from kalda.pipelines.tables.fitting import Fitted
from kalda.spark.sink.batch_commit import BatchCommit
from kalda.spark.sink.exactly_once import write_exactly_once
from kalda.spark.sink.last_decision import read_decision
from kalda.spark.sink.options import SinkOptions
from kalda.spark.sink.prepared_task import write_prepared
from kalda.spark.sink.rows import TopicRows as SinkRows
from kalda.spark.sink.task_identity import TaskIdentity
from kalda.spark.sink.task_output import TaskOutput, open_producer


@dataclass(frozen=True, slots=True)
class TopicRowsTarget:
    """Sends the rows of a task; picklable."""

    options: SinkOptions
    records: TopicFit
    delivery: Delivery

    def fit(self, rows: pa.RecordBatch) -> Fitted:
        """Return the records of rows."""
        return self.records.fit(rows)

    def write(self, batches: Iterable[pa.RecordBatch], query_id: str, batch_id: int, part: int) -> Written:
        """Send all records that `fit` returned."""
        counted = _Counted()
        records = counted.records(batches)
        if self.delivery is Delivery.EXACTLY_ONCE_BATCH:
            written = write_prepared(self.options, records, TaskIdentity(_scope(query_id), batch_id, part))
            return Written(counted.count, prepared=written.result)
        first = next(records, None)
        if first is None:
            return Written(0)
        names = first.schema.names
        if self.delivery is Delivery.EXACTLY_ONCE:
            identity = TaskIdentity(_scope(query_id), batch_id, part)
            write_exactly_once(self.options, names, _chain(first, records), identity)
            return Written(counted.count)
        with open_producer(self.options) as producer:
            output = TaskOutput(producer, SinkRows(names, self.options.topic))
            output.send_all(_chain(first, records))
        return Written(counted.count)


class _Counted:
    """Counts records."""

    def __init__(self) -> None:
        self.count = 0

    def records(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.count += batch.num_rows
            yield batch


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others


def _scope(query_id: str) -> str:
    """Return the prefix of the transactional ids of a query's topic."""
    return f"{query_id}-topic"


class TopicOutput:
    """The topic, seen from the driver."""

    event_time = None
    """The account has no bounds of the times in records."""

    def __init__(self, spec: TopicTarget, cluster: Cluster, decision: DecisionFile) -> None:
        self._options: Final = sink_options(spec, cluster)
        self._spec: Final = spec
        self._cluster: Final = cluster
        self._decision: Final = decision

    def committed_batch(self, query_id: str) -> int | None:
        """Return the last batch that counts."""
        batch_ids = [self._decision.batch(query_id)]
        if self._spec.delivery is Delivery.EXACTLY_ONCE_BATCH:
            decision = read_decision(self._options, _scope(query_id))
            batch_ids.append(None if decision is None else decision.batch_id)
        return max((each for each in batch_ids if each is not None), default=None)

    @property
    def parts(self) -> "TopicOutput | None":
        """The transactions of tasks; without them, a task's records are in the topic, and nothing is open."""
        return None if self._spec.delivery is Delivery.AT_LEAST_ONCE else self

    def holds(self, query_id: str) -> bool:
        """Return whether the topic has ever had records; they do not name the query that wrote them.

        Records of prepared transactions count, because their commit may be decided already.
        """
        properties = {**self._cluster.properties, "isolation.level": "read_uncommitted"}
        bounds = log_bounds(properties, [self._spec.topic])
        return any(each.end > 0 for each in bounds.values())

    def rows_target(
        self, schema: pa.Schema, query_id: str, batch_id: int, *, is_inferred: bool = False
    ) -> RowsTarget:
        """Return the object that tasks send with."""
        limits = read_limits(self._spec.topic, self._cluster, dict(self._options.producer))
        records = TopicFit(self._spec.topic, topic_rows(self._spec, schema), limits)
        return TopicRowsTarget(self._options, records, self._spec.delivery)

    def upsert_marks(self, *, is_spark: bool) -> UpsertMarks | None:
        """Return None: records are appended."""
        return None

    def commit(self, account: BatchAccount, written: Sequence[Written]) -> None:
        """Decide the batch and make its rows visible."""
        if self._spec.delivery is Delivery.EXACTLY_ONCE_BATCH:
            results = [each.prepared for each in written if each.prepared is not None]
            self._batch(account.query_id, account.batch_id).commit(results)
        self._decision.note(account.query_id, account.batch_id)

    def maintain(self) -> None:
        """Leave the topic alone: it is the brokers' to maintain."""

    def complete(self, query_id: str) -> None:
        """Make the last batch that counts visible, after a crash in `commit`."""
        batch_id = self.committed_batch(query_id)
        if batch_id is not None and self._spec.delivery is Delivery.EXACTLY_ONCE_BATCH:
            self._batch(query_id, batch_id).commit([])

    def abandon(self, query_id: str, batch_id: int) -> None:
        """Abort what an undecided batch has prepared; readers would wait for it for ever."""
        if self._spec.delivery is Delivery.EXACTLY_ONCE_BATCH:
            self._batch(query_id, batch_id).abandon()

    def _batch(self, query_id: str, batch_id: int) -> BatchCommit:
        return BatchCommit(self._options, _scope(query_id), batch_id)
