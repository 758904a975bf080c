"""Typed operations of brokers on the cluster's znodes: registrations, topics, configurations, producer ids.

The writes of the active controller are in `controller_store`, because its epoch fences them; the ISR writes
of leaders are in `isr_store`. Nothing is cached: each call reads or writes ZooKeeper, and a read sets the
watch that it is given.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kalda.cluster import paths, schema
from kalda.cluster.config_changes import ConfigChange, ConfigChanges, read_configs
from kalda.cluster.layout import ensure_paths, retried
from kalda.cluster.schema import (
    BrokerInfo,
    PartitionState,
    ProducerIdBlock,
    ReplicaAssignment,
    TopicAssignment,
)
from kalda.common.turns import Turns, between_many
from kalda.common.types import UUID, TopicPartition, random_uuid, uuid_to_text
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random
from kalda.zookeeper.errors import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ZooKeeperError,
)
from kalda.zookeeper.port import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Operation,
    SetData,
    Stat,
    WatchCallback,
    ZooKeeperClient,
)

READ_AT_ONCE: Final = 512
"""Znodes that one read of a cluster's partitions names: 2 to 4 ms on the event loop."""

_DECODED_BYTES_PER_TURN: Final = 32 * 1024
"""Bytes of assignments that are decoded at once, some 5 ms; those of 10,000 partitions have 110 KB."""

_DELETED_WHEN_EMPTY: Final = frozenset({"users", "clients", "ips"})
"""The entities that have no znode unless they have settings: anyone may name users, clients and addresses."""

_NO_SETTINGS: Final = (b"", schema.encode_config({}))

_CONFLICT_RETRIES: Final = 100
"""Attempts of a compare-and-set. Each failure means that another broker succeeded, so only a hundred brokers
within a few milliseconds could reach this bound."""


class BrokerIdInUseError(Exception):
    """Another live broker is registered under this id."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; the caller has validated it and chosen the replicas."""

    name: str
    partitions: Mapping[int, ReplicaAssignment]
    config: Mapping[str, str]
    topic_id: UUID


class ClusterStore:
    """One broker's view of the cluster's znodes.

    All methods raise `ZooKeeperError` (see the port). A method that reads one znode raises
    `schema.SchemaError` if it is malformed; a method that reads many logs malformed ones and leaves them out.
    The methods list only further errors.
    """

    def __init__(self, zookeeper: ZooKeeperClient, clock: Clock, random: Random) -> None:
        self.zookeeper: Final = zookeeper
        self.random: Final = random
        self._clock: Final = clock

    # The cluster and its brokers.

    async def ensure_layout(self) -> None:
        """Create the persistent znodes of Kafka's layout that are missing."""
        await ensure_paths(self.zookeeper, paths.PERSISTENT)
        await retried(self._mark_no_producer_ids)

    async def _mark_no_producer_ids(self) -> None:
        """Write null where no block of producer ids was allocated yet.

        Kafka's controller takes null for "none yet", and fails on empty data to allocate a block, for ever.
        """
        data, stat = await self.zookeeper.get(paths.PRODUCER_ID_BLOCK)
        if not data and stat.version == 0:
            with contextlib.suppress(BadVersionError):
                await self.zookeeper.multi([SetData(paths.PRODUCER_ID_BLOCK, None, stat.version)])

    async def cluster_id(self) -> str:
        """Return the cluster's id; the cluster's first broker creates it."""
        while True:
            try:
                data, _ = await self.zookeeper.get(paths.CLUSTER_ID)
                return schema.decode_cluster_id(data)
            except NoNodeError:
                cluster_id = uuid_to_text(random_uuid(self.random))
            operations: list[Operation] = [
                Create(paths.CLUSTER_ID, schema.encode_cluster_id(cluster_id)),
            ]
            if await self.zookeeper.exists(paths.CLUSTER) is None:
                operations.insert(0, Create(paths.CLUSTER))
            try:
                await self.zookeeper.multi(operations)
                return cluster_id
            except NodeExistsError:
                continue

    async def next_broker_id(self, reserved_max: int) -> int:
        """Return a broker id that was never used, above `reserved.broker.max.id`."""
        stat = await self.zookeeper.set(paths.BROKER_SEQUENCE_ID, b"")
        return reserved_max + stat.version

    async def register_broker(self, info: BrokerInfo, own_sessions: Collection[int] = ()) -> int:
        """Register a live broker for as long as the session lasts; return its broker epoch.

        A registration without a timestamp gets the current time. The registration of a session in
        `own_sessions` is replaced: these are earlier sessions of this process.

        Raises:
            BrokerIdInUseError: another session has registered the id.
        """
        path = paths.broker(info.id)
        if info.timestamp_ms < 0:
            info = replace(info, timestamp_ms=self._clock.time_ms())
        create = Create(path, schema.encode_broker(info), ephemeral=True)
        operations: list[Operation] = [create]
        for _ in range(_CONFLICT_RETRIES):
            try:
                await self.zookeeper.multi(operations)
            except (NodeExistsError, NoNodeError) as error:
                if isinstance(error, NoNodeError) and len(operations) == 1:
                    raise
            stat = await self.zookeeper.exists(path)
            operations = [create]
            if stat is None:
                # The earlier registration was deleted meanwhile.
                continue
            if stat.ephemeral_owner == self.zookeeper.session_id:
                # A create that was repeated after a lost response finds its own znode, too.
                return stat.czxid
            if stat.ephemeral_owner not in own_sessions:
                raise self._id_in_use(path, info.id, stat.ephemeral_owner)
            operations = [Delete(path, stat.version), create]
        raise NodeExistsError(f"the registration {path} is created and deleted repeatedly", path)

    def _id_in_use(self, path: str, broker_id: int, owner: int) -> BrokerIdInUseError:
        return BrokerIdInUseError(
            f"broker id {broker_id} is in use: {path} belongs to session {owner:#x}, this "
            f"one is {self.zookeeper.session_id:#x}; stop the other broker, wait for its session to "
            "expire, or give this one another broker.id"
        )

    async def update_broker(self, info: BrokerInfo) -> None:
        """Replace the content of the broker's registration, whose epoch stays.

        Raises:
            ZooKeeperError: it could not be written, or there is no registration.
        """
        await self.zookeeper.set(paths.broker(info.id), schema.encode_broker(info))

    async def unregister_broker(self, broker_id: int) -> None:
        """Delete a broker's registration; does nothing if there is none."""
        try:
            await self.zookeeper.delete(paths.broker(broker_id))
        except NoNodeError:
            return

    async def brokers(
        self, watch: WatchCallback | None = None, *, watch_each: bool = False
    ) -> dict[int, BrokerInfo]:
        """Return the live brokers by id; `watch` reports the next registration or its end.

        With `watch_each`, it also reports when what a broker has registered changes.
        """
        ids = paths.numbers(await self.zookeeper.children(paths.BROKER_IDS, watch))
        found = await self.zookeeper.get_many(
            [paths.broker(broker_id) for broker_id in ids], watch if watch_each else None
        )
        return schema.decode_each(
            ids, found, lambda broker_id, entry: schema.decode_broker(broker_id, entry[0], entry[1].czxid)
        )

    async def check_registrations(self) -> None:
        """Check that this release can read the registration of each live broker; malformed ones are left out.

        Raises:
            NewerSchemaError: it has a newer version; the message has the path.
        """
        ids = paths.numbers(await self.zookeeper.children(paths.BROKER_IDS))
        found = await self.zookeeper.get_many([paths.broker(broker_id) for broker_id in ids])
        for broker_id, entry in zip(ids, found, strict=True):
            try:
                if entry is not None:
                    schema.decode_broker(broker_id, entry[0])
            except schema.NewerSchemaError as error:
                raise schema.NewerSchemaError(f"{paths.broker(broker_id)}: {error}") from None
            except schema.SchemaError:
                continue

    async def controller_id(self, watch: WatchCallback | None = None) -> int | None:
        """Return the active controller's broker id, or None."""
        if await self.zookeeper.exists(paths.CONTROLLER, watch) is None:
            return None
        try:
            data, _ = await self.zookeeper.get(paths.CONTROLLER)
        except NoNodeError:
            return None
        return schema.decode_controller(data)

    # Topics.

    async def topics(self, watch: WatchCallback | None = None) -> list[str]:
        """Return the names of all topics, including those that are being deleted."""
        return await self.zookeeper.children(paths.TOPICS, watch)

    async def topic_assignments(
        self, topics: Iterable[str], watch: WatchCallback | None = None
    ) -> dict[str, TopicAssignment]:
        """Return the assignments of the topics that exist; `watch` reports when partitions are added."""
        names = list(topics)
        found = await self.zookeeper.get_many([paths.topic(name) for name in names], watch)
        assignments: dict[str, TopicAssignment] = {}
        decoded_bytes = 0
        for name, entry in zip(names, found, strict=True):
            decoded_bytes += len(entry[0]) if entry is not None else 0
            if decoded_bytes > _DECODED_BYTES_PER_TURN:
                decoded_bytes = 0
                await Turns.of_brokers().wait()
            assignments |= schema.decode_each(
                [name],
                [entry],
                lambda name, entry: schema.decode_topic(name, entry[0], entry[1].version, entry[1].czxid),
            )
        return assignments

    async def deleted_topics(self, topics: Iterable[str]) -> set[str]:
        """Return which of some topics do not exist or are marked for deletion.

        That a topic does not exist is checked by transactions: a read may be answered by a server that has
        yet to see its creation.
        """
        names, marked = list(topics), set(await self.topics_to_delete())
        outcomes = await self.zookeeper.multi_many(
            [[Check(paths.topic(name), ANY_VERSION)] for name in names]
        )
        for outcome in outcomes:
            if isinstance(outcome, ZooKeeperError) and not isinstance(outcome, NoNodeError):
                raise outcome
        return {
            name
            for name, outcome in zip(names, outcomes, strict=True)
            if name in marked or isinstance(outcome, NoNodeError)
        }

    async def partition_states(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionState]:
        """Return the states of those partitions that have one."""
        return await read_partition_states(self.zookeeper, partitions)

    async def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, ZooKeeperError | None]:
        """Create topics, pipelined; return for each its error (`NodeExistsError`: it exists), or None.

        The same transaction writes a topic's configuration. The controller creates the partitions when its
        watch reports the topic.
        """
        leftovers = await self.zookeeper.get_many([paths.config("topics", topic.name) for topic in topics])
        transactions: list[list[Operation]] = []
        for topic, leftover in zip(topics, leftovers, strict=True):
            config_path = paths.config("topics", topic.name)
            config = schema.encode_config(topic.config)
            assignment = TopicAssignment(topic.name, topic.topic_id, topic.partitions)
            transactions.append(
                [
                    Create(paths.topic(topic.name), schema.encode_topic(assignment)),
                    Create(config_path, config) if leftover is None else SetData(config_path, config),
                ]
            )
        outcomes = await self.zookeeper.multi_many(transactions)
        return {
            topic.name: outcome if isinstance(outcome, ZooKeeperError) else None
            for topic, outcome in zip(topics, outcomes, strict=True)
        }

    async def set_assignment(self, assignment: TopicAssignment) -> TopicAssignment:
        """Replace a topic's assignment, e.g. to add partitions, if it still has `assignment.version`.

        Raises:
            BadVersionError: it was changed meanwhile; the caller must read it again.
        """
        stat = await self.zookeeper.set(
            paths.topic(assignment.topic), schema.encode_topic(assignment), assignment.version
        )
        return TopicAssignment(
            assignment.topic, assignment.topic_id, assignment.partitions, version=stat.version
        )

    async def request_topic_deletions(self, topics: Sequence[str]) -> dict[str, ZooKeeperError | None]:
        """Mark topics for deletion by the controller; `NodeExistsError`: the topic is marked already."""
        outcomes = await self.zookeeper.multi_many([[Create(paths.delete_topic(topic))] for topic in topics])
        return {
            topic: outcome if isinstance(outcome, ZooKeeperError) else None
            for topic, outcome in zip(topics, outcomes, strict=True)
        }

    async def topics_to_delete(self, watch: WatchCallback | None = None) -> list[str]:
        """Return the topics marked for deletion."""
        return await self.zookeeper.children(paths.DELETE_TOPICS, watch)

    # Configuration.

    async def config(self, entity_type: str, entity_name: str) -> dict[str, str]:
        """Return the dynamic configuration of an entity; empty if it has none."""
        (found,) = await self.zookeeper.get_many([paths.config(entity_type, entity_name)])
        return {} if found is None else schema.decode_config(entity_type, entity_name, found[0])

    async def newest_config(self, entity_type: str, entity_name: str) -> dict[str, str]:
        """Return the dynamic configuration of an entity with all changes that were answered before.

        A read alone is answered by one server of an ensemble, which may not have heard of the last changes.
        """
        await self.zookeeper.multi([Check(paths.CONFIG, ANY_VERSION)])
        return await self.config(entity_type, entity_name)

    async def configs(self, entity_type: str) -> dict[str, dict[str, str]]:
        """Return the dynamic configurations of all entities of a type, e.g. ``topics``."""
        return await read_configs(self.zookeeper, entity_type)

    async def set_config(self, entity_type: str, entity_name: str, config: Mapping[str, str]) -> None:
        """Replace the dynamic configuration of an entity and notify every broker, in one transaction.

        What was there may be malformed.
        """
        await self._write_config(entity_type, entity_name, lambda _: config)

    async def update_config(
        self,
        entity_type: str,
        entity_name: str,
        change: Callable[[dict[str, str]], Mapping[str, str]],
    ) -> Mapping[str, str]:
        """Replace the dynamic configuration of an entity by what `change` makes of it, and return that.

        The configuration and the notification of every broker are written in one transaction; `change` is
        called again if another writer was faster.

        Raises:
            SchemaError: what is there is malformed; it stays as it is.
        """

        def make(data: bytes) -> Mapping[str, str]:
            return change(schema.decode_config(entity_type, entity_name, data))

        return await self._write_config(entity_type, entity_name, make)

    async def _write_config(
        self, entity_type: str, entity_name: str, make: Callable[[bytes], Mapping[str, str]]
    ) -> Mapping[str, str]:
        path = paths.config(entity_type, entity_name)
        notification = Create(
            f"{paths.CONFIG_CHANGES}/{paths.CONFIG_CHANGE_PREFIX}",
            schema.encode_config_change(entity_type, entity_name),
            sequential=True,
        )
        # A client id of a user is two levels below the users.
        levels = entity_name.split("/")
        parents = [paths.config(entity_type, "/".join(levels[:count])) for count in range(1, len(levels))]
        for _ in range(_CONFLICT_RETRIES):
            *found_parents, found = await self.zookeeper.get_many([*parents, path])
            changed = make(b"" if found is None else found[0])
            writes: list[Operation]
            if not changed and entity_type in _DELETED_WHEN_EMPTY and (found is None or _is_leaf(found)):
                writes = _deletions([*zip(parents, found_parents, strict=True), (path, found)])
            else:
                data = schema.encode_config(changed)
                writes = [
                    Create(parent)
                    for parent, existing in zip(parents, found_parents, strict=True)
                    if existing is None
                ]
                writes.append(Create(path, data) if found is None else SetData(path, data, found[1].version))
            try:
                await self.zookeeper.multi([*writes, notification])
                return changed
            except (NodeExistsError, NoNodeError, NotEmptyError, BadVersionError) as error:
                if error.operation_index == len(writes):
                    raise
        raise BadVersionError(f"{path} is changed repeatedly by other clients", path)

    async def watch_config_changes(self, callback: Callable[[ConfigChange], None]) -> ConfigChanges:
        """Call `callback` for each configuration change of any broker from now on.

        A caller that reads the configurations after this returns misses no change. Closing the returned
        handle stops the calls.
        """
        changes = ConfigChanges(self.zookeeper, self.random, callback)
        await changes.start()
        return changes

    # Producer ids.

    async def allocate_producer_ids(
        self, broker_id: int, size: int = schema.PRODUCER_ID_BLOCK_SIZE
    ) -> ProducerIdBlock:
        """Allocate the next block of producer ids; no two brokers ever get the same id."""
        for _ in range(_CONFLICT_RETRIES):
            data, stat = await self.zookeeper.get(paths.PRODUCER_ID_BLOCK)
            first = schema.decode_producer_id_block(data).last + 1 if data else 0
            block = ProducerIdBlock(broker_id, first, first + size - 1)
            try:
                await self.zookeeper.set(
                    paths.PRODUCER_ID_BLOCK, schema.encode_producer_id_block(block), stat.version
                )
                return block
            except BadVersionError:
                continue
        raise BadVersionError(
            f"{paths.PRODUCER_ID_BLOCK} changed {_CONFLICT_RETRIES} times in a row", paths.PRODUCER_ID_BLOCK
        )


def _is_leaf(entry: tuple[bytes, Stat]) -> bool:
    return entry[1].num_children == 0


def _deletions(branch: Sequence[tuple[str, tuple[bytes, Stat] | None]]) -> list[Operation]:
    """Return the deletion of the last znode of a branch, and of those above that it leaves empty."""
    deletions: list[Operation] = []
    for path, entry in reversed(branch):
        if entry is None:
            break
        data, stat = entry
        if deletions and (stat.num_children > 1 or data not in _NO_SETTINGS):
            break
        deletions.append(Delete(path, stat.version))
    return deletions


async def read_partition_states(
    zookeeper: ZooKeeperClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, PartitionState]:
    """Return the states of those partitions that have one, some hundred at a time."""
    wanted = list(partitions)
    states: dict[TopicPartition, PartitionState] = {}
    for start in range(0, len(wanted), READ_AT_ONCE):
        await between_many(start)
        some = wanted[start : start + READ_AT_ONCE]
        found = await zookeeper.get_many([paths.partition_state(p) for p in some])
        states.update(schema.decode_partition_states(some, found))
    return states
