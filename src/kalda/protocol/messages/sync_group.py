"""SyncGroup (key 14): the leader sends the assignment, and every member waits for its own part.

v1 adds the throttle time; v2 throttles after the response. v3 adds static members (KIP-345). v4 is flexible.
v5 adds the protocol's type and name, which must be the group's (KIP-559).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BYTES, INT16, INT32, STRING, Message, Struct, array, wire


class SyncGroupRequestAssignment(Struct):
    """The assignment of one member."""

    member_id: str = wire(STRING, "0+")
    assignment: bytes = wire(BYTES, "0+")


class SyncGroupRequest(Message, api_key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    """The assignment from the leader, an empty list from all others."""

    group_id: str = wire(STRING, "0+")
    generation_id: int = wire(INT32, "0+")
    member_id: str = wire(STRING, "0+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    protocol_type: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = wire(array(SyncGroupRequestAssignment), "0+")


class SyncGroupResponse(Message, api_key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    """The part of the member that asked."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0+")
    protocol_type: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = wire(BYTES, "0+")
