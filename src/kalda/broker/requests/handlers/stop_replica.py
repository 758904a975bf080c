"""StopReplica (key 5), versions 0-4: stops serving partitions and deletes their logs on demand.

The controller sends it. From v3 each partition has its own delete flag and is fenced by its leader epoch
(KIP-570).
"""

from functools import partial
from typing import Final

from kalda.broker.control_plane.request_builders import read_stop_replica, stop_replica_response
from kalda.broker.control_plane.requests import ControllerRequests
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import CLUSTER_ACTION
from kalda.broker.requests.large_requests import CONTROLLER_ELEMENTS_MAX
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.turns import Turns
from kalda.common.types import TopicPartition
from kalda.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


async def handle(
    controller_requests: ControllerRequests, request: StopReplicaRequest, context: RequestContext
) -> StopReplicaResponse:
    """Apply the request after those that arrived before it."""
    partitions: list[TopicPartition] = []
    errors: dict[TopicPartition, ErrorCode] = {}
    turns = Turns.of_brokers()
    for wanted in await turns.result(read_stop_replica(request)):
        partitions += wanted.partitions
        errors.update(await controller_requests.apply(wanted, request.broker_epoch))
    return await turns.result(stop_replica_response(partitions, errors))


def error_response(request: StopReplicaRequest, code: ErrorCode) -> StopReplicaResponse:
    """Return a response with the error for the whole request."""
    return StopReplicaResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.STOP_REPLICA,
    versions=(0, 4),
    build=lambda services: partial(handle, services.controller_requests),
    error_response=error_response,
    elements_max=CONTROLLER_ELEMENTS_MAX,
    access=CLUSTER_ACTION,
    is_of_brokers=True,
    is_throttled=False,
    is_served_early=True,
)
