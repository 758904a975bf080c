"""A broker that leads partitions whose state is in a coordination server in memory: no sockets, no waits."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from kalda.broker.replicas.in_sync import IsrChange
from kalda.broker.replicas.isr_changes import IsrChanges
from kalda.broker.replicas.partition import Partition
from kalda.cluster import paths, schema
from kalda.cluster.isr_store import IsrStore
from kalda.cluster.schema import PartitionState
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import PartitionLeadership
from kalda.runtime.clock import Clock
from kalda.zookeeper.port import ZooKeeperClient
from tests.runtimes import seeded
from tests.unit.broker.data_path_fakes import BROKER_ID, LAG_SECONDS, TOPIC, DataPath, leadership
from tests.unit.cluster.in_memory import InMemoryZooKeeper


class Leading(DataPath):
    """A data path whose in-sync replicas change through coordination."""

    def __init__(self, *directories: Path, zookeeper: ZooKeeperClient, **settings: Any) -> None:
        self.zookeeper = zookeeper
        self.store = IsrStore(zookeeper)
        super().__init__(*directories, isr_changes=self._make_changes, **settings)

    def _make_changes(self, clock: Clock) -> IsrChanges:
        self.changes = IsrChanges(self.store, clock, seeded())
        return self.changes

    @classmethod
    async def open(cls, *directories: Path, **settings: Any) -> Self:
        """Start with an empty cluster."""
        server = InMemoryZooKeeper()
        cluster = await server.cluster()
        return cls(*directories, zookeeper=cluster.zookeeper, **settings)

    async def lead(self, *indexes: int, **changes: Any) -> Mapping[TopicPartition, ErrorCode]:
        """Have the controller make this broker lead partitions of three replicas, all in sync."""
        changes.setdefault("replicas", (1, 2, 3))
        roles = [await self.write_state(leadership(index, **changes)) for index in indexes or (0,)]
        return self.host(*roles)

    async def write_state(self, role: PartitionLeadership) -> PartitionLeadership:
        """Write what the controller writes before it tells the brokers; return what it then tells them."""
        name = role.topic_partition
        state = PartitionState(role.leader, role.leader_epoch, role.isr, role.controller_epoch)
        data = schema.encode_partition_state(state)
        path = paths.partition_state(name)
        if await self.zookeeper.exists(path) is not None:
            stat = await self.zookeeper.set(path, data)
            return replace(role, partition_epoch=stat.version)
        parts = path.split("/")
        for end in range(4, len(parts)):
            parent = "/".join(parts[:end])
            if await self.zookeeper.exists(parent) is None:
                await self.zookeeper.create(parent)
        await self.zookeeper.create(path, data)
        return role

    async def state(self, index: int = 0) -> PartitionState:
        """Read what coordination holds."""
        states = await self.store.states([TopicPartition(TOPIC, index)])
        return states[TopicPartition(TOPIC, index)]

    async def elect(self, leader: int, epoch: int, isr: tuple[int, ...] = (2, 3), index: int = 0) -> None:
        """Have the controller elect another leader, without telling this broker."""
        await self.write_state(
            leadership(index, leader=leader, leader_epoch=epoch, replicas=(1, 2, 3), isr=isr)
        )

    def follow(self, replica: int, offset: int, index: int = 0, **options: Any) -> int:
        """Have a follower fetch from an offset; return the partition's error code."""
        options.setdefault("current_leader_epoch", self.partition(index).leader_epoch)
        answer = self.fetch({index: offset}, version=12, replica_id=replica, **options)
        return int(answer.responses[0].partitions[0].error_code)

    async def settle(self) -> bool:
        """Write the changes that are queued."""
        return await self.changes.write_some(self.replicas)


def pending(partition: Partition) -> IsrChange:
    assert partition.pending_isr is not None
    return partition.pending_isr


__all__ = ["BROKER_ID", "LAG_SECONDS", "Leading", "pending"]
