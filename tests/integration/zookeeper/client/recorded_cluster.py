"""Three brokers that change metadata through one engine, and recorders that take turns; no sockets of Kafka.

What the brokers do is noted down beside them: `expected` has each change with its author, and `copies` the
whole state at some times. A recorder may be killed at any await; the next one loads what the last appended.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kalda.broker.history.history_recorder import HistoryRecorder
from kalda.broker.history.history_shard import HistoryShard
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.cluster import paths
from kalda.cluster.acl_store import AclStore
from kalda.cluster.cluster_store import ClusterStore, NewTopic
from kalda.cluster.controller_store import ControllerStore, elect
from kalda.cluster.history.author import REQUESTER, Author, RequestAuthor
from kalda.cluster.history.changes import Change, SnapshotMark, decode_record
from kalda.cluster.history.recording_client import RecordingClient
from kalda.cluster.history.subjects import NOTES, children_below, parents, recorded_value, singles, subject_of
from kalda.cluster.history.timeline import Timeline
from kalda.cluster.schema import (
    LEADER_DURING_DELETE,
    BrokerInfo,
    ListenerEndpoint,
    PartitionState,
    ReplicaAssignment,
)
from kalda.common.pending import Pending
from kalda.common.types import TopicPartition, random_uuid
from kalda.controller.effects import PartitionLeadership, UpdateMetadata
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.runtime.system.clock import SystemClock
from kalda.security.acl.model import (
    AccessControlEntry,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.zookeeper.errors import NoNodeError
from kalda.zookeeper.port import ZooKeeperClient
from tests.integration.zookeeper.client.engines import WAIT_SECONDS, Engine

BROKERS: Final = 3
SECRET: Final = "geheim"
"""Must not appear in the history."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a client."""

    api: str
    user: str

    def author(self) -> RequestAuthor:
        return RequestAuthor(self.api, self.user, "client", "127.0.0.1")


class Log:
    """The topic: its records, and the shards that are fed with them."""

    def __init__(self) -> None:
        self.records: Final[list[CoordinatorRecord]] = []
        self.refusals = 0

    def timeline(self, until_ms: int | None = None) -> Timeline:
        timeline = Timeline(until_ms)
        timeline.add_all(self.decoded())
        return timeline

    def decoded(self) -> list[Change | SnapshotMark]:
        found = [decode_record(each.key, each.value or b"") for each in self.records]
        assert all(each is not None for each in found)
        return [each for each in found if each is not None]


class Context:
    """The runtime of a shard that leads."""

    def __init__(self, log: Log, shard: HistoryShard) -> None:
        self._log: Final = log
        self._shard: Final = shard
        self.is_leading = True

    def write(self, operation: Callable[[], Result[Any]]) -> Pending[Any]:
        assert self.is_leading
        for each in operation().records:
            self._log.records.append(each)
            self._shard.replay(len(self._log.records) - 1, -1, -1, each)
        return Pending.of(None)


class NoTopic:
    """The topic's creation, which nobody waits for here."""

    async def create_if_needed(self) -> None:
        return


class RecordedCluster:
    """The cluster; `step` makes one random change."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine: Final = engine
        self._random: Final = random.Random(seed)
        self._clock: Final = SystemClock()
        self.log: Final = Log()
        self.caches: Final = [MetadataCache() for _ in range(BROKERS)]
        self.expected: Final[list[tuple[str, bool, Author]]] = []
        """The changes with notes: path, whether it was deleted, author."""
        self.elected: Final[list[tuple[str, int]]] = []
        """The elections without notes: path and leader epoch."""
        self.copies: Final[dict[int, dict[str, Any]]] = {}
        self._clients: list[RecordingClient] = []
        self._stores: list[ClusterStore] = []
        self._acls: list[AclStore] = []
        self._controller: ControllerStore
        self._leader: tuple[HistoryShard, Context, asyncio.Task[None]] | None = None
        self._topics: Final[dict[str, NewTopic]] = {}
        self._states: Final[dict[TopicPartition, PartitionState]] = {}
        self._number = 0

    async def start(self) -> None:
        for broker_id in range(BROKERS):
            session: ZooKeeperClient = await self._engine.connect()
            plain = ClusterStore(session, self._clock, self._random)
            await plain.ensure_layout()
            client = RecordingClient(session, self._clock, self._random)
            await client.begin_notes(broker_id)
            client.controller_epoch = lambda: self._controller.epoch
            store = ClusterStore(client, self._clock, self._random)
            acls = AclStore(client, self._random)
            await acls.start(lambda pattern, entries: None)
            await store.register_broker(self._info(broker_id))
            self._clients.append(client)
            self._stores.append(store)
            self._acls.append(acls)
        controller = await elect(self._clients[0], self._clock, 0)
        assert controller is not None
        self._controller = controller
        self._update([])

    async def close(self) -> None:
        await self.kill()
        for acls in self._acls:
            await acls.close()

    # Recorders.

    async def lead(self, broker_id: int) -> None:
        """Let another broker record, from what is in the topic."""
        await self.kill()
        recorder = HistoryRecorder(
            self._stores[broker_id],
            self.caches[broker_id],
            NoTopic(),  # type: ignore[arg-type]
            self._clock,
            self._random,
            lambda name: False,
        )
        shard = recorder.new_shard(0)
        for offset, record in enumerate(self.log.records):
            shard.replay(offset, -1, -1, record)
        context = Context(self.log, shard)
        shard.on_loaded(context)  # type: ignore[arg-type]
        self._leader = shard, context, asyncio.create_task(recorder.run(), name="recorder")

    async def kill(self) -> None:
        """End the recorder wherever it is."""
        if self._leader is None:
            return
        _, context, task = self._leader
        self._leader = None
        context.is_leading = False
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def wait_recorded(self) -> None:
        """Return when no note waits and the state of the topic is that of the cluster."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not await self._is_recorded():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def copy(self) -> None:
        """Keep a copy of the whole state, once it is recorded."""
        await self.wait_recorded()
        copied, now = await self._copy(), self._clock.time_ms()
        self.copies[now] = copied
        while self._clock.time_ms() <= now:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def _is_recorded(self) -> bool:
        return not await self._clients[0].children(NOTES) and await self._copy() == self._recorded()

    def _recorded(self) -> dict[str, Any]:
        return {path: each.value for path, each in self.log.timeline().state.items()} | {
            paths.CONTROLLER: None
        }

    async def _copy(self) -> dict[str, Any]:
        """Read every recorded znode, without the recorder's code."""
        zookeeper = self._clients[0]
        wanted, waiting = singles(), parents()
        while waiting:
            parent = waiting.pop()
            try:
                below = [f"{parent}/{child}" for child in await zookeeper.children(parent)]
            except NoNodeError:
                continue
            wanted += [path for path in below if subject_of(path) is not None]
            waiting += [path for path in below if children_below(path)]
        wanted += [paths.broker(each) for each in range(BROKERS)]
        wanted += [paths.partition_state(each) for each in self._states]
        found = await zookeeper.get_many(wanted)
        return {
            path: recorded_value(path, entry[0])
            for path, entry in zip(wanted, found, strict=True)
            if entry is not None
        } | {paths.CONTROLLER: None}

    # Changes.

    async def step(self) -> None:
        """Make one change of a random kind by a random broker for a random user."""
        self._number += 1
        changes = [self._create_topic, self._set_topic, self._set_user, self._set_quota, self._set_acl]
        if self._topics:
            changes += [self._delete_topic, self._reassign, self._elect, self._elect_for_user]
        await self._random.choice(changes)(self._random.randrange(BROKERS))

    async def step_unrecorded(self) -> None:
        """Make a change that takes effect at once, before there is a history."""
        self._number += 1
        await self._random.choice([self._create_topic, self._set_user, self._set_acl])(0)
        for name in await self._clients[0].children(NOTES):
            await self._clients[0].delete(f"{NOTES}/{name}")

    async def foreign(self) -> None:
        """Change settings as a program that leaves no notes."""
        session = await self._engine.connect()
        store = ClusterStore(session, self._clock, self._random)
        await store.set_config(
            "topics", f"foreign-{self._random.randrange(3)}", {"retention.ms": self._text()}
        )

    async def _create_topic(self, broker: int) -> None:
        name = f"topic-{self._number}"
        replicas = tuple(self._random.sample(range(BROKERS), 2))
        topic = NewTopic(
            name,
            {number: ReplicaAssignment(replicas) for number in range(self._random.randint(1, 3))},
            {"retention.ms": self._text()},
            random_uuid(self._random),
        )
        with self._request("CreateTopics", broker, paths.topic(name), paths.config("topics", name)):
            assert {name: None} == await self._stores[broker].create_topics([topic])
        self._topics[name] = topic
        states = {
            TopicPartition(name, number): PartitionState(replicas[0], 0, replicas, self._controller.epoch)
            for number in topic.partitions
        }
        self._states.update(await self._controller.create_partition_states(states))
        self._update(list(states))

    async def _delete_topic(self, broker: int) -> None:
        name = self._random.choice(sorted(self._topics))
        with self._request("DeleteTopics", broker, paths.delete_topic(name)):
            await self._stores[broker].request_topic_deletions([name])
        await self._controller.delete_topics([name])
        for path in (paths.topic(name), paths.config("topics", name)):
            self.expected.append((path, True, self._by_controller()))
        topic = self._topics.pop(name)
        gone = [TopicPartition(name, number) for number in topic.partitions]
        for cache in self.caches:
            cache.apply(
                self._metadata([self._leadership(each, topic, LEADER_DURING_DELETE) for each in gone])
            )
        for each in gone:
            del self._states[each]

    async def _reassign(self, broker: int) -> None:
        name = self._random.choice(sorted(self._topics))
        topic = self._topics[name]
        number = self._random.choice(sorted(topic.partitions))
        assignment = topic.partitions[number].reassigned_to(tuple(self._random.sample(range(BROKERS), 2)))
        with self._request("AlterPartitionReassignments", 0, paths.topic(name), epoch=True):
            await self._controller.write_assignments({TopicPartition(name, number): assignment})
        self._topics[name] = NewTopic(
            name, {**topic.partitions, number: assignment}, topic.config, topic.topic_id
        )
        self._update([TopicPartition(name, number)])

    async def _elect(self, broker: int) -> None:
        """Change a leader as the controller does by itself: there is no note."""
        partition, state = self._next_state()
        written = await self._controller.update_partition_states({partition: state})
        self._states.update(written.updated)
        self.elected.append((paths.partition_state(partition), state.leader_epoch))
        self._update([partition])
        # Two changes of one partition before the metadata is compared are one record.
        await self.wait_recorded()

    async def _elect_for_user(self, broker: int) -> None:
        partition, state = self._next_state()
        with self._request("ElectLeaders", 0, paths.partition_state(partition), epoch=True):
            written = await self._controller.update_partition_states({partition: state})
        self._states.update(written.updated)
        self._update([partition])

    async def _set_topic(self, broker: int) -> None:
        name = self._random.choice([*sorted(self._topics), "<default>"])
        await self._set("topics", name, broker, {"retention.ms": self._text()})

    async def _set_user(self, broker: int) -> None:
        scram = f"salt={SECRET},stored_key={SECRET},server_key={SECRET},iterations=4096"
        await self._set("users", f"user-{self._random.randrange(4)}", broker, {"SCRAM-SHA-256": scram})

    async def _set_quota(self, broker: int) -> None:
        kind, name = self._random.choice([("clients", "app"), ("ips", "10.0.0.1"), ("brokers", "1")])
        setting = {"brokers": "ssl.keystore.password"}.get(kind, "request_percentage")
        await self._set(kind, name, broker, {setting: SECRET if kind == "brokers" else self._text()})

    async def _set(self, kind: str, name: str, broker: int, settings: dict[str, str]) -> None:
        with self._request("IncrementalAlterConfigs", broker, paths.config(kind, name)):
            await self._stores[broker].set_config(kind, name, settings)

    async def _set_acl(self, broker: int) -> None:
        name = f"resource-{self._random.randrange(3)}"
        pattern = ResourcePattern(ResourceType.TOPIC, name, PatternType.LITERAL)
        entry = AccessControlEntry(f"User:{self._number}", "*", AclOperation.READ, PermissionType.ALLOW)
        with self._request("CreateAcls", broker, f"/kafka-acl/Topic/{name}"):
            await self._acls[broker].change(pattern, lambda entries: entries | {entry})

    @contextlib.contextmanager
    def _request(self, api: str, broker: int, *changed: str, epoch: bool = False):  # type: ignore[no-untyped-def]
        """Serve a request of a user, who is the author of the changes of these paths."""
        request = Request(api, f"User:{self._random.choice(['alice', 'bob', 'carol'])}")
        token = REQUESTER.set(request)
        try:
            yield
        finally:
            REQUESTER.reset(token)
        author = Author(broker, self._controller.epoch if epoch else -1, request.author())
        self.expected.extend((path, False, author) for path in changed)

    def _by_controller(self) -> Author:
        return Author(0, self._controller.epoch)

    def _next_state(self) -> tuple[TopicPartition, PartitionState]:
        partition = self._random.choice(sorted(self._states))
        state = self._states[partition]
        leader = self._random.choice(self._topics[partition.topic].partitions[partition.partition].replicas)
        return partition, PartitionState(
            leader, state.leader_epoch + 1, (leader,), self._controller.epoch, state.version
        )

    def _text(self) -> str:
        return str(self._random.randrange(1_000_000))

    # Metadata, as the controller sends it.

    def _update(self, partitions: list[TopicPartition]) -> None:
        changed = [self._leadership(each, self._topics[each.topic]) for each in partitions]
        for cache in self.caches:
            cache.apply(self._metadata(changed))

    def _metadata(self, partitions: list[PartitionLeadership]) -> UpdateMetadata:
        brokers = [self._info(each) for each in range(BROKERS)]
        return UpdateMetadata(0, self._controller.epoch, partitions, brokers)

    def _leadership(
        self, partition: TopicPartition, topic: NewTopic, leader: int | None = None
    ) -> PartitionLeadership:
        state, assignment = self._states[partition], topic.partitions[partition.partition]
        return PartitionLeadership(
            topic.name,
            topic.topic_id,
            partition.partition,
            state.controller_epoch,
            state.leader if leader is None else leader,
            state.leader_epoch,
            state.isr,
            state.version,
            tuple({**dict.fromkeys(assignment.replicas), **dict.fromkeys([state.leader])}),
            adding_replicas=assignment.adding,
            removing_replicas=assignment.removing,
        )

    def _info(self, broker_id: int) -> BrokerInfo:
        return BrokerInfo(
            broker_id, (ListenerEndpoint("PLAINTEXT", "127.0.0.1", 9092 + broker_id),), kalda="0"
        )
