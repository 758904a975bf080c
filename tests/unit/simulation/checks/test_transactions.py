"""A complete transaction that a leader has no marker of is found."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kalda.common.types import TopicPartition
from kalda.coordinator.transaction.transaction_state import TransactionState
from kalda.simulation.checks.transactions import OpenTransactions
from kalda.simulation.history import History
from kalda.simulation.scheduler import Scheduler
from kalda.storage.producer_state_entry import NO_TRANSACTION

PRODUCER = 7


def _look(
    state: TransactionState, first_offset: int, *, power_losses: int = 0, partition: int = 0
) -> list[str]:
    """Look at broker 0, which coordinates partition 0's transactions, and at what it leads besides."""
    metadata = SimpleNamespace(transactional_id="payments", producer_id=PRODUCER, state=state)
    coordinator = SimpleNamespace(transactions=lambda: [metadata], partition_for=lambda name: partition)
    machine = SimpleNamespace(disk=SimpleNamespace(power_losses=power_losses))
    cluster: Any = SimpleNamespace(
        servers={0: SimpleNamespace(services=SimpleNamespace(transaction_coordinator=coordinator))},
        machine=lambda broker_id: machine,
    )
    history = History(Scheduler(Random(1)))
    leaders: Any = [
        (0, _partition(TopicPartition("__transaction_state", 0), {})),
        (0, _partition(TopicPartition("orders", 1), {PRODUCER: first_offset})),
    ]
    OpenTransactions(cluster, history).look(leaders)
    return history.violations


def _partition(name: TopicPartition, open_from: dict[int, int]) -> SimpleNamespace:
    producers = {
        each: SimpleNamespace(current_transaction_first_offset=offset) for each, offset in open_from.items()
    }
    log = SimpleNamespace(producer_state=SimpleNamespace(producers=producers))
    return SimpleNamespace(topic_partition=name, is_offline=False, log=log)


def test_a_complete_transaction_that_is_open_at_a_leader_is_found() -> None:
    (found,) = _look(TransactionState.COMPLETE_COMMIT, 12)

    assert "payments is complete, and open in orders-1 on its leader 0 from offset 12 on" in found


@pytest.mark.parametrize("state", [TransactionState.ONGOING, TransactionState.PREPARE_COMMIT])
def test_a_transaction_that_has_not_ended_may_be_open(state: TransactionState) -> None:
    assert [] == _look(state, 12)


def test_a_complete_transaction_with_its_markers_is_right() -> None:
    assert [] == _look(TransactionState.COMPLETE_ABORT, NO_TRANSACTION)


def test_what_a_loss_of_power_took_is_left_out() -> None:
    assert [] == _look(TransactionState.COMPLETE_COMMIT, 12, power_losses=1)


def test_a_coordinator_counts_for_the_partitions_that_it_leads_only() -> None:
    assert [] == _look(TransactionState.COMPLETE_COMMIT, 12, partition=1)
