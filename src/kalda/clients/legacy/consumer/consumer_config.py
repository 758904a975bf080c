"""Declares the settings of the old consumer: the names and defaults of 0.8.2, and the names of 0.7."""

from collections.abc import Mapping
from typing import ClassVar, Final

from kalda.clients.errors import ClientConfigError
from kalda.clients.legacy.legacy_config import LegacyConfig
from kalda.clients.legacy.simple_consumer import KAFKA, ZOOKEEPER
from kalda.common.config_def import NON_EMPTY, Validator, at_least, one_of
from kalda.common.public import public_in
from kalda.common.settings import HIGH, LOW, boolean, integer, string
from kalda.zookeeper.errors import BadArgumentsError
from kalda.zookeeper.path_validation import check_path

SMALLEST: Final = "smallest"
LARGEST: Final = "largest"
RANGE: Final = "range"
ROUND_ROBIN: Final = "roundrobin"
BY_BROKER: Final = "by-broker"


def _is_znode_name(value: object) -> bool:
    if not value:
        return value is None
    try:
        check_path(f"/{value}")
    except BadArgumentsError:
        return False
    return "/" not in str(value)


_ZNODE_NAME: Final = Validator("a name that a znode can have, without `/`", _is_znode_name)


@public_in("kalda.clients.legacy")
class ConsumerConfig(LegacyConfig):
    """The settings of a `ConsumerConnector`."""

    RENAMED: ClassVar[Mapping[str, str]] = {
        "groupid": "group.id",
        "consumerid": "consumer.id",
        "zk.connect": "zookeeper.connect",
        "zk.sessiontimeout.ms": "zookeeper.session.timeout.ms",
        "zk.connectiontimeout.ms": "zookeeper.connection.timeout.ms",
        "zk.synctime.ms": "zookeeper.sync.time.ms",
        "autocommit.enable": "auto.commit.enable",
        "autocommit.interval.ms": "auto.commit.interval.ms",
        "autooffset.reset": "auto.offset.reset",
        "queuedchunks.max": "queued.max.message.chunks",
        "rebalance.retries.max": "rebalance.max.retries",
        "fetch.size": "fetch.message.max.bytes",
        "socket.buffersize": "socket.receive.buffer.bytes",
        "backoff.increment.ms": "refresh.leader.backoff.ms",
        "fetcher.backoff.ms": "refresh.leader.backoff.ms",
    }

    group_id = string(None, "The group that shares the partitions.", _ZNODE_NAME, importance=HIGH)
    zookeeper_connect = string(
        None, "ZooKeeper servers, host:port with commas and a chroot.", NON_EMPTY, importance=HIGH
    )
    consumer_id = string(
        None, "The name of this consumer in the group; made of host, time and chance.", _ZNODE_NAME
    )
    client_id = string(None, "The name of this client in the broker's logs; the group's unless it is set.")
    auto_commit_enable = boolean(True, "Whether consumed offsets are committed in intervals.")
    auto_commit_interval_ms = integer(60_000, "The time between two automatic commits.", at_least(1))
    auto_offset_reset = string(
        LARGEST,
        "Where to begin without a committed offset, or with one that is gone; `none` raises an error.",
        one_of(SMALLEST, LARGEST, "none"),
        importance=HIGH,
    )
    consumer_timeout_ms = integer(
        -1, "How long a stream waits for a message before it raises an error; -1 without end.", at_least(-1)
    )
    queued_max_message_chunks = integer(
        2,
        "Chunks that may wait in the queue of a stream, each what one poll found in one partition.",
        at_least(1),
    )
    fetch_message_max_bytes = integer(1_048_576, "The most bytes of one partition in a fetch.", at_least(1))
    fetch_min_bytes = integer(1, "Bytes for which a broker waits with its response.", at_least(0))
    fetch_wait_max_ms = integer(100, "How long a broker waits for them.", at_least(0))
    rebalance_max_retries = integer(4, "How often a rebalance is tried again.", at_least(0))
    rebalance_backoff_ms = integer(
        None, "The wait before that; `zookeeper.sync.time.ms` unless it is set.", at_least(0)
    )
    partition_assignment_strategy = string(
        RANGE,
        "How partitions are divided: `range` and `roundrobin` as in 0.8.2, `by-broker` with the partitions "
        "of one leader side by side, as in 0.7. All members of a group need the same.",
        one_of(RANGE, ROUND_ROBIN, BY_BROKER),
    )
    offsets_storage = string(
        ZOOKEEPER, "Where offsets are committed.", one_of(ZOOKEEPER, KAFKA), importance=HIGH
    )
    dual_commit_enabled = boolean(
        None,
        "Whether offsets are committed to both storages, and the larger is read; the steps of a migration "
        "set it. True with `offsets.storage`=kafka unless it is set.",
    )
    offsets_commit_max_retries = integer(5, "How often a commit that failed is tried again.", at_least(0))
    offsets_channel_backoff_ms = integer(1_000, "The wait before that.", at_least(0))
    offsets_channel_socket_timeout_ms = integer(
        10_000, "How long to wait for the offset manager.", at_least(1)
    )
    exclude_internal_topics = boolean(True, "Whether filters leave out internal topics.")
    socket_timeout_ms = integer(30_000, "How long to wait for a response of a broker.", at_least(1))
    socket_receive_buffer_bytes = integer(65_536, "The size of the socket's receive buffer.", at_least(-1))
    refresh_leader_backoff_ms = integer(200, "The wait before a new leader is looked up.", at_least(0))
    zookeeper_session_timeout_ms = integer(6_000, "The time-out of the ZooKeeper session.", at_least(1))
    zookeeper_connection_timeout_ms = integer(
        None, "How long to wait for ZooKeeper; the session's time-out unless it is set.", at_least(1)
    )
    zookeeper_sync_time_ms = integer(2_000, "How far a ZooKeeper follower may be behind.", at_least(0))
    num_consumer_fetchers = integer(
        1,
        "Fetcher threads for each broker.",
        at_least(1),
        importance=LOW,
        without_effect="one connection to each broker carries all fetches",
    )

    def check_rules(self) -> None:
        """Check that the group and ZooKeeper are given.

        Raises:
            ClientConfigError: as `LegacyConfig.check_rules`.
        """
        for name in ("group.id", "zookeeper.connect"):
            if self.given(name) is None:
                raise ClientConfigError(f"`{name}` is missing; a consumer needs it")

    @property
    def group(self) -> str:
        """The group, which `check_rules` found."""
        assert self.group_id is not None, "checked"
        return self.group_id

    @property
    def is_dual(self) -> bool:
        """Whether both storages of offsets are written and read."""
        if self.dual_commit_enabled is not None:
            return self.dual_commit_enabled
        return self.offsets_storage == KAFKA

    @property
    def backoff_s(self) -> float:
        """Seconds between two attempts of a rebalance."""
        own = self.rebalance_backoff_ms
        return (self.zookeeper_sync_time_ms if own is None else own) / 1000
