"""Knows the brokers of a cluster and the leaders of topics, by reading ZooKeeper (`zk.connect`).

The producer keeps a copy of the brokers and of its topics' partitions. Watches mark the copy as stale, and it
is read again before the next message. While ZooKeeper cannot be reached, the producer goes on with its copy.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Final

from kalda.clients.errors import BrokerConnectionError, ClientConfigError, ClientError
from kalda.clients.legacy.producer.producer_config import ProducerConfig
from kalda.clients.metadata import ClusterMetadata, Metadata
from kalda.cluster import paths, schema
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.schema import BrokerInfo, PartitionState, TopicAssignment
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kalda.runtime.runtime import Runtime
from kalda.zookeeper.client.ensemble_client import EnsembleClient
from kalda.zookeeper.errors import BadArgumentsError, ZooKeeperError
from kalda.zookeeper.path_validation import check_path
from kalda.zookeeper.port import SessionState, WatchEvent, ZooKeeperClient

CreateTopics = Callable[[BrokerEndpoint, Collection[str]], Awaitable[object]]
"""Asks a broker for topics, which creates those that do not exist where the broker allows it."""


class ZooKeeperDiscovery:
    """Reads the registrations of brokers and the states of partitions.

    Args:
        zookeeper: The session; closed by `close`.
        runtime: The clock and the randomness of the store.
        create_topics: Called with a live broker for topics that have no znode.
    """

    def __init__(self, zookeeper: ZooKeeperClient, runtime: Runtime, create_topics: CreateTopics) -> None:
        self._zookeeper: Final = zookeeper
        self._store: Final = ClusterStore(zookeeper, runtime.clock, runtime.random)
        self._create_topics: Final = create_topics
        self._metadata: Final = Metadata()
        self._metadata.set_topics(None, 0.0)
        self._topics: Final[dict[str, None]] = {}
        """The topics that were asked for; each stays watched."""
        self._is_stale = True
        zookeeper.add_state_listener(self._on_state)

    @property
    def snapshot(self) -> ClusterMetadata:
        """The copy."""
        return self._metadata.snapshot

    @property
    def is_stale(self) -> bool:
        """Whether a watch fired, the session expired or a broker was lost since the copy was made."""
        return self._is_stale

    def mark_stale(self) -> None:
        """Read ZooKeeper again before the next message."""
        self._is_stale = True

    async def refresh(self, topics: Collection[str]) -> None:
        """Read ZooKeeper; a topic without a znode is asked for at a broker, and read by the next call."""
        self._topics.update(dict.fromkeys(each for each in topics if _has_znode(each)))
        if self._zookeeper.state is not SessionState.CONNECTED:
            # Else each message would wait for the session time-out.
            raise BrokerConnectionError("ZooKeeper cannot be reached now")
        # A watch that fires while this reads marks the new copy as stale, too.
        self._is_stale = False
        try:
            await self._read()
        except ZooKeeperError as error:
            self._is_stale = True
            raise BrokerConnectionError(f"ZooKeeper cannot be read: {error}") from error
        except BaseException:
            self._is_stale = True
            raise

    async def close(self) -> None:
        """End the session."""
        await self._zookeeper.close()

    async def _read(self) -> None:
        brokers = await self._store.brokers(self._on_watch)
        assignments = await self._store.topic_assignments(self._topics, self._on_watch)
        partitions = [
            TopicPartition(topic, number) for topic, each in assignments.items() for number in each.partitions
        ]
        found = await self._zookeeper.get_many(
            [paths.partition_state(each) for each in partitions], self._on_watch
        )
        # A partition without a state yet has no watch.
        self._is_stale |= None in found
        states = schema.decode_partition_states(partitions, found)
        response = _as_response(brokers, assignments, states)
        if response.brokers:
            self._metadata.received(response)
        missing = self._topics.keys() - assignments.keys()
        if missing and self.snapshot.brokers:
            await self._create(missing)

    async def _create(self, topics: Collection[str]) -> None:
        self._is_stale = True
        failure: ClientError | None = None
        for broker in self.snapshot.brokers.values():
            try:
                await self._create_topics(broker, topics)
            except ClientError as error:
                failure = error
            else:
                return
        assert failure is not None, "there are brokers"
        raise failure

    def _on_watch(self, event: WatchEvent) -> None:
        self._is_stale = True

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            # The watches are gone with the session.
            self._is_stale = True


def _has_znode(topic: str) -> bool:
    """Whether ZooKeeper takes the path of a topic; no read with one that it refuses would succeed."""
    try:
        check_path(paths.topic(topic))
    except BadArgumentsError:
        return False
    return True


def _as_response(
    brokers: dict[int, BrokerInfo],
    assignments: dict[str, TopicAssignment],
    states: dict[TopicPartition, PartitionState],
) -> MetadataResponse:
    """Return the metadata response of a broker that has read the same."""
    endpoints = {each.id: each.old_clients_endpoint for each in brokers.values() if each.endpoints}
    return MetadataResponse(
        cluster_id=None,
        controller_id=-1,
        brokers=[
            MetadataResponseBroker(node_id=broker_id, host=each.host, port=each.port)
            for broker_id, each in endpoints.items()
        ],
        topics=[
            MetadataResponseTopic(
                error_code=int(ErrorCode.NONE),
                name=topic,
                topic_id=assignment.topic_id,
                partitions=[
                    _partition(number, states.get(TopicPartition(topic, number)))
                    for number in assignment.partitions
                ],
            )
            for topic, assignment in assignments.items()
        ],
    )


def _partition(number: int, state: PartitionState | None) -> MetadataResponsePartition:
    if state is None:
        return MetadataResponsePartition(partition_index=number, leader_id=-1, leader_epoch=-1)
    return MetadataResponsePartition(
        partition_index=number, leader_id=state.leader, leader_epoch=state.leader_epoch
    )


async def open_zookeeper(
    config: ProducerConfig, runtime: Runtime, create_topics: CreateTopics
) -> ZooKeeperDiscovery:
    """Open a session at `zk.connect`.

    Raises:
        BrokerConnectionError: no server takes it within `zk.connectiontimeout.ms`.
        ClientConfigError: the address is none.
    """
    assert config.zk_connect is not None, "the caller looked"
    try:
        session = await EnsembleClient.connect(
            config.zk_connect,
            session_timeout_ms=config.zk_sessiontimeout_ms,
            connection_timeout_ms=config.zk_connectiontimeout_ms or config.zk_sessiontimeout_ms,
            creates_chroot=False,
        )
    except BadArgumentsError as error:
        raise ClientConfigError(f"`zk.connect`={config.zk_connect} is not allowed: {error}") from error
    except ZooKeeperError as error:
        # The message names a broker's settings.
        text = str(error).replace("`zookeeper.connect`", "`zk.connect`")
        raise BrokerConnectionError(
            text.replace("`zookeeper.connection.timeout.ms`", "`zk.connectiontimeout.ms`")
        ) from error
    return ZooKeeperDiscovery(session, runtime, create_topics)
