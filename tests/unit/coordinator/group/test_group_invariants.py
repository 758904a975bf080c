"""Invariants of groups are asserted: each damage below is one that a bug could do."""

from collections.abc import Callable

import pytest

from kalda.coordinator.group.classic.classic_group import ClassicGroup
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.member import Member
from tests.unit.coordinator.group.consumer.consumer_simulation import GROUP, ConsumerSimulation
from tests.unit.coordinator.group.group_simulation import GroupSimulation


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda group: group._supporters.update(range=7), "supporters"),
        (lambda group: group.static_members.update(i="a"), "static members"),
        (lambda group: group.pending_join.update(group.members), "have yet to join"),
        (lambda group: group.pending_sync.add("x"), "are to sync and are no members"),
        (lambda group: setattr(group, "members_awaiting_join", 7), "wait to join"),
        (lambda group: setattr(group, "generation_id", 0), "goes back"),
        (lambda group: setattr(group, "leader_id", "x"), "leads, no member"),
        (lambda group: setattr(group, "protocol_name", "x"), "its protocol x"),
        (lambda group: group.members.clear(), "supporters"),
    ],
)
def test_a_classic_group_finds_its_damage(damage: Callable[[ClassicGroup], object], text: str) -> None:
    simulation = GroupSimulation()
    simulation.join("a", version=3)
    simulation.advance(10_000)
    simulation.sync("a")
    group = simulation.group
    assert group is not None
    group.check_invariants()

    damage(group)

    with pytest.raises(AssertionError, match=text):
        group.check_invariants()


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda group: setattr(group, "epoch", 0), "is below the assignment epoch"),
        (lambda group: setattr(group, "assignment_epoch", 0), "above the assignment epoch"),
        (lambda group: group.put_member(Member("b", assigned=group.members["a"].assigned)), "own"),
        (lambda group: group._owners.clear(), "owners are"),
        (lambda group: group._names.update(("t",)), "topics are"),
        (lambda group: group.targets.update(x={}), "are no members"),
        (
            lambda group: group.put_member(Member("b", instance_id="i")) or group.static_members.clear(),
            "static",
        ),
        (lambda group: setattr(group, "classic_count", 1), "0 classic members"),
    ],
)
def test_a_consumer_group_finds_its_damage(damage: Callable[[ConsumerGroup], object], text: str) -> None:
    simulation = ConsumerSimulation()
    simulation.topics.put("t", 2)
    simulation.beat(simulation.client("a", "t"))
    group = simulation.group
    assert GROUP == group.group_id
    group.check_invariants()

    damage(group)

    with pytest.raises(AssertionError, match=text):
        group.check_invariants()


def test_members_with_the_same_subscription_share_its_names() -> None:
    """A thousand members of two thousand names took 250 MB, and each assignment compared them all."""
    simulation = ConsumerSimulation()
    for name in ("t", "u"):
        simulation.topics.put(name, 2)
    first = simulation.client("a", "t", "u")
    for client in (first, simulation.client("b", "u", "t"), simulation.client("c", "t")):
        simulation.beat(client)
    group = simulation.group
    assert group.members["a"].subscribed_names is group.members["b"].subscribed_names
    assert {"t"} == group.members["c"].subscribed_names
    group.check_invariants()
    group.remove_member("a")
    group.remove_member("c")
    assert [frozenset({"t", "u"})] == list(group._subscriptions)


def test_offsets_find_that_a_transaction_was_not_closed() -> None:
    simulation = GroupSimulation()
    store = simulation.shard.offsets
    store.check_invariants()
    store._open_transactions["g"] = {7}
    with pytest.raises(AssertionError, match="open transactions"):
        store.check_invariants()


def test_offsets_find_a_wrong_count() -> None:
    simulation = GroupSimulation()
    simulation.shard.offsets.count = 1
    with pytest.raises(AssertionError, match="were counted"):
        simulation.shard.offsets.check_invariants()
