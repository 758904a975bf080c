"""Answers ListGroups and DescribeGroups for the groups of one shard."""

from collections.abc import Set
from typing import Final

from kalda.common.errors import ErrorCode
from kalda.coordinator.group.classic.classic_group import ClassicGroup, GroupState
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from kalda.protocol.messages.list_groups import ListedGroup

NOT_FOUND_FROM: Final = 6
"""The version of DescribeGroups from which an unknown group is an error (KIP-1043); before, it is Dead."""


def list_groups(shard: GroupShardState, wanted_states: Set[str], wanted_types: Set[str]) -> list[ListedGroup]:
    """Return the groups in one of the states and of one of the types; empty sets stand for all.

    Both are in lowercase.
    """
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state_name,
            group_type=group.kind.value,
        )
        for group in shard.groups.values()
        if (not wanted_states or group.state_name.lower() in wanted_states)
        and (not wanted_types or group.kind.value in wanted_types)
    ]


def describe(shard: GroupShardState, group_id: str, version: int) -> DescribedGroup:
    """Describe a classic group; members have metadata and an assignment only in a stable group."""
    group = shard.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if version >= NOT_FOUND_FROM:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            reason = "not found" if group is None else "is not a classic group"
            described.error_message = f"Group {group_id} {reason}."
        return described
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=_members(group, is_stable),
    )


def _members(group: ClassicGroup, is_stable: bool) -> list[DescribedGroupMember]:
    name = group.protocol_name
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(name) if is_stable and name is not None else b"",
            member_assignment=member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    ]
