"""Handles WriteShareGroupState."""

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from kalda.broker.requests.api import Handle, RequestContext
from kalda.broker.requests.checks import check
from kalda.broker.requests.services import BrokerServices
from kalda.broker.requests.share_responses import Shapes, answer_by_partition, refuse_by_partition
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.share.delivery_state import StateRange
from kalda.coordinator.share.share_coordinator import ShareCoordinator
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.coordinator.share.share_shard import StateChange
from kalda.protocol.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from kalda.security.acl.model import AclOperation

_SHAPES: Final = Shapes(WriteShareGroupStateResponse, WriteStateResult, PartitionResult)


def handle(
    coordinator: ShareCoordinator, request: WriteShareGroupStateRequest, context: RequestContext
) -> Pending[WriteShareGroupStateResponse] | Coroutine[Any, Any, WriteShareGroupStateResponse]:
    """Respond when the changes reported in the response are replicated."""

    def operate(key: SharePartitionKey, each: PartitionData) -> Pending[None]:
        return coordinator.write(key, _change(each))

    return answer_by_partition(request.group_id, request.topics, operate, _SHAPES, _fields)


def _change(each: PartitionData) -> StateChange:
    return StateChange(
        each.state_epoch,
        each.leader_epoch,
        each.start_offset,
        each.delivery_complete_count,
        tuple(
            StateRange(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in each.state_batches
        ),
    )


def _fields(_: None) -> dict[str, Any]:
    return {}


def error_response(request: WriteShareGroupStateRequest, code: ErrorCode) -> WriteShareGroupStateResponse:
    """Return a response with the error for each partition."""
    response: WriteShareGroupStateResponse = refuse_by_partition(request.topics, _SHAPES, code)
    return response


def build(services: BrokerServices) -> Handle:
    """Bind the handler to the parts of a broker."""
    return partial(handle, services.share.coordinator)


ACCESS: Final = check.cluster(AclOperation.CLUSTER_ACTION)
