"""Reads and writes the znodes of one group: consumers and owners of partitions, as in 0.8.2.

/consumers/<group>/ids/<consumer>              ephemeral: what the consumer wants (`TopicCount`)
/consumers/<group>/owners/<topic>/<partition>  ephemeral: the thread that reads the partition
/consumers/<group>/offsets/<topic>/<partition> the committed offset
"""

from collections.abc import Mapping
from typing import Final

from kalda.clients.legacy.consumer.topic_count import ThreadId, TopicCount
from kalda.cluster import paths
from kalda.common.types import TopicPartition
from kalda.zookeeper.errors import NodeExistsError, NoNodeError
from kalda.zookeeper.port import Create, WatchCallback, ZooKeeperClient


class GroupRegistry:
    """Reads and writes the znodes of a group; every method raises `ZooKeeperError` as the session does."""

    def __init__(self, zookeeper: ZooKeeperClient, group: str) -> None:
        self._zookeeper: Final = zookeeper
        self._ids_path: Final = f"{paths.CONSUMERS}/{group}/ids"
        self._owners_path: Final = f"{paths.CONSUMERS}/{group}/owners"

    async def register(self, consumer: str, wanted: TopicCount, timestamp_ms: int) -> bool:
        """Write this session's registration, or replace it; return False if another session has one."""
        data = wanted.encode(timestamp_ms)
        path = f"{self._ids_path}/{consumer}"
        await self._ensure(self._ids_path)
        try:
            await self._zookeeper.create(path, data, ephemeral=True)
        except NodeExistsError:
            stat = await self._zookeeper.exists(path)
            if stat is None or stat.ephemeral_owner != self._zookeeper.session_id:
                return False
            await self._zookeeper.set(path, data)
        return True

    async def unregister(self, consumer: str) -> None:
        """Leave the group."""
        await self._delete(f"{self._ids_path}/{consumer}")

    async def consumers(self, watch: WatchCallback | None = None) -> dict[str, TopicCount]:
        """Return the registered consumers; `watch` reports that one comes or goes."""
        names = await self._zookeeper.children(self._ids_path, watch)
        found = await self._zookeeper.get_many([f"{self._ids_path}/{name}" for name in names])
        decoded = {
            name: TopicCount.decode(entry[0]) for name, entry in zip(names, found, strict=True) if entry
        }
        return {name: count for name, count in decoded.items() if count is not None}

    async def claim(self, owners: Mapping[TopicPartition, ThreadId]) -> list[TopicPartition]:
        """Write the owners of partitions; return those that another consumer still owns."""
        for topic in dict.fromkeys(partition.topic for partition in owners):
            await self._ensure(f"{self._owners_path}/{topic}")
        taken = []
        for partition, thread in owners.items():
            path = self._owner_path(partition)
            try:
                await self._zookeeper.create(path, str(thread).encode(), ephemeral=True)
            except NodeExistsError:
                stat = await self._zookeeper.exists(path)
                if stat is None or stat.ephemeral_owner != self._zookeeper.session_id:
                    taken.append(partition)
                else:
                    await self._zookeeper.set(path, str(thread).encode())
        return taken

    async def release(self, partition: TopicPartition) -> None:
        """Give a partition up, if this session owns it."""
        path = self._owner_path(partition)
        stat = await self._zookeeper.exists(path)
        if stat is not None and stat.ephemeral_owner == self._zookeeper.session_id:
            await self._delete(path)

    async def owned(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return those of the partitions that this session still owns."""
        found = await self._zookeeper.get_many([self._owner_path(each) for each in partitions])
        session = self._zookeeper.session_id
        return [
            each
            for each, entry in zip(partitions, found, strict=True)
            if entry is not None and entry[1].ephemeral_owner == session
        ]

    def _owner_path(self, partition: TopicPartition) -> str:
        return f"{self._owners_path}/{partition.topic}/{partition.partition}"

    async def _delete(self, path: str) -> None:
        try:
            await self._zookeeper.delete(path)
        except NoNodeError:
            return

    async def _ensure(self, path: str) -> None:
        """Create a persistent znode and its parents."""
        if await self._zookeeper.exists(path) is not None:
            return
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            try:
                await self._zookeeper.multi([Create("/".join(parts[:end]))])
            except NodeExistsError:
                continue
