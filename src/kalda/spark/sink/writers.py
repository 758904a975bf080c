"""Defines the classes that Spark drives: the writer of a batch query and that of a stream.

`write` runs in executors, `commit` and `abort` in a process of the driver, on another writer object that was
built from the same options; they share nothing but the messages.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kalda.spark.sink.exactly_once import write_exactly_once
from kalda.spark.sink.options import Delivery, SinkOptions
from kalda.spark.sink.producer_pool import worker_pool
from kalda.spark.sink.rows import TopicRows, check_write_schema
from kalda.spark.sink.task_identity import task_identity
from kalda.spark.sink.task_output import TaskOutput, open_producer
from kalda.spark.worker import prepare_worker


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """What a task returns to the driver."""

    row_count: int
    """How many rows it wrote, or an earlier attempt of it."""
    is_repeated: bool = False
    """Whether an earlier attempt had written them."""


class KaldaBatchWriter(DataSourceArrowWriter):
    """Writes a batch query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_write_schema(schema, options.topic)
        self._options: Final = options
        self._schema: Final = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task."""
        return _write(self._options, self._schema.names, iterator)


class KaldaStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_write_schema(schema, options.topic)
        self._options: Final = options
        self._schema: Final = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task."""
        return _write(self._options, self._schema.names, iterator)


def _write(options: SinkOptions, names: list[str], batches: Iterator[pa.RecordBatch]) -> TaskMessage:
    prepare_worker()
    match options.delivery:
        case Delivery.AT_LEAST_ONCE:
            return _write_at_least_once(options, names, batches)
        case _:
            identity = task_identity(options, TaskContext.get())
            part = write_exactly_once(options, names, batches, identity)
            return TaskMessage(part.row_count, part.is_repeated)


def _write_at_least_once(
    options: SinkOptions, names: list[str], batches: Iterator[pa.RecordBatch]
) -> TaskMessage:
    with worker_pool.borrow(options, lambda: open_producer(options)) as producer:
        output = TaskOutput(producer, TopicRows(names, options.topic))
        output.send_all(batches)
    return TaskMessage(output.row_count)
