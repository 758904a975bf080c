"""The controller's driver over every engine: it must not be able to tell them apart."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from kalda.cluster import paths, schema
from kalda.cluster.cluster_store import ClusterStore
from kalda.common.types import TopicPartition
from kalda.controller.driver import ControllerDriver
from kalda.runtime.system.clock import SystemClock
from kalda.zookeeper.port import ZooKeeperClient
from tests.integration.zookeeper.client.engines import Engine, EnsembleEngine, eventually
from tests.runtimes import seeded
from tests.unit.controller.stage import Brokers, registration, topic

P0 = TopicPartition("t", 0)


class Node:
    """A broker without a log: a session, a registration, a driver."""

    def __init__(self, broker_id: int, session: ZooKeeperClient, ear: Brokers) -> None:
        self.session = session
        self.cluster = ClusterStore(session, SystemClock(), seeded())
        self.id = broker_id
        self.driver = ControllerDriver(broker_id, self.cluster, ear, SystemClock())
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.cluster.ensure_layout()
        await self.cluster.register_broker(registration(self.id))
        self.task = asyncio.create_task(self.driver.run(), name=f"controller-{self.id}")
        await self.driver.wait_ready()

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def nodes_of(engine: Engine, count: int) -> AsyncIterator[tuple[list[Node], Brokers]]:
    """Start brokers, the first of which is controller."""
    ear = Brokers()
    nodes: list[Node] = []
    try:
        for broker_id in range(1, count + 1):
            nodes.append(Node(broker_id, await engine.connect(), ear))
            await nodes[-1].start()
        yield nodes, ear
    finally:
        for node in reversed(nodes):
            await node.stop()


async def write_isr(node: Node, *isr: int) -> None:
    state = (await node.cluster.partition_states([P0]))[P0]
    data = schema.encode_partition_state(replace(state, isr=isr))
    await node.session.set(paths.partition_state(P0), data, state.version)


async def test_topic_lives_moves_and_goes(engine: Engine) -> None:
    async with nodes_of(engine, 3) as (nodes, ear):
        first = nodes[0]
        await nodes[2].cluster.create_topics([topic("t", (1, 2))])
        await eventually(lambda: ear.leader(3, P0) == 1)
        outcome = await first.driver.alter_reassignments({P0: (2, 3)})
        assert {P0: None} == outcome
        await write_isr(nodes[1], 1, 2, 3)
        await eventually(lambda: ear.deleted(1) == [P0])
        await eventually(lambda: not first.driver.list_reassignments(None))
        assert [] == await first.driver.controlled_shutdown(2, -1)
        await eventually(lambda: ear.leader(1, P0) == 3)
        await nodes[1].cluster.request_topic_deletions(["t"])
        await eventually(lambda: ear.deleted(3) == [P0])
        async with asyncio.timeout(30):
            while await nodes[1].cluster.topics():  # noqa: ASYNC110
                await asyncio.sleep(0.005)


async def test_controller_whose_session_expires_is_succeeded_and_follows(engine: Engine) -> None:
    async with nodes_of(engine, 2) as (nodes, ear):
        first, second = nodes
        await first.cluster.create_topics([topic("t", (1, 2))])
        await eventually(lambda: ear.leader(2, P0) == 1)
        await engine.expire(first.session)
        await eventually(lambda: second.driver.is_active and not first.driver.is_active)
        await eventually(lambda: ear.leader(2, P0) == 2)
        await first.cluster.register_broker(registration(1))
        await eventually(lambda: first.driver.controller_id == 2)
        await eventually(lambda: ear.leader(1, P0) == 2)
        await second.session.delete(paths.CONTROLLER)
        await eventually(lambda: first.driver.epoch == 3 or second.driver.epoch == 3)


async def test_cut_connection_costs_no_election(ensemble_engine: EnsembleEngine) -> None:
    """A controller that is back before its session expires goes on with what it was doing."""
    async with nodes_of(ensemble_engine, 2) as (nodes, ear):
        first, second = nodes
        for count in range(5):
            name = f"t{count}"
            ensemble_engine.cut(first.cluster.zookeeper)  # type: ignore[arg-type]  # a kazoo engine's
            await second.cluster.create_topics([topic(name, (1, 2), (2, 1))])
            await eventually(lambda name=name: ear.leader(2, TopicPartition(name, 1)) == 2)  # type: ignore[misc]  # binds the loop's value
        assert (True, 1) == (first.driver.is_active, first.driver.epoch)
