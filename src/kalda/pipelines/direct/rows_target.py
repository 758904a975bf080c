"""Defines where a task's rows and its bad records go.

Targets are values that are pickled to the executors; they open what they need in `write` or `open`. Nothing
that a target writes is visible before the driver commits the batch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from kalda.common.types import TopicPartition
from kalda.pipelines.direct.row_plan import DecodeFailure
from kalda.pipelines.tables.fitting import Fitted
from kalda.records.columnar import ColumnarBatch
from kalda.spark.sink.decisions import TaskResult


@dataclass(frozen=True, slots=True)
class Written:
    """What a task wrote."""

    rows: int
    """Counted by the writer."""
    files: tuple[object, ...] = ()
    """Files of a table that no commit names yet."""
    prepared: TaskResult | None = None
    """A prepared transaction of a topic."""
    late_rows: int = 0
    """Of the rows: those that came too late for their event time."""


class RowsTarget(Protocol):
    """Takes the rows of one task."""

    def fit(self, rows: pa.RecordBatch) -> Fitted:
        """Return the rows as `write` takes them, and those that the target does not take."""
        ...

    def write(self, batches: Iterable[pa.RecordBatch], query_id: str, batch_id: int, part: int) -> Written:
        """Write all rows; they stay invisible. Part `part` of a batch may be written again."""
        ...


class DeadLetters(Protocol):
    """Takes the bad records of one task, while it runs."""

    def add(
        self,
        records: ColumnarBatch,
        topic_partition: TopicPartition,
        failures: Sequence[DecodeFailure],
        stage: str,
    ) -> None:
        """Take the records that the failures name by their row; `stage` is one of the `STAGES` of letters."""
        ...

    def finish(self) -> Written:
        """Return the written files or rows, which stay invisible until the batch is committed."""
        ...

    def abandon(self) -> None:
        """Give up after a failure of the task."""
        ...


class DeadLetterTarget(Protocol):
    """Opens a task's way to the dead-letter queue."""

    def open(self, query_id: str, batch_id: int, part: int) -> DeadLetters:
        """Return it; nothing is sent before the first bad record."""
        ...


@dataclass(frozen=True, slots=True)
class SkipTarget:
    """Drops bad records after they were counted: `on_error` is `skip`."""

    def open(self, query_id: str, batch_id: int, part: int) -> DeadLetters:
        """Return a queue without an end."""
        return _Skipped()


class _Skipped:
    def __init__(self) -> None:
        self._count = 0

    def add(
        self,
        records: ColumnarBatch,
        topic_partition: TopicPartition,
        failures: Sequence[DecodeFailure],
        stage: str,
    ) -> None:
        self._count += len(failures)

    def finish(self) -> Written:
        return Written(self._count)

    def abandon(self) -> None:
        pass
