"""LeaveGroup (key 13): members leave a classic group.

v1 adds the throttle time; v2 throttles after the response. v3 takes many members, static ones by their
instance id too (KIP-345). v4 is flexible. v5 adds a reason per member (KIP-800).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, STRING, Message, Struct, array, wire


class MemberIdentity(Struct):
    """A member that leaves; an administrator gives the instance id alone."""

    member_id: str = wire(STRING, "3+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    reason: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupRequest(Message, api_key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    """Removes `member_id` (up to v2) or each of `members` (from v3)."""

    group_id: str = wire(STRING, "0+")
    member_id: str = wire(STRING, "0-2")
    members: list[MemberIdentity] = wire(array(MemberIdentity), "3+")


class MemberResponse(Struct):
    """The result for one member."""

    member_id: str = wire(STRING, "3+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+")
    error_code: int = wire(INT16, "3+")


class LeaveGroupResponse(Message, api_key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    """One error up to v2, one per member besides from v3."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0+")
    members: list[MemberResponse] = wire(array(MemberResponse), "3+")
