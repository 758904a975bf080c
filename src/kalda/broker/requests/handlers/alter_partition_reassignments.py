"""AlterPartitionReassignments (key 45), versions 0-1: starts or cancels reassignments (KIP-455).

Only the controller serves it. The response confirms that the reassignments have started;
ListPartitionReassignments returns those in progress. v1 can refuse to change replication factors (KIP-860).
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import ALTER_CLUSTER
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import between
from kalda.common.types import TopicPartition, by_topic
from kalda.controller.driver import ControllerDriver
from kalda.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(
    controller: ControllerDriver, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse | Coroutine[None, None, AlterPartitionReassignmentsResponse]:
    """Return NOT_CONTROLLER if this broker is not the controller; else start the reassignments."""
    if not controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    return _alter(controller, request)


def error_response(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    """Return a response with the error for the whole request."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=code.message,
    )


async def _alter(
    controller: ControllerDriver, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    targets = {
        TopicPartition(topic.name, each.partition_index): (
            None if each.replicas is None else tuple(each.replicas)
        )
        for topic in request.topics
        for each in topic.partitions
    }
    try:
        # A client without a time-out does not wait for long, but the response must follow the start.
        async with asyncio.timeout(request.timeout_ms / 1000 if request.timeout_ms > 0 else None):
            outcomes = await controller.alter_reassignments(
                targets, may_change_factor=request.allow_replication_factor_change
            )
    except TimeoutError:
        return error_response(request, ErrorCode.REQUEST_TIMED_OUT)
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
    )
    count = 0
    for topic, partitions in by_topic(targets).items():
        result = ReassignableTopicResponse(name=topic)
        response.responses.append(result)
        for each in partitions:
            await between(count)
            count += 1
            result.partitions.append(_result(each, outcomes.get(each)))
    return response


def _result(partition: TopicPartition, error: ApiError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=partition.partition,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    versions=(0, 1),
    build=lambda services: partial(handle, services.controller),
    error_response=error_response,
    access=ALTER_CLUSTER,
    audit=lambda request: (topic.name for topic in request.topics),
)
