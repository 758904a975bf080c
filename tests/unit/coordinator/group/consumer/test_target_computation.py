"""Targets of large groups are computed in slices, while members come, go and change."""

from random import Random
from uuid import UUID

import pytest

from kalda.coordinator.group import sliced_targets
from kalda.coordinator.group.consumer import target_computation
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.member import Member, TopicMetadata
from kalda.coordinator.group.consumer.target_computation import COST_MAX, is_long
from tests.unit.coordinator.group.consumer.consumer_simulation import Client, ConsumerSimulation


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> ConsumerSimulation:
    """A group whose every target is computed, one step in each slice."""
    monkeypatch.setattr(target_computation, "COST_MAX", 0)
    monkeypatch.setattr(sliced_targets, "_SLICE_MS", 0)
    simulation = ConsumerSimulation()
    for name in "tuv":
        simulation.topics.put(name, 8)
    return simulation


def joined(simulation: ConsumerSimulation, name: str, *topics: str, instance_id: str | None = None) -> Client:
    client = simulation.client(name, *(topics or ("t",)), instance_id=instance_id)
    simulation.beat(client)
    return client


def settle(simulation: ConsumerSimulation) -> None:
    """Let all members send heartbeats until nothing changes any more."""
    before, quiet = -1, 0
    while quiet < 3:
        quiet = quiet + 1 if before == len(simulation.records) else 0
        before = len(simulation.records)
        simulation.advance(1000)
        for client in simulation.clients.values():
            if client.epoch > 0:
                simulation.beat(client)


def test_heartbeats_do_not_wait_for_the_target_of_a_large_group(simulation: ConsumerSimulation) -> None:
    first = joined(simulation, "a")
    assert (1, 8) == (first.epoch, len(first.owned)), "the first target is made at once"
    second = joined(simulation, "b")
    assert (2, 1) == (simulation.group.epoch, simulation.group.assignment_epoch)
    assert (1, set(), []) == (second.epoch, second.owned, second.errors)
    simulation.advance(1)
    assert 1 == simulation.group.assignment_epoch, "a slice takes one step"
    simulation.advance(100)
    assert 2 == simulation.group.assignment_epoch
    settle(simulation)
    assert [4, 4] == [len(first.owned), len(second.owned)]
    assert "Stable" == simulation.group.state_name


def test_of_members_that_leave_meanwhile_nothing_is_written(simulation: ConsumerSimulation) -> None:
    first, second = joined(simulation, "a"), joined(simulation, "b")
    settle(simulation)
    third = joined(simulation, "c")
    simulation.advance(1)
    simulation.leave(second)
    simulation.advance(100)
    assert {"a", "c"} == set(simulation.group.targets)
    assert 4 == simulation.group.epoch > simulation.group.assignment_epoch
    settle(simulation)
    assert [4, 4] == [len(first.owned), len(third.owned)]


def test_a_static_member_that_comes_back_meanwhile_has_the_target_of_the_one_before(
    simulation: ConsumerSimulation,
) -> None:
    """It would keep what the new target gives to others, for ever."""
    first, away = joined(simulation, "a"), joined(simulation, "b", instance_id="i")
    settle(simulation)
    simulation.leave(away, -2)
    third = joined(simulation, "c")
    simulation.advance(1)
    back = joined(simulation, "d", instance_id="i")
    simulation.advance(100)
    targets = simulation.group.targets
    assert {"a", "c", "d"} == set(targets)
    assert 8 == sum(len(partitions) for target in targets.values() for partitions in target.values())
    settle(simulation)
    assert [2, 3, 3] == sorted(len(each.owned) for each in (first, back, third))


def test_a_coordinator_that_ends_meanwhile_leaves_nothing_behind(simulation: ConsumerSimulation) -> None:
    first, second = joined(simulation, "a"), joined(simulation, "b")
    simulation.advance(1)
    simulation.fail_over()
    assert 1 == simulation.group.assignment_epoch
    settle(simulation)
    assert [4, 4] == [len(first.owned), len(second.owned)]


@pytest.mark.parametrize("seed", range(20))
def test_random_changes_while_targets_are_computed(simulation: ConsumerSimulation, seed: int) -> None:
    random = Random(seed)
    names = [f"m{number}" for number in range(6)]
    for _ in range(200):
        name = random.choice(names)
        client = simulation.clients.get(name)
        step = random.randrange(8)
        if client is None or client.epoch <= 0:
            topics = tuple(sorted(random.sample("tuv", random.randint(1, 3))))
            joined(simulation, name, *topics, instance_id="s" if name == "m0" else None)
        elif step == 0:
            simulation.leave(client)
        elif step == 1:
            client.topics = tuple(sorted(random.sample("tuv", random.randint(1, 3))))
            client.is_unsure = True
            simulation.beat(client)
        elif step == 2:
            simulation.topics.put(random.choice("tuv"), 8 + random.randrange(8))
        elif step == 3 and random.random() < 0.1:
            simulation.fail_over()
        else:
            simulation.beat(client)
        simulation.advance(random.randrange(5))
    settle(simulation)
    live = [each for each in simulation.clients.values() if each.epoch > 0]
    wanted = {name for client in live for name in client.topics}
    owned = [each for client in live for each in client.owned]
    assert len(owned) == len(set(owned)), f"seed {seed}: a partition has two owners"
    found = {(simulation.topics.topic_name(topic_id), number) for topic_id, number in owned}
    assert simulation.topics.partitions(wanted) == found, f"seed {seed}"


def test_what_counts_as_large() -> None:
    group, topics = ConsumerGroup("g"), {"t": TopicMetadata((UUID(int=1), COST_MAX - 1))}
    assert not is_long(group, topics)
    group.put_member(Member("a"))
    assert not is_long(group, topics)
    group.assignment_epoch = 1
    assert is_long(group, topics)
