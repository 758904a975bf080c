"""Sends the rows of one task with one producer, and waits until the cluster has all of them.

It knows nothing of transactions: the deliveries begin and end them around it. Memory is bounded by the
producer's ``buffer.memory``: `send_arrow` waits while it is full, and Spark stops giving rows meanwhile.
"""

import importlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pyarrow as pa

from kalda.clients.errors import ClientError
from kalda.clients.producer.arrow_future import ArrowFuture
from kalda.clients.producer.partitioner import PartitionChoice, Partitioner
from kalda.clients.producer.producer import Producer
from kalda.spark.sink.options import SinkOptions
from kalda.spark.sink.rows import RowError, TopicRows
from kalda.spark.source.option_values import OptionError


def open_producer(options: SinkOptions, extra: Mapping[str, str] | None = None) -> Producer:
    """Return a producer of the options; `extra` adds settings by Kafka's names.

    Raises:
        OptionError: ``kafka.partitioner.class`` names nothing that can be loaded.
        ClientConfigError: a setting is not allowed.
    """
    properties = dict(options.producer) | dict(extra or {})
    name = options.partitioner
    if name is None or ":" not in name:
        if name is not None:
            properties["partitioner.class"] = name
        return Producer.from_config(properties)
    return Producer.from_config(properties, partitioner=_load_partitioner(name))


def _load_partitioner(name: str) -> Partitioner | PartitionChoice:
    module_name, _, attribute = name.partition(":")
    try:
        found: object = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise OptionError(
            f"`kafka.partitioner.class`={name} cannot be loaded: {error}; name package.module:attribute that "
            "is installed on the executors"
        ) from None
    made = found() if isinstance(found, type) else found
    if not (callable(made) or callable(getattr(made, "partition", None))):
        raise OptionError(f"`kafka.partitioner.class`={name} is neither a function nor a partitioner")
    return made  # type: ignore[return-value]  # the producer checks its shape


class TaskOutput:
    """The rows that one task has sent and whose results are not known yet."""

    def __init__(
        self,
        producer: Producer,
        rows: TopicRows,
        before_topic: Callable[[str], None] | None = None,
    ) -> None:
        """`before_topic` is called before rows of a topic are sent; the topic exists then."""
        self._producer: Final = producer
        self._before_topic: Final = before_topic
        self._rows: Final = rows
        # Bounded by `buffer.memory`: a batch that is here and not done holds memory of the producer.
        self._pending: Final[deque[ArrowFuture]] = deque()
        self.row_count = 0

    def send_all(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Send all rows and wait for the result of each.

        Raises:
            RowError: a row cannot be written; earlier ones may have been.
            RecordTooLargeError: a row is above `max.request.size` or the topic's `max.message.bytes`.
            ClientError: the cluster did not take a row.
        """
        for batch in batches:
            self.send(batch)
        self.finish()

    def send(self, batch: pa.RecordBatch) -> None:
        """Send the rows of a batch; raises as `send_all`, also for rows sent before."""
        for topic, records in self._rows.split(batch):
            if self._before_topic is not None:
                # The cluster may create the topic when the producer asks for it.
                self._producer.partitions_for(topic)
                self._before_topic(topic)
            try:
                self._pending.append(self._producer.send_arrow(topic, records))
            except (ClientError, RowError):
                raise
            except ValueError as error:
                raise RowError(f"rows for topic {topic} cannot be written: {error}") from None
            self.row_count += records.num_rows
        while self._pending and self._pending[0].done():
            self._pending.popleft().result(0)

    def finish(self) -> None:
        """Wait for all results; raises as `send_all`."""
        self._producer.flush()
        while self._pending:
            self._pending.popleft().result()
