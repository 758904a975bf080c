"""ConsumerGroupHeartbeat (key 68), versions 0-1: a member joins, stays in or leaves a group (KIP-848).

v1 adds subscription by regular expression, and the client makes its member id (KIP-1082).
"""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import groups as group_checks
from kalda.broker.security.authorizer import Authorizer
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.consumer.consumer_group_coordinator import ConsumerGroupCoordinator
from kalda.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kalda.security.acl.model import AclOperation, ResourceType


def handle(
    authorizer: Authorizer | None,
    coordinator: ConsumerGroupCoordinator,
    request: ConsumerGroupHeartbeatRequest,
    context: RequestContext,
) -> Pending[ConsumerGroupHeartbeatResponse]:
    """Answer when the change that the heartbeat makes is replicated."""
    connection = context.connection

    def may_describe(topic: str) -> bool:
        return authorizer is None or authorizer.allows(
            connection, AclOperation.DESCRIBE, ResourceType.TOPIC, topic, is_noted=False
        )

    return coordinator.heartbeat(
        request, context.api_version, context.client_id or "", f"/{connection.peer_address}", may_describe
    )


def error_response(request: ConsumerGroupHeartbeatRequest, code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    """Return a response with the error."""
    return ConsumerGroupHeartbeatResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.CONSUMER_GROUP_HEARTBEAT,
    versions=(0, 1),
    build=lambda services: partial(handle, services.access.authorizer, services.consumer_groups),
    error_response=error_response,
    access=group_checks.consumer_group_heartbeat,
)
