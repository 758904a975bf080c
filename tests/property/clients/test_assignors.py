"""Laws that every assignment keeps, whatever the group looks like."""

from random import Random

import pytest

from kalda.clients.consumer.assignors.partition_assignor import Assignment, Subscription
from kalda.common.types import TopicPartition
from tests.assignor_cases import ASSIGNORS, AssignorCase, random_generations

SEEDS = range(150)


def assigned_counts(case: AssignorCase) -> dict[TopicPartition, int]:
    counts: dict[TopicPartition, int] = {}
    for assignment in case.assign().values():
        for partition in assignment.partitions:
            counts[partition] = counts.get(partition, 0) + 1
    return counts


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
@pytest.mark.parametrize("racks", [False, True], ids=["no racks", "racks"])
def test_every_subscribed_partition_is_assigned_once_to_a_subscriber(assignor: str, racks: bool) -> None:
    """A partition without a member is not consumed, one with two is consumed twice."""
    for seed in SEEDS:
        for case in random_generations(Random(seed), assignor, racks=racks):
            assigned = case.assign()
            subscribed = {topic for each in case.members.values() for topic in each.topics}
            expected = sorted(
                TopicPartition(topic, number)
                for topic, partitions in case.topics.items()
                for number in range(len(partitions))
                if topic in subscribed
            )
            got = sorted(each for assignment in assigned.values() for each in assignment.partitions)
            assert expected == got, f"seed {seed}"
            assert case.members.keys() == assigned.keys(), f"seed {seed}"
            for member_id, assignment in assigned.items():
                topics = {each.topic for each in assignment.partitions}
                assert topics <= set(case.members[member_id].topics), f"seed {seed}"


def test_the_cooperative_assignor_gives_nobody_what_another_member_owns() -> None:
    """The owner must revoke first; until then the partition is with nobody else (KIP-429)."""
    for seed in SEEDS:
        for case in random_generations(Random(seed), "cooperative-sticky", racks=seed % 2 == 0):
            assigned = case.assign()
            assert all(count == 1 for count in assigned_counts(case).values()), f"seed {seed}"
            newest = max(each.generation_id for each in case.members.values())
            claims = [
                each
                for subscription in case.members.values()
                if subscription.generation_id == newest
                for each in subscription.owned_partitions
            ]
            for member_id, subscription in case.members.items():
                if subscription.generation_id != newest:
                    continue
                for other_id, assignment in assigned.items():
                    for partition in subscription.owned_partitions:
                        owned = partition in case.members[other_id].owned_partitions
                        if other_id != member_id and not owned and claims.count(partition) == 1:
                            assert partition not in assignment.partitions, f"seed {seed}: {partition}"


@pytest.mark.parametrize("assignor", ["roundrobin", "sticky"])
def test_members_with_equal_subscriptions_get_equal_shares(assignor: str) -> None:
    """The counts of any two members differ by at most one."""
    for seed in SEEDS:
        for case in random_generations(Random(seed), assignor, racks=True):
            if len({frozenset(each.topics) for each in case.members.values()}) == 1:
                counts = [len(each.partitions) for each in case.assign().values()]
                assert max(counts) - min(counts) <= 1, f"seed {seed}"


def test_the_range_assignor_balances_each_topic() -> None:
    """For every topic, the counts of any two of its subscribers differ by at most one."""
    for seed in SEEDS:
        for case in random_generations(Random(seed), "range", racks=seed % 2 == 0):
            assigned = case.assign()
            for topic in case.topics:
                counts = [
                    sum(each.topic == topic for each in assigned[member_id].partitions)
                    for member_id, subscription in case.members.items()
                    if topic in subscription.topics
                ]
                assert not counts or max(counts) - min(counts) <= 1, f"seed {seed}"


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_a_balanced_assignment_does_not_change(assignor: str) -> None:
    """Without a change of members, subscriptions or partitions, nothing moves."""
    for seed in SEEDS:
        case = random_generations(Random(seed), assignor, racks=False)[0]
        first = case.assign()
        again = AssignorCase(assignor, case.topics)
        for member_id, subscription in case.members.items():
            member = ASSIGNORS[assignor]()
            member.on_assignment(first[member_id], 1)
            again.members[member_id] = Subscription(
                subscription.topics,
                member.subscription_user_data(subscription.topics),
                first[member_id].partitions,
                generation_id=1,
            )
        assert _sets(first) == _sets(again.assign()), f"seed {seed}"


def test_members_that_stay_keep_what_they_had_when_one_leaves() -> None:
    """With equal subscriptions, only the partitions of the member that left move (KIP-54)."""
    for seed in SEEDS:
        random = Random(seed)
        topics = {f"t{n}": [frozenset[str]()] * random.randint(1, 9) for n in range(random.randint(1, 4))}
        names = [f"m-{random.getrandbits(32):x}" for _ in range(random.randint(2, 9))]
        case = AssignorCase("sticky", topics, {name: Subscription(tuple(topics)) for name in names})
        first = case.assign()
        later = AssignorCase("sticky", topics)
        for name in names[1:]:
            member = ASSIGNORS["sticky"]()
            member.on_assignment(first[name], 1)
            data = member.subscription_user_data(())
            later.members[name] = Subscription(tuple(topics), data, generation_id=1)
        for name, assignment in later.assign().items():
            assert set(first[name].partitions) <= set(assignment.partitions), f"seed {seed}"


def _sets(assigned: dict[str, Assignment]) -> dict[str, set[TopicPartition]]:
    return {member_id: set(each.partitions) for member_id, each in assigned.items()}
