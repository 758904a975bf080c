"""Handles ReadShareGroupState."""

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from kalda.broker.requests.api import Handle, RequestContext
from kalda.broker.requests.checks import check
from kalda.broker.requests.services import BrokerServices
from kalda.broker.requests.share_responses import Shapes, answer_by_partition, refuse_by_partition
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.share.delivery_state import PartitionState
from kalda.coordinator.share.share_coordinator import ShareCoordinator
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.protocol.messages.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from kalda.security.acl.model import AclOperation

_SHAPES: Final = Shapes(ReadShareGroupStateResponse, ReadStateResult, PartitionResult)


def handle(
    coordinator: ShareCoordinator, request: ReadShareGroupStateRequest, context: RequestContext
) -> Pending[ReadShareGroupStateResponse] | Coroutine[Any, Any, ReadShareGroupStateResponse]:
    """Respond when the changes reported in the response are replicated."""

    def operate(key: SharePartitionKey, each: PartitionData) -> Pending[PartitionState]:
        return coordinator.read(key, each.leader_epoch)

    return answer_by_partition(request.group_id, request.topics, operate, _SHAPES, _fields)


def _fields(state: PartitionState) -> dict[str, Any]:
    return {
        "state_epoch": state.state_epoch,
        "start_offset": state.start_offset,
        "state_batches": [
            StateBatch(
                first_offset=each.first,
                last_offset=each.last,
                delivery_state=each.state,
                delivery_count=each.deliveries,
            )
            for each in state.ranges
        ],
    }


def error_response(request: ReadShareGroupStateRequest, code: ErrorCode) -> ReadShareGroupStateResponse:
    """Return a response with the error for each partition."""
    response: ReadShareGroupStateResponse = refuse_by_partition(request.topics, _SHAPES, code)
    return response


def build(services: BrokerServices) -> Handle:
    """Bind the handler to the parts of a broker."""
    return partial(handle, services.share.coordinator)


ACCESS: Final = check.cluster(AclOperation.CLUSTER_ACTION)
