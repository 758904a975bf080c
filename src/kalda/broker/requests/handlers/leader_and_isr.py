"""LeaderAndIsr (key 4), versions 0-7: lead or follow the partitions that the controller names.

The versions differ in form only; topic ids (v5, KIP-516) are checked where given. The leader recovery state
(v6) is read past, since nothing depends on it. `live_leaders` are not used: the metadata cache knows.
"""

from typing import Final

from kalda.broker.control_plane.wire import leader_and_isr_response, read_leader_and_isr
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


async def handle(
    services: BrokerServices, request: LeaderAndIsrRequest, context: RequestContext
) -> LeaderAndIsrResponse:
    """Apply the request behind those that came before."""
    wanted = read_leader_and_isr(request)
    errors = await services.controller_requests.apply(wanted, request.broker_epoch)
    return leader_and_isr_response(wanted, errors, context.api_version)


def error_response(request: LeaderAndIsrRequest, code: ErrorCode) -> LeaderAndIsrResponse:
    """Answer with an error for the whole request."""
    return LeaderAndIsrResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.LEADER_AND_ISR, versions=(0, 7), handle=handle, error_response=error_response
)
