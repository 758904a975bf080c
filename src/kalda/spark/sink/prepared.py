"""Writes the rows of a task into a prepared transaction, which another process commits or aborts (KIP-939).

A task returns the `PreparedHandle` of its transaction; the driver stores the handles in its decision, then
ends the transactions (`kalda.spark.sink.batch_commit`). The brokers need
``transaction.two.phase.commit.enable``.

A transactional id belongs to one Python process, and is used again only for a later batch. So no task, of any
attempt and any run, can fence a transaction that another task has prepared for the same batch.
"""

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kalda.clients.transaction_control import TransactionHandle
from kalda.spark.sink.options import SinkOptions
from kalda.spark.sink.rows import TopicRows
from kalda.spark.sink.task_output import TaskOutput, open_producer

_TWO_PHASE: Final = {"transaction.two.phase.commit.enable": "true"}


@dataclass(frozen=True, slots=True)
class PreparedHandle:
    """A prepared transaction and what is in it; small and picklable."""

    transactional_id: str
    producer_id: int
    epoch: int
    row_count: int

    @property
    def transaction(self) -> TransactionHandle:
        """What the coordinator needs."""
        return TransactionHandle(self.transactional_id, self.producer_id, self.epoch)


def write_transaction(
    options: SinkOptions,
    scope: str,
    batches: Iterable[pa.RecordBatch],
    batch_id: int,
    before_topic: Callable[[str], None],
) -> PreparedHandle | None:
    """Write rows into a transaction and prepare it; None if there is no row.

    Args:
        options: The options of the sink.
        scope: Names the sink among all others of the cluster; it stays the same over restarts.
        batches: Columns as for ``format("kalda")``: ``value``, and if wanted ``key``, ``headers``,
            ``topic``, ``partition`` and ``timestamp``. Others are ignored.
        batch_id: The batch, rising by at least 1; every earlier one is committed or aborted.
        before_topic: Called with each topic before its first row is sent, and perhaps again.

    Raises:
        RowError: a row cannot be written.
        ClientError: the cluster did not take a row, or allows no two-phase commit.
    """
    assert batch_id >= 0, f"batch {batch_id}"
    iterator = _non_empty(batches)
    first = next(iterator, None)
    if first is None:
        return None
    transactional_id = _names.take(transaction_prefix(scope), batch_id)
    producer = open_producer(options, _TWO_PHASE | {"transactional.id": transactional_id})
    try:
        producer.init_transactions()
        producer.begin_transaction()
        output = TaskOutput(producer, TopicRows(first.schema.names, options.topic), before_topic)
        output.send(first)
        output.send_all(iterator)
        token = producer.prepare_transaction()
    finally:
        # Aborts the transaction unless it is prepared.
        producer.close()
    assert output.row_count > 0, "a transaction without rows is not prepared"
    return PreparedHandle(transactional_id, token.producer_id, token.epoch, output.row_count)


def transaction_prefix(scope: str) -> str:
    """Return the prefix of the transactional ids of a sink's tasks."""
    return f"kalda-{scope}-t-"


def _non_empty(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch for batch in batches if batch.num_rows)


class _Names:
    """The transactional ids of this process: ``<prefix><process>-<number>``, and the last batch of each."""

    def __init__(self) -> None:
        self._process = ""
        self._pid = 0
        self._last_batches: dict[str, int] = {}

    def take(self, prefix: str, batch_id: int) -> str:
        """Return an id whose last batch is below `batch_id`, or a new one."""
        if self._pid != os.getpid():
            # A fork has another identity than its parent.
            self._pid, self._process, self._last_batches = os.getpid(), uuid.uuid4().hex[:12], {}
        number = 0
        while True:
            name = f"{prefix}{self._process}-{number}"
            if self._last_batches.get(name, -1) < batch_id:
                self._last_batches[name] = batch_id
                return name
            number += 1


_names: Final = _Names()
