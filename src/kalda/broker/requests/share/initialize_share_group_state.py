"""Handles InitializeShareGroupState."""

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from kalda.broker.requests.api import Handle, RequestContext
from kalda.broker.requests.checks import check
from kalda.broker.requests.services import BrokerServices
from kalda.broker.requests.share_responses import Shapes, answer_by_partition, refuse_by_partition
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.share.share_coordinator import ShareCoordinator
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionData,
    PartitionResult,
)
from kalda.security.acl.model import AclOperation

_SHAPES: Final = Shapes(InitializeShareGroupStateResponse, InitializeStateResult, PartitionResult)


def handle(
    coordinator: ShareCoordinator, request: InitializeShareGroupStateRequest, context: RequestContext
) -> Pending[InitializeShareGroupStateResponse] | Coroutine[Any, Any, InitializeShareGroupStateResponse]:
    """Respond when the changes reported in the response are replicated."""

    def operate(key: SharePartitionKey, each: PartitionData) -> Pending[None]:
        return coordinator.initialize(key, each.state_epoch, each.start_offset)

    return answer_by_partition(request.group_id, request.topics, operate, _SHAPES, _fields)


def _fields(_: None) -> dict[str, Any]:
    return {}


def error_response(
    request: InitializeShareGroupStateRequest, code: ErrorCode
) -> InitializeShareGroupStateResponse:
    """Return a response with the error for each partition."""
    response: InitializeShareGroupStateResponse = refuse_by_partition(request.topics, _SHAPES, code)
    return response


def build(services: BrokerServices) -> Handle:
    """Bind the handler to the parts of a broker."""
    return partial(handle, services.share.coordinator)


ACCESS: Final = check.cluster(AclOperation.CLUSTER_ACTION)
