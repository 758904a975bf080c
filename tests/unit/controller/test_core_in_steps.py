"""A step of the controller over many partitions can be interrupted, and has the same outcome."""

from kalda.common.errors import ErrorCode
from kalda.common.steps import Steps
from kalda.common.types import TopicPartition
from kalda.controller.context import ControllerContext
from kalda.controller.core import step, steps
from kalda.controller.effects import Effect, LeaderAndIsr, StopReplica
from kalda.controller.events import (
    BrokersChanged,
    ControllerElected,
    Event,
    LeaderAndIsrResponseReceived,
    StopReplicaResponseReceived,
    TopicDeletionsRequested,
    TopicsDeleted,
)
from tests.unit.controller.simulated_cluster import Simulation, broker

PARTITIONS = 300


def simulation() -> Simulation:
    """One broker that leads every partition of a topic."""
    cluster = Simulation()
    cluster.brokers = {1: broker(1)}
    cluster.assign("a", dict.fromkeys(range(PARTITIONS), (1,)))
    cluster.elect()
    return cluster


def counted(work: Steps[list[Effect]]) -> tuple[int, list[Effect]]:
    """Do all steps; return how many there were, and the result."""
    count = 0
    while True:
        try:
            next(work)
        except StopIteration as end:
            effects: list[Effect] = end.value
            return count, effects
        count += 1


def events_of(cluster: Simulation) -> list[Event]:
    """Events that concern every partition, in an order that the controller can have."""
    partitions = [TopicPartition("a", number) for number in range(PARTITIONS)]
    stop = StopReplica(1, cluster.epoch, partitions, delete=True, leader_epochs={})
    roles = [each for _, each in cluster.heard if isinstance(each, LeaderAndIsr)][-1]
    refused = dict.fromkeys(partitions, ErrorCode.KAFKA_STORAGE_ERROR)
    return [
        LeaderAndIsrResponseReceived(1, broker(1).epoch, roles, refused),
        LeaderAndIsrResponseReceived(1, broker(1).epoch, roles, {}),
        BrokersChanged({}),
        BrokersChanged({1: broker(1, epoch=9)}),
        TopicDeletionsRequested(frozenset({"a"})),
        StopReplicaResponseReceived(1, stop, {}),
        TopicsDeleted(("a",)),
    ]


def test_each_partition_of_an_event_is_a_step() -> None:
    """A client may create and delete topics with tens of thousands of partitions."""
    cluster = simulation()
    for event in events_of(cluster):
        count, _ = counted(steps(cluster.context, event))
        assert count >= PARTITIONS, f"{event!r:.80} took {count} steps"


def test_the_first_step_of_a_controller_is_divided() -> None:
    cluster = simulation()
    elected = ControllerElected(
        2, cluster.brokers, cluster.assignments, cluster.states, frozenset(), frozenset()
    )
    count, _ = counted(steps(ControllerContext(1), elected))
    assert count >= 4 * PARTITIONS


def test_steps_and_one_step_have_the_same_effects() -> None:
    one, divided = simulation(), simulation()
    for event in events_of(one):
        assert step(one.context, event) == counted(steps(divided.context, event))[1]
        one.context.check_invariants()
        divided.context.check_invariants()
