"""Defines the classes that Spark drives: the writer of a batch query and that of a stream.

`write` runs in executors, `commit` and `abort` in a process of the driver, on another writer object that was
built from the same options; they share nothing but the messages.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, assert_never

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kalda.spark.sink.batch_commit import BatchCommit
from kalda.spark.sink.decisions import TaskResult
from kalda.spark.sink.exactly_once import write_exactly_once
from kalda.spark.sink.options import Delivery, SinkOptions
from kalda.spark.sink.prepared_task import write_prepared
from kalda.spark.sink.producer_pool import worker_pool
from kalda.spark.sink.rows import TopicRows, check_write_schema
from kalda.spark.sink.task_identity import scope_of_query, task_identity
from kalda.spark.sink.task_output import TaskOutput, open_producer
from kalda.spark.source.one_line_errors import one_line_errors
from kalda.spark.worker import prepare_planner, prepare_worker

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """What a task returns to the driver; below 1 kB, since all of them pass through it."""

    row_count: int
    """How many rows it wrote, or an earlier attempt of it; 0 where a whole batch was written before."""
    is_repeated: bool = False
    """Whether they had been written before."""
    scope: str | None = None
    """The sink, in mode exactly-once-batch."""
    result: TaskResult | None = None
    """What the task has prepared, in mode exactly-once-batch; None without rows."""


class KaldaBatchWriter(DataSourceArrowWriter):
    """Writes a batch query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_write_schema(schema, options.topic)
        self._options: Final = options
        self._schema: Final = schema

    @one_line_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task."""
        return _write(self._options, self._schema.names, iterator)

    @one_line_errors
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows visible, where the delivery is that of whole batches."""
        _end(self._options, messages, self._options.txn_version, is_commit=True)

    @one_line_errors
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop the rows unless they are committed, where the delivery is that of whole batches."""
        _end(self._options, messages, self._options.txn_version, is_commit=False)


class KaldaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_write_schema(schema, options.topic)
        self._options: Final = options
        self._schema: Final = schema

    @one_line_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task."""
        return _write(self._options, self._schema.names, iterator)

    @one_line_errors
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the rows of the batch visible, where the delivery is that of whole batches."""
        _end(self._options, messages, batchId, is_commit=True)

    @one_line_errors
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop the rows unless the batch is committed; Spark calls it also after a commit that failed."""
        _end(self._options, messages, batchId, is_commit=False)


def _write(options: SinkOptions, names: list[str], batches: Iterator[pa.RecordBatch]) -> TaskMessage:
    prepare_worker()
    match options.delivery:
        case Delivery.AT_LEAST_ONCE:
            return _write_at_least_once(options, names, batches)
        case Delivery.EXACTLY_ONCE:
            part = write_exactly_once(options, names, batches, task_identity(options, TaskContext.get()))
            return TaskMessage(part.row_count, part.is_repeated)
        case Delivery.EXACTLY_ONCE_BATCH:
            identity = task_identity(options, TaskContext.get())
            prepared = write_prepared(options, batches, identity)
            row_count = 0 if prepared.result is None else prepared.result.handle.row_count
            return TaskMessage(row_count, prepared.is_repeated, identity.scope, prepared.result)
        case unknown:
            assert_never(unknown)


def _write_at_least_once(
    options: SinkOptions, names: list[str], batches: Iterator[pa.RecordBatch]
) -> TaskMessage:
    with worker_pool.borrow(options, lambda: open_producer(options)) as producer:
        output = TaskOutput(producer, TopicRows(names, options.topic))
        output.send_all(batches)
    return TaskMessage(output.row_count)


def _end(
    options: SinkOptions,
    messages: Iterable[WriterCommitMessage | None],
    batch_id: int | None,
    *,
    is_commit: bool,
) -> None:
    prepare_planner()
    if options.delivery is not Delivery.EXACTLY_ONCE_BATCH or batch_id is None:
        return
    tasks = [each for each in messages if isinstance(each, TaskMessage)]
    results = [each.result for each in tasks if each.result is not None]
    if is_commit and not results and not any(each.is_repeated for each in tasks):
        return
    assert len({each.scope for each in tasks} - {None}) <= 1, f"tasks of several sinks: {tasks}"
    scope = next((each.scope for each in tasks if each.scope is not None), None) or scope_of_query(options)
    if scope is None:
        logger.warning(
            "batch %d failed before a task returned, and the query has no option checkpointLocation that can "
            "be read here: readers of its topics may wait until the query starts again",
            batch_id,
        )
        return
    batch = BatchCommit(options, scope, batch_id)
    if is_commit:
        batch.commit(results)
    else:
        batch.abort(results)
