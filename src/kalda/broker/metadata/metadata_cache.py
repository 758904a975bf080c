"""What this broker knows of the cluster: live brokers, the controller, and every partition's leadership.

The controller keeps it current through `apply`. It lives on the event loop: a `TopicMetadata` never changes
but is replaced, so what a handler holds stays consistent, and a look-up costs the same however many topics
there are. What is not here: waiting for a change (see `topics`) and the wire (see
`handlers.metadata`).
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import ZERO_UUID, BrokerEndpoint, TopicPartition
from kalda.controller.effects import PartitionLeadership, UpdateMetadata
from kalda.zk.client.schema import LEADER_DURING_DELETE, BrokerInfo

ChangeListener = Callable[[frozenset[str]], None]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic; `partitions` by number, in ascending order."""

    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionLeadership]


class MetadataCache:
    """The broker's view of the cluster, as the controller tells it."""

    def __init__(self) -> None:
        self._topics: Final[dict[str, TopicMetadata]] = {}
        self._names_by_id: Final[dict[bytes, str]] = {}
        self._sorted_names: tuple[str, ...] | None = ()
        self._brokers: dict[int, BrokerInfo] = {}
        self._listeners: Final[list[ChangeListener]] = []
        self.controller_id = -1
        """The broker that is controller, -1 while none is known."""
        self.controller_epoch = 0
        self.brokers_generation = 0
        """Grows whenever the brokers or the controller change; topics' answers depend on who is alive."""

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    def __len__(self) -> int:
        return len(self._topics)

    @property
    def brokers(self) -> Mapping[int, BrokerInfo]:
        """The live brokers, by ascending id."""
        return self._brokers

    @property
    def topic_names(self) -> tuple[str, ...]:
        """Every topic's name, sorted."""
        if self._sorted_names is None:
            self._sorted_names = tuple(sorted(self._topics))
        return self._sorted_names

    def all_topics(self) -> list[TopicMetadata]:
        """Return every topic, by name."""
        return [self._topics[name] for name in self.topic_names]

    def topic(self, name: str) -> TopicMetadata | None:
        """Return a topic, or None."""
        return self._topics.get(name)

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """Return the name of the topic with this id, or None."""
        return self._names_by_id.get(topic_id.bytes)

    def topic_name_by_bytes(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id as it stands on the wire, or None."""
        return self._names_by_id.get(topic_id)

    def topic_id(self, name: str) -> uuid.UUID:
        """Return a topic's id; `ZERO_UUID` for a topic that is not known or has none."""
        topic = self._topics.get(name)
        return topic.topic_id if topic is not None else ZERO_UUID

    def partition(self, partition: TopicPartition) -> PartitionLeadership | None:
        """Return who leads a partition, or None."""
        topic = self._topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic is not None else None

    def partition_count(self, name: str) -> int:
        """Return how many partitions a topic has; 0 for a topic that is not known."""
        topic = self._topics.get(name)
        return len(topic.partitions) if topic is not None else 0

    def endpoint(self, broker_id: int, listener: str) -> BrokerEndpoint | None:
        """Return where a live broker is reached on a listener, or None."""
        info = self._brokers.get(broker_id)
        found = info.endpoint(listener) if info is not None else None
        if info is None or found is None:
            return None
        return BrokerEndpoint(info.id, found.host, found.port, info.rack)

    def endpoints(self, listener: str) -> list[BrokerEndpoint]:
        """Return where the live brokers that have this listener are reached, by ascending id."""
        found = (self.endpoint(broker_id, listener) for broker_id in self._brokers)
        return [endpoint for endpoint in found if endpoint is not None]

    def on_change(self, listener: ChangeListener) -> None:
        """Call the listener with the topics that changed, after each change of topics or brokers."""
        self._listeners.append(listener)

    def apply(self, update: UpdateMetadata) -> None:
        """Take over what the controller says: all live brokers, and the partitions that changed.

        Raises:
            ApiError: STALE_CONTROLLER_EPOCH, the update is from a controller that was replaced.
        """
        if update.controller_epoch < self.controller_epoch:
            raise ApiError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"controller {update.controller_id} sent epoch {update.controller_epoch}, "
                f"but {self.controller_epoch} is known already",
            )
        self.controller_epoch = update.controller_epoch
        brokers = {info.id: info for info in sorted(update.brokers, key=lambda info: info.id)}
        if brokers != self._brokers or update.controller_id != self.controller_id:
            self._brokers = brokers
            self.controller_id = update.controller_id
            self.brokers_generation += 1
        by_topic: dict[str, list[PartitionLeadership]] = {}
        for partition in update.partitions:
            by_topic.setdefault(partition.topic, []).append(partition)
        for name, partitions in by_topic.items():
            self._update_topic(name, partitions)
        changed = frozenset(by_topic)
        for listener in self._listeners:
            listener(changed)

    def _update_topic(self, name: str, changes: Iterable[PartitionLeadership]) -> None:
        current = self._topics.get(name)
        partitions = dict(current.partitions) if current is not None else {}
        topic_id = current.topic_id if current is not None else ZERO_UUID
        for change in changes:
            if change.leader == LEADER_DURING_DELETE:
                if change.topic_id in (topic_id, ZERO_UUID):
                    partitions.pop(change.partition, None)
                continue
            if change.topic_id != topic_id:
                # The topic was deleted and created again under the same name.
                partitions.clear()
                topic_id = change.topic_id
            partitions[change.partition] = change
        if current is not None:
            self._names_by_id.pop(current.topic_id.bytes, None)
        if partitions:
            self._topics[name] = TopicMetadata(name, topic_id, dict(sorted(partitions.items())))
            if topic_id != ZERO_UUID:
                self._names_by_id[topic_id.bytes] = name
        else:
            self._topics.pop(name, None)
        if (current is not None) != bool(partitions):
            self._sorted_names = None
