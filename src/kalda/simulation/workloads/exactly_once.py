"""Consume, transform, produce with the offsets in the transaction: each input is once in the output."""

import asyncio
from functools import partial
from random import Random as SeededRandom
from typing import Any, Final

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.topics import NewTopic
from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.consumer.consumer_config import GroupProtocol
from kalda.clients.errors import ClientError, TransactionAbortableError
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.common.types import TopicPartition
from kalda.simulation.workloads.feeding import Feeder
from kalda.simulation.workloads.reading import polled, read_all
from kalda.simulation.world import World

INPUT: Final = "orders"
OUTPUT: Final = "invoices"
GROUP: Final = "billing"
_PARTITIONS: Final = 3
_WORKERS: Final = ("worker-0", "worker-1", "worker-0")
"""The transactional ids of the workers: the last one fences the first, and the other way round."""
_DRAIN_SECONDS: Final = 120


class Billing:
    """Workers in one group, each with a transactional producer, and a producer that feeds them."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        self._feeder: Final = Feeder(world, INPUT, _PARTITIONS, 1.0)
        protocols: list[GroupProtocol] = ["classic"] if world.is_mixed else ["classic", "consumer"]
        self._protocol: Final[GroupProtocol] = world.random("billing").choice(protocols)
        self._runs = 0
        self._is_draining = False

    async def set_up(self) -> None:
        """Create the topics."""
        async with AsyncAdmin(bootstrap_servers=self._world.bootstrap) as admin:
            config = {"min.insync.replicas": "2"}
            await admin.create_topics(
                [NewTopic(topic, _PARTITIONS, 3, config=config) for topic in (INPUT, OUTPUT)]
            )

    def start(self) -> None:
        """Start the workers and the producer that feeds them."""
        self._world.start_client("billing-feeder", self._feeder.run)
        for number, transactional_id in enumerate(_WORKERS):
            self._world.start_client(f"billing-{number}", partial(self._work, number, transactional_id))

    async def check(self) -> None:
        """Process what is left, and compare input and output."""
        self._is_draining = True
        deadline = self._world.now + _DRAIN_SECONDS
        while not await self._is_all_processed():
            if self._world.now > deadline:
                self._world.history.violate(
                    "exactly once", f"input is left after {_DRAIN_SECONDS} s: {await self._left()}"
                )
                return
            await self._run_worker("billing-end", "worker-1")
        inputs = await read_all(self._world.bootstrap, _partitions(INPUT))
        outputs = await read_all(self._world.bootstrap, _partitions(OUTPUT), "read_committed")
        places: dict[bytes, list[tuple[int, int]]] = {}
        for place, record in outputs.items():
            places.setdefault(record.value or b"", []).append(place)
        for (partition, offset), record in inputs.items():
            at = places.pop(_output_of(partition, offset, record.value), [])
            if len(at) != 1:
                self._world.history.violate(
                    "exactly once", f"{record.value!r} at {offset} of partition {partition} is at {at}"
                )
        for value, at in places.items():
            self._world.history.violate("exactly once", f"{value!r} at {at} has no input")
        self._world.history.note(
            f"{len(inputs)} orders, {len(outputs)} invoices, group protocol {self._protocol}"
        )

    async def _is_all_processed(self) -> bool:
        return not await self._left()

    async def _left(self) -> dict[TopicPartition, int]:
        """Return how many records of each partition are behind the committed offset."""
        consumer: AsyncConsumer[bytes, bytes] = AsyncConsumer(
            bootstrap_servers=self._world.bootstrap, group_id=GROUP, enable_auto_commit=False
        )
        async with consumer:
            ends = await consumer.end_offsets(_partitions(INPUT))
            committed = await consumer.committed(_partitions(INPUT))
        offsets = {each: found.offset if found is not None else 0 for each, found in committed.items()}
        return {each: end - offsets[each] for each, end in ends.items() if end > offsets[each]}

    async def _work(self, number: int, transactional_id: str) -> None:
        while not self._world.is_stopping:
            try:
                await self._run_worker(f"billing-{number}", transactional_id)
            except ClientError as error:
                self._world.history.note(f"billing-{number} is replaced after {error!r:.160}")
            # A worker that is always there would be fenced all the time.
            await asyncio.sleep(self._world.random(f"billing-{number}.{self._runs}").random() * 8)

    async def _run_worker(self, name: str, transactional_id: str) -> None:
        self._runs += 1
        random = self._world.random(f"{name}.{self._runs}.work")
        classic: Any = {"session_timeout_ms": 6_000} if self._protocol == "classic" else {}
        consumer: AsyncConsumer[bytes, bytes] = AsyncConsumer(
            INPUT,
            bootstrap_servers=self._world.bootstrap,
            client_id=name,
            group_id=GROUP,
            group_protocol=self._protocol,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            request_timeout_ms=4_000,
            max_poll_interval_ms=5_000,
            **classic,
        )
        producer: AsyncProducer[bytes, bytes] = AsyncProducer(
            bootstrap_servers=self._world.bootstrap,
            client_id=name,
            transactional_id=transactional_id,
            transaction_timeout_ms=8_000,
            delivery_timeout_ms=12_000,
            request_timeout_ms=4_000,
            max_block_ms=15_000,
        )
        async with producer, consumer:
            await producer.init_transactions()
            end = self._world.now + random.uniform(8, 40)
            while self._world.now < end and (self._is_draining or not self._world.is_stopping):
                try:
                    if not self._is_draining:
                        # Records gather, for transactions of several.
                        await asyncio.sleep(random.random() * 1.5)
                    is_done = await self._process(name, consumer, producer, random)
                except TransactionAbortableError:
                    await producer.abort_transaction()
                    return
                if self._is_draining and is_done and await self._is_all_processed():
                    return

    async def _process(
        self,
        name: str,
        consumer: AsyncConsumer[bytes, bytes],
        producer: AsyncProducer[bytes, bytes],
        random: SeededRandom,
    ) -> bool:
        """Process one poll's records in a transaction; return whether there were none."""
        records = await polled(consumer, 0.5, random.randrange(1, 20))
        if not records:
            return True
        await producer.begin_transaction()
        offsets: dict[TopicPartition, int] = {}
        for record in records:
            offsets[TopicPartition(INPUT, record.partition)] = record.offset + 1
            await producer.send(
                OUTPUT,
                _output_of(record.partition, record.offset, record.value),
                partition=random.randrange(_PARTITIONS),
            )
        if not self._is_draining and random.random() < 0.12:
            # Slow enough to lose the partitions, or the transaction.
            if random.random() < 0.5:
                await asyncio.sleep(random.random() * 14)
            else:
                await self._world.stand_still(random.random() * 10)
        metadata = await consumer.group_metadata()
        positions = {each.partition: offset for each, offset in offsets.items()}
        self._world.history.note(f"{name} sends {positions} in generation {metadata.generation_id}")
        await producer.send_offsets_to_transaction(offsets, metadata)
        if not self._is_draining and random.random() < 0.06:
            await asyncio.sleep(random.random() * 10)
        await producer.commit_transaction()
        self._world.history.note(f"{name} committed {positions}")
        return False


def _partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(_PARTITIONS)]


def _output_of(partition: int, offset: int, value: bytes | None) -> bytes:
    return b"%d:%d:%s" % (partition, offset, value or b"")
