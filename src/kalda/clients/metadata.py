"""Holds what a client knows about its cluster, and decides what to ask and when. Sans-IO.

`Metadata.snapshot` is immutable and replaced as a whole, so that any thread may read it. `add_topic`,
`set_topics` and `request_update` may be called in any thread too; the other methods belong to the event
loop's.

A partition's leader epoch never goes back. A broker that lags behind may answer with an older leader, and a
client that believed it would alternate between two leaders (KIP-320).
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from kalda.clients.argument_checks import check_topic_name
from kalda.clients.errors import ClientError
from kalda.common.errors import ErrorCode
from kalda.common.public import public
from kalda.common.types import UUID, ZERO_UUID, BrokerEndpoint, TopicPartition, is_other_topic
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kalda.runtime.network import address_text


@public
@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition; `leader_id` -1 stands for none, `leader_epoch` -1 for a broker without epochs."""

    topic_partition: TopicPartition
    leader_id: int
    leader_epoch: int
    error: ErrorCode
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@public
@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic, or the error that stands in its place."""

    name: str
    topic_id: UUID
    """Zero where the cluster has no ids."""
    is_internal: bool
    error: ErrorCode
    partitions: Mapping[int, PartitionMetadata]

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        """The partitions in order of number."""
        return [TopicPartition(self.name, number) for number in sorted(self.partitions)]


@dataclass(frozen=True)
class ClusterMetadata:
    """A snapshot of a cluster."""

    version: int
    """Counts the snapshots of one client; 0 is the empty one before the first response."""
    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, BrokerEndpoint]
    topics: Mapping[str, TopicMetadata]

    @classmethod
    def from_response(cls, response: MetadataResponse, version: int = 1) -> "ClusterMetadata":
        """Read an answer to a Metadata request."""
        topics = {}
        for topic in response.topics:
            name = topic.name or ""
            partitions = {
                each.partition_index: PartitionMetadata(
                    TopicPartition(name, each.partition_index),
                    each.leader_id,
                    each.leader_epoch,
                    ErrorCode.of(each.error_code),
                    tuple(each.replica_nodes),
                    tuple(each.isr_nodes),
                    tuple(each.offline_replicas),
                )
                for each in topic.partitions
            }
            topics[name] = TopicMetadata(
                name, topic.topic_id, topic.is_internal, ErrorCode.of(topic.error_code), partitions
            )
        brokers = {
            each.node_id: BrokerEndpoint(each.node_id, each.host, each.port, each.rack)
            for each in response.brokers
        }
        return cls(version, response.cluster_id, response.controller_id, brokers, topics)

    @cached_property
    def topic_names(self) -> Mapping[UUID, str]:
        """The names of the topics by id, of those that have one."""
        return {topic.topic_id: name for name, topic in self.topics.items() if topic.topic_id != ZERO_UUID}

    def topic_id(self, name: str) -> UUID:
        """Return the id of a topic; zero where the topic or its id is not known."""
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def partition(self, topic_partition: TopicPartition) -> PartitionMetadata | None:
        """Return the metadata of a partition, or None."""
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def leader(self, topic_partition: TopicPartition) -> BrokerEndpoint | None:
        """Return where the partition's leader can be reached, or None while that is not known."""
        partition = self.partition(topic_partition)
        return None if partition is None else self.brokers.get(partition.leader_id)

    def broker_text(self, broker_id: int) -> str:
        """Return a broker as messages name it: ``broker 1 (host:9092)``, or what is known of it."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            return "a bootstrap server" if broker_id < 0 else f"broker {broker_id}"
        return f"broker {broker_id} ({address_text(broker.host, broker.port)})"


EMPTY: Final = ClusterMetadata(0, None, -1, {}, {})


class Metadata:
    """The metadata of one client: the snapshot, the topics to ask for, and whether an update is due.

    Args:
        allow_auto_topic_creation: Whether asking for an unknown topic may create it.
        topic_idle_seconds: After how long without `add_topic` a topic is no longer asked for; None for never.
            A producer bounds its metadata with it (`metadata.max.idle.ms`).
    """

    def __init__(
        self, *, allow_auto_topic_creation: bool = False, topic_idle_seconds: float | None = None
    ) -> None:
        self.snapshot: ClusterMetadata = EMPTY
        self.on_update: Final[list[Callable[[ClusterMetadata], None]]] = []
        """Called on the loop with each new snapshot."""
        self.on_update_requested: Callable[[], None] | None = None
        """Wakes the task that asks brokers; set by the network client, safe in any thread."""
        self.on_failure: Callable[[ClientError], None] | None = None
        """Called on the loop with each failed update that another attempt would not change, e.g. a refused
        login."""
        self._allow_auto_topic_creation: Final = allow_auto_topic_creation
        self._topic_idle_seconds: Final = topic_idle_seconds
        # The topics asked for, with the time of their last use; None stands for all topics.
        self._topics: dict[str, float] | None = {}
        # Guards `_topics`: the loop drops idle topics while a producer's caller adds one. Reentrant: a signal
        # handler may call a client within the call that it interrupted.
        self._lock: Final = threading.RLock()
        self._is_update_requested = True
        self._is_update_urgent = True
        # Each topic as it was last described without an error: an error in between must not let its leader
        # epochs go back.
        self._described: dict[str, TopicMetadata] = {}

    @property
    def is_update_urgent(self) -> bool:
        """Whether the update concerns a topic never asked for, or a caller waits: no back-off before it."""
        return self._is_update_urgent

    @property
    def is_update_requested(self) -> bool:
        """Whether something asked for an update since the last request was built."""
        return self._is_update_requested

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        """The topics that requests ask for; None for all topics."""
        with self._lock:
            return None if self._topics is None else frozenset(self._topics)

    def add_topic(self, name: str, now: float) -> bool:
        """Ask for a topic from now on; return whether it is new, in which case an update is requested.

        Raises:
            ValueError: no request can carry such a name.
        """
        with self._lock:
            topics = self._topics
            if topics is None:
                return False
            is_new = name not in topics
            if is_new:
                check_topic_name(name)
            topics[name] = now
        if is_new:
            self.request_update(is_urgent=True)
        return is_new

    def set_topics(self, names: Iterable[str] | None, now: float) -> None:
        """Ask for exactly these topics from now on, or for all (None); request an update if one is new."""
        topics = None if names is None else dict.fromkeys(names, now)
        with self._lock:
            known, self._topics = self._topics, topics
        if known is None:
            # All topics were asked for: the snapshot has each that exists.
            is_new = topics is not None and bool(topics.keys() - self.snapshot.topics.keys())
        else:
            is_new = topics is None or bool(topics.keys() - known.keys())
        if is_new:
            self.request_update(is_urgent=True)

    def request_update(self, *, is_urgent: bool = False) -> int:
        """Ask for an update, at once or after the back-off; return the present snapshot's version."""
        self._is_update_requested = True
        self._is_update_urgent |= is_urgent
        if self.on_update_requested is not None:
            self.on_update_requested()
        return self.snapshot.version

    def next_request(self, now: float) -> MetadataRequest:
        """Build the request of the next update; topics that were not used for long are dropped."""
        # First the flags, then the topics: one that is added in between is asked for twice rather than never.
        self._is_update_requested = self._is_update_urgent = False
        with self._lock:
            topics = self._topics
            if topics is not None and self._topic_idle_seconds is not None:
                limit = now - self._topic_idle_seconds
                topics = self._topics = {name: used for name, used in topics.items() if used >= limit}
            names = None if topics is None else sorted(topics)
        return MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=self._allow_auto_topic_creation,
        )

    def received(self, response: MetadataResponse, *, has_reliable_epochs: bool = True) -> ClusterMetadata:
        """Take the answer to `next_request`; return the new snapshot.

        Args:
            response: The answer. One without brokers, as a broker sends while it starts, is not for here.
            has_reliable_epochs: Whether the leader epochs can be used. A broker before 2.4 (Metadata below
                version 9) may send an older epoch during a reassignment, which would fence this client.
        """
        assert response.brokers, "metadata without brokers"
        before = self.snapshot
        found = ClusterMetadata.from_response(response, before.version + 1)
        wanted = self.wanted_topics
        # A topic added while the request was under way is not in the response; its request is still due.
        topics = {
            name: self._newest(topic if has_reliable_epochs else _without_epochs(topic))
            for name, topic in found.topics.items()
            if wanted is None or name in wanted
        }
        self._described = {
            name: known
            for name, topic in topics.items()
            if (known := topic if topic.error == ErrorCode.NONE else self._described.get(name)) is not None
        }
        return self._replace(replace(found, topics=topics))

    def has_retriable_errors(self) -> bool:
        """Whether the snapshot lacks a leader or a topic that may appear soon."""
        brokers = self.snapshot.brokers
        return any(
            topic.error.retriable
            or any(
                each.leader_id not in brokers or each.error.retriable for each in topic.partitions.values()
            )
            for topic in self.snapshot.topics.values()
        )

    def update_leaders(
        self,
        leaders: Mapping[TopicPartition, tuple[int, int]],
        endpoints: Iterable[BrokerEndpoint] = (),
    ) -> None:
        """Take (leader id, leader epoch) of partitions from a Produce or Fetch response (KIP-951).

        A leader that is not newer, or whose endpoint is not known, is ignored.
        """
        before = self.snapshot
        brokers = {**before.brokers, **{each.id: each for each in endpoints}}
        topics = dict(before.topics)
        for topic_partition, (leader_id, leader_epoch) in leaders.items():
            known = before.partition(topic_partition)
            if known is None or leader_epoch <= known.leader_epoch or leader_id not in brokers:
                continue
            topic = topics[topic_partition.topic]
            newer = replace(known, leader_id=leader_id, leader_epoch=leader_epoch, error=ErrorCode.NONE)
            topics[topic.name] = replace(
                topic, partitions={**topic.partitions, topic_partition.partition: newer}
            )
        if topics != before.topics:
            self._replace(replace(before, version=before.version + 1, brokers=brokers, topics=topics))

    def _newest(self, topic: TopicMetadata) -> TopicMetadata:
        """Return the topic with each partition as the newest leader epoch describes it.

        A partition without an epoch (-1) replaces the known one: nothing shows which of the two is newer.
        """
        known = self.snapshot.topics.get(topic.name)
        if known is not None and known.error != ErrorCode.NONE:
            known = self._described.get(topic.name)
        if known is None or is_other_topic(topic.topic_id, known.topic_id):
            # A topic that was deleted and created again has another id and starts with epoch 0.
            return topic
        older = {
            number: known.partitions[number]
            for number, each in topic.partitions.items()
            if number in known.partitions and 0 <= each.leader_epoch < known.partitions[number].leader_epoch
        }
        return replace(topic, partitions={**topic.partitions, **older}) if older else topic

    def _replace(self, snapshot: ClusterMetadata) -> ClusterMetadata:
        self.snapshot = snapshot
        for callback in list(self.on_update):
            callback(snapshot)
        return snapshot


def _without_epochs(topic: TopicMetadata) -> TopicMetadata:
    return replace(
        topic,
        partitions={number: replace(each, leader_epoch=-1) for number, each in topic.partitions.items()},
    )
