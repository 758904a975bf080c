"""PushTelemetry (key 72): a client's metrics, as OpenTelemetry's ``MetricsData`` (KIP-714).

Flexible from the start; there is one version.
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import BOOL, BYTES, INT8, INT16, INT32, UUID_KIND, Message, wire


class PushTelemetryRequest(Message, api_key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+"):
    """The metrics of one interval; `terminating` for the last ones before the client closes."""

    client_instance_id: UUID = wire(UUID_KIND, "0+")
    subscription_id: int = wire(INT32, "0+")
    terminating: bool = wire(BOOL, "0+")
    compression_type: int = wire(INT8, "0+")
    metrics: bytes = wire(BYTES, "0+")


class PushTelemetryResponse(Message, api_key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+"):
    """Whether the broker took them."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
