"""ControlledShutdown (key 7), versions 0-3: a broker asks the controller to move its leaderships.

Only the controller serves it. v0 has a request header without a client id. From v2 the broker epoch fences a
request from before the broker's restart. v3 is flexible.
"""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import CLUSTER_ACTION
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.controller.driver import ControllerDriver
from kalda.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


async def handle(
    controller: ControllerDriver, request: ControlledShutdownRequest, context: RequestContext
) -> ControlledShutdownResponse:
    """Move the leaderships; return the partitions that the broker still leads."""
    remaining = await controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=each.topic, partition_index=each.partition) for each in remaining
        ]
    )


def error_response(request: ControlledShutdownRequest, code: ErrorCode) -> ControlledShutdownResponse:
    """Return a response with the error."""
    return ControlledShutdownResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.CONTROLLED_SHUTDOWN,
    versions=(0, 3),
    build=lambda services: partial(handle, services.controller),
    error_response=error_response,
    access=CLUSTER_ACTION,
    is_of_brokers=True,
    is_throttled=False,
)
