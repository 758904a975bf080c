"""What the driver does, from the last decision: transcripts of a batch that goes well and of each crash."""

import pytest

from kalda.clients.transaction_control import TransactionHandle
from kalda.spark.sink.decisions import (
    BarrierLostError,
    CommitPlan,
    Decision,
    TaskResult,
    plan_abort,
    plan_commit,
)
from kalda.spark.sink.markers import StateFormatError
from kalda.spark.sink.prepared import PreparedHandle

BARRIER = TransactionHandle("kalda-q-barrier", 1, 4)
NEXT_BARRIER = TransactionHandle("kalda-q-barrier", 1, 5)
A, B, C = (PreparedHandle(f"kalda-q-t-{name}", number, 0, 10) for number, name in enumerate("abc", 7))


def results(*handles: PreparedHandle, barrier: TransactionHandle = BARRIER) -> list[TaskResult]:
    return [TaskResult(each, barrier) for each in handles]


def test_a_batch_is_decided_then_committed_then_released() -> None:
    """The barrier is ended last, and by an abort: it holds nothing that readers see."""
    decision = Decision(5, (A, B), BARRIER)
    assert CommitPlan(decision, (A, B), BARRIER) == plan_commit(None, 5, results(A, B))
    assert CommitPlan(decision, (A, B), BARRIER) == plan_commit(Decision(4, (C,)), 5, results(A, B))


def test_a_decided_batch_is_finished_from_its_record() -> None:
    """The driver crashed behind the decision; the tasks of the repetition wrote nothing."""
    decision = Decision(5, (A, B), BARRIER)
    assert CommitPlan(None, (A, B), BARRIER) == plan_commit(decision, 5, [])


def test_transactions_that_a_decision_does_not_name_are_aborted() -> None:
    """A speculative twin, or a task of another run, was too late."""
    decision = Decision(5, (A,), BARRIER)
    plan = plan_commit(decision, 5, results(A, C, barrier=NEXT_BARRIER))
    assert CommitPlan(None, (A,), BARRIER, (C,)) == plan


def test_a_driver_of_the_past_commits_nothing() -> None:
    """Another run has gone on to the next batch."""
    plan = plan_commit(Decision(6, (A,), BARRIER), 5, results(B))
    assert CommitPlan(abort=(B,)) == plan


def test_a_batch_behind_two_barriers_is_refused() -> None:
    """The first was ended while tasks wrote: readers could see rows before the decision is carried out."""
    mixed = [*results(A), *results(B, barrier=NEXT_BARRIER)]
    with pytest.raises(BarrierLostError, match=r"its producers were 1:4, 1:5"):
        plan_commit(None, 5, mixed)


def test_a_batch_without_rows_needs_nothing() -> None:
    """Empty batches are frequent: the first of each query is one."""
    assert CommitPlan() == plan_commit(Decision(4, (A,)), 5, [])


def test_an_undecided_batch_is_aborted_with_its_barrier() -> None:
    """While the query is down, readers of the topic go on."""
    assert CommitPlan(None, (), BARRIER, (A, B)) == plan_abort(None, 5, results(A, B))


def test_a_batch_without_a_task_that_returned_is_aborted_with_the_open_barrier() -> None:
    """Tasks that failed behind the barrier do not say which it is."""
    assert CommitPlan(release=BARRIER) == plan_abort(Decision(4, (A,)), 5, [], BARRIER)
    assert CommitPlan() == plan_abort(Decision(4, (A,)), 5, [])
    # The barrier of a decided batch hides it until all of it is committed.
    assert CommitPlan() == plan_abort(Decision(5, (A,), BARRIER), 5, [], BARRIER)


def test_an_abort_behind_the_decision_aborts_nothing_of_it() -> None:
    """Spark calls abort with the same messages after a commit that failed half way."""
    decision = Decision(5, (A, B), BARRIER)
    assert CommitPlan() == plan_abort(decision, 5, results(A, B))
    assert CommitPlan(abort=(C,)) == plan_abort(decision, 5, results(A, C))


def test_a_decision_survives_a_round_trip() -> None:
    """A later version reads it after a crash."""
    decision = Decision(5, (A, B), BARRIER)
    assert decision == Decision.decode(decision.encode())
    assert Decision(5, ()) == Decision.decode(Decision(5, ()).encode())


def test_the_record_is_stable() -> None:
    """Other versions of Kalda read what this one writes."""
    expected = (
        b'{"version":1,"batch":5,"barrier":["kalda-q-barrier",1,4],"transactions":[["kalda-q-t-a",7,0,10]]}'
    )
    assert expected == Decision(5, (A,), BARRIER).encode()


@pytest.mark.parametrize(
    "value", [b"", b"{}", b'{"version":2,"batch":5,"barrier":null,"transactions":[]}', b"[1]"]
)
def test_a_foreign_value_is_no_decision(value: bytes) -> None:
    """Nothing may be committed or aborted on a guess."""
    with pytest.raises(StateFormatError):
        Decision.decode(value)
