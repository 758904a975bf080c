"""Writes the rows of a task into a prepared transaction, which another process commits or aborts (KIP-939).

The decision is made elsewhere: by the commit of a table, or by the decision record of the sink. A task calls
`PreparedOutput.write` and returns the `PreparedHandle`; the driver stores the handles together with its
decision, then calls `PreparedOutput.complete`. Both may be repeated after a crash. The brokers need
``transaction.two.phase.commit.enable``.

What a maintainer must not break: a transactional id belongs to one Python process, and is used again only for
a later batch. So no task, of any attempt and any run, can fence a transaction that another task has prepared
for the same batch.
"""

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import pyarrow as pa

from kalda.spark.sink.options import Delivery, SinkOptions, parse_sink_options
from kalda.spark.sink.rows import TopicRows
from kalda.spark.sink.task_output import TaskOutput, open_producer
from kalda.spark.sink.transaction_control import TransactionControl, TransactionHandle

_TWO_PHASE: Final = {"transaction.two.phase.commit.enable": "true"}


@dataclass(frozen=True, slots=True)
class PreparedHandle:
    """A prepared transaction and what is in it; small, picklable, and a dict of JSON values."""

    transactional_id: str
    producer_id: int
    epoch: int
    row_count: int

    def to_json(self) -> dict[str, str | int]:
        """Return the fields for a decision that is stored as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> "PreparedHandle":
        """Read what `to_json` returned.

        Raises:
            ValueError: a field is missing or of another type.
        """
        name, *numbers = (
            fields.get(each) for each in ("transactional_id", "producer_id", "epoch", "row_count")
        )
        producer_id, epoch, row_count = numbers
        if not (
            isinstance(name, str)
            and isinstance(producer_id, int)
            and isinstance(epoch, int)
            and isinstance(row_count, int)
        ):
            raise ValueError(f"{dict(fields)} is no handle of a prepared transaction")
        return cls(name, producer_id, epoch, row_count)

    @property
    def transaction(self) -> TransactionHandle:
        """What the coordinator needs."""
        return TransactionHandle(self.transactional_id, self.producer_id, self.epoch)


class PreparedOutput:
    """One output of a query: rows become visible to ``read_committed`` readers when they are completed.

    Picklable; tasks and driver use copies of it.

    Args:
        options: The options of the sink: ``kafka.bootstrap.servers``, other ``kafka.*`` settings, and
            ``topic`` where the rows have no column ``topic``.
        scope: Names the output among all others of the cluster, e.g. the query's id and the output's name;
            it stays the same over restarts.

    Example, with `handles` returned by the tasks::

        options = {"kafka.bootstrap.servers": servers, "topic": "orders.dlq"}
        output = PreparedOutput(options, f"{query_id}-dlq")
        handle = output.write(batches, batch_id)                  # in each task
        commit(table, [each.to_json() for each in handles])       # the decision, in the driver
        output.complete(handles, commit=True)                     # again after a restart
        output.abort_others(handles)                              # what failed attempts have left

    Raises:
        OptionError: an option is missing or not allowed.
    """

    def __init__(self, options: Mapping[str, str], scope: str) -> None:
        given = {name: value for name, value in options.items() if name.lower() != "delivery"}
        self._start(
            parse_sink_options(given | {"delivery": Delivery.EXACTLY_ONCE_BATCH.value}, is_stream=True), scope
        )

    @classmethod
    def of_sink(cls, options: SinkOptions, scope: str) -> "PreparedOutput":
        """Return an output for options that are parsed already."""
        made = cls.__new__(cls)
        made._start(options, scope)
        return made

    def _start(self, options: SinkOptions, scope: str) -> None:
        self._options = options
        self._prefix = transaction_prefix(scope)

    # In a task.

    def write(
        self,
        batches: Iterable[pa.RecordBatch],
        batch_id: int,
        before_topic: Callable[[str], None] | None = None,
    ) -> PreparedHandle | None:
        """Write rows into a transaction and prepare it; None if there is no row.

        Args:
            batches: Columns as for ``format("kalda")``: ``value``, and if wanted ``key``, ``headers``,
                ``topic``, ``partition`` and ``timestamp``. Others are ignored.
            batch_id: The batch, rising by at least 1; every earlier one is completed or aborted.
            before_topic: Called with each topic before its first row is sent, and perhaps again.

        Raises:
            RowError: a row cannot be written.
            ClientError: the cluster did not take a row, or allows no two-phase commit.
        """
        iterator = _non_empty(batches)
        first = next(iterator, None)
        if first is None:
            return None
        transactional_id = _names.take(self._prefix, batch_id)
        producer = open_producer(self._options, _TWO_PHASE | {"transactional.id": transactional_id})
        try:
            producer.init_transactions()
            producer.begin_transaction()
            output = TaskOutput(producer, TopicRows(first.schema.names, self._options.topic), before_topic)
            output.send(first)
            output.send_all(iterator)
            token = producer.prepare_transaction()
        finally:
            # Aborts the transaction unless it is prepared.
            producer.close()
        return PreparedHandle(transactional_id, token.producer_id, token.epoch, output.row_count)

    # In the driver.

    def complete(self, handles: Iterable[PreparedHandle], *, commit: bool) -> None:
        """Commit or abort what tasks have prepared; repeating it changes nothing.

        Commit only what the stored decision names, and abort only what no decision can name any more.

        Raises:
            BrokerResponseError: a commit is refused because the transaction was aborted.
            ClientError: a coordinator did not answer in time; call it again.
        """
        with TransactionControl(dict(self._options.producer)) as control:
            control.end_all([each.transaction for each in handles], commit=commit)

    def abort_others(self, keep: Sequence[PreparedHandle] = ()) -> int:
        """Abort all open transactions of this output except `keep`; return how many.

        They are left by tasks that were killed. No task of the output may be running, except attempts whose
        result is not used.

        Raises:
            ClientError: a coordinator did not answer in time; call it again.
        """
        with TransactionControl(dict(self._options.producer)) as control:
            kept = {each.transaction for each in keep}
            others = [each for each in control.open_transactions(self._prefix) if each not in kept]
            control.end_all(others, commit=False)
        return len(others)


def transaction_prefix(scope: str) -> str:
    """Return what the transactional ids of an output's tasks begin with."""
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
