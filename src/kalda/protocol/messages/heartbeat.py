"""Heartbeat (key 12): keeps a member of a classic group in the group.

v1 adds the throttle time; v2 throttles after the response. v3 adds static members (KIP-345). v4 is flexible.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, STRING, Message, wire


class HeartbeatRequest(Message, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    """Keeps the session of a member alive."""

    group_id: str = wire(STRING, "0+")
    generation_id: int = wire(INT32, "0+")
    member_id: str = wire(STRING, "0+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)


class HeartbeatResponse(Message, api_key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    """REBALANCE_IN_PROGRESS makes the member join again."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0+")
