"""Gives producer ids at once while the broker's block has some, and allocates the next block in a task."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from kalda.broker.transactions.producer_ids import ProducerIds
from kalda.zookeeper.errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)


class ProducerIdTasks:
    """Gives producer ids to the transaction coordinator: from the broker's block, or from the next block."""

    def __init__(self, ids: ProducerIds) -> None:
        self._ids: Final = ids
        self._waiting: list[Callable[[int | None], None]] = []
        self._has_waiting: Final = asyncio.Event()

    def take(self, on_done: Callable[[int | None], None]) -> None:
        """Call `on_done` with a new producer id, or with None if ZooKeeper cannot be reached."""
        producer_id = self._ids.take_nowait()
        if producer_id is not None:
            on_done(producer_id)
            return
        self._waiting.append(on_done)
        self._has_waiting.set()

    async def run(self) -> None:
        """Allocate blocks of ids while calls of `take` wait, until cancelled."""
        while True:
            await self._has_waiting.wait()
            self._has_waiting.clear()
            waiting, self._waiting = self._waiting, []
            for on_done in waiting:
                try:
                    producer_id: int | None = await self._ids.take()
                except ZooKeeperError as error:
                    logger.warning("cannot allocate producer ids now: %s", error)
                    producer_id = None
                on_done(producer_id)
