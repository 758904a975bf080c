"""ConsumerGroupDescribe (key 69), versions 0-1: returns the state and the members of consumer groups
(KIP-848).

v1 adds the protocol that each member uses (KIP-1099).
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.authorized_operations import set_group_operations
from kalda.broker.requests.checks import groups as group_checks
from kalda.broker.requests.request_slices import answer_in_slices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.consumer.consumer_group_coordinator import ConsumerGroupCoordinator
from kalda.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def handle(
    coordinator: ConsumerGroupCoordinator, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> Pending[ConsumerGroupDescribeResponse] | Coroutine[Any, Any, ConsumerGroupDescribeResponse]:
    """Answer when everything in the response is committed."""

    def respond(groups: list[DescribedGroup]) -> ConsumerGroupDescribeResponse:
        if request.include_authorized_operations:
            set_group_operations(groups)
        return ConsumerGroupDescribeResponse(groups=groups)

    return answer_in_slices(request.group_ids, coordinator.describe, respond)


def error_response(request: ConsumerGroupDescribeRequest, code: ErrorCode) -> ConsumerGroupDescribeResponse:
    """Return a response with the error for each group."""
    return ConsumerGroupDescribeResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.group_ids]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.CONSUMER_GROUP_DESCRIBE,
    versions=(0, 1),
    build=lambda services: partial(handle, services.consumer_groups),
    error_response=error_response,
    access=group_checks.consumer_group_describe,
)
