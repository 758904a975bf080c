"""Idempotent producers that count, and a reader beside them: nothing lost, doubled or in another order.

One more producer skips sequence numbers, which brokers have to refuse.
"""

import asyncio
from functools import partial
from typing import Final

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.topics import NewTopic
from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.clients.producer.record_future import RecordFuture
from kalda.common.types import TopicPartition
from kalda.net.client.client_errors import ClientError
from kalda.simulation.history import SentRecord
from kalda.simulation.workloads.reading import polled
from kalda.simulation.workloads.skipping import SkippingProducer
from kalda.simulation.world import World

TOPIC: Final = "counted"
_SKIPPED: Final = "skipped"
_PARTITIONS: Final = 3
_IN_FLIGHT_MAX: Final = 40


class CountingProducers:
    """Producers whose records are numbered, so that each is in one place of one partition's order."""

    def __init__(self, world: World, producers: int = 2) -> None:
        self._world: Final = world
        self._producers: Final = producers
        self._sent: Final[list[SentRecord]] = []
        self._runs = 0
        self._read: Final[dict[tuple[int, int], bytes]] = {}
        """What the reader saw, by partition and offset."""

    async def set_up(self) -> None:
        """Create the topic."""
        async with AsyncAdmin(bootstrap_servers=self._world.bootstrap) as admin:
            config = {"min.insync.replicas": "2"}
            await admin.create_topics(
                [NewTopic(TOPIC, _PARTITIONS, 3, config=config), NewTopic(_SKIPPED, 1, 3, config=config)]
            )

    def start(self) -> None:
        """Start the producers and the reader."""
        for number in range(self._producers):
            self._world.start_client(f"producer-{number}", partial(self._produce, number))
        self._world.start_client("reader", self._follow)
        self._world.start_client("skipping", SkippingProducer(self._world, _SKIPPED).run)

    async def check(self) -> None:
        """Read everything, and compare it with what was acknowledged and with what the reader saw."""
        found = await self._read_all()
        violate = self._world.history.violate
        for place, value in self._read.items():
            if found.get(place) != value:
                violate("readers see what stays", f"{place} was {value!r}, is {found.get(place)!r}")
        places: dict[bytes, list[tuple[int, int]]] = {}
        for place, value in found.items():
            places.setdefault(value, []).append(place)
        last: dict[tuple[bytes, int], int] = {}
        for (partition, offset), value in sorted(found.items()):
            run, number = value.rsplit(b"-", 1)
            before = last.get((run, partition), -1)
            if int(number) <= before:
                violate("order", f"{value!r} at {offset} of partition {partition} is after number {before}")
            last[run, partition] = int(number)
        for sent in self._sent:
            at = places.get(sent.value, [])
            if len(at) > 1:
                violate("no record twice", f"{sent.value!r} is at {at}")
            if sent.offset is not None and at != [(sent.partition, sent.offset)]:
                if sent.offset < 0 and [sent.partition] == [partition for partition, _ in at]:
                    # The answer to a batch that the broker has, but whose offsets it has forgotten.
                    continue
                violate(
                    "no acknowledged record is lost",
                    f"{sent.value!r} was acknowledged at {sent.partition}, {sent.offset}; it is at {at}",
                )
        acknowledged = sum(sent.offset is not None for sent in self._sent)
        self._world.history.note(f"{len(self._sent)} sent, {acknowledged} acknowledged, {len(found)} found")

    async def _produce(self, number: int) -> None:
        while not self._world.is_stopping:
            self._runs += 1
            # A producer that failed for good is replaced, as a program does.
            try:
                await self._produce_with_one(f"{number}.{self._runs}")
            except ClientError as error:
                self._world.history.note(f"producer-{number} is replaced after {error!r}")

    async def _produce_with_one(self, run: str) -> None:
        random = self._world.random(f"producer-{run}")
        producer: AsyncProducer[bytes, bytes] = AsyncProducer(
            bootstrap_servers=self._world.bootstrap,
            client_id=f"producer-{run}",
            delivery_timeout_ms=20_000,
            request_timeout_ms=4_000,
            max_block_ms=10_000,
            linger_ms=random.randrange(0, 20),
        )
        waiting: dict[RecordFuture, None] = {}
        async with producer:
            count = 0
            while not self._world.is_stopping:
                partition = random.randrange(_PARTITIONS)
                sent = SentRecord(TOPIC, partition, f"{run}-{count}".encode())
                count += 1
                self._sent.append(sent)
                try:
                    future = await producer.send(TOPIC, sent.value, partition=partition)
                except ClientError as error:
                    sent.error = repr(error)
                    raise
                waiting[future] = None
                future.add_done_callback(partial(_settle, sent, waiting))
                if random.random() < 0.1 or len(waiting) >= _IN_FLIGHT_MAX:
                    await asyncio.sleep(random.random() * 0.8)

    async def _follow(self) -> None:
        consumer: AsyncConsumer[bytes, bytes] = AsyncConsumer(
            TOPIC,
            bootstrap_servers=self._world.bootstrap,
            auto_offset_reset="earliest",
            request_timeout_ms=4_000,
        )
        async with consumer:
            while not self._world.is_stopping:
                for record in await polled(consumer, 0.5):
                    place = (record.partition, record.offset)
                    before = self._read.setdefault(place, record.value or b"")
                    if before != record.value:
                        self._world.history.violate(
                            "readers see what stays", f"{place} was {before!r}, is {record.value!r}"
                        )

    async def _read_all(self) -> dict[tuple[int, int], bytes]:
        partitions = [TopicPartition(TOPIC, number) for number in range(_PARTITIONS)]
        found: dict[tuple[int, int], bytes] = {}
        consumer: AsyncConsumer[bytes, bytes] = AsyncConsumer(
            bootstrap_servers=self._world.bootstrap, auto_offset_reset="earliest"
        )
        async with consumer:
            await consumer.assign(partitions)
            await consumer.seek_to_beginning(partitions)
            ends = await consumer.end_offsets(partitions)
            while any([await consumer.position(each) < ends[each] for each in partitions]):
                for record in await consumer.poll(1.0):
                    found[record.partition, record.offset] = record.value or b""
        return found


def _settle(sent: SentRecord, waiting: dict[RecordFuture, None], future: RecordFuture) -> None:
    waiting.pop(future, None)
    error = future.exception()
    if error is None:
        metadata = future.result()
        sent.offset, sent.partition = metadata.offset, metadata.partition
    else:
        sent.error = repr(error)
