"""Commits, aborts or abandons a batch of prepared transactions, in the driver of a sink or of a pipeline.

The order is: fence other drivers, read the last decision, write the decision, commit every transaction, end
the barrier, abort what failed attempts have left. `decisions` says which of these steps are due.

The decision is read and written by one producer between two `init_transactions` of the sink's driver id.
Another driver that decides meanwhile makes the write fail, so each batch is decided once.
"""

from collections.abc import Sequence
from typing import Final

from kalda.clients.producer.producer import Producer
from kalda.clients.transaction_control import TransactionControl, TransactionHandle
from kalda.spark.sink.barrier import barrier_id
from kalda.spark.sink.decisions import CommitPlan, Decision, TaskResult, plan_abort, plan_commit
from kalda.spark.sink.last_decision import read_decision
from kalda.spark.sink.options import SinkOptions
from kalda.spark.sink.prepared import transaction_prefix
from kalda.spark.sink.state_topic import COMMITS, StateTopic
from kalda.spark.sink.task_output import open_producer


class BatchCommit:
    """The driver's side of one batch of one sink."""

    def __init__(self, options: SinkOptions, scope: str, batch_id: int) -> None:
        self._options: Final = options
        self._scope: Final = scope
        self._batch_id: Final = batch_id

    def commit(self, results: Sequence[TaskResult]) -> None:
        """Make the batch visible; repeating it changes nothing.

        Raises:
            BarrierLostError: the batch could become visible in parts, and is not committed.
            ClientError: the cluster did not take a step in time. Spark repeats the batch.
        """
        with TransactionControl(dict(self._options.producer)) as control:
            with self._driver() as producer:
                plan = plan_commit(read_decision(self._options, self._scope), self._batch_id, results)
                left = self._left_open(control, plan)
                if plan.decision is not None:
                    self._decide(producer, plan.decision)
            self._carry_out(control, plan, left)

    def abort(self, results: Sequence[TaskResult]) -> None:
        """Abort what tasks have prepared, unless the batch is decided, and let readers pass the barrier.

        Raises:
            ClientError: the cluster did not take a step in time; the next commit aborts the rest.
        """
        with TransactionControl(dict(self._options.producer)) as control:
            with self._driver():
                last = read_decision(self._options, self._scope)
                plan = plan_abort(last, self._batch_id, results, self._open_barrier(control))
            self._carry_out(control, plan, [])

    def abandon(self) -> None:
        """Abort all that attempts of an undecided batch have left open: the query will not run again.

        Raises:
            ClientError: the cluster did not take a step in time; call it again.
        """
        self.abort([])
        with TransactionControl(dict(self._options.producer)) as control:
            control.end_all(control.open_transactions(transaction_prefix(self._scope)), commit=False)

    def _driver(self) -> Producer:
        """Return the producer of decisions; every other driver of the sink is fenced."""
        producer = open_producer(
            self._options, {"transactional.id": f"kalda-{self._scope}-driver", "acks": "all"}
        )
        try:
            producer.init_transactions()
        except BaseException:
            producer.close(0.0)
            raise
        return producer

    def _decide(self, producer: Producer, decision: Decision) -> None:
        topic, partition = StateTopic(COMMITS, self._scope, dict(self._options.producer)).partition()
        producer.begin_transaction()
        producer.send(topic, decision.encode(), self._scope.encode(), partition=partition)
        producer.commit_transaction()

    def _left_open(self, control: TransactionControl, plan: CommitPlan) -> list[TransactionHandle]:
        """Return the open transactions of failed attempts. None of them can be in a later batch.

        Before the decision of this batch, no task of a later one has begun.
        """
        if plan.decision is None:
            return []
        kept = {each.transactional_id for each in plan.commit}
        return control.open_transactions(transaction_prefix(self._scope), without=kept)

    def _open_barrier(self, control: TransactionControl) -> TransactionHandle | None:
        name = barrier_id(self._scope)
        found = control.describe(name)
        if found is None or not found.is_open:
            return None
        return TransactionHandle(name, found.producer_id, found.epoch)

    def _carry_out(
        self, control: TransactionControl, plan: CommitPlan, left: Sequence[TransactionHandle]
    ) -> None:
        committed = [each.transaction for each in plan.commit]
        aborted = {*left, *(each.transaction for each in plan.abort)}
        assert aborted.isdisjoint(committed), f"{aborted} and {committed} share a transaction"
        control.end_all(committed, commit=True)
        if plan.release is not None:
            control.end_all([plan.release], commit=False)
        control.end_all(aborted, commit=False)
