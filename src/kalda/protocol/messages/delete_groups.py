"""DeleteGroups (key 42): forget groups without members, and their offsets (KIP-229).

v1 throttles after the response. v2 is flexible. v3 adds a message to each error.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, STRING, Message, Struct, array, wire


class DeleteGroupsRequest(Message, api_key=ApiKey.DELETE_GROUPS, versions="0-3", flexible="2+"):
    """Names the groups."""

    groups_names: list[str] = wire(array(STRING), "0+")


class DeletableGroupResult(Struct):
    """The result for one group."""

    group_id: str = wire(STRING, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "3+", nullable="3+", default=None, ignorable=True)


class DeleteGroupsResponse(Message, api_key=ApiKey.DELETE_GROUPS, versions="0-3", flexible="2+"):
    """One entry per group."""

    throttle_time_ms: int = wire(INT32, "0+")
    results: list[DeletableGroupResult] = wire(array(DeletableGroupResult), "0+")
