"""The target assignments of large consumer groups, which are computed in slices."""

from collections.abc import Callable, Mapping
from typing import Final

from kalda.common.steps import Steps
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.consumer.assignors.partition_assignor import Assignor
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.consumer_group_records import target_epoch_record, target_record
from kalda.coordinator.group.consumer.member import TopicMetadata
from kalda.coordinator.group.consumer.target_assignment import Changes, target_steps
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.group.sliced_targets import SlicedTargets

COST_MAX: Final = 10_000
"""What is computed at once: partitions, and the topics of each member. It takes up to 20 ms."""


def is_long(group: ConsumerGroup, topics: Mapping[str, TopicMetadata]) -> bool:
    """Return whether a target of the group takes so long that it is computed in slices.

    The first target is not: without one there is no epoch that its first member could have.
    """
    if not group.assignment_epoch:
        return False
    partitions = sum(count for _, count in topics.values())
    return partitions + (len(group.members) + 1) * len(topics) > COST_MAX


def sliced_targets(shard: GroupShardState, assignor_of: Callable[[ConsumerGroup], Assignor]) -> SlicedTargets:
    """Return the computations of one shard."""

    def find(group_id: str) -> ConsumerGroup | None:
        group = shard.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def steps(group_id: str) -> Steps[list[CoordinatorRecord]]:
        group = find(group_id)
        assert group is not None, f"no consumer group {group_id}"
        epoch = group.epoch
        changes = yield from target_steps(group, assignor_of(group), dict(group.topics), None)
        return _records(group, epoch, changes, shard.context.time_ms())

    return SlicedTargets("consumer", shard, find, steps)


def _records(group: ConsumerGroup, epoch: int, changes: Changes, now_ms: int) -> list[CoordinatorRecord]:
    """Return the records of a target for the members that the group still has."""
    records = [record for member_id, record in changes.records if member_id in group.members]
    for member_id, before in changes.members.items():
        if member_id in group.members or before.instance_id is None:
            continue
        heir = group.static_member(before.instance_id)
        if heir is not None and heir.member_id not in changes.members:
            # It has the last target of the member that it replaces, whose partitions others may get now.
            wanted = changes.assignments[member_id]
            records.append(target_record(group.group_id, heir.member_id, wanted))
    records.append(target_epoch_record(group.group_id, epoch, now_ms))
    return records
