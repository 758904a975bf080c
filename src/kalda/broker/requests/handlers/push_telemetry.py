"""PushTelemetry (key 72), version 0: takes the metrics of a client (KIP-714).

Every client may push. What is accepted appears among the broker's metrics.
"""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.handlers.get_telemetry_subscriptions import client_of
from kalda.broker.telemetry.client_metrics_manager import ClientMetricsManager, Push
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


def handle(
    client_metrics: ClientMetricsManager, request: PushTelemetryRequest, context: RequestContext
) -> PushTelemetryResponse:
    """Take the metrics."""
    push = Push(
        request.client_instance_id,
        request.subscription_id,
        request.terminating,
        request.compression_type,
        request.metrics,
    )
    client_metrics.push(push, client_of(context))
    return PushTelemetryResponse()


def error_response(request: PushTelemetryRequest, code: ErrorCode) -> PushTelemetryResponse:
    """Return a response with the error."""
    return PushTelemetryResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.PUSH_TELEMETRY,
    versions=(0, 0),
    build=lambda services: partial(handle, services.client_metrics),
    error_response=error_response,
    access=None,
    is_telemetry=True,
)
