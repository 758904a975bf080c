"""DescribeGroups (key 15): state and members of classic groups.

v1 adds the throttle time; v2 throttles after the response. v3 adds authorised operations (KIP-430). v4 adds
static members (KIP-345). v5 is flexible. v6 returns GROUP_ID_NOT_FOUND, with a message, for a group that does
not exist (KIP-1043); before, it is described as Dead.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, BYTES, INT16, INT32, STRING, Message, Struct, array, wire


class DescribeGroupsRequest(Message, api_key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+"):
    """Asks for groups by id."""

    groups: list[str] = wire(array(STRING), "0+")
    include_authorized_operations: bool = wire(BOOL, "3+")


class DescribedGroupMember(Struct):
    """One member; metadata and assignment are there when the group is stable."""

    member_id: str = wire(STRING, "0+")
    group_instance_id: str | None = wire(STRING, "4+", nullable="4+", default=None, ignorable=True)
    client_id: str = wire(STRING, "0+")
    client_host: str = wire(STRING, "0+")
    member_metadata: bytes = wire(BYTES, "0+")
    member_assignment: bytes = wire(BYTES, "0+")


class DescribedGroup(Struct):
    """One group; `protocol_data` is the name of the chosen protocol when the group is stable."""

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "6+", nullable="6+", default=None, ignorable=True)
    group_id: str = wire(STRING, "0+")
    group_state: str = wire(STRING, "0+")
    protocol_type: str = wire(STRING, "0+")
    protocol_data: str = wire(STRING, "0+")
    members: list[DescribedGroupMember] = wire(array(DescribedGroupMember), "0+")
    authorized_operations: int = wire(INT32, "3+", default=-2147483648)


class DescribeGroupsResponse(Message, api_key=ApiKey.DESCRIBE_GROUPS, versions="0-6", flexible="5+"):
    """One entry per group asked for."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    groups: list[DescribedGroup] = wire(array(DescribedGroup), "0+")
