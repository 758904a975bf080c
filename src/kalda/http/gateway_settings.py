"""Declares the settings of the gateway."""

from ipaddress import ip_network

from kalda.common.config_def import Validator, at_least, between
from kalda.common.settings import LOW, Settings, integer, long, string, string_list


def _are_networks(value: object) -> bool:
    try:
        for text in value if isinstance(value, tuple) else (value,):
            ip_network(str(text).strip())
    except ValueError:
        return False
    return True


class GatewaySettings(Settings):
    """The settings of the gateway, all under ``http.``."""

    http_stream_readers_max = integer(
        10_000, "Streams at once; one more gets the status 503.", at_least(1), importance=LOW
    )
    http_stream_consumers_max = integer(
        64,
        "How many readers of streams may fetch by themselves at once, because they are far from the end of "
        "the topic; others wait for their turn.",
        at_least(1),
        importance=LOW,
    )
    http_stream_heartbeat_ms = long(
        15_000, "How often a stream without events gets a sign of life.", at_least(100)
    )
    http_stream_stall_ms = long(
        60_000, "After how long a reader that takes nothing is cut off.", at_least(1_000)
    )
    http_stream_recent_records = integer(
        5_000, "How many of the latest records of a topic are kept for readers near its end.", at_least(1)
    )
    http_stream_recent_bytes = integer(
        8 * 1024 * 1024, "How many bytes of the latest records of a topic are kept.", at_least(1024)
    )
    http_idempotency_topic = string("_kalda_http_keys", "The topic of the idempotency keys.")
    http_idempotency_partitions = integer(
        16, "The partitions of that topic when it is created; each is owned by one process.", between(1, 1024)
    )
    http_idempotency_replication_factor = integer(
        3, "The replicas of that topic when it is created; no more than there are brokers.", at_least(1)
    )
    http_idempotency_ttl_ms = long(24 * 3600 * 1000, "How long an idempotency key is known.", at_least(1_000))
    http_idempotency_bytes_max = integer(
        128 * 1024 * 1024,
        "The memory for known keys; without room, requests with further keys get the status 503.",
        at_least(1024),
    )
    http_consumers_max = integer(
        1_000,
        "Consumers of groups at once; each has connections of its own to the cluster.",
        at_least(1),
        importance=LOW,
    )
    http_webhooks_topic = string("_kalda_http_webhooks", "The compacted topic of the webhooks.")
    http_webhooks_replication_factor = integer(
        3, "The replicas of that topic when it is created; no more than there are brokers.", at_least(1)
    )
    http_webhooks_requests_max = integer(
        32, "Requests of webhooks at once; others wait.", between(1, 10_000), importance=LOW
    )
    http_webhooks_allow = string_list(
        (),
        "Networks such as 10.1.0.0/16 to which webhooks may be sent although they are not public. Loopback, "
        "link-local and private addresses are refused without it.",
        Validator("a list of networks such as 10.1.0.0/16", _are_networks),
    )
    http_gateway_rules = string(
        None, "A file of rules for requests to the gateway: other topics, rate limits and faults."
    )
    http_cors_origins = string_list(
        (),
        "The origins whose pages may use the gateway from a browser, such as https://app.example.com; * is "
        "any, without credentials.",
    )
