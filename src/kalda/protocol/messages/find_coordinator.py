"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

v1 adds the key type, error messages and the throttle time. v2 throttles after the response. v3 is
flexible. v4 asks for many keys at once (KIP-699). v5 may answer TRANSACTION_ABORTABLE (KIP-890). v6 adds
share groups (KIP-932).
"""

from typing import Final

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, wire

KEY_TYPE_GROUP: Final = 0
KEY_TYPE_TRANSACTION: Final = 1
KEY_TYPE_SHARE: Final = 2


class FindCoordinatorRequest(Message, api_key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"):
    """Asks for the coordinator of `key` (up to v3) or of each of `coordinator_keys` (from v4)."""

    key: str = wire(STRING, "0-3")
    key_type: int = wire(INT8, "1+")
    coordinator_keys: list[str] = wire(array(STRING), "4+")


class Coordinator(Struct):
    """The coordinator of one key; node id -1 with an error."""

    key: str = wire(STRING, "4+")
    node_id: int = wire(INT32, "4+")
    host: str = wire(STRING, "4+")
    port: int = wire(INT32, "4+")
    error_code: int = wire(INT16, "4+")
    error_message: str | None = wire(STRING, "4+", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Message, api_key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"):
    """The coordinator: in the top-level fields up to v3, one entry per key in `coordinators` from v4."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0-3")
    error_message: str | None = wire(STRING, "1-3", nullable="1-3", ignorable=True)
    node_id: int = wire(INT32, "0-3")
    host: str = wire(STRING, "0-3")
    port: int = wire(INT32, "0-3")
    coordinators: list[Coordinator] = wire(array(Coordinator), "4+")
