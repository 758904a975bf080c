"""LeaderAndIsr (key 4), versions 0-7: makes this broker leader or follower of partitions.

The controller sends it. The versions differ in layout only. Topic ids (v5, KIP-516) are checked if present.
The leader recovery state (v6) is ignored, because nothing here depends on it. `live_leaders` are ignored; the
metadata cache has them.
"""

from functools import partial
from typing import Final

from kalda.broker.control_plane.request_builders import leader_and_isr_response, read_leader_and_isr
from kalda.broker.control_plane.requests import ControllerRequests
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import CLUSTER_ACTION
from kalda.broker.requests.large_requests import CONTROLLER_ELEMENTS_MAX
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.turns import Turns
from kalda.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


async def handle(
    controller_requests: ControllerRequests, request: LeaderAndIsrRequest, context: RequestContext
) -> LeaderAndIsrResponse:
    """Apply the request after those that arrived before it."""
    turns = Turns.of_brokers()
    wanted = await turns.result(read_leader_and_isr(request))
    errors = await controller_requests.apply(wanted, request.broker_epoch)
    return await turns.result(leader_and_isr_response(wanted, errors, context.api_version))


def error_response(request: LeaderAndIsrRequest, code: ErrorCode) -> LeaderAndIsrResponse:
    """Return a response with the error for the whole request."""
    return LeaderAndIsrResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.LEADER_AND_ISR,
    versions=(0, 7),
    build=lambda services: partial(handle, services.controller_requests),
    error_response=error_response,
    elements_max=CONTROLLER_ELEMENTS_MAX,
    access=CLUSTER_ACTION,
    is_of_brokers=True,
    is_throttled=False,
    is_served_early=True,
)
