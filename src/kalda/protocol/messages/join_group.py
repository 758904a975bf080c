"""JoinGroup (key 11): become a member of a classic group and wait for the next generation.

v1 adds the rebalance timeout; before, the session timeout served as both. v2 adds the throttle time; v3
throttles after the response. v4 has new members join again with the id they are given (KIP-394). v5 adds
static members (KIP-345). v6 is flexible. v7 adds the protocol type (KIP-559). v8 adds a reason (KIP-800).
v9 can make a static leader skip the assignment (KIP-814).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, BYTES, INT16, INT32, STRING, Message, Struct, array, wire


class JoinGroupRequestProtocol(Struct):
    """A way of assigning that the member offers, with its subscription in it."""

    name: str = wire(STRING, "0+")
    metadata: bytes = wire(BYTES, "0+")


class JoinGroupRequest(Message, api_key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    """Joins or rejoins; `member_id` is empty at first. `protocols` are in order of preference."""

    group_id: str = wire(STRING, "0+")
    session_timeout_ms: int = wire(INT32, "0+")
    rebalance_timeout_ms: int = wire(INT32, "1+", default=-1, ignorable=True)
    member_id: str = wire(STRING, "0+")
    group_instance_id: str | None = wire(STRING, "5+", nullable="5+", default=None)
    protocol_type: str = wire(STRING, "0+")
    protocols: list[JoinGroupRequestProtocol] = wire(array(JoinGroupRequestProtocol), "0+")
    reason: str | None = wire(STRING, "8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    """A member with its metadata for the chosen protocol; only the leader's response has members."""

    member_id: str = wire(STRING, "0+")
    group_instance_id: str | None = wire(STRING, "5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = wire(BYTES, "0+")


class JoinGroupResponse(Message, api_key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    """The generation that begins; it comes when all members have joined."""

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    error_code: int = wire(INT16, "0+")
    generation_id: int = wire(INT32, "0+", default=-1)
    protocol_type: str | None = wire(STRING, "7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = wire(STRING, "0+", nullable="7+")
    leader: str = wire(STRING, "0+")
    skip_assignment: bool = wire(BOOL, "9+")
    member_id: str = wire(STRING, "0+")
    members: list[JoinGroupResponseMember] = wire(array(JoinGroupResponseMember), "0+")
