"""Writes the dead letters of a task into a prepared transaction, while the task runs.

The letters become visible when the driver completes the transaction, after the commit of the table decided
for the batch. A task pushes letters and `PreparedOutput` pulls rows, so a thread with a short queue stands
between them; a task with many bad records waits for the broker and holds no more than the queue in memory.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Full, Queue
from typing import Final

import pyarrow as pa

from kalda.common.types import TopicPartition
from kalda.pipelines.direct.rows_target import Written
from kalda.pipelines.dlq.letters import DECODE, Failure, Origin, letters_of, retry_topic
from kalda.records.columnar import ColumnarBatch
from kalda.spark.sink.prepared import PreparedHandle, PreparedOutput

_QUEUE_BATCHES: Final = 4
"""A few batches hide the time of a request; each holds the bad records of one read only."""
_PUT_SECONDS: Final = 1.0


class _AbandonedError(Exception):
    """The task failed, so its letters must not be prepared."""


def dead_letter_output(properties: Mapping[str, str], topic: str, query_id: str) -> PreparedOutput:
    """Return the output for the dead letters of a query; tasks write to it and the driver completes it.

    Args:
        properties: The cluster's client settings by Kafka's names.
        topic: The topic of the dead letters.
        query_id: Stable over restarts.
    """
    options = {f"kafka.{name}": value for name, value in properties.items()}
    return PreparedOutput({**options, "topic": topic}, f"{query_id}-dlq")


@dataclass(frozen=True, slots=True)
class DlqTarget:
    """Where a pipeline's tasks put records that are no rows; picklable.

    Args:
        pipeline: The pipeline's name.
        topic: The topic of its dead letters.
        properties: The cluster's client settings by Kafka's names.
    """

    pipeline: str
    topic: str
    properties: Mapping[str, str]

    def open(self, query_id: str, batch_id: int, part: int) -> "TaskLetters":
        """Return the letters of one task; nothing is sent before the first one."""
        origin = Origin(self.pipeline, batch_id, round(time.time() * 1000), retry_topic(self.topic))
        output = dead_letter_output(self.properties, self.topic, query_id)
        return TaskLetters(origin, lambda batches: output.write(batches, batch_id))


@dataclass(slots=True)
class TaskLetters:
    """The dead letters of one task."""

    origin: Origin
    write: Callable[[Iterator[pa.RecordBatch]], PreparedHandle | None]
    _queue: "Queue[pa.RecordBatch | _AbandonedError | None]" = field(
        default_factory=lambda: Queue(_QUEUE_BATCHES)
    )
    _thread: threading.Thread | None = None
    _count: int = 0
    _handle: PreparedHandle | None = None
    _error: BaseException | None = None

    def add(
        self,
        records: ColumnarBatch,
        topic_partition: TopicPartition,
        failures: Sequence[Failure],
        stage: str = DECODE,
    ) -> None:
        """Take the records that the failures name by their row.

        Raises:
            ClientError, ValueError: An earlier letter could not be written.
        """
        if not failures:
            return
        self._count += len(failures)
        self._put(letters_of(records, topic_partition, failures, self.origin, stage))

    def finish(self) -> Written:
        """Prepare the transaction and return its handle; without a letter there is none.

        Raises:
            ClientError, ValueError: A letter could not be written; the transaction is aborted.
        """
        if self._thread is None:
            return Written(0)
        self._put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._handle is not None
        assert self._handle.row_count == self._count, (self._handle, self._count)
        return Written(self._handle.row_count, prepared=self._handle)

    def abandon(self) -> None:
        """Abort the transaction after a failure of the task."""
        if self._thread is None or not self._thread.is_alive():
            return
        try:
            self._put(_AbandonedError())
        except BaseException as error:  # the writer failed by itself; the task raises its own error
            self._error = error
        self._thread.join()

    def _put(self, item: "pa.RecordBatch | _AbandonedError | None") -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kalda-dead-letters", daemon=True)
            self._thread.start()
        while True:
            if self._error is not None:
                raise self._error
            try:
                self._queue.put(item, timeout=_PUT_SECONDS)
            except Full:
                continue
            return

    def _run(self) -> None:
        try:
            self._handle = self.write(self._batches())
        except _AbandonedError:
            pass
        except BaseException as error:
            self._error = error

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            item = self._queue.get()
            if item is None:
                return
            if isinstance(item, _AbandonedError):
                raise item
            yield item
