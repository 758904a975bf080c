"""A cluster in memory for tests of the admin handlers: coordination, and a controller that obeys at once."""

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from kalda.broker.config import ConfigStore
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import RequestContext
from kalda.broker.requests.handlers.metadata import MetadataParts
from kalda.broker.requests.topic_responses import TopicResponses
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.cluster.cluster_store import ClusterStore, NewTopic
from kalda.cluster.schema import (
    LEADER_DURING_DELETE,
    BrokerInfo,
    ListenerEndpoint,
    ReplicaAssignment,
    TopicAssignment,
)
from kalda.common.errors import ApiError
from kalda.common.purgatory import DelayedOperation, DelayedOperationPurgatory
from kalda.common.timing_wheel import TimingWheel
from kalda.common.types import random_uuid
from kalda.controller.effects import PartitionLeadership, UpdateMetadata
from kalda.net.connection import Connection
from kalda.runtime.clock import ManualClock
from kalda.security.principal import KafkaPrincipal
from kalda.settings import BrokerConfig
from kalda.zookeeper.errors import BadVersionError, NodeExistsError, ZooKeeperError
from tests.unit.broker.handler_parts import no_quotas

LISTENER = "PLAINTEXT"


def broker(broker_id: int, *, listener: str = LISTENER, rack: str | None = None) -> BrokerInfo:
    return BrokerInfo(broker_id, (ListenerEndpoint(listener, f"host{broker_id}", 9092),), rack)


def context(api_version: int, listener: str = LISTENER) -> RequestContext:
    class FakeConnection:
        def __init__(self) -> None:
            self.listener = listener
            self.peer = "test"
            self.principal = KafkaPrincipal("User", "admin")

    connection = cast("Connection", FakeConnection())
    return RequestContext(connection, cast("Any", None), api_version, 1, "test", 0.0)


class FakeCluster:
    """What `Cluster` does for admin requests; `is_paused` keeps the controller from acting."""

    def __init__(self) -> None:
        self.assignments: dict[str, TopicAssignment] = {}
        self.stored: dict[tuple[str, str], dict[str, str]] = {}
        self.marked: list[str] = []
        self.cordoned: set[int] = set()
        self.held_up_by_dead_brokers: set[str] = set()
        self.completion_error: ApiError | None = None
        self.is_paused = False
        self.conflicts = 0
        """How many of the next writes of an assignment fail, as if another broker had been faster."""
        self.on_created: Callable[[TopicAssignment], None] = lambda assignment: None
        self.on_marked: Callable[[str], None] = lambda topic: None
        self._watches: list[Callable[[Any], None]] = []

    async def topics(self) -> list[str]:
        return list(self.assignments)

    async def brokers(self) -> dict[int, BrokerInfo]:
        return {broker: BrokerInfo(broker, (), is_cordoned=True) for broker in self.cordoned}

    async def complete_deletions(self, topics: Collection[str]) -> None:
        """What the controller does for names that are wanted again; nothing where brokers live."""
        if self.completion_error is not None:
            raise self.completion_error
        for topic in [each for each in topics if each in self.held_up_by_dead_brokers]:
            self.marked.remove(topic)

    async def topics_to_delete(self, watch: Callable[[Any], None] | None = None) -> list[str]:
        if watch is not None:
            self._watches.append(watch)
        return list(self.marked)

    async def topic_assignments(self, topics: Iterable[str]) -> dict[str, TopicAssignment]:
        return {topic: self.assignments[topic] for topic in topics if topic in self.assignments}

    async def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, ZooKeeperError | None]:
        outcomes: dict[str, ZooKeeperError | None] = {}
        for topic in topics:
            if topic.name in self.assignments:
                outcomes[topic.name] = NodeExistsError("exists", topic.name)
                continue
            outcomes[topic.name] = None
            self.stored["topics", topic.name] = dict(topic.config)
            self.assignments[topic.name] = TopicAssignment(topic.name, topic.topic_id, topic.partitions, 0)
            if not self.is_paused:
                self.on_created(self.assignments[topic.name])
        return outcomes

    async def set_assignment(self, assignment: TopicAssignment) -> TopicAssignment:
        if self.conflicts or assignment.version != self.assignments[assignment.topic].version:
            self.conflicts -= 1
            raise BadVersionError("changed", assignment.topic)
        written = replace(assignment, version=assignment.version + 1)
        self.assignments[assignment.topic] = written
        if not self.is_paused:
            self.on_created(written)
        return written

    async def request_topic_deletions(self, topics: Sequence[str]) -> dict[str, ZooKeeperError | None]:
        outcomes: dict[str, ZooKeeperError | None] = {}
        for topic in topics:
            outcomes[topic] = NodeExistsError("marked", topic) if topic in self.marked else None
            if outcomes[topic] is None:
                self.marked.append(topic)
                if not self.is_paused:
                    self.on_marked(topic)
        return outcomes

    def finish_deletion(self, topic: str) -> None:
        del self.assignments[topic]
        self.marked.remove(topic)
        watches, self._watches = self._watches, []
        for watch in watches:
            watch(None)

    async def config(self, entity_type: str, entity_name: str) -> dict[str, str]:
        return dict(self.stored.get((entity_type, entity_name), {}))

    async def configs(self, entity_type: str) -> dict[str, dict[str, str]]:
        return {name: dict(config) for (kind, name), config in self.stored.items() if kind == entity_type}

    async def set_config(self, entity_type: str, entity_name: str, config: Mapping[str, str]) -> None:
        self.stored[entity_type, entity_name] = dict(config)


class AdminHarness:
    """The parts that admin handlers use, wired, with brokers 0 up to a count and broker 0 as controller."""

    def __init__(self, broker_count: int = 1, settings: Mapping[str, str] | None = None) -> None:
        self.clock = ManualClock()
        self.random = random.Random(1)
        self.cluster = FakeCluster()
        self.cluster.on_created = self.publish
        self.cluster.on_marked = self._delete
        self.brokers = [broker(broker_id) for broker_id in range(broker_count)]
        self.wheel = TimingWheel[DelayedOperation](self.clock)
        self.config = BrokerConfig.from_properties({"broker.id": "0", **(settings or {})})
        self.cache = MetadataCache()
        self.store = ConfigStore(self.config, lambda: self.cache.topic_names)
        self.admin = TopicAdmin(
            0,
            self.config,
            cast("ClusterStore", self.cluster),
            self.cache,
            self.store,
            DelayedOperationPurgatory("topic", self.wheel),
            self.clock,
            self.random,
            complete_deletions=self.cluster.complete_deletions,
        )
        self.throttle = no_quotas(self.clock)
        self.metadata_parts = MetadataParts(
            cache=self.cache,
            cluster_id="cluster",
            config=self.config,
            responses=TopicResponses(self.cache),
            throttle=self.throttle,
            topic_admin=self.admin,
        )
        self.apply([])

    def apply(self, partitions: list[PartitionLeadership], *, controller_id: int = 0) -> None:
        self.cache.apply(UpdateMetadata(controller_id, 1, partitions, self.brokers))

    def publish(self, assignment: TopicAssignment) -> None:
        """Elect the first replica of each partition."""
        self.apply([_leadership(assignment, number) for number in assignment.partitions])

    def add_topic(self, name: str, partitions: int = 1, replicas: tuple[int, ...] = (0,)) -> TopicAssignment:
        """Make a topic exist without asking anybody."""
        numbers = {number: ReplicaAssignment(replicas) for number in range(partitions)}
        assignment = TopicAssignment(name, random_uuid(self.random), numbers, 0)
        self.cluster.assignments[name] = assignment
        self.publish(assignment)
        return assignment

    def remove_from_metadata(self, topic: str) -> None:
        assignment = self.cluster.assignments[topic]
        self.apply(
            [
                replace(_leadership(assignment, number), leader=LEADER_DURING_DELETE)
                for number in assignment.partitions
            ]
        )

    def expire(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for operation in self.wheel.advance():
            operation.expire()

    async def settle(self) -> None:
        """Let tasks run until they wait."""
        for _ in range(10):
            await asyncio.sleep(0)

    def _delete(self, topic: str) -> None:
        self.remove_from_metadata(topic)
        self.cluster.finish_deletion(topic)


def _leadership(assignment: TopicAssignment, number: int) -> PartitionLeadership:
    replicas = assignment.partitions[number].replicas
    return PartitionLeadership(
        topic=assignment.topic,
        topic_id=assignment.topic_id,
        partition=number,
        controller_epoch=1,
        leader=replicas[0],
        leader_epoch=0,
        isr=replicas,
        partition_epoch=0,
        replicas=replicas,
    )
