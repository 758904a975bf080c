"""GetTelemetrySubscriptions (key 71): the metrics that a client shall push, how often and how (KIP-714).

Flexible from the start; there is one version.
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import BOOL, INT8, INT16, INT32, STRING, UUID_KIND, Message, array, wire


class GetTelemetrySubscriptionsRequest(
    Message, api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+"
):
    """Asks for the subscriptions; the id is 0 until a broker has assigned one."""

    client_instance_id: UUID = wire(UUID_KIND, "0+")


class GetTelemetrySubscriptionsResponse(
    Message, api_key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+"
):
    """The subscriptions.

    `accepted_compression_types` are codecs by number, the broker's favourite first. `requested_metrics` are
    prefixes of names; none for no metrics, a single empty one or ``*`` for all.
    """

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    client_instance_id: UUID = wire(UUID_KIND, "0+")
    subscription_id: int = wire(INT32, "0+")
    accepted_compression_types: list[int] = wire(array(INT8), "0+")
    push_interval_ms: int = wire(INT32, "0+")
    telemetry_max_bytes: int = wire(INT32, "0+")
    delta_temporality: bool = wire(BOOL, "0+")
    requested_metrics: list[str] = wire(array(STRING), "0+")
