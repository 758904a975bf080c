"""Looks at a cluster as the old tools do: brokers, topics and owners from ZooKeeper, offsets from brokers."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from kalda.command.errors import ToolError
from kalda.command.zookeeper_session import open_zookeeper
from kalda.common.types import TopicPartition
from kalda.runtime.network import address_text
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.random import SYSTEM_RANDOM

if TYPE_CHECKING:
    from kalda.clients.consumer.async_consumer import AsyncConsumer
    from kalda.zookeeper.port import ZooKeeperClient

_CONNECTION_TIMEOUT_MS: Final = 10_000


class ClusterView:
    """What a tool reads in one session; `open_cluster` makes it."""

    def __init__(self, zookeeper: "ZooKeeperClient") -> None:
        from kalda.cluster.cluster_store import ClusterStore

        self.zookeeper: Final = zookeeper
        self._store: Final = ClusterStore(zookeeper, SystemClock(), SYSTEM_RANDOM)

    async def brokers(self) -> dict[int, str]:
        """Return the addresses of the live brokers, host:port.

        Raises:
            ToolError: there is none.
        """
        brokers = await self._store.brokers()
        found = {number: info.old_clients_endpoint for number, info in brokers.items()}
        if not found:
            raise ToolError("no broker is registered in ZooKeeper")
        return {number: address_text(each.host, each.port) for number, each in found.items()}

    async def partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Return the partitions of topics, sorted.

        Raises:
            ToolError: a topic does not exist.
        """
        assignments = await self._store.topic_assignments(topics)
        for topic in topics:
            if topic not in assignments:
                raise ToolError(f"topic {topic} does not exist")
        return sorted(
            TopicPartition(topic, number) for topic in topics for number in assignments[topic].partitions
        )

    async def leaders(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the leaders of those partitions that have one."""
        states = await self._store.partition_states(partitions)
        return {each: state.leader for each, state in states.items() if state.leader >= 0}

    async def children(self, path: str) -> list[str]:
        """Return the names of a znode's children; none if it does not exist."""
        from kalda.zookeeper.errors import NoNodeError

        try:
            return await self.zookeeper.children(path)
        except NoNodeError:
            return []

    async def data(self, path: str) -> str | None:
        """Return a znode's data as text; None if it does not exist."""
        from kalda.zookeeper.errors import NoNodeError

        try:
            return (await self.zookeeper.get(path))[0].decode("utf-8", "replace")
        except NoNodeError:
            return None

    @asynccontextmanager
    async def consumer(self, group: str, timeout_ms: int) -> "AsyncIterator[AsyncConsumer]":
        """Open a consumer that asks the brokers for offsets."""
        from kalda.clients.consumer.async_consumer import AsyncConsumer

        consumer = AsyncConsumer.from_config(
            {
                "bootstrap.servers": ",".join((await self.brokers()).values()),
                "group.id": group,
                "client.id": "kalda legacy",
                "enable.auto.commit": "false",
                "request.timeout.ms": str(timeout_ms),
                "default.api.timeout.ms": str(timeout_ms),
            }
        )
        async with consumer:
            yield consumer


@asynccontextmanager
async def open_cluster(option: str, zookeeper: str) -> AsyncIterator[ClusterView]:
    """Open a session with the servers that `option` names.

    Raises:
        ToolError: none of them answers, or the session is lost meanwhile.
    """
    async with open_zookeeper(option, zookeeper, _CONNECTION_TIMEOUT_MS) as session:
        yield ClusterView(session)
