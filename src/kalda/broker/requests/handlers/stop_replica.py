"""StopReplica (key 5), versions 0-4: stop serving partitions, and delete the logs of those marked.

From v3 each partition says whether to delete it, and is fenced by its leader epoch (KIP-570).
"""

from typing import Final

from kalda.broker.control_plane.wire import read_stop_replica, stop_replica_response
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


async def handle(
    services: BrokerServices, request: StopReplicaRequest, context: RequestContext
) -> StopReplicaResponse:
    """Apply the request behind those that came before."""
    partitions: list[TopicPartition] = []
    errors: dict[TopicPartition, ErrorCode] = {}
    for wanted in read_stop_replica(request):
        partitions += wanted.partitions
        errors.update(await services.controller_requests.apply(wanted, request.broker_epoch))
    return stop_replica_response(partitions, errors)


def error_response(request: StopReplicaRequest, code: ErrorCode) -> StopReplicaResponse:
    """Answer with an error for the whole request."""
    return StopReplicaResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.STOP_REPLICA, versions=(0, 4), handle=handle, error_response=error_response
)
