"""Runs one member of a group for a client that speaks HTTP only."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Final

from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from kalda.clients.errors import ClientError
from kalda.common.overriding import override
from kalda.common.types import TopicPartition
from kalda.http.errors import HttpError
from kalda.http.gateway.consumers.acks import Acks
from kalda.http.gateway.streams.recent_records import BytesRecord

logger: Final = logging.getLogger(__name__)

COMMIT_SECONDS: Final = 10.0


class GroupConsumer(ConsumerRebalanceListener):
    """A member of a group, its records that wait for acknowledgements, and how long it was not used.

    Args:
        consumer_id: The id that its client uses.
        principal: Whose it is.
        topics: What it subscribes to.
        consumer: Not started yet; it commits nothing by itself.
        idle_seconds: After how long without a request it leaves.
        unacked_max: How many records may wait for an acknowledgement.
    """

    def __init__(
        self,
        consumer_id: str,
        principal: str,
        topics: Sequence[str],
        consumer: "AsyncConsumer[bytes, bytes]",
        idle_seconds: float,
        unacked_max: int,
    ) -> None:
        self.id: Final = consumer_id
        self.principal: Final = principal
        self.topics: Final = tuple(topics)
        self.idle_seconds: Final = idle_seconds
        self._consumer: Final = consumer
        self._unacked_max: Final = unacked_max
        self._acks: Final = Acks()
        self._polling: Final = asyncio.Lock()
        self._is_closed = False
        self._used_at = 0.0
        self.renew()

    async def start(self) -> None:
        """Join the group.

        Raises:
            ClientError: a topic's name is not allowed.
        """
        await self._consumer.start()
        await self._consumer.subscribe(self.topics, self)

    def renew(self) -> None:
        """Record that the client is still active."""
        self._used_at = asyncio.get_running_loop().time()

    def is_idle(self, now: float) -> bool:
        """Return whether the client has been away for too long, by the loop's time."""
        return not self._polling.locked() and now - self._used_at > self.idle_seconds

    async def poll(self, records_max: int, timeout_s: float) -> list[BytesRecord]:
        """Return the next records; they wait for an acknowledgement from then on.

        Raises:
            HttpError: another request polls (409), or too many records wait for an acknowledgement (429).
            ClientError: as `AsyncConsumer.poll`.
        """
        self.renew()
        if self._polling.locked():
            raise HttpError(409, f"another request waits for records of consumer {self.id}")
        room = self._unacked_max - self._acks.unacked
        if room <= 0:
            raise HttpError(
                429,
                f"{self._acks.unacked} records of consumer {self.id} wait for an acknowledgement; "
                "acknowledge some of them first",
            )
        async with self._polling:
            records = await self._consumer.poll(timeout_s, min(records_max, room))
            for record in records:
                self._acks.deliver(record.topic_partition, record.offset)
        self.renew()
        return records

    async def acknowledge(
        self, places: Sequence[tuple[TopicPartition, int]]
    ) -> tuple[list[tuple[TopicPartition, int]], dict[TopicPartition, int]]:
        """Note that records are done, and commit; return the records that were not waiting, and the commit.

        Raises:
            ClientError: the offsets could not be committed; the acknowledgements stay, and the next call
                commits them.
        """
        self.renew()
        lost = [place for place in places if not self._acks.ack(*place)]
        offsets = self._acks.to_commit()
        if offsets:
            await self._consumer.commit(offsets, COMMIT_SECONDS)
            self._acks.committed(offsets)
        return lost, offsets

    async def close(self) -> None:
        """Commit what is acknowledged and leave the group; what is not is delivered to other members."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._commit(None)
        finally:
            await self._consumer.close(COMMIT_SECONDS)

    @override
    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self._commit(partitions)
        self._acks.forget(partitions)

    @override
    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._acks.forget(partitions)

    async def _commit(self, partitions: Collection[TopicPartition] | None) -> None:
        offsets = self._acks.to_commit(partitions)
        if not offsets:
            return
        try:
            await self._consumer.commit(offsets, COMMIT_SECONDS)
            self._acks.committed(offsets)
        except ClientError as error:
            logger.info("Consumer %s did not commit %s: %s", self.id, offsets, error)
