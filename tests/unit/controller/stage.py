"""Brokers on one coordination server for tests of the driver: sessions, drivers, and ears that note what they
hear.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import cast

from kalda.cluster.cluster_store import ClusterStore, NewTopic
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint, ReplicaAssignment
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.driver import ControllerDriver
from kalda.controller.effects import BrokerRequest, LeaderAndIsr, StopReplica, UpdateMetadata
from kalda.runtime.clock import ManualClock
from kalda.zookeeper.errors import ConnectionLossError
from kalda.zookeeper.port import SessionState, StateListener, ZooKeeperClient
from kalda.zookeeper.server.embedded import EmbeddedClient
from tests.runtimes import seeded
from tests.unit.cluster.in_memory import InMemoryZooKeeper


class Brokers:
    """Every broker's ear: notes what it hears, and answers as told."""

    def __init__(self) -> None:
        self.heard: dict[int, list[BrokerRequest]] = {}
        self.unreachable: set[int] = set()
        self.refusals: list[ErrorCode] = []
        self.stale: list[ErrorCode] = []
        self.failed_replicas: dict[int, set[TopicPartition]] = {}

    async def send(self, broker: BrokerInfo, request: BrokerRequest) -> dict[TopicPartition, ErrorCode]:
        await asyncio.sleep(0)
        broker_id = broker.id
        if broker_id in self.unreachable:
            raise ConnectionRefusedError(f"broker {broker_id} does not answer")
        self.heard.setdefault(broker_id, []).append(request)
        if isinstance(request, StopReplica) and self.refusals:
            return dict.fromkeys(request.partitions, self.refusals.pop())
        if isinstance(request, LeaderAndIsr) and request.partitions and self.stale:
            return dict.fromkeys([each.topic_partition for each in request.partitions], self.stale.pop())
        if isinstance(request, LeaderAndIsr):
            failed = self.failed_replicas.get(broker_id, set())
            told = [each.topic_partition for each in request.partitions]
            return {p: ErrorCode.KAFKA_STORAGE_ERROR for p in told if p in failed}
        return {}

    def deleted(self, listener: int) -> list[TopicPartition]:
        """What one broker was told to delete."""
        requests = self.heard.get(listener, [])
        return [p for r in requests if isinstance(r, StopReplica) and r.delete for p in r.partitions]

    def leader(self, listener: int, partition: TopicPartition) -> int | None:
        """Who leads a partition by what one broker last heard in its metadata."""
        leader = None
        for request in self.heard.get(listener, []):
            if isinstance(request, UpdateMetadata):
                for told in request.partitions:
                    if told.topic_partition == partition:
                        leader = told.leader
        return leader


class FlakyLink:
    """A session whose connection a test can cut for a while: the driver's way to coordination."""

    def __init__(self, session: EmbeddedClient) -> None:
        self._session = session
        self._listeners: list[StateListener] = []
        self.is_cut = False
        self.fails_after = False
        """Whether an operation of a cut link takes effect, so that only its answer is lost."""

    def __getattr__(self, name: str) -> object:
        member = getattr(self._session, name)
        if not asyncio.iscoroutinefunction(member):
            return member

        async def operate(*arguments: object, **named: object) -> object:
            result = await member(*arguments, **named) if self.fails_after or not self.is_cut else None
            if self.is_cut:
                raise ConnectionLossError(f"{name}: the link is cut")
            return result

        return operate

    @property
    def state(self) -> SessionState:
        return SessionState.SUSPENDED if self.is_cut else self._session.state

    def add_state_listener(self, listener: StateListener) -> None:
        self._listeners.append(listener)
        self._session.add_state_listener(listener)

    def cut(self, *, fails_after: bool = False) -> None:
        self.is_cut, self.fails_after = True, fails_after
        self._tell()

    def mend(self) -> None:
        self.is_cut = False
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener(self.state)


class Node:
    """One broker: its session, its cluster operations, its driver."""

    def __init__(
        self,
        broker_id: int,
        cluster: ClusterStore,
        session: EmbeddedClient,
        ear: Brokers,
        is_eligible: Callable[[], bool] = lambda: True,
    ) -> None:
        self.id = broker_id
        self.cluster = cluster
        self.session = session
        self.link = FlakyLink(session)
        self.driver = ControllerDriver(
            broker_id,
            ClusterStore(cast("ZooKeeperClient", self.link), ManualClock(), seeded()),
            ear,
            ManualClock(),
            is_eligible=is_eligible,
        )
        self.task = asyncio.create_task(self.driver.run(), name=f"controller-{broker_id}")

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Stage:
    """Brokers that share one coordination server."""

    def __init__(self) -> None:
        self.zookeeper = InMemoryZooKeeper()
        self.brokers = Brokers()
        self.nodes: list[Node] = []

    @property
    def watch_count(self) -> int:
        """The watches that the coordination server keeps."""
        return len(self.zookeeper.server.server._watches)

    async def start(self, broker_id: int, *, is_eligible: Callable[[], bool] = lambda: True) -> Node:
        session = await self.zookeeper.connect()
        cluster = ClusterStore(session, self.zookeeper.clock, seeded())
        await cluster.ensure_layout()
        await cluster.register_broker(registration(broker_id))
        node = Node(broker_id, cluster, session, self.brokers, is_eligible)
        self.nodes.append(node)
        await node.driver.wait_ready()
        return node


def registration(broker_id: int) -> BrokerInfo:
    return BrokerInfo(broker_id, (ListenerEndpoint("PLAINTEXT", "host", 9092 + broker_id),))


def topic(name: str, *replicas: tuple[int, ...], config: dict[str, str] | None = None) -> NewTopic:
    assignment = {number: ReplicaAssignment(ids) for number, ids in enumerate(replicas)}
    return NewTopic(name, assignment, config or {}, uuid.uuid4())


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds; no real time passes."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never came to hold")


async def until_empty(read: Callable[[], Awaitable[list[str]]]) -> None:
    """Read over and over until there is nothing left."""
    for _ in range(2000):
        if not await read():
            return
        await asyncio.sleep(0)
    raise AssertionError("it was never empty")
