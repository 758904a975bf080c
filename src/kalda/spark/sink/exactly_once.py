"""Writes a part of a batch exactly once: one transaction with the rows and a marker.

Beginning the transaction fences earlier attempts, zombies and speculative twins: `init_transactions` raises
the epoch and waits until the previous transaction has ended. The marker is read after that, so it cannot
change before this attempt's own commit. A repeated part must have the same rows, since a repetition is
skipped as a whole; plans with ``rand()`` and the like need `delivery`=exactly-once-batch.

The order is fixed: fence, read the marker, write, marker, commit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa

from kalda.spark.sink.markers import Marker
from kalda.spark.sink.options import SinkOptions
from kalda.spark.sink.rows import TopicRows
from kalda.spark.sink.state_topic import MARKERS, StateTopic
from kalda.spark.sink.task_identity import TaskIdentity
from kalda.spark.sink.task_output import TaskOutput, open_producer

TRANSACTION_TIMEOUT_MS: Final = "900000"
"""The brokers' default of `transaction.max.timeout.ms`: a task may be slow, and a transaction that was left
open is aborted when its part is written again, long before."""


@dataclass(frozen=True, slots=True)
class PartResult:
    """What became of a part of a batch."""

    row_count: int
    is_repeated: bool
    """Whether an earlier attempt had committed it."""


def write_exactly_once(
    options: SinkOptions, names: list[str], batches: Iterator[pa.RecordBatch], identity: TaskIdentity
) -> PartResult:
    """Write the rows unless the part is committed already.

    Raises:
        RowError: a row cannot be written; no row of the part becomes visible.
        ProducerFencedError: another attempt of the same part has begun.
        ClientError: the cluster did not take the rows.
    """
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return PartResult(0, is_repeated=False)
    properties = dict(options.producer)
    extra = {"transactional.id": identity.transactional_id}
    if "transaction.timeout.ms" not in properties:
        extra["transaction.timeout.ms"] = TRANSACTION_TIMEOUT_MS
    state = StateTopic(MARKERS, identity.scope, properties)
    with open_producer(options, extra) as producer:
        producer.init_transactions()
        value = state.read(identity.transactional_id)
        if value is not None and (found := Marker.decode(value)).batch_id >= identity.batch_id:
            for _ in batches:
                # Spark expects a task to take all of its input.
                pass
            return PartResult(found.row_count, is_repeated=True)
        producer.begin_transaction()
        output = TaskOutput(producer, TopicRows(names, options.topic))
        output.send_all(chain((first,), batches))
        assert output.row_count > 0, "a part without rows has no marker"
        topic, partition = state.partition()
        marker = Marker(identity.batch_id, output.row_count).encode()
        producer.send(topic, marker, identity.transactional_id.encode(), partition=partition)
        producer.commit_transaction()
    return PartResult(output.row_count, is_repeated=False)
