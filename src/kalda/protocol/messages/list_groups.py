"""ListGroups (key 16): the groups that this broker coordinates.

v1 adds the throttle time; v2 throttles after the response. v3 is flexible. v4 filters by state (KIP-518), v5
by type (KIP-848).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, STRING, Message, Struct, array, wire


class ListGroupsRequest(Message, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    """Asks for the groups of the given states and types; an empty list means all."""

    states_filter: list[str] = wire(array(STRING), "4+")
    types_filter: list[str] = wire(array(STRING), "5+")


class ListedGroup(Struct):
    """One group."""

    group_id: str = wire(STRING, "0+")
    protocol_type: str = wire(STRING, "0+")
    group_state: str = wire(STRING, "4+", ignorable=True)
    group_type: str = wire(STRING, "5+", ignorable=True)


class ListGroupsResponse(Message, api_key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    """The groups of this broker only."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0+")
    groups: list[ListedGroup] = wire(array(ListedGroup), "0+")
