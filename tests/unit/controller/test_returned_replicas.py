"""A broker that came back while there was no controller may lack the end of its log: others lead."""

from kalda.cluster.schema import PartitionState
from kalda.common.types import TopicPartition
from kalda.controller.effects import LeaderAndIsr
from tests.unit.controller.simulated_cluster import Simulation, broker

P = TopicPartition("t", 0)
WRITTEN_AT = 50
BEFORE, AFTER = 40, 60
"""Registrations before and after the partition's state was written."""


def elected(epochs: dict[int, int], isr: tuple[int, ...]) -> Simulation:
    """Return a cluster with a new controller, where broker 0 leads P and brokers registered at `epochs`."""
    cluster = Simulation()
    cluster.brokers = {broker_id: broker(broker_id, epoch) for broker_id, epoch in epochs.items()}
    cluster.assign("t", {0: (0, 1, 2)})
    cluster.states[P] = PartitionState(0, 3, isr, 0, version=1, written_at=WRITTEN_AT)
    cluster.elect()
    return cluster


def leadership(cluster: Simulation) -> tuple[int, int, tuple[int, ...]]:
    state = cluster.states[P]
    return state.leader, state.leader_epoch, state.isr


def test_a_leader_that_came_back_is_replaced_by_one_that_stayed() -> None:
    cluster = elected({0: AFTER, 1: BEFORE, 2: BEFORE}, (0, 1, 2))
    assert (1, 4, (1, 2)) == leadership(cluster)
    told = [
        (broker_id, role.leader)
        for broker_id, request in cluster.heard
        if isinstance(request, LeaderAndIsr)
        for role in request.partitions
    ]
    assert (0, 0) not in told
    assert (0, 1) in told


def test_a_follower_that_came_back_leaves_the_isr() -> None:
    assert (0, 4, (0, 1)) == leadership(elected({0: BEFORE, 1: BEFORE, 2: AFTER}, (0, 1, 2)))


def test_nothing_changes_where_all_came_back() -> None:
    assert (0, 3, (0, 1, 2)) == leadership(elected({0: AFTER, 1: AFTER, 2: AFTER}, (0, 1, 2)))


def test_the_only_in_sync_replica_leads_on() -> None:
    assert (0, 3, (0,)) == leadership(elected({0: AFTER, 1: BEFORE, 2: BEFORE}, (0,)))


def test_who_stayed_has_to_be_alive() -> None:
    assert (0, 4, (0,)) == leadership(elected({0: AFTER}, (0, 1)))
