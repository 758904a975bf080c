"""Computes the target assignment of a group for a new group epoch, with the records that store it.

It is computed before the records of the heartbeat that requires it are replayed: members and subscriptions
are those of the group, except for the member that the heartbeat changes. Kafka's counterpart is
``TargetAssignmentBuilder``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kalda.common.types import UUID
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.consumer.assignors.partition_assignor import Assignor, GroupSpec, MemberSpec
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.consumer_group_records import target_epoch_record, target_record
from kalda.coordinator.group.consumer.member import EMPTY_ASSIGNMENT, Assignment, Member, TopicMetadata


@dataclass(frozen=True, slots=True)
class Target:
    """A target assignment, and the records of members whose target changes."""

    assignments: Mapping[str, Assignment]
    records: list[CoordinatorRecord]


def compute_target(
    group: ConsumerGroup,
    epoch: int,
    assignor: Assignor,
    topics: Mapping[str, TopicMetadata],
    member: Member | None,
    now_ms: int,
) -> Target:
    """Compute the target for a group epoch; `member` joins, changes, or takes over its instance id."""
    members = dict(group.members)
    inherited: str | None = None
    if member is not None:
        inherited = group.static_members.get(member.instance_id) if member.instance_id is not None else None
        if inherited is not None and inherited != member.member_id:
            members.pop(inherited, None)
        members[member.member_id] = member
    topic_ids: dict[tuple[frozenset[str], str | None], frozenset[UUID]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, one in members.items():
        subscription = (one.subscribed_names, one.subscribed_regex)
        ids = topic_ids.get(subscription)
        if ids is None:
            ids = topic_ids[subscription] = subscribed_ids(group, one, topics)
        before = group.targets.get(member_id)
        if before is None and member is not None and member_id == member.member_id and inherited is not None:
            before = group.targets.get(inherited)
        specs[member_id] = MemberSpec(ids, before or EMPTY_ASSIGNMENT, one.instance_id, one.rack_id)
    counts = dict(topics.values())
    assignments = assignor.assign(GroupSpec(specs, counts))
    records = [
        target_record(group.group_id, member_id, assignments[member_id])
        for member_id in sorted(specs)
        if group.targets.get(member_id) != assignments[member_id]
    ]
    records.append(target_epoch_record(group.group_id, epoch, now_ms))
    return Target(assignments, records)


def subscribed_ids(
    group: ConsumerGroup, member: Member, topics: Mapping[str, TopicMetadata]
) -> frozenset[UUID]:
    """Return the ids of those of the group's topics to which the member subscribes."""
    names = group.subscription_of(member)
    return frozenset(topics[name][0] for name in names if name in topics)
