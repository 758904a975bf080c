"""Handles ShareGroupDescribe."""

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from kalda.broker.requests.api import Handle, RequestContext
from kalda.broker.requests.authorized_operations import set_group_operations
from kalda.broker.requests.checks import share_groups as share_checks
from kalda.broker.requests.request_slices import answer_in_slices
from kalda.broker.requests.services import BrokerServices
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.share.share_group_coordinator import ShareGroupCoordinator
from kalda.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


def handle(
    coordinator: ShareGroupCoordinator, request: ShareGroupDescribeRequest, context: RequestContext
) -> Pending[ShareGroupDescribeResponse] | Coroutine[Any, Any, ShareGroupDescribeResponse]:
    """Answer when everything in the response is committed."""

    def respond(groups: list[DescribedGroup]) -> ShareGroupDescribeResponse:
        if request.include_authorized_operations:
            set_group_operations(groups)
        return ShareGroupDescribeResponse(groups=groups)

    return answer_in_slices(request.group_ids, coordinator.describe, respond)


def error_response(request: ShareGroupDescribeRequest, code: ErrorCode) -> ShareGroupDescribeResponse:
    """Return a response with the error for each group."""
    return ShareGroupDescribeResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.group_ids]
    )


def build(services: BrokerServices) -> Handle:
    """Bind the handler to the parts of a broker."""
    return partial(handle, services.share.groups)


ACCESS: Final = share_checks.share_group_describe
