"""Writes a part of a batch into a prepared transaction behind the batch's barrier.

A task that finds its batch decided writes nothing: the batch runs again because the driver failed after the
decision. A task that finds out at its end was a zombie or a speculative twin, and aborts what it has written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kalda.clients.transaction_control import TransactionControl
from kalda.spark.sink.barrier import Barrier
from kalda.spark.sink.decisions import TaskResult
from kalda.spark.sink.last_decision import read_decision
from kalda.spark.sink.options import SinkOptions
from kalda.spark.sink.prepared import PreparedHandle, write_transaction
from kalda.spark.sink.task_identity import TaskIdentity


@dataclass(frozen=True, slots=True)
class PreparedPart:
    """What became of a part of a batch."""

    result: TaskResult | None
    """None where the part has no row, or its batch was decided before."""
    is_repeated: bool


_NOTHING: Final = PreparedPart(None, is_repeated=False)
_REPEATED: Final = PreparedPart(None, is_repeated=True)


def write_prepared(
    options: SinkOptions, batches: Iterator[pa.RecordBatch], identity: TaskIdentity
) -> PreparedPart:
    """Write the rows unless their batch is decided.

    Raises:
        RowError: a row cannot be written.
        BarrierEndedError: another run of the query has ended the batch.
        ClientError: the cluster did not take the rows, or allows no two-phase commit.
    """
    if _is_decided(options, identity, None):
        for _ in batches:
            # Spark expects a task to take all of its input.
            pass
        return _REPEATED
    with TransactionControl(dict(options.producer)) as control:
        barrier = Barrier(control, identity.scope)
        handle = write_transaction(options, identity.scope, batches, identity.batch_id, barrier.cover)
        if handle is None or barrier.identity is None:
            return _NOTHING
        if _is_decided(options, identity, handle):
            control.end_all([handle.transaction], commit=False)
            return _REPEATED
    return PreparedPart(TaskResult(handle, barrier.identity), is_repeated=False)


def _is_decided(options: SinkOptions, identity: TaskIdentity, handle: PreparedHandle | None) -> bool:
    """Return whether the batch is decided without `handle`."""
    decision = read_decision(options, identity.scope)
    return decision is not None and decision.batch_id >= identity.batch_id and handle not in decision.handles
