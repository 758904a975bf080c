"""Ids for idempotent producers, from blocks that coordination gives out.

A block is used up by this broker alone, so an id is unique in the cluster without asking for each. What is
left of a block when the broker stops is never used; there are 2^63 ids.
"""

import asyncio
from typing import Final

from kalda.zk.client.cluster_store import ClusterStore


class ProducerIds:
    """The next free producer id of one broker."""

    def __init__(self, broker_id: int, cluster: ClusterStore) -> None:
        self._broker_id: Final = broker_id
        self._cluster: Final = cluster
        self._next = 0
        self._last = -1
        # Only one request at a time asks for a block; the others wait and share it.
        self._refill: Final = asyncio.Lock()

    def take_nowait(self) -> int | None:
        """Return an id, or None while the block is used up and `take` has to be awaited."""
        if self._next > self._last:
            return None
        producer_id = self._next
        self._next += 1
        return producer_id

    async def take(self) -> int:
        """Return an id that no producer ever had.

        Raises:
            ZooKeeperError: the block is used up and there is no other to be had.
        """
        async with self._refill:
            producer_id = self.take_nowait()
            if producer_id is None:
                block = await self._cluster.allocate_producer_ids(self._broker_id)
                self._next, self._last = block.first, block.last
                producer_id = self.take_nowait()
        assert producer_id is not None, "a block holds at least one id"
        return producer_id
