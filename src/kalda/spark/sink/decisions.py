"""Decides what the driver does with the transactions of a batch, from the last decision record. Pure.

A decision record says that a batch is committed, and which transactions it consists of. It is written once
for each batch, by a producer whose transactional id fences every other driver of the same sink; see
`batch_commit` for the requests and ADR 26 for the reasons.

>>> plan_commit(None, 5, (a, b)).decision            # nothing is decided: decide, then commit a and b
>>> plan_commit(Decision(5, (a, b)), 5, ())          # a crash came after the decision: commit a and b
>>> plan_commit(Decision(6, …), 5, (c,))             # a driver of the past: abort c

A transaction is aborted only if no decision names it and none can later.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from kalda.clients.transaction_control import TransactionHandle
from kalda.spark.sink.markers import VERSION, StateFormatError
from kalda.spark.sink.prepared import PreparedHandle


class BarrierLostError(RuntimeError):
    """The barrier of a batch was ended while its tasks wrote; the batch could become visible in parts."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The last committed batch of a sink."""

    batch_id: int
    handles: tuple[PreparedHandle, ...]
    barrier: TransactionHandle | None = None
    """The transaction that hides the batch until all of `handles` are committed."""

    def encode(self) -> bytes:
        """Return the value of the record."""
        fields = {
            "version": VERSION,
            "batch": self.batch_id,
            "barrier": self.barrier,
            "transactions": [
                (each.transactional_id, each.producer_id, each.epoch, each.row_count) for each in self.handles
            ],
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> "Decision":
        """Read a record's value.

        Raises:
            StateFormatError: it is not a decision; nothing may be committed or aborted on a guess.
        """
        try:
            fields = json.loads(value)
            version, barrier = fields["version"], fields["barrier"]
            handles = tuple(PreparedHandle(*each) for each in fields["transactions"])
            decision = cls(fields["batch"], handles, None if barrier is None else TransactionHandle(*barrier))
        except (ValueError, KeyError, TypeError) as error:
            raise StateFormatError(f"{value!r} is no decision: {error}") from None
        if version != VERSION or not isinstance(decision.batch_id, int):
            raise StateFormatError(f"{value!r} is no decision of version {VERSION}; use a newer Kalda")
        return decision


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task of a batch has prepared."""

    handle: PreparedHandle
    barrier: TransactionHandle


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What to do, in the order of the fields."""

    decision: Decision | None = None
    """The record to write."""
    commit: tuple[PreparedHandle, ...] = ()
    release: TransactionHandle | None = None
    """The barrier to end, which makes the batch visible."""
    abort: tuple[PreparedHandle, ...] = ()


def plan_commit(last: Decision | None, batch_id: int, results: Sequence[TaskResult]) -> CommitPlan:
    """Plan the commit of a batch, whether for the first time, again, or too late.

    Raises:
        BarrierLostError: the tasks wrote behind different barriers; the batch has to be written again.
    """
    handles = tuple(each.handle for each in results)
    if last is not None and last.batch_id >= batch_id:
        losers = tuple(each for each in handles if each not in last.handles)
        if last.batch_id > batch_id:
            return CommitPlan(abort=losers)
        return CommitPlan(None, last.handles, last.barrier, losers)
    barriers = {each.barrier for each in results}
    if len(barriers) > 1:
        names = ", ".join(f"{each.producer_id}:{each.epoch}" for each in sorted(barriers))
        raise BarrierLostError(
            f"the barrier of batch {batch_id} was ended while its tasks wrote (its producers were {names}); "
            "restart the query, which writes the batch again"
        )
    if not results:
        return CommitPlan()
    (barrier,) = barriers
    assert len(set(handles)) == len(handles), f"two tasks have one transaction: {handles}"
    return CommitPlan(Decision(batch_id, handles, barrier), handles, barrier)


def plan_abort(
    last: Decision | None,
    batch_id: int,
    results: Sequence[TaskResult],
    open_barrier: TransactionHandle | None = None,
) -> CommitPlan:
    """Plan the abort of a batch: nothing of a batch that is decided is aborted.

    Spark calls abort also after a commit that failed, perhaps behind its decision.

    Args:
        last: The last decision.
        batch_id: The batch.
        results: What tasks have returned; those that failed have returned nothing.
        open_barrier: The sink's barrier if it is open: that of this batch, unless the batch is decided.
    """
    handles = tuple(each.handle for each in results)
    if last is not None and last.batch_id >= batch_id:
        return CommitPlan(abort=tuple(each for each in handles if each not in last.handles))
    barriers = [each.barrier for each in results]
    return CommitPlan(None, (), barriers[0] if barriers else open_barrier, handles)
