"""Computes the target assignment of a group for a new group epoch, with the records that store it.

It is computed before the records of the heartbeat that requires it are replayed: members and subscriptions
are those of the group, except for the member that the heartbeat changes. For a large group it is computed
later, in steps (`target_computation`). Kafka's counterpart is ``TargetAssignmentBuilder``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kalda.common.steps import Steps, result_of
from kalda.common.types import UUID
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.consumer.assignors.partition_assignor import (
    MEMBERS_PER_STEP,
    Assignor,
    GroupSpec,
    MemberSpec,
)
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.consumer_group_records import target_epoch_record, target_record
from kalda.coordinator.group.consumer.member import EMPTY_ASSIGNMENT, Assignment, Member, TopicMetadata


@dataclass(frozen=True, slots=True)
class Target:
    """A target assignment, and the records of members whose target changes."""

    assignments: Mapping[str, Assignment]
    records: list[CoordinatorRecord]


@dataclass(frozen=True, slots=True)
class Changes:
    """A target assignment, the records of members whose target changes, and the members that it is for."""

    assignments: Mapping[str, Assignment]
    records: list[tuple[str, CoordinatorRecord]]
    members: Mapping[str, Member]


def compute_target(
    group: ConsumerGroup,
    epoch: int,
    assignor: Assignor,
    topics: Mapping[str, TopicMetadata],
    member: Member | None,
    now_ms: int,
) -> Target:
    """Compute the target for a group epoch; `member` joins, changes, or takes over its instance id."""
    target = result_of(target_steps(group, assignor, topics, member))
    records = [record for _, record in target.records]
    records.append(target_epoch_record(group.group_id, epoch, now_ms))
    return Target(target.assignments, records)


def target_steps(
    group: ConsumerGroup, assignor: Assignor, topics: Mapping[str, TopicMetadata], member: Member | None
) -> Steps[Changes]:
    """Compute a target in steps, between which the group may change, with the records of changed members."""
    members, targets = dict(group.members), dict(group.targets)
    inherited: str | None = None
    if member is not None:
        inherited = group.static_members.get(member.instance_id) if member.instance_id is not None else None
        if inherited is not None and inherited != member.member_id:
            members.pop(inherited, None)
        members[member.member_id] = member
    topic_ids: dict[tuple[frozenset[str], str | None], frozenset[UUID]] = {}
    specs: dict[str, MemberSpec] = {}
    for number, (member_id, one) in enumerate(members.items()):
        if number % MEMBERS_PER_STEP == 0:
            yield
        subscription = (one.subscribed_names, one.subscribed_regex)
        ids = topic_ids.get(subscription)
        if ids is None:
            ids = topic_ids[subscription] = subscribed_ids(group, one, topics)
        before = targets.get(member_id)
        if before is None and member is not None and member_id == member.member_id and inherited is not None:
            before = targets.get(inherited)
        specs[member_id] = MemberSpec(ids, before or EMPTY_ASSIGNMENT, one.instance_id, one.rack_id)
    counts = dict(topics.values())
    assignments = yield from assignor.assign(GroupSpec(specs, counts))
    records: list[tuple[str, CoordinatorRecord]] = []
    for number, member_id in enumerate(sorted(specs)):
        if number % MEMBERS_PER_STEP == 0:
            yield
        if targets.get(member_id) != assignments[member_id]:
            records.append((member_id, target_record(group.group_id, member_id, assignments[member_id])))
    return Changes(assignments, records, members)


def subscribed_ids(
    group: ConsumerGroup, member: Member, topics: Mapping[str, TopicMetadata]
) -> frozenset[UUID]:
    """Return the ids of those of the group's topics to which the member subscribes."""
    names = group.subscription_of(member)
    if len(topics) < len(names):
        # A member may name thousands of topics that do not exist.
        return frozenset(topic_id for name, (topic_id, _) in topics.items() if name in names)
    return frozenset(topics[name][0] for name in names if name in topics)
