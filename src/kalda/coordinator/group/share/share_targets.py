"""The target assignments of share groups; those of large groups are computed in slices."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kalda.common.steps import Steps
from kalda.common.types import UUID
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.consumer.member import Assignment, TopicMetadata
from kalda.coordinator.group.consumer.topics import TopicsView
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.group.share.share_group import ShareGroup
from kalda.coordinator.group.share.share_group_records import target_epoch_record, target_record
from kalda.coordinator.group.share.share_member import ShareMember
from kalda.coordinator.group.share.simple_assignor import assign_steps
from kalda.coordinator.group.sliced_targets import SlicedTargets

COST_MAX: Final = 1_000
"""What is computed at once: partitions, members, and the topics of each member. It takes up to 10 ms."""


class ShareTarget(NamedTuple):
    """A target assignment, and the records of the members whose targets change."""

    assignments: Mapping[str, Assignment]
    records: list[tuple[str, CoordinatorRecord]]


def is_long(group: ShareGroup, topics: Mapping[str, TopicMetadata]) -> bool:
    """Return whether a target of the group takes so long that it is computed in slices.

    The first target is not: without one there is no epoch that its first member could have.
    """
    if not group.assignment_epoch:
        return False
    partitions = sum(count for _, count in topics.values())
    return partitions + (len(group.members) + 1) * (1 + len(topics)) > COST_MAX


def target_steps(
    group: ShareGroup, members: Iterable[ShareMember], topics: Mapping[str, TopicMetadata]
) -> Steps[ShareTarget]:
    """Compute the target of some members with some topics; it follows the targets that the group has now."""
    before = dict(group.targets)
    subscriptions: dict[str, frozenset[UUID]] = {}
    for member in members:
        subscriptions[member.member_id] = frozenset(
            topics[name][0] for name in member.subscribed_names if name in topics
        )
        yield
    targets = yield from assign_steps(subscriptions, dict(topics.values()), before)
    records: list[tuple[str, CoordinatorRecord]] = []
    for member_id, target in sorted(targets.items()):
        if before.get(member_id) != target:
            records.append((member_id, target_record(group.group_id, member_id, target)))
        yield
    return ShareTarget(targets, records)


def sliced_targets(shard: GroupShardState, topics: TopicsView) -> SlicedTargets:
    """Return the computations of one shard."""

    def find(group_id: str) -> ShareGroup | None:
        group = shard.groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def steps(group_id: str) -> Steps[list[CoordinatorRecord]]:
        group = find(group_id)
        assert group is not None, f"no share group {group_id}"
        epoch = group.epoch
        members = tuple(group.members.values())
        target = yield from target_steps(group, members, group.subscribed_topics(topics))
        records = [record for member_id, record in target.records if member_id in group.members]
        records.append(target_epoch_record(group_id, epoch, shard.context.time_ms()))
        return records

    return SlicedTargets("share", shard, find, steps)
