"""Caches the cluster's metadata: live brokers, the controller, the leader of each partition.

The controller keeps it current through `MetadataCache.apply`. All access is on the event loop. A
`TopicMetadata` is replaced, never changed, so a handler's copy stays consistent, and a look-up costs the same
with any number of topics. Waiting for a change (`topics.topic_wait`) and the layout of responses
(`requests.topic_responses`) are elsewhere.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kalda.cluster.schema import LEADER_DURING_DELETE, BrokerInfo, ListenerEndpoint
from kalda.common import invariants
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Steps, result_of
from kalda.common.types import (
    NO_PARTITION_LEADER,
    UUID,
    ZERO_UUID,
    BrokerEndpoint,
    TopicPartition,
    is_other_topic,
)
from kalda.controller.effects import PartitionLeadership, UpdateMetadata

ChangeListener = Callable[[Collection[str]], None]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic; `partitions` are ordered by number."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionLeadership]


class MetadataCache:
    """The metadata of the cluster as the controller sent it."""

    def __init__(self) -> None:
        self._topics: Final[dict[str, TopicMetadata]] = {}
        self._names_by_id: Final[dict[bytes, str]] = {}
        self._sorted_names: tuple[str, ...] | None = ()
        self._registered: dict[int, BrokerInfo] = {}
        self._brokers: dict[int, BrokerInfo] = {}
        """The registered brokers, with the endpoints of added listeners."""
        self._added: Final[dict[str, Mapping[int, ListenerEndpoint]]] = {}
        """Listeners that no registration has, by name: the endpoint of each broker."""
        self._listeners: Final[list[ChangeListener]] = []
        self.controller_id = -1
        """The id of the controller, -1 while it is unknown."""
        self.controller_epoch = 0
        self.brokers_generation = 0
        """Grows when the live brokers or the controller change; every topic's response depends on them."""

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    def __len__(self) -> int:
        return len(self._topics)

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """The live brokers, ordered by id."""
        return self._brokers

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Every topic's name, sorted."""
        if self._sorted_names is None:
            self._sorted_names = tuple(sorted(self._topics))
        return self._sorted_names

    def all_topics(self) -> list[TopicMetadata]:
        """Return every topic, ordered by name."""
        return [self._topics[name] for name in self.topic_names]

    def topic(self, name: str) -> TopicMetadata | None:
        """Return a topic, or None."""
        return self._topics.get(name)

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, or None."""
        return self._names_by_id.get(topic_id.bytes)

    def topic_name_by_bytes(self, topic_id: bytes) -> str | None:
        """Return the name of the topic whose id has these bytes, or None."""
        return self._names_by_id.get(topic_id)

    def topic_id(self, name: str) -> UUID:
        """Return a topic's id; `ZERO_UUID` if the topic is unknown or has no id."""
        topic = self._topics.get(name)
        return topic.topic_id if topic is not None else ZERO_UUID

    def partition(self, partition: TopicPartition) -> PartitionLeadership | None:
        """Return a partition's leader and replicas, or None."""
        topic = self._topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic is not None else None

    def partition_count(self, name: str) -> int:
        """Return the number of a topic's partitions; 0 if the topic is unknown."""
        topic = self._topics.get(name)
        return len(topic.partitions) if topic is not None else 0

    def endpoint(self, broker_id: int, listener: str) -> BrokerEndpoint | None:
        """Return the endpoint of a live broker on a listener, or None."""
        info = self._brokers.get(broker_id)
        found = info.endpoint(listener) if info is not None else None
        if info is None or found is None:
            return None
        return BrokerEndpoint(info.id, found.host, found.port, info.rack)

    def endpoints(self, listener: str) -> list[BrokerEndpoint]:
        """Return the endpoints of the live brokers that have the listener, ordered by id."""
        found = (self.endpoint(broker_id, listener) for broker_id in self._brokers)
        return [endpoint for endpoint in found if endpoint is not None]

    def on_change(self, listener: ChangeListener) -> None:
        """Call `listener` after each update, with the topics that changed, in the order of the update."""
        self._listeners.append(listener)

    def apply(self, update: UpdateMetadata) -> None:
        """Apply an update of the controller: all live brokers, and the partitions that changed.

        Raises:
            ApiError: STALE_CONTROLLER_EPOCH, the controller was replaced.
        """
        self.apply_brokers(update)
        result_of(self.apply_partitions(update.partitions))

    def apply_brokers(self, update: UpdateMetadata) -> None:
        """Apply the first part of an update: the controller and all live brokers.

        Raises:
            ApiError: as `apply`.
        """
        if update.controller_epoch < self.controller_epoch:
            raise ApiError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"controller {update.controller_id} sent epoch {update.controller_epoch}, "
                f"but {self.controller_epoch} is known already",
            )
        self.controller_epoch = update.controller_epoch
        brokers = {info.id: info for info in sorted(update.brokers, key=lambda info: info.id)}
        if brokers != self._registered or update.controller_id != self.controller_id:
            self._registered = brokers
            self.controller_id = update.controller_id
            self._show_added()

    def add_listener(self, name: str, endpoints: Mapping[int, ListenerEndpoint]) -> None:
        """Return these endpoints to clients of a listener that is in no broker's registration."""
        self._added[name] = dict(endpoints)
        self._show_added()

    def remove_listener(self, name: str) -> None:
        """Forget a listener that `add_listener` added."""
        if self._added.pop(name, None) is not None:
            self._show_added()

    def _show_added(self) -> None:
        self.brokers_generation += 1
        if not self._added:
            self._brokers = self._registered
            return
        self._brokers = {}
        for broker_id, info in self._registered.items():
            added = (endpoints.get(broker_id) for endpoints in self._added.values())
            endpoints = info.endpoints + tuple(each for each in added if each is not None)
            self._brokers[broker_id] = replace(info, endpoints=endpoints)

    def apply_partitions(self, changed_partitions: Iterable[PartitionLeadership]) -> Steps[None]:
        """Apply the rest of an update, or a part of it with whole topics, and notify the listeners.

        The topics change together, in the last step. No other update may be applied before it.
        """
        by_topic: dict[str, list[PartitionLeadership]] = {}
        for partition in changed_partitions:
            by_topic.setdefault(partition.topic, []).append(partition)
        updated: dict[str, TopicMetadata | None] = {}
        for name, partitions in by_topic.items():
            updated[name] = yield from self._updated_topic(name, partitions)
        for name, topic in updated.items():
            self._replace_topic(name, topic)
        if invariants.enabled:
            self.check_invariants(by_topic)
        changed = tuple(by_topic)
        for listener in self._listeners:
            listener(changed)

    def check_invariants(self, topics: Iterable[str]) -> None:
        """Check the live brokers and the given topics."""
        for broker_id, info in self._brokers.items():
            assert broker_id == info.id, f"broker {info.id} is stored under {broker_id}"
            assert info.endpoints, f"live broker {broker_id} has no endpoint"
        for name in topics:
            topic = self._topics.get(name)
            if topic is None:
                continue
            assert name == topic.name, f"topic {topic.name} is stored under {name}"
            assert list(topic.partitions) == sorted(topic.partitions), f"{name}: {list(topic.partitions)}"
            if topic.topic_id != ZERO_UUID:
                found = self._names_by_id.get(topic.topic_id.bytes)
                assert name == found, f"id {topic.topic_id} of topic {name} leads to {found}"
            for number, each in topic.partitions.items():
                assert (name, number) == (each.topic, each.partition), f"{name}-{number} holds {each}"
                assert each.leader == NO_PARTITION_LEADER or each.leader in each.replicas, (
                    f"{name}-{number}: leader {each.leader} is not one of the replicas {each.replicas}"
                )
        assert len(self._names_by_id) <= len(self._topics), "an id leads to a topic that does not exist"
        assert self._sorted_names is None or len(self._sorted_names) == len(self._topics), (
            f"{len(self._topics)} topics, but {self._sorted_names}"
        )

    def _updated_topic(
        self, name: str, changes: Iterable[PartitionLeadership]
    ) -> Steps[TopicMetadata | None]:
        current = self._topics.get(name)
        partitions = dict(current.partitions) if current is not None else {}
        topic_id = current.topic_id if current is not None else ZERO_UUID
        for change in changes:
            yield
            if change.leader == LEADER_DURING_DELETE:
                if not is_other_topic(change.topic_id, topic_id):
                    partitions.pop(change.partition, None)
                continue
            if is_other_topic(change.topic_id, topic_id):
                # The topic was deleted and created again under the same name.
                partitions.clear()
            # Even none, from an old controller: leaders that started since do not know an earlier id.
            topic_id = change.topic_id
            if invariants.enabled and change.topic_id != ZERO_UUID and change.partition in partitions:
                _check_epochs(partitions[change.partition], change)
            partitions[change.partition] = change
        if not partitions:
            return None
        return TopicMetadata(name, topic_id, dict(sorted(partitions.items())))

    def _replace_topic(self, name: str, topic: TopicMetadata | None) -> None:
        current = self._topics.get(name)
        if current is not None:
            self._names_by_id.pop(current.topic_id.bytes, None)
        if topic is not None:
            self._topics[name] = topic
            if topic.topic_id != ZERO_UUID:
                self._names_by_id[topic.topic_id.bytes] = name
        else:
            self._topics.pop(name, None)
        if (current is None) != (topic is None):
            self._sorted_names = None


def _check_epochs(known: PartitionLeadership, change: PartitionLeadership) -> None:
    """Check that the leader epoch of a partition of the same topic does not decrease.

    The controller epoch may: a controller of Apache Kafka sends its own with states that it did not write.
    """
    name = change.topic_partition
    assert change.leader_epoch >= known.leader_epoch, (
        f"{name}: leader epoch {change.leader_epoch} after {known.leader_epoch}"
    )
