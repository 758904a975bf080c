"""Handles RouteNats (key 20040), version 0: messages and subscriptions of NATS clients of another broker.

Only brokers with listeners of NATS serve it, on the inter-broker listener. It needs CLUSTER_ACTION, as the
requests of controllers and followers do.
"""

from functools import partial
from typing import Protocol

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import CLUSTER_ACTION
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps, first_turn
from kalda.protocol.messages.route_nats import RouteNatsRequest, RouteNatsResponse


class RouteReceiver(Protocol):
    """Takes what other brokers send."""

    def receive(self, request: RouteNatsRequest) -> Steps[bool]:
        """Take a request in steps; the result is False if its session is not known."""
        ...


def handle(
    receiver: RouteReceiver, listener: str, request: RouteNatsRequest, context: RequestContext
) -> RouteNatsResponse | Steps[RouteNatsResponse]:
    """Take the interest and deliver the messages."""
    if context.listener != listener:
        return error_response(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return first_turn(_take(receiver, request))


def _take(receiver: RouteReceiver, request: RouteNatsRequest) -> Steps[RouteNatsResponse]:
    is_known = yield from receiver.receive(request)
    return RouteNatsResponse(error_code=ErrorCode.NONE if is_known else ErrorCode.INVALID_FETCH_SESSION_EPOCH)


def error_response(request: RouteNatsRequest, code: ErrorCode) -> RouteNatsResponse:
    """Return a response with the error."""
    return RouteNatsResponse(error_code=code)


def route_handler(receiver: RouteReceiver, listener: str) -> ApiHandler:
    """Return the handler, which is not among those that every broker has."""
    return ApiHandler(
        key=ApiKey.ROUTE_NATS,
        versions=(0, 0),
        build=lambda services: partial(handle, receiver, listener),
        error_response=error_response,
        access=CLUSTER_ACTION,
        is_of_brokers=True,
        is_throttled=False,
    )
