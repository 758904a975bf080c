"""FindCoordinator (key 10), versions 0-6: which broker coordinates a group or a transactional id.

v1 adds the key's type and a message, v4 asks for many keys (KIP-699), v6 knows share groups (KIP-932).

Groups are not built yet, but every broker names the same live one for a group. Saying so is what clients need
that consume by assignment with a ``group.id``: without an answer kafka-python refuses to poll and librdkafka
waits 45 s in ``close()`` for a coordinator to commit to; with it they find that the broker has no
OffsetCommit and JoinGroup, and say so at once. Transactions are refused with an error that producers do not
retry.
"""

from typing import Final
from zlib import crc32

from kalda.broker.api import ApiHandler, RequestContext
from kalda.broker.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.find_coordinator import (
    KEY_TYPE_TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

KEY_TYPE_GROUP: Final = 0
MANY_KEYS_FROM: Final = 4

_NO_NODE: Final = -1
_NO_PORT: Final = -1


def handle(
    services: BrokerServices, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Name the coordinator of each key."""
    many = context.api_version >= MANY_KEYS_FROM
    keys = request.coordinator_keys if many else [request.key]
    found = [_find(services, request.key_type, key, context.listener) for key in keys]
    return _response(found, many)


def _find(services: BrokerServices, key_type: int, key: str, listener: str) -> Coordinator:
    if key_type == KEY_TYPE_TRANSACTION:
        return _failure(
            key,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "This version of the broker does not serve transactions.",
        )
    if key_type != KEY_TYPE_GROUP:
        return _failure(key, ErrorCode.INVALID_REQUEST, f"There is no coordinator for key type {key_type}.")
    endpoints = services.metadata_cache.endpoints(listener)
    if not endpoints:
        return _failure(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    endpoint = endpoints[crc32(key.encode()) % len(endpoints)]
    return Coordinator(
        key=key, node_id=endpoint.id, host=endpoint.host, port=endpoint.port, error_code=0, error_message=None
    )


def _failure(key: str, code: ErrorCode, message: str | None = None) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=_NO_NODE,
        host="",
        port=_NO_PORT,
        error_code=code,
        error_message=message or code.message,
    )


def _response(found: list[Coordinator], many: bool) -> FindCoordinatorResponse:
    if many:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def error_response(request: FindCoordinatorRequest, code: ErrorCode) -> FindCoordinatorResponse:
    """Answer with an error for each key: versions from 4 name their keys in the list."""
    many = bool(request.coordinator_keys)
    keys = request.coordinator_keys if many else [request.key]
    return _response([_failure(key, code) for key in keys], many)


HANDLER: Final = ApiHandler(
    key=ApiKey.FIND_COORDINATOR, versions=(0, 6), handle=handle, error_response=error_response
)
