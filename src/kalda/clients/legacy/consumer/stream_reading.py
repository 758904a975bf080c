"""Joins the streams, the feeder and the storage of offsets: what a rebalance begins and stops.

The feeder exists from the first rebalance on that finds brokers; another replaces it when none of the
addresses that it began with is a broker's any more. A commit and the stop of a rebalance exclude
each other, so that no offset is written after its partition was given up.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

from kalda.clients.errors import ClientError
from kalda.clients.legacy.consumer.consumer_config import ConsumerConfig
from kalda.clients.legacy.consumer.kafka_stream import KafkaStream
from kalda.clients.legacy.consumer.offset_storage import OffsetStorage
from kalda.clients.legacy.consumer.stream_feeder import StreamFeeder
from kalda.clients.legacy.consumer.topic_count import ThreadId
from kalda.cluster.schema import BrokerInfo
from kalda.common.backoff import jittered
from kalda.common.types import TopicPartition
from kalda.runtime.network import address_text
from kalda.runtime.system.loop_logger import loop_logger
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.zookeeper.errors import ConnectionLossError, ZooKeeperError
from kalda.zookeeper.port import ZooKeeperClient

logger: Final = loop_logger(__name__)

IN_HAND_S_MAX: Final = 1.0
"""How long a stop waits for programs to finish with the messages that they have; those that take longer are
delivered again."""
_IN_HAND_CHECK_S: Final = 0.01
_RECONNECT_CHECK_S: Final = 0.1
"""How long the last commit waits before it is tried again while ZooKeeper cannot be reached."""

Stream = KafkaStream[Any, Any]
StreamOf = Callable[[TopicPartition, ThreadId], Stream]


class Ownership(Protocol):
    """Which partitions are this consumer's."""

    async def owned_now(self) -> list[TopicPartition]:
        """Return what ZooKeeper says."""


class StreamReading:
    """The streams of one connector, as the rebalancer sees them.

    Args:
        config: The connector's settings.
        zookeeper: The session.
        streams: All streams.
        stream_of: The stream of a partition that a thread owns.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        zookeeper: ZooKeeperClient,
        streams: Sequence[Stream],
        stream_of: StreamOf,
    ) -> None:
        self._config: Final = config
        self._streams: Final = streams
        self._stream_of: Final = stream_of
        self._storage: Final = OffsetStorage(config, zookeeper, self)
        self._feeder: StreamFeeder | None = None
        self._bootstrap: frozenset[str] = frozenset()
        """The brokers that the feeder began with."""
        self._lock: Final = asyncio.Lock()
        self._is_reading = False
        self.rebalancer: Ownership | None = None
        self.is_processed: Callable[[], bool] | None = None
        """Decides about the commit of a stop where commits are not automatic."""

    @property
    def is_reading(self) -> bool:
        """Whether messages are delivered."""
        return self._is_reading

    def knows(self, brokers: Mapping[int, BrokerInfo]) -> bool:
        """Whether the feeder, if there is one, began with one of these brokers."""
        return self._feeder is None or not self._bootstrap.isdisjoint(_addresses(brokers))

    async def stop(self) -> None:
        """Withdraw messages not yet taken, and commit consumed ones if commits are automatic."""
        async with self._lock:
            self._drop()
            if self._config.auto_commit_enable or self.is_processed is not None:
                await self._wait_nothing_in_hand()
            # Read before the program is asked: it knows nothing of what its threads consume meanwhile.
            offsets = self._consumed()
        # Without the lock, so that the program may commit itself.
        commits = self._config.auto_commit_enable if self.is_processed is None else await self._ask()
        async with self._lock:
            if commits:
                await self._commit_last(offsets)
            self._forget()

    def abandon(self) -> None:
        """Take everything back without a commit."""
        self._drop()
        self._forget()

    async def begin(
        self, owned: Mapping[TopicPartition, ThreadId], brokers: Mapping[int, BrokerInfo]
    ) -> None:
        """Deliver the messages of partitions, from the group's offsets on.

        Raises:
            ZooKeeperError, ClientError: the offsets cannot be read.
        """
        async with self._lock:
            if self._feeder is not None and not self.knows(brokers):
                await self._feeder.close()
                self._feeder = None
            if self._feeder is None:
                self._bootstrap = frozenset(_addresses(brokers))
                feeder = StreamFeeder(self._config, sorted(self._bootstrap))
                await feeder.start()
                self._feeder = feeder
            offsets = await self._storage.read(list(owned))
            await self._feeder.assign(
                {each: self._stream_of(each, thread) for each, thread in owned.items()}, offsets
            )
            self._is_reading = True

    async def commit(self) -> None:
        """Commit what is consumed; raises as `OffsetStorage.write`."""
        async with self._lock:
            await self._storage.write(self._consumed())

    def on_room(self, stream: Stream) -> None:
        """Resume a stream whose queue was full; runs on the loop."""
        if self._feeder is not None:
            self._feeder.on_room(stream)

    async def close(self) -> None:
        """Close the connections to brokers."""
        self._drop()
        if self._feeder is not None:
            await self._feeder.close()

    # The group's offsets in Kafka, for the storage.

    async def commit_to_kafka(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of partitions that this consumer still owns."""
        assert self._feeder is not None, "a consumer without a broker has consumed nothing"
        if self.rebalancer is not None:
            # A consumer that was paused longer than its session is another's predecessor by now.
            still = set(await self.rebalancer.owned_now())
            offsets = {each: offset for each, offset in offsets.items() if each in still}
        if offsets:
            await self._feeder.commit(offsets)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets that are committed to Kafka."""
        assert self._feeder is not None, "made by begin"
        return await self._feeder.committed(partitions)

    def _drop(self) -> None:
        self._is_reading = False
        if self._feeder is not None:
            self._feeder.stop()
        for stream in self._streams:
            stream.clear()

    def _forget(self) -> None:
        for stream in self._streams:
            stream.forget()

    def _is_in_hand(self) -> bool:
        return any(stream.has_message_in_hand for stream in self._streams)

    async def _wait_nothing_in_hand(self) -> None:
        for _ in range(round(IN_HAND_S_MAX / _IN_HAND_CHECK_S)):
            if not self._is_in_hand():
                return
            await asyncio.sleep(_IN_HAND_CHECK_S)

    async def _ask(self) -> bool:
        """Return the result of the program's callback, which runs in its own thread; an error means no."""
        assert self.is_processed is not None, "the caller looked"
        try:
            return await asyncio.to_thread(self.is_processed)
        except Exception:
            logger.exception("Group %s: `before_release` failed, nothing is committed", self._config.group)
            return False

    async def _commit_last(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit before partitions are given up; wait for ZooKeeper for as long as the session lasts."""
        attempts = max(1, round(self._config.zookeeper_session_timeout_ms / 1000 / _RECONNECT_CHECK_S))
        for attempt in range(1, attempts + 1):
            # The end of the session forgets what is consumed: the partitions may be another's.
            still = self._consumed()
            try:
                await self._storage.write({each: offset for each, offset in offsets.items() if each in still})
                return
            except (ZooKeeperError, ClientError) as error:
                if attempt == attempts or not isinstance(error, ConnectionLossError):
                    logger.warning(
                        "Group %s: consumed offsets were not committed, their messages come again: %s",
                        self._config.group,
                        error,
                    )
                    return
            await asyncio.sleep(jittered(_RECONNECT_CHECK_S, SYSTEM_RANDOM))

    def _consumed(self) -> dict[TopicPartition, int]:
        offsets: dict[TopicPartition, int] = {}
        for stream in self._streams:
            offsets |= stream.consumed()
        return offsets


def _addresses(brokers: Mapping[int, BrokerInfo]) -> list[str]:
    endpoints = [each.old_clients_endpoint for each in brokers.values()]
    return [address_text(each.host, each.port) for each in endpoints]
