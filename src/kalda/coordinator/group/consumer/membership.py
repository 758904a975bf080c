"""Who may speak for a member: epochs and instance ids."""

from dataclasses import replace

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.member import LEAVE_STATIC_EPOCH, Assignment, Member, is_within
from kalda.coordinator.group.consumer.records import (
    current_record,
    member_record,
    member_removal,
    target_record,
)

__all__ = ["check_epoch", "check_instance_is_released", "check_not_fenced", "takeover"]


def check_epoch(member: Member, epoch: int, owned: Assignment | None) -> None:
    """Check that a request is the member's of now.

    The epoch before passes too, as the response that told the new one may be lost, if the member claims
    nothing that it has not been given.

    Raises:
        ApiError: FENCED_MEMBER_EPOCH.
    """
    if epoch == member.epoch:
        return
    if epoch > member.epoch:
        relation = "greater"
    elif epoch == member.previous_epoch and owned is not None and is_within(owned, member.assigned):
        return
    else:
        relation = "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def check_instance_is_released(present: Member, member_id: str, instance_id: str) -> None:
    """Check that whoever had the instance id has left for now.

    Raises:
        ApiError: UNRELEASED_INSTANCE_ID.
    """
    if present.epoch != LEAVE_STATIC_EPOCH:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {present.member_id} member.",
        )


def check_not_fenced(present: Member, member_id: str, instance_id: str) -> None:
    """Check that the instance id is still this member's.

    Raises:
        ApiError: FENCED_INSTANCE_ID.
    """
    if present.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{present.member_id}.",
        )


def takeover(
    group: ConsumerGroup, present: Member, member_id: str, records: list[CoordinatorRecord]
) -> Member:
    """Put a member in the place of the one that has its instance id, with all that it had."""
    taken = replace(present, member_id=member_id, epoch=0, previous_epoch=0)
    if present.member_id != member_id:
        records += member_removal(group.group_id, present.member_id)
    records += [
        member_record(group.group_id, taken),
        target_record(group.group_id, member_id, group.target_of(present.member_id)),
        current_record(group.group_id, taken),
    ]
    return taken
