"""Creates, grows and deletes topics for clients, with Kafka's rules and errors.

A topic is created by writing its assignment to ZooKeeper; the controller watches the path, elects leaders and
sends the brokers their roles. So each operation here validates, writes, and waits until the metadata cache
shows the result or the client's time-out expires; the operation continues after a time-out. Replicas are
placed by `replica_assignment`, names are validated by `topic_names`, settings change through `ConfigAdmin`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from kalda.broker.config import ConfigStore
from kalda.broker.config.config_admin import ConfigAdmin
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.topics.auto_created_topics import BROKER_DEFAULT, auto_created_topic
from kalda.broker.topics.topic_names import (
    CLUSTER_METADATA_TOPIC,
    collision_key,
    has_collision_characters,
    topic_name_problem,
    validate_topic_name,
)
from kalda.broker.topics.topic_rules import (
    manual_assignment,
    refuse_cordoned,
    validate_added_replicas,
    validate_assignment,
    validate_partition_count,
)
from kalda.broker.topics.topic_wait import TopicWait
from kalda.cluster.cluster_store import ClusterStore, NewTopic
from kalda.cluster.schema import ReplicaAssignment, TopicAssignment
from kalda.common.config_def import ConfigError
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.common.replica_assignment import assign_replicas
from kalda.common.turns import between
from kalda.common.types import UUID, ZERO_UUID, is_other_topic, random_uuid, uuid_to_text
from kalda.protocol.messages.create_partitions import CreatePartitionsTopic
from kalda.protocol.messages.create_topics import CreatableTopic
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random
from kalda.settings import BrokerConfig
from kalda.zookeeper.errors import BadVersionError, NodeExistsError, ZooKeeperError
from kalda.zookeeper.port import WatchEvent

logger: Final = logging.getLogger(__name__)

_CONFLICT_RETRIES: Final = 10
"""Attempts to grow a topic. Each failure means that another broker changed the topic at the same time."""


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or that validation accepted."""

    name: str
    topic_id: UUID
    assignment: Mapping[int, tuple[int, ...]]
    config: Mapping[str, str]

    @property
    def replication_factor(self) -> int:
        """Replicas of each partition."""
        return len(self.assignment[0])


Take = Callable[[int], None]
"""Uses up a client's budget of changed partitions; raises `ApiError` if it is empty."""


_WRITTEN_TOGETHER: Final = 200
"""New topics that are written in one piece, some 50 microseconds each."""


def unbounded(count: int) -> None:
    """Take from no budget."""


Outcome = CreatedTopic | ApiError
"""The result for one topic of a request."""

_BEING_CREATED: Final = frozenset({ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT})
"""Errors after which a topic to be created exists or is about to."""


class TopicAdmin:
    """The operations on topics that this broker performs for clients."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        cluster: ClusterStore,
        metadata_cache: MetadataCache,
        config_store: ConfigStore,
        purgatory: DelayedOperationPurgatory,
        clock: Clock,
        random: Random,
        *,
        complete_deletions: Callable[[Collection[str]], Awaitable[None]],
    ) -> None:
        """`purgatory` holds topic operations; `random` makes ids and chooses first brokers.

        `complete_deletions` makes this broker's controller delete topics without waiting for dead brokers; it
        may raise `ApiError`.
        """
        self._broker_id: Final = broker_id
        self._config: Final = config
        self._cluster: Final = cluster
        self._cache: Final = metadata_cache
        self._config_store: Final = config_store
        self._wait: Final = TopicWait(purgatory)
        self._clock: Final = clock
        self._complete_deletions: Final = complete_deletions
        self._random: Final = random
        self.new_topic_id: Callable[[], UUID] = partial(random_uuid, random)
        """Draws the id of a topic; a model of other brokers replaces it."""
        self.configs: Final = ConfigAdmin(broker_id, config, cluster, metadata_cache, config_store)
        """Changes the settings of topics and brokers."""
        self._being_auto_created: Final[set[str]] = set()
        metadata_cache.on_change(self._on_metadata_change)

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, which serves these operations."""
        return self._cache.controller_id == self._broker_id

    async def create_topics(
        self,
        topics: Sequence[CreatableTopic],
        timeout_ms: int,
        *,
        validate_only: bool = False,
        take: Take = unbounded,
    ) -> dict[str, Outcome]:
        """Create topics and wait until their partitions have leaders; names are distinct.

        `take` is called with the number of partitions of each topic and may refuse it by an `ApiError`.

        With a time-out of 0 or less the method does not wait, and the result of a topic that is being created
        is REQUEST_TIMED_OUT, as in Kafka.

        Raises:
            ZooKeeperError: ZooKeeper did not answer.
        """
        deleting = frozenset(await self._cluster.topics_to_delete())
        if not validate_only and (wanted := [topic.name for topic in topics if topic.name in deleting]):
            # If this broker is not the controller, or no longer, the topics stay marked for deletion.
            with contextlib.suppress(ApiError):
                await self._complete_deletions(wanted)
            deleting = frozenset(await self._cluster.topics_to_delete())
        taken = await self._names_by_collision_key(topics)
        cordoned = await self._cordoned_brokers()
        outcomes: dict[str, Outcome] = {}
        for index, topic in enumerate(topics):
            await between(index)
            try:
                if topic.name in deleting:
                    raise ApiError(
                        ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' is marked for deletion."
                    )
                planned_topic = outcomes[topic.name] = self._plan(topic, taken, cordoned)
                if not validate_only:
                    take(len(planned_topic.assignment))
            except ApiError as error:
                outcomes[topic.name] = error
        if validate_only:
            return outcomes
        planned = [outcome for outcome in outcomes.values() if isinstance(outcome, CreatedTopic)]
        for start in range(0, len(planned), _WRITTEN_TOGETHER):
            outcomes.update(await self._write_new_topics(planned[start : start + _WRITTEN_TOGETHER]))
        created = [outcome for outcome in outcomes.values() if isinstance(outcome, CreatedTopic)]
        await self._wait.wait_for({new.name: partial(self._has_leaders, new) for new in created}, timeout_ms)
        for new in created:
            if timeout_ms <= 0 or not self._has_leaders(new):
                outcomes[new.name] = ApiError(ErrorCode.REQUEST_TIMED_OUT)
        return outcomes

    async def auto_create(self, names: Iterable[str], take: Take = unbounded) -> dict[str, ErrorCode]:
        """Create topics that a client requested; return the error code for each.

        The code is LEADER_NOT_AVAILABLE on success and if ZooKeeper did not answer: the client asks again
        until the topic has leaders. `take` is called as in `create_topics`.
        """
        codes: dict[str, ErrorCode] = {}
        wanted = []
        for index, name in enumerate(names):
            await between(index)
            if topic_name_problem(name) is not None or name == CLUSTER_METADATA_TOPIC:
                codes[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
                continue
            codes[name] = ErrorCode.LEADER_NOT_AVAILABLE
            if name not in self._being_auto_created:
                wanted.append(name)
        self._being_auto_created.update(wanted)
        try:
            outcomes = await self.create_topics(
                [auto_created_topic(name, self._config) for name in wanted], timeout_ms=0, take=take
            )
            refused = {
                name: outcome
                for name, outcome in outcomes.items()
                if isinstance(outcome, ApiError) and outcome.code not in _BEING_CREATED
            }
            # The metadata of a broker that has just started may lack live brokers and existing topics.
            existing = frozenset(await self._cluster.topics()) if refused else frozenset[str]()
        except ZooKeeperError as error:
            # The topic may exist although this broker's metadata does not have it yet.
            logger.warning(
                "topics %s are not created automatically for now: %s", ", ".join(sorted(wanted)), error
            )
            return codes
        finally:
            self._being_auto_created.difference_update(wanted)
        for name, outcome in refused.items():
            if name not in existing:
                logger.info("topic %s was not created automatically: %s", name, outcome)
                codes[name] = outcome.code
        return codes

    async def delete_topics(
        self, names: Collection[str], timeout_ms: int, *, take: Take = unbounded
    ) -> dict[str, ErrorCode]:
        """Delete topics and wait until the metadata lacks them and they can be created again.

        `take` is called as in `create_topics`.

        Raises:
            ZooKeeperError: ZooKeeper did not answer.
        """
        deadline = self._clock.monotonic() + timeout_ms / 1000
        codes: dict[str, ErrorCode] = {}
        deleting: dict[str, UUID] = {}
        held_up: set[str] = set()
        for index, name in enumerate(names):
            await between(index)
            known = self._cache.topic(name)
            if known is None:
                codes[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            try:
                take(len(known.partitions))
            except ApiError as refusal:
                codes[name] = refusal.code
            else:
                deleting[name] = known.topic_id
                live = self._cache.brokers.keys()
                if not all(live >= set(each.replicas) for each in known.partitions.values()):
                    held_up.add(name)
        for name, error in (await self._cluster.request_topic_deletions(list(deleting))).items():
            # A second request waits for the same deletion.
            if error is not None and not isinstance(error, NodeExistsError):
                raise error
            logger.info("topic %s is marked for deletion", name)
        await self._wait.wait_for(
            {name: partial(self._is_gone, name, topic_id) for name, topic_id in deleting.items()}, timeout_ms
        )
        # Dead brokers hold up the mark of a topic, but not its name.
        await self._wait_for_marks(deleting.keys() - held_up, deadline)
        for name, topic_id in deleting.items():
            gone = timeout_ms > 0 and self._is_gone(name, topic_id)
            codes[name] = ErrorCode.NONE if gone else ErrorCode.REQUEST_TIMED_OUT
        return codes

    async def create_partitions(
        self,
        topics: Sequence[CreatePartitionsTopic],
        timeout_ms: int,
        *,
        validate_only: bool = False,
        take: Take = unbounded,
    ) -> dict[str, ApiError | None]:
        """Grow topics and wait until the new partitions have leaders; names are distinct.

        `take` is called with the number of new partitions, as in `create_topics`.

        Raises:
            ZooKeeperError: ZooKeeper did not answer.
        """
        outcomes: dict[str, ApiError | None] = {}
        grown: list[CreatePartitionsTopic] = []
        deleting = frozenset(await self._cluster.topics_to_delete())
        cordoned = await self._cordoned_brokers()
        for index, topic in enumerate(topics):
            await between(index)
            try:
                if topic.name in deleting:
                    raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
                await self._grow(topic, cordoned, validate_only=validate_only, take=take)
            except ApiError as error:
                outcomes[topic.name] = error
            else:
                outcomes[topic.name] = None
                grown.append(topic)
        if validate_only:
            return outcomes
        await self._wait.wait_for(
            {topic.name: partial(self._has_grown, topic) for topic in grown}, timeout_ms
        )
        for topic in grown:
            if timeout_ms <= 0 or not self._has_grown(topic):
                outcomes[topic.name] = ApiError(ErrorCode.REQUEST_TIMED_OUT)
        return outcomes

    async def wait_for(self, conditions: Mapping[str, Callable[[], bool]], timeout_ms: int) -> None:
        """Wait until the metadata fulfils the condition of each topic, or until the time-out."""
        await self._wait.wait_for(conditions, timeout_ms)

    # Validation.

    async def _names_by_collision_key(self, topics: Sequence[CreatableTopic]) -> dict[str, str]:
        """Index all topics by `collision_key`; return nothing if no new name can collide."""
        if not any(has_collision_characters(topic.name) for topic in topics):
            return {}
        return {collision_key(name): name for name in await self._cluster.topics()}

    def _plan(self, topic: CreatableTopic, taken: dict[str, str], cordoned: Collection[int]) -> CreatedTopic:
        """Validate a new topic and assign its replicas.

        Raises:
            ApiError: the topic cannot be created.
        """
        name = topic.name
        if name in self._cache:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        config: dict[str, str] = {}
        for entry in topic.configs:
            if entry.value is None:
                raise ApiError(ErrorCode.INVALID_CONFIG, f"The topic config {entry.name} has no value.")
            config[entry.name] = entry.value
        assignment = self._assignment(topic, cordoned)
        validate_topic_name(name)
        if has_collision_characters(name):
            other = taken.get(collision_key(name))
            if other == name:
                raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
            if other is not None:
                raise ApiError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )
        validate_assignment(assignment)
        try:
            self._config.topics.validate(config)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
        if has_collision_characters(name):
            taken[collision_key(name)] = name
        return CreatedTopic(name, ZERO_UUID, assignment, config)

    def _assignment(self, topic: CreatableTopic, cordoned: Collection[int]) -> dict[int, tuple[int, ...]]:
        if topic.assignments:
            if topic.num_partitions != BROKER_DEFAULT or topic.replication_factor != BROKER_DEFAULT:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    "Both counts and replica assignments are given; with assignments, the counts must be -1.",
                )
            assignment = manual_assignment(topic.assignments)
            refuse_cordoned(assignment.values(), cordoned)
            return assignment
        partitions, replicas = topic.num_partitions, topic.replication_factor
        if partitions == BROKER_DEFAULT:
            partitions = self._config.num_partitions
        if replicas == BROKER_DEFAULT:
            replicas = self._config.default_replication_factor
        validate_partition_count(partitions)
        return self._assigned(partitions, replicas, cordoned)

    def _assigned(
        self,
        partitions: int,
        replicas: int,
        cordoned: Collection[int],
        first: tuple[int, int] | None = None,
    ) -> dict[int, tuple[int, ...]]:
        """Choose replicas; `first` is the first broker and the first new partition of a topic that grows."""
        racks = {
            broker.id: broker.rack for broker in self._cache.brokers.values() if broker.id not in cordoned
        }
        start = None
        if first is not None:
            index = next((index for index, each in enumerate(sorted(racks)) if each >= first[0]), 0)
            start = (index, first[1])
        try:
            return assign_replicas(racks, partitions, replicas, chance=self._random, start=start)
        except ApiError as error:
            if not cordoned or error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
                raise
            text = f"{error.message} All log directories of brokers {sorted(cordoned)} are cordoned."
            raise ApiError(error.code, text) from None

    async def _cordoned_brokers(self) -> frozenset[int]:
        """Return the brokers that get no new replicas; only their registrations in ZooKeeper say so."""
        found = await self._cluster.brokers()
        return frozenset(broker for broker, info in found.items() if info.is_cordoned)

    # Writing.

    async def _write_new_topics(self, planned: Sequence[CreatedTopic]) -> dict[str, Outcome]:
        """Write the planned topics; a topic that another broker created meanwhile is an error."""
        new_topics = [
            NewTopic(
                name=topic.name,
                partitions={
                    number: ReplicaAssignment(brokers) for number, brokers in topic.assignment.items()
                },
                config=topic.config,
                topic_id=self.new_topic_id(),
            )
            for topic in planned
        ]
        # The replica manager may open the logs before the write returns, and they need the settings.
        before = {topic.name: self._config_store.topic_overrides(topic.name) for topic in planned}
        for topic in planned:
            self._config_store.set_topic(topic.name, topic.config)
        outcomes: dict[str, Outcome] = {}
        errors = await self._cluster.create_topics(new_topics)
        for topic, new in zip(planned, new_topics, strict=True):
            error = errors[topic.name]
            if error is None:
                outcomes[topic.name] = replace(topic, topic_id=new.topic_id)
                logger.info(
                    "topic %s is created with %d partitions, %d replicas, id %s",
                    topic.name,
                    len(topic.assignment),
                    topic.replication_factor,
                    uuid_to_text(new.topic_id),
                )
                continue
            if not isinstance(error, NodeExistsError):
                self._config_store.set_topic(topic.name, before[topic.name])
                raise error
            # Another broker created it meanwhile: what was in force before may be older than its settings.
            await self._config_store.load_topics(self._cluster, [topic.name])
            message = f"Topic '{topic.name}' already exists."
            outcomes[topic.name] = ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, message)
        return outcomes

    async def _grow(
        self, topic: CreatePartitionsTopic, cordoned: Collection[int], *, validate_only: bool, take: Take
    ) -> None:
        """Validate the new number of partitions and write it.

        Raises:
            ApiError: the topic cannot grow to it.
        """
        for attempt in range(_CONFLICT_RETRIES):
            current = (await self._cluster.topic_assignments([topic.name])).get(topic.name)
            if current is None:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic.name}' does not exist."
                )
            added = self._new_partitions(topic, current, cordoned)
            if validate_only:
                return
            if attempt == 0:
                take(len(added))
            partitions = {**current.partitions, **added}
            try:
                await self._cluster.set_assignment(replace(current, partitions=partitions))
            except BadVersionError:
                continue
            logger.info("topic %s grows to %d partitions", topic.name, topic.count)
            return
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"The topic '{topic.name}' is being changed by others.")

    def _new_partitions(
        self, topic: CreatePartitionsTopic, current: TopicAssignment, cordoned: Collection[int]
    ) -> dict[int, ReplicaAssignment]:
        if any(partition.is_being_reassigned for partition in current.partitions.values()):
            raise ApiError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                f"A partition reassignment is in progress for the topic '{topic.name}'.",
            )
        old_count = len(current.partitions)
        increment = topic.count - old_count
        if increment <= 0:
            problem = (
                f"already has {old_count} partitions"
                if increment == 0
                else f"has {old_count} partitions, more than the requested {topic.count}"
            )
            raise ApiError(ErrorCode.INVALID_PARTITIONS, f"The topic '{topic.name}' {problem}.")
        validate_partition_count(topic.count)
        first = current.partitions[0].replicas
        if topic.assignments is not None:
            replicas = [tuple(assignment.broker_ids) for assignment in topic.assignments]
            validate_added_replicas(replicas, increment, len(first), self._cache.brokers)
            refuse_cordoned(replicas, cordoned)
            return {old_count + index: ReplicaAssignment(brokers) for index, brokers in enumerate(replicas)}
        assigned = self._assigned(increment, len(first), cordoned, (first[0], old_count))
        return {number: ReplicaAssignment(brokers) for number, brokers in assigned.items()}

    # Waiting for the metadata.

    def _on_metadata_change(self, topics: Collection[str]) -> None:
        self._wait.topics_changed(topics)
        for topic in topics:
            if topic not in self._cache:
                self._config_store.set_topic(topic, {})

    def _has_leaders(self, topic: CreatedTopic) -> bool:
        known = self._cache.topic(topic.name)
        return (
            known is not None
            and not is_other_topic(known.topic_id, topic.topic_id)
            and len(known.partitions) == len(topic.assignment)
            and all(partition.leader >= 0 for partition in known.partitions.values())
        )

    def _has_grown(self, topic: CreatePartitionsTopic) -> bool:
        known = self._cache.topic(topic.name)
        return (
            known is not None
            and len(known.partitions) >= topic.count
            and all(partition.leader >= 0 for partition in known.partitions.values())
        )

    def _is_gone(self, name: str, topic_id: UUID) -> bool:
        known = self._cache.topic(name)
        return known is None or is_other_topic(known.topic_id, topic_id)

    async def _wait_for_marks(self, topics: Collection[str], deadline: float) -> None:
        """Wait until the controller has completed the deletion of the topics, or until the deadline.

        Kafka answers as soon as the metadata lacks the topic; a client that then creates it again may get
        TOPIC_ALREADY_EXISTS.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline - self._clock.monotonic()):
                while True:
                    changed = asyncio.Event()
                    marked = await self._cluster.topics_to_delete(partial(_set, changed))
                    if not any(topic in marked for topic in topics):
                        return
                    await changed.wait()


def _set(changed: asyncio.Event, _: WatchEvent) -> None:
    changed.set()
