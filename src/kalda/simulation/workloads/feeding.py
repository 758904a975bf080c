"""Feeds a topic from an idempotent producer, for workloads that test reading: `Feeder`."""

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, TypeAlias

from kalda.clients.errors import ClientError
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.clients.producer.record_future import RecordFuture
from kalda.simulation.world import World

_IN_FLIGHT_MAX: Final = 40

Extras: TypeAlias = tuple[bytes | None, list[tuple[str, bytes | None]]]
"""The key and the headers of a record."""


class Feeder:
    """Sends numbered values to a topic until the workloads stop.

    Args:
        pause_seconds_max: The longest pause between two records; the mean is half of it.
        extras: Draws the key and the headers of a record; without it there are none.
        linger_ms: How long the producer waits for more records of a batch.
    """

    def __init__(
        self,
        world: World,
        topic: str,
        partitions: int,
        pause_seconds_max: float,
        *,
        extras: Callable[[Random], Extras] = lambda random: (None, []),
        linger_ms: int = 5,
    ) -> None:
        self._world: Final = world
        self._topic: Final = topic
        self._partitions: Final = partitions
        self._pause_seconds_max: Final = pause_seconds_max
        self._extras: Final = extras
        self._linger_ms: Final = linger_ms
        self._runs = 0
        self.acknowledged: Final[dict[tuple[int, int], bytes]] = {}
        """The values that brokers acknowledged, by partition and offset; an offset that the broker has
        forgotten is a negative number of its own."""

    async def run(self) -> None:
        """Send records until the workloads stop; the main function of a client."""
        while not self._world.is_stopping:
            self._runs += 1
            try:
                await self._send(f"{self._topic}-{self._runs}")
            except ClientError as error:
                self._world.history.note(f"the producer of {self._topic} is replaced after {error!r:.160}")

    async def _send(self, run: str) -> None:
        random = self._world.random(run)
        producer: AsyncProducer[bytes, bytes] = AsyncProducer(
            bootstrap_servers=self._world.bootstrap,
            client_id=run,
            delivery_timeout_ms=20_000,
            request_timeout_ms=4_000,
            max_block_ms=10_000,
            linger_ms=self._linger_ms,
        )
        waiting: dict[RecordFuture, None] = {}
        count = 0
        async with producer:
            while not self._world.is_stopping:
                if len(waiting) < _IN_FLIGHT_MAX:
                    value = f"{run}-{count}".encode()
                    count += 1
                    partition = random.randrange(self._partitions)
                    key, headers = self._extras(random)
                    future = await producer.send(self._topic, value, key, headers, partition)
                    waiting[future] = None
                    future.add_done_callback(partial(self._settle, value, waiting))
                await asyncio.sleep(random.random() * self._pause_seconds_max)

    def _settle(self, value: bytes, waiting: dict[RecordFuture, None], future: RecordFuture) -> None:
        waiting.pop(future, None)
        if future.exception() is None:
            metadata = future.result()
            offset = metadata.offset if metadata.offset >= 0 else -1 - len(self.acknowledged)
            self.acknowledged[metadata.partition, offset] = value
