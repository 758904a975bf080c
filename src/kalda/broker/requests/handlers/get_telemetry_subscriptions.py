"""GetTelemetrySubscriptions (key 71), version 0: the metrics that a client shall push (KIP-714).

Every client may ask. Apache Kafka serves this in KRaft mode only, and only with a plugin for the metrics.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.telemetry.client_instance import attributes_of
from kalda.broker.telemetry.client_metrics_manager import ACCEPTED_COMPRESSION, ClientMetricsManager
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID
from kalda.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


def handle(
    manager: ClientMetricsManager, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """Return the subscription of a client; one that comes without an id gets one."""
    client_instance_id, instance = manager.subscription(request.client_instance_id, client_of(context))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client_instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(each) for each in ACCEPTED_COMPRESSION],
        push_interval_ms=instance.push_interval_ms,
        telemetry_max_bytes=manager.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )


def client_of(context: RequestContext) -> Callable[[UUID], Mapping[str, str]]:
    """Return a function that gives the attributes of the client, which subscriptions match."""
    connection = context.connection
    return lambda client_instance_id: attributes_of(
        client_instance_id,
        context.client_id,
        connection.software,
        connection.peer_address,
        connection.peer.rpartition(":")[2],
    )


def error_response(
    request: GetTelemetrySubscriptionsRequest, code: ErrorCode
) -> GetTelemetrySubscriptionsResponse:
    """Return a response with the error."""
    return GetTelemetrySubscriptionsResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    versions=(0, 0),
    build=lambda services: partial(handle, services.client_metrics),
    error_response=error_response,
    access=None,
    is_telemetry=True,
)
