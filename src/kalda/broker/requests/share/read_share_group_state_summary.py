"""Handles ReadShareGroupStateSummary."""

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from kalda.broker.requests.api import Handle, RequestContext
from kalda.broker.requests.checks import check
from kalda.broker.requests.services import BrokerServices
from kalda.broker.requests.share_responses import Shapes, answer_by_partition, refuse_by_partition
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.share.delivery_state import START_UNKNOWN, PartitionState
from kalda.coordinator.share.share_coordinator import ShareCoordinator
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from kalda.security.acl.model import AclOperation

_SHAPES: Final = Shapes(ReadShareGroupStateSummaryResponse, ReadStateSummaryResult, PartitionResult)


def handle(
    coordinator: ShareCoordinator, request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> Pending[ReadShareGroupStateSummaryResponse] | Coroutine[Any, Any, ReadShareGroupStateSummaryResponse]:
    """Respond when the changes reported in the response are replicated."""

    def operate(key: SharePartitionKey, each: PartitionData) -> Pending[PartitionState | None]:
        return coordinator.summary(key)

    return answer_by_partition(request.group_id, request.topics, operate, _SHAPES, _fields)


def _fields(state: PartitionState | None) -> dict[str, Any]:
    if state is None:
        return {"state_epoch": -1, "leader_epoch": -1, "start_offset": START_UNKNOWN}
    return {
        "state_epoch": state.state_epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": state.start_offset,
        "delivery_complete_count": state.complete_count,
    }


def error_response(
    request: ReadShareGroupStateSummaryRequest, code: ErrorCode
) -> ReadShareGroupStateSummaryResponse:
    """Return a response with the error for each partition."""
    response: ReadShareGroupStateSummaryResponse = refuse_by_partition(request.topics, _SHAPES, code)
    return response


def build(services: BrokerServices) -> Handle:
    """Bind the handler to the parts of a broker."""
    return partial(handle, services.share.coordinator)


ACCESS: Final = check.cluster(AclOperation.CLUSTER_ACTION)
