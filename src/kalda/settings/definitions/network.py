"""Declares the settings of listeners, connections and requests."""

from typing import Final

from kalda.common.config_def import MissingFeature, UpdateMode, at_least, between, one_of
from kalda.common.settings import HIGH, INT_MAX, LOW, Settings, integer, long, string
from kalda.settings.definitions.validators import RELEASE
from kalda.settings.listeners import ListenerConfig

LISTENER_LIMITS: Final = MissingFeature(
    "limits for single listeners", "only the limit for the whole broker counts"
)


class SocketServerConfig(Settings):
    """Listeners, connections and requests."""

    advertised_listeners = string(
        None,
        "The addresses that clients connect to, where they differ from `listeners`.",
        importance=HIGH,
        update_mode=UpdateMode.PER_BROKER,
    ).computed_as(tuple[ListenerConfig, ...])
    control_plane_listener_name = string(
        None,
        "The listener on which the controller sends its requests to brokers, apart from the traffic of "
        "clients and replication. It must be advertised and differ from `inter.broker.listener.name`. Unset, "
        "these requests use the inter-broker listener.",
        importance=HIGH,
    )
    connections_max_idle_ms = long(600_000, "A connection that carried nothing for this long is closed.")
    fetch_max_bytes = integer(
        57_671_680,
        "The most bytes that one fetch response carries; the first batch is sent however large it is.",
        at_least(1024),
    )
    inter_broker_listener_name = string(None, "The listener that brokers use among themselves.").computed_as(
        str
    )
    kalda_as_version = string(
        None,
        "The release of Apache Kafka as which the listeners answer clients: they offer the requests and "
        "versions of that release and refuse others as it did. Brokers are not restricted among themselves. "
        "`listener.name.<name>.kalda.as.version` sets it for one listener. Kalda's own.",
        RELEASE,
    ).computed_as(dict[str, str])
    kalda_busy_poll_us = integer(
        100,
        "How many microseconds a broker polls its sockets before it sleeps, while requests follow each other "
        "that fast; a sleeping thread takes tens of them to run again. 0 always sleeps, which leaves the "
        "processor to others. Kalda's own.",
        between(0, 10_000),
        importance=LOW,
    )
    listener_security_protocol_map = string(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name. Besides Kafka's there are NATS, NATS_SSL, SASL_NATS "
        "and SASL_NATS_SSL for listeners of NATS's protocol; a listener of such a name needs no entry.",
        importance=LOW,
        update_mode=UpdateMode.PER_BROKER,
    )
    listeners = string(
        "PLAINTEXT://:9092",
        "The addresses to listen on, as `NAME://host:port`; an empty host or `[::]` is every interface of "
        "IPv4 and IPv6, `0.0.0.0` every interface of IPv4. While the broker runs, listeners can be added and "
        "removed, but not be given another address or protocol. Names such as `NATS` are listeners of NATS's "
        "protocol, which stay as they are while the broker runs.",
        importance=HIGH,
        update_mode=UpdateMode.PER_BROKER,
    ).computed_as(tuple[ListenerConfig, ...])
    max_connection_creation_rate = integer(
        INT_MAX,
        "The most new connections a second; further ones wait. Brokers among themselves are not held back if "
        "they have a listener of their own.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    max_connections = integer(
        INT_MAX,
        "The most connections at one time. `listener.name.<name>.max.connections` bounds one listener.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    max_connections_per_ip = integer(
        INT_MAX,
        "The most connections at one time from one address.",
        at_least(0),
        update_mode=UpdateMode.CLUSTER_WIDE,
        requires=LISTENER_LIMITS,
    )
    max_connections_per_ip_overrides = string(
        "",
        "Other bounds for single hosts, as `host:count` separated by commas.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        requires=LISTENER_LIMITS,
    ).computed_as(dict[str, int])
    max_incremental_fetch_session_cache_slots = integer(
        1000, "The most incremental fetch sessions that are kept.", at_least(0)
    )
    max_request_partition_size_limit = integer(
        2000, "The most partitions in one answer to DescribeTopicPartitions.", at_least(1)
    )
    request_timeout_ms = integer(
        30000, "How long a broker waits for the answer to its own requests.", importance=HIGH
    )
    socket_connection_setup_timeout_max_ms = long(
        30_000,
        "How long an attempt to connect to another broker may take at most; the time doubles with each "
        "failure up to this.",
        at_least(1),
    )
    socket_connection_setup_timeout_ms = long(
        10_000,
        "How long the first attempt to connect to another broker may take, with TLS and login.",
        at_least(1),
    )
    socket_listen_backlog_size = integer(50, "Connections that may queue to be accepted.", at_least(1))
    socket_receive_buffer_bytes = integer(
        102_400, "Receive buffer of accepted sockets; -1 is the system's default.", importance=HIGH
    )
    socket_request_max_bytes = integer(
        104_857_600,
        "The largest request; a connection that announces more is closed.",
        at_least(1),
        importance=HIGH,
    )
    socket_send_buffer_bytes = integer(
        102_400, "Send buffer of accepted sockets; -1 is the system's default.", importance=HIGH
    )
    security_inter_broker_protocol = string(
        "PLAINTEXT",
        "Security protocol among brokers, where `inter.broker.listener.name` is not set.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
