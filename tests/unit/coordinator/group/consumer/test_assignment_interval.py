"""The least time between two target assignments of a consumer group (KIP-1263)."""

from typing import Any

import pytest

from kalda.coordinator.group.consumer.member import MemberState
from tests.unit.coordinator.group.consumer.consumer_simulation import Client, ConsumerSimulation

INTERVAL_MS = 1000
HEARTBEAT_MS = 5000


def simulation_with(**settings: Any) -> ConsumerSimulation:
    simulation = ConsumerSimulation(group_consumer_assignment_interval_ms=INTERVAL_MS, **settings)
    simulation.topics.put("t", 4)
    simulation.topics.put("u", 2)
    return simulation


def joined(simulation: ConsumerSimulation, name: str, *topics: str) -> Client:
    client = simulation.client(name, *(topics or ("t",)))
    simulation.beat(client)
    return client


def heartbeats_until_it_has_partitions(interval_ms: int, *topics: str) -> int:
    """Return how many heartbeats the second member of a group sends after its first one.

    Both send one every 5 s, the first one a second one at once when it has partitions to give back.
    """
    simulation = ConsumerSimulation(group_consumer_assignment_interval_ms=interval_ms)
    simulation.topics.put("t", 4)
    simulation.topics.put("u", 2)
    first, second = joined(simulation, "a", "t"), joined(simulation, "b", *topics)
    count = 0
    while not second.owned:
        simulation.advance(HEARTBEAT_MS)
        simulation.beat(second)
        count += 1
        simulation.beat(first)
        simulation.beat(first)
    return count


@pytest.mark.parametrize(
    ("topics", "at_once", "at_intervals"),
    [
        # The partitions of the first member: they have to be revoked first, with or without an interval.
        (("t",), 2, 2),
        # Free partitions.
        (("u",), 0, 1),
    ],
)
def test_a_second_member_waits_for_one_heartbeat_at_most(
    topics: tuple[str, ...], at_once: int, at_intervals: int
) -> None:
    assert at_once == heartbeats_until_it_has_partitions(0, *topics)
    assert at_intervals == heartbeats_until_it_has_partitions(INTERVAL_MS, *topics)


def test_the_first_member_of_a_group_gets_its_partitions_at_once() -> None:
    simulation = simulation_with()
    assert 4 == len(joined(simulation, "a").owned)
    assert 1_000_000 == simulation.group.assigned_ms


def test_changes_within_the_interval_are_assigned_together() -> None:
    """Members that join early have the epoch of the last target; one assignment serves all of them."""
    simulation = simulation_with()
    first = joined(simulation, "a")
    later = [joined(simulation, name) for name in "bcd"]
    assert (4, 1) == (simulation.group.epoch, simulation.group.assignment_epoch)
    assert "Assigning" == simulation.group.state_name
    assert [(1, set())] * 3 == [(client.epoch, client.owned) for client in later]
    simulation.advance(INTERVAL_MS - 1)
    simulation.beat(first)
    assert 1 == simulation.group.assignment_epoch
    simulation.advance(1)
    for client in (first, first, *later):
        simulation.beat(client)
    assert (4, 4) == (simulation.group.epoch, simulation.group.assignment_epoch)
    assert [1, 1, 1, 1] == [len(client.owned) for client in (first, *later)]
    assert "Stable" == simulation.group.state_name


def test_the_interval_is_kept_over_a_change_of_the_coordinator() -> None:
    simulation = simulation_with()
    joined(simulation, "a")
    simulation.fail_over()
    joined(simulation, "b")
    assert 1 == simulation.group.assignment_epoch


def test_what_a_member_does_not_subscribe_to_any_more_is_revoked_at_once() -> None:
    simulation = simulation_with()
    client = joined(simulation, "a", "t", "u")
    client.topics = ("u",)
    simulation.subscribe(client)
    member = simulation.group.members["a"]
    assert (MemberState.UNREVOKED_PARTITIONS, 1) == (member.state, member.epoch)
    simulation.beat(client)
    simulation.beat(client)
    member = simulation.group.members["a"]
    assert (MemberState.STABLE, 1) == (member.state, member.epoch)
    assert simulation.topics.partitions(["u"]) == names(simulation, client)
    assert (2, 1) == (simulation.group.epoch, simulation.group.assignment_epoch)
    simulation.advance(INTERVAL_MS)
    simulation.beat(client)
    assert (2, 2) == (simulation.group.assignment_epoch, client.epoch)


def test_a_member_that_revokes_renounces_more() -> None:
    """The second change comes before the first one is reported, and again no target is due."""
    simulation = simulation_with()
    client = joined(simulation, "a", "t", "u")
    client.topics = ("u",)
    simulation.subscribe(client)
    client.given = None
    client.topics = ("v",)
    simulation.subscribe(client)
    member = simulation.group.members["a"]
    assert (MemberState.UNREVOKED_PARTITIONS, {}) == (member.state, member.assigned)
    client.owned.clear()
    simulation.beat(client)
    assert MemberState.STABLE is simulation.group.members["a"].state
    assert 1 == client.epoch


def names(simulation: ConsumerSimulation, client: Client) -> set[tuple[str | None, int]]:
    return {(simulation.topics.topic_name(topic_id), number) for topic_id, number in client.owned}
