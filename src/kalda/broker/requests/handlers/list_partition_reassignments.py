"""ListPartitionReassignments (key 46), version 0: returns the reassignments in progress (KIP-455).

Only the controller serves it. A requested partition without a reassignment is left out.
"""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import DESCRIBE_CLUSTER
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps, first_turn
from kalda.common.types import TopicPartition, by_topic
from kalda.controller.driver import ControllerDriver
from kalda.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    controller: ControllerDriver, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse | Steps[ListPartitionReassignmentsResponse]:
    """Return the reassignments in the controller's memory; NOT_CONTROLLER on another broker."""
    return first_turn(_list(controller, request))


def _list(
    controller: ControllerDriver, request: ListPartitionReassignmentsRequest
) -> Steps[ListPartitionReassignmentsResponse]:
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = set()
        for topic in request.topics:
            for index in topic.partition_indexes:
                wanted.add(TopicPartition(topic.name, index))
                yield
    moves = controller.list_reassignments(wanted)
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            OngoingTopicReassignment(
                name=topic,
                partitions=[
                    OngoingPartitionReassignment(
                        partition_index=each.partition,
                        replicas=list(moves[each].replicas),
                        adding_replicas=list(moves[each].adding),
                        removing_replicas=list(moves[each].removing),
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in by_topic(moves).items()
        ],
    )


def error_response(
    request: ListPartitionReassignmentsRequest, code: ErrorCode
) -> ListPartitionReassignmentsResponse:
    """Return a response with the error for the whole request."""
    return ListPartitionReassignmentsResponse(error_code=code, error_message=code.message)


HANDLER: Final = ApiHandler(
    key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
    versions=(0, 0),
    build=lambda services: partial(handle, services.controller),
    error_response=error_response,
    access=DESCRIBE_CLUSTER,
)
