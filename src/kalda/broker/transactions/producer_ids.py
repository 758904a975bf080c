"""Allocates producer ids from blocks that the cluster gives out through ZooKeeper.

Only this broker uses the ids of its block, so an id is unique in the cluster without a request for each. A
broker that stops never uses the rest of its block; there are 2^63 ids.
"""

import asyncio
from typing import Final

from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.schema import ProducerIdBlock


class ProducerIds:
    """The producer ids of one broker."""

    def __init__(self, broker_id: int, cluster: ClusterStore) -> None:
        self._broker_id: Final = broker_id
        self.cluster = cluster
        """Gives the blocks; a model of other brokers replaces it."""
        self._next = 0
        self._last = -1
        # Held by the one request that allocates a block; other requests wait and share the block.
        self._refill: Final = asyncio.Lock()

    def take_nowait(self) -> int | None:
        """Return an id, or None if the block is used up; the caller then awaits `take`."""
        if self._next > self._last:
            return None
        producer_id = self._next
        self._next += 1
        return producer_id

    async def block_for(self, broker_id: int) -> ProducerIdBlock:
        """Allocate a block for another broker.

        Raises:
            ZooKeeperError: ZooKeeper did not answer.
        """
        return await self.cluster.allocate_producer_ids(broker_id)

    async def take(self) -> int:
        """Return an unused id; allocate a block if the present one is used up.

        Raises:
            ZooKeeperError: ZooKeeper did not answer.
        """
        async with self._refill:
            producer_id = self.take_nowait()
            if producer_id is None:
                block = await self.cluster.allocate_producer_ids(self._broker_id)
                self._next, self._last = block.first, block.last
                producer_id = self.take_nowait()
        assert producer_id is not None, "a block holds at least one id"
        return producer_id
