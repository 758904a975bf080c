"""Declares the settings of the old producer: the names and defaults of 0.8.2, and the names of 0.7.

`request.required.acks` is 0 by default, as in 0.8. A program of that time that wants to know whether brokers
have its messages sets it.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.errors import ClientConfigError
from kalda.clients.legacy.legacy_config import LegacyConfig
from kalda.common.config_def import NON_EMPTY, at_least, between, one_of
from kalda.common.public import public_in
from kalda.common.settings import HIGH, INT_MAX, LOW, integer, string, string_list
from kalda.net.client.bootstrap_servers import parse_bootstrap_servers
from kalda.records.compression import Compression

_CODECS: Final = ("none", "gzip", "snappy", "lz4")
"""The names of codecs; the index is the number that 0.7 takes in place of the name."""

_SOCKET_TIMEOUT_MS: Final = 30_000
"""Kafka 0.7's default of `socket.timeout.ms`."""


@public_in("kalda.clients.legacy")
class ProducerConfig(LegacyConfig):
    """The settings of a `Producer`."""

    RENAMED: ClassVar[Mapping[str, str]] = {
        "queue.time": "queue.buffering.max.ms",
        "queue.size": "queue.buffering.max.messages",
        "queue.enqueueTimeout.ms": "queue.enqueue.timeout.ms",
        "batch.size": "batch.num.messages",
        "num.retries": "message.send.max.retries",
        "buffer.size": "send.buffer.bytes",
    }
    OBJECTS: ClassVar[frozenset[str]] = frozenset(
        {
            "serializer.class",
            "key.serializer.class",
            "partitioner.class",
            "event.handler",
            "event.handler.props",
            "callback.handler",
            "callback.handler.props",
        }
    )

    zk_connect = string(
        None, "ZooKeeper servers, host:port with commas and a chroot, that know the brokers.", importance=HIGH
    )
    broker_list = string_list(
        (), "Brokers of 0.7, id:host:port, instead of `zk.connect`: keys do not choose.", importance=HIGH
    )
    metadata_broker_list = string_list(
        (), "Brokers of 0.8, host:port, that the producer asks for the others.", importance=HIGH
    )
    client_id = string("", "The name of this client in the broker's logs, metrics and quotas.")
    serializer_class = string(
        "kafka.serializer.DefaultEncoder", "The encoder of messages.", NON_EMPTY, importance=HIGH
    )
    key_serializer_class = string(None, "The encoder of keys; that of messages unless it is set.", NON_EMPTY)
    serializer_encoding = string("UTF8", "The encoding of texts that StringEncoder writes.", NON_EMPTY)
    partitioner_class = string("kafka.producer.DefaultPartitioner", "The partitioner.", NON_EMPTY)
    producer_type = string(
        "sync", "Whether `send` waits until messages are sent.", one_of("sync", "async"), importance=HIGH
    )
    compression_codec = string("none", "The codec, by name or number.", one_of(*_CODECS, "0", "1", "2", "3"))
    compressed_topics = string_list((), "The topics whose messages are compressed; empty for all.")
    queue_buffering_max_ms = integer(5_000, "How long an event may wait for a batch.", at_least(0))
    queue_buffering_max_messages = integer(10_000, "How many events may wait in the queue.", at_least(1))
    queue_enqueue_timeout_ms = integer(
        -1,
        "How long `send` waits while the queue is full: 0 not at all, a negative number without end. Then it "
        "fails.",
    )
    batch_num_messages = integer(200, "The events of a batch.", at_least(1))
    event_handler = string(None, "The `EventHandler` that sends batches.", NON_EMPTY)
    event_handler_props = string(None, "What its `init` gets: name=value with commas, or a dict.")
    callback_handler = string(None, "The `CallbackHandler` that sees events.", NON_EMPTY)
    callback_handler_props = string(None, "What its `init` gets: name=value with commas, or a dict.")
    request_required_acks = integer(
        0,
        "Which acknowledgement ends a request: 0 none, 1 the leader's, -1 that of all in-sync replicas.",
        between(-1, 1),
        importance=HIGH,
    )
    request_timeout_ms = integer(
        10_000, "How long a broker may wait for the in-sync replicas.", between(1, INT_MAX)
    )
    message_send_max_retries = integer(3, "How often messages that failed are sent again.", at_least(0))
    retry_backoff_ms = integer(
        100, "The wait before leaders are looked up and messages sent again.", at_least(0)
    )
    zk_read_num_retries = integer(
        3, "How often ZooKeeper is read again for a partition whose broker is not there.", at_least(0)
    )
    topic_metadata_refresh_interval_ms = integer(
        600_000,
        "After how long leaders are looked up again without a failure; 0 after each message, a negative "
        "number never.",
    )
    max_message_size = integer(1_000_000, "The most bytes of a message's payload.", at_least(0))
    send_buffer_bytes = integer(102_400, "The size of the socket's send buffer.", at_least(-1))
    connect_timeout_ms = integer(5_000, "How long an attempt to connect may take.", at_least(1))
    socket_timeout_ms = integer(
        None, f"How long to wait for a response; {_SOCKET_TIMEOUT_MS} unless set.", at_least(1)
    )
    reconnect_interval = integer(
        30_000, "After how many requests a connection is replaced, behind a load balancer.", at_least(1)
    )
    reconnect_time_interval_ms = integer(
        10_000_000, "After how long a connection is replaced; a negative number never.", importance=LOW
    )
    zk_sessiontimeout_ms = integer(6_000, "The time-out of the ZooKeeper session.", at_least(1))
    zk_connectiontimeout_ms = integer(
        None, "How long to wait for ZooKeeper; `zk.sessiontimeout.ms` unless set.", at_least(1)
    )
    zk_synctime_ms = integer(
        2_000,
        "How far a ZooKeeper follower may be behind.",
        at_least(0),
        importance=LOW,
        without_effect="a wait for followers: the producer's session reads what it is notified of",
    )

    def check_rules(self) -> None:
        """Check that there is one source of brokers, and that a batch fits into the queue.

        Raises:
            ClientConfigError: as `LegacyConfig.check_rules`.
        """
        sources = ("zk.connect", "broker.list", "metadata.broker.list")
        given = [name for name in sources if getattr(self, name.replace(".", "_"))]
        if len(given) != 1:
            found = " and ".join(f"`{name}`" for name in given) or "none"
            raise ClientConfigError(f"brokers: {found} is given; give one of {', '.join(sources)}")
        if self.broker_list and self.given("partitioner.class") is not None:
            raise ClientConfigError(
                "`partitioner.class` has no effect with `broker.list`, where partitions are random"
            )
        if self.batch_num_messages > self.queue_buffering_max_messages:
            raise ClientConfigError(
                f"`batch.num.messages`={self.batch_num_messages} does not fit into "
                f"`queue.buffering.max.messages`={self.queue_buffering_max_messages}"
            )
        if not self.zk_connect:
            parse_bootstrap_servers(",".join(self.bootstrap_servers))

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        """The brokers of `metadata.broker.list` or `broker.list` as host:port.

        Raises:
            ClientConfigError: an element of `broker.list` is not id:host:port.
        """
        if not self.broker_list:
            return self.metadata_broker_list
        for each in self.broker_list:
            broker_id, _, address = each.partition(":")
            if not broker_id.isdecimal() or ":" not in address:
                raise ClientConfigError(f"`broker.list`: {each} is not id:host:port")
        return tuple(each.partition(":")[2] for each in self.broker_list)

    @property
    def is_sync(self) -> bool:
        """Whether `send` waits for the brokers."""
        return self.producer_type == "sync"

    @property
    def response_timeout_ms(self) -> int:
        """How long to wait for a response of a broker."""
        if self.socket_timeout_ms is not None:
            return self.socket_timeout_ms
        return max(_SOCKET_TIMEOUT_MS, self.request_timeout_ms)

    def codec(self, topic: str) -> Compression:
        """Return the codec of a topic's messages."""
        if self.compressed_topics and topic not in self.compressed_topics:
            return Compression.NONE
        name = self.compression_codec
        return Compression(int(name)) if name.isdecimal() else Compression[name.upper()]

    def handler_properties(self, name: str) -> Mapping[str, str]:
        """Return the value of `event.handler.props` or `callback.handler.props`.

        Raises:
            ClientConfigError: it is neither a mapping nor name=value with commas.
        """
        given = self.given(name)
        if given is None or given == "":
            return {}
        if isinstance(given, Mapping):
            return {str(key): str(value) for key, value in given.items()}
        pairs = [each.partition("=") for each in str(given).split(",")]
        if not all(separator and key.strip() for key, separator, _ in pairs):
            raise ClientConfigError(f"`{name}`={given} is not allowed: it takes name=value with commas")
        return {key.strip(): value.strip() for key, _, value in pairs}

    def connections(self) -> CommonClientConfig:
        """Return the settings of connections, as the core of all clients takes them."""
        return CommonClientConfig.from_properties(
            {
                # With ZooKeeper, brokers are known by their registrations only.
                "bootstrap.servers": self.bootstrap_servers or ("zookeeper.invalid:1",),
                "client.id": self.client_id,
                "send.buffer.bytes": self.send_buffer_bytes,
                "request.timeout.ms": self.response_timeout_ms,
                "retry.backoff.ms": self.retry_backoff_ms,
                "retry.backoff.max.ms": max(self.retry_backoff_ms, 1_000),
                "socket.connection.setup.timeout.ms": self.connect_timeout_ms,
                "socket.connection.setup.timeout.max.ms": self.connect_timeout_ms,
            }
        )
