"""Declares the settings of the broker as a whole and of its connection to ZooKeeper."""

from kalda.common.config_def import UpdateMode, at_least, between
from kalda.common.settings import HIGH, Settings, boolean, integer, password, string


class ServerConfig(Settings):
    """The broker's identity, its topics and its metrics endpoint."""

    auto_create_topics_enable = boolean(
        True, "Whether a Metadata request for an unknown topic creates the topic.", importance=HIGH
    )
    broker_id = integer(
        -1,
        "The number of this broker, unique in the cluster; -1 lets the cluster choose where that is enabled.",
        importance=HIGH,
    )
    broker_id_generation_enable = boolean(
        True, "Whether the cluster assigns an id to a broker without `broker.id`."
    )
    broker_rack = string(
        None, "The rack or zone of this broker; replicas of a partition are spread over racks."
    )
    delete_topic_enable = boolean(True, "Whether topics can be deleted at all.", importance=HIGH)
    reserved_broker_max_id = integer(
        1000, "The largest id an operator may choose; generated ids begin above it.", at_least(0)
    )
    kalda_controller_eligible = boolean(
        True,
        "Whether this broker may be elected controller. Where it is not set, it is false while a broker of "
        "Apache Kafka is registered. Without any eligible broker all are. Kalda's own.",
        update_mode=UpdateMode.CLUSTER_WIDE,
    )
    metrics_port = integer(
        None,
        "The port where Prometheus reads metrics over HTTP; nothing listens where not set. Kalda's own.",
        between(0, 65535),
    )
    metrics_host = string(
        None,
        "The address on which `metrics.port` listens; that of the first listener where not set. Kalda's own.",
    )
    metrics_login = password(
        None,
        "NAME:PASSWORD that a client of `/metrics` must send (HTTP's basic authentication); everybody who "
        "reaches the port reads the names of topics, groups and clients where not set. Kalda's own.",
    )
    node_id = integer(-1, "The number of a KRaft node; the same as `broker.id` here.", importance=HIGH)


class FaultConfig(Settings):
    """Faults and namespaces of a broker for tests. All of them are Kalda's own."""

    kalda_faults_api_enable = boolean(
        False,
        "Whether `kalda faults` may replace the plan of faults while the broker runs; it needs Alter on the "
        "cluster where there are ACLs. Kalda's own.",
    )
    kalda_faults_file = string(
        None, "A plan of faults in YAML, which is in force from the start; for tests. Kalda's own."
    )
    kalda_namespaces_api_enable = boolean(
        False,
        "Whether a test may open namespaces while the broker runs (`ProcessCluster.namespace`); it needs "
        "Alter on the cluster where there are ACLs. Kalda's own.",
    )


class ReadLeaseConfig(Settings):
    """Leases on segment files for clients that read them in place. All of them are Kalda's own."""

    kalda_read_lease_enable = boolean(
        True,
        "Whether clients that see a partition's files may read them in place under a lease. Kalda's own.",
    )
    kalda_read_lease_max = integer(
        10_000, "Read leases that may hold at the same time; more readers fetch. Kalda's own.", at_least(0)
    )
    kalda_read_lease_ms = integer(
        60_000,
        "How long a read lease holds without a renewal: deletion and compaction wait so long for a reader "
        "that died. Kalda's own.",
        at_least(1000),
    )
    kalda_read_lease_lifetime_ms = integer(
        3_600_000,
        "How long a reader can keep a lease by renewals; it bounds the wait of deletion and compaction. "
        "Kalda's own.",
        at_least(1000),
    )


class EventConfig(Settings):
    """The events that a broker keeps for `kalda why`. All of them are Kalda's own."""

    kalda_events_bytes = integer(
        4 * 1024 * 1024,
        "The size of the files in which a broker keeps its newest events, for `kalda why`; 0 keeps none. "
        "They are in its first log directory. Kalda's own.",
        between(0, 1024 * 1024 * 1024),
    )


class ZooKeeperConfig(Settings):
    """The connection to ZooKeeper."""

    zookeeper_connect = string(
        None, "ZooKeeper's hosts as `host:port[,host:port…][/chroot]`.", importance=HIGH
    )
    zookeeper_connection_timeout_ms = integer(
        None,
        "How long the first connection to ZooKeeper may take; the session timeout where not set.",
        importance=HIGH,
    )
    zookeeper_max_in_flight_requests = integer(
        10, "Unanswered requests to ZooKeeper at which sending pauses.", at_least(1), importance=HIGH
    )
    zookeeper_session_timeout_ms = integer(
        18000,
        "Time without a heartbeat after which ZooKeeper ends a broker's session: the broker is dead.",
        importance=HIGH,
    )
