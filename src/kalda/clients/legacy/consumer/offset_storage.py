"""Reads and writes the offsets of a group: in ZooKeeper, in Kafka's offsets topic, or in both.

In both (`dual.commit.enabled`) the larger offset is read, so that consumers before and after a step of the
migration go on where the other stopped. Kafka 0.8.2 looks at both with `offsets.storage`=kafka only; here
both ways of the migration do, because else its way back would begin at offsets of long ago.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from kalda.clients.errors import ClientError
from kalda.clients.legacy.consumer.consumer_config import ConsumerConfig
from kalda.clients.legacy.simple_consumer import KAFKA
from kalda.cluster.consumer_offsets import read_offset, write_offset
from kalda.common.backoff import jittered
from kalda.common.types import TopicPartition
from kalda.runtime.system.loop_logger import loop_logger
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.zookeeper.port import ZooKeeperClient

logger: Final = loop_logger(__name__)


class OffsetManager(Protocol):
    """The group's offsets in Kafka."""

    async def commit_to_kafka(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit; raises `ClientError`."""

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of the partitions; raises `ClientError`."""


class OffsetStorage:
    """The offsets of one group.

    Args:
        config: Which storage, and how often a commit is tried.
        zookeeper: The session.
        manager: The group's offsets in Kafka; called only if the configuration names it.
    """

    def __init__(self, config: ConsumerConfig, zookeeper: ZooKeeperClient, manager: OffsetManager) -> None:
        self._config: Final = config
        self._zookeeper: Final = zookeeper
        self._manager: Final = manager
        self._uses_kafka: Final = config.is_dual or config.offsets_storage == KAFKA
        self._uses_zookeeper: Final = config.is_dual or config.offsets_storage != KAFKA
        self._known: Final[dict[TopicPartition, int]] = {}
        """What is known to be stored everywhere."""

    async def read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets of those partitions that have one.

        Raises:
            ZooKeeperError, ClientError: a storage cannot be read.
        """
        found: dict[TopicPartition, int] = {}
        if self._uses_kafka and partitions:
            found |= await self._manager.committed(partitions)
        if self._uses_zookeeper:
            for each in partitions:
                offset = await read_offset(self._zookeeper, self._config.group, each)
                if offset is not None and offset > found.get(each, -1):
                    found[each] = offset
        # With two storages, one of them may still be behind.
        self._known.clear()
        if not self._config.is_dual:
            self._known.update(found)
        return found

    async def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Store offsets that are not stored yet; a commit to Kafka that fails is tried again.

        Raises:
            ZooKeeperError, ClientError: the last attempt failed, or ZooKeeper cannot be written.
        """
        news = {each: offset for each, offset in offsets.items() if self._known.get(each) != offset}
        if not news:
            return
        if self._uses_kafka:
            await self._commit(news)
        if self._uses_zookeeper:
            for each, offset in news.items():
                await write_offset(self._zookeeper, self._config.group, each, offset)
        self._known.update(news)

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        for attempt in range(self._config.offsets_commit_max_retries + 1):
            try:
                await self._manager.commit_to_kafka(offsets)
                return
            except ClientError as error:
                if attempt == self._config.offsets_commit_max_retries:
                    raise
                logger.warning(
                    "Group %s: a commit of offsets failed, trying again: %s", self._config.group, error
                )
            await asyncio.sleep(jittered(self._config.offsets_channel_backoff_ms / 1000, SYSTEM_RANDOM))
