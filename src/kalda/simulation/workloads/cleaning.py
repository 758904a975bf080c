"""Compaction and retention: a reader from the start gets every key's last value; nothing new is deleted."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.topics import NewTopic
from kalda.clients.errors import ClientError
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.clients.producer.record_future import RecordFuture
from kalda.common.types import TopicPartition
from kalda.runtime.runtime import RUNTIME
from kalda.simulation.checks.last_values import KeyHistory
from kalda.simulation.workloads.reading import read_all
from kalda.simulation.world import World

COMPACTED: Final = "states"
SIZED: Final = "recent"
AGED: Final = "aged"
_PARTITIONS: Final = 2
_KEYS: Final = 6
_RETENTION_BYTES: Final = 6_000
_RETENTION_MS: Final = 2 * 3_600_000
"""More than the clock of a broker is ever wrong: what is new is new for every broker."""
_OLD_MS: Final = 3 * _RETENTION_MS
_OLD_SECONDS: Final = 25.0
"""For how long only old records are sent to the topic with a retention time."""
_SMALL: Final = {"min.insync.replicas": "2", "segment.bytes": "1500"}


class Cleaning:
    """A producer for three topics: one is compacted, one has a size, and one a time of retention."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        self._keys: Final[dict[tuple[int, bytes], KeyHistory]] = {}
        """By partition and key. Each run of the producer has its own keys: a request of the run before may be
        done late."""
        self._new: Final[dict[tuple[int, int], bytes]] = {}
        """The acknowledged records of the topic with a time that are too new to be deleted."""
        self._runs = 0
        self._count = 0

    async def set_up(self) -> None:
        """Create the topics."""
        compacted = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "10000",
            "segment.ms": "5000",
        }
        aged = {"retention.ms": str(_RETENTION_MS), "segment.bytes": "800"}
        async with AsyncAdmin(bootstrap_servers=self._world.bootstrap) as admin:
            await admin.create_topics(
                [
                    NewTopic(COMPACTED, _PARTITIONS, 3, config=_SMALL | compacted),
                    NewTopic(SIZED, 1, 3, config=_SMALL | {"retention.bytes": str(_RETENTION_BYTES)}),
                    NewTopic(AGED, 1, 3, config=_SMALL | aged),
                ]
            )

    def start(self) -> None:
        """Start the producer."""
        self._world.start_client("cleaned-producer", self._produce)

    async def check(self) -> None:
        """Read everything from the start."""
        compacted = await read_all(
            self._world.bootstrap, [TopicPartition(COMPACTED, number) for number in range(_PARTITIONS)]
        )
        for (partition, key), history in self._keys.items():
            values = [
                record.value
                for (number, _), record in sorted(compacted.items())
                if number == partition and record.key == key
            ]
            problem = history.problem(values)
            if problem is not None:
                self._world.history.violate(
                    "compaction keeps the last values", f"{key!r} in {partition}: {problem}"
                )
        aged = await read_all(self._world.bootstrap, [TopicPartition(AGED, 0)])
        for place, value in self._new.items():
            if place not in aged or aged[place].value != value:
                self._world.history.violate(
                    "retention deletes nothing new", f"{value!r} at {place[1]} was acknowledged and is gone"
                )
        self._check_sizes()
        written = sum(len(history.sent) for history in self._keys.values())
        self._world.history.note(
            f"{len(compacted)} of {written} compacted records are left, {len(aged)} of {AGED}, "
            f"from {min((offset for _, offset in aged), default=0)}"
        )

    def _check_sizes(self) -> None:
        name = TopicPartition(SIZED, 0)
        for broker_id, server in self._world.cluster.servers.items():
            partition = server.services.replica_manager.partitions.get(name)
            if partition is None or not partition.is_leader:
                continue
            log = partition.log
            self._world.history.note(f"{name} begins at {log.log_start_offset}, has {log.size} bytes")
            if log.log_start_offset and log.size < _RETENTION_BYTES:
                self._world.history.violate(
                    "retention deletes nothing that fits",
                    f"{name} on broker {broker_id} begins at {log.log_start_offset} and has {log.size} bytes",
                )

    async def _produce(self) -> None:
        while not self._world.is_stopping:
            self._runs += 1
            try:
                await self._produce_with_one(self._runs)
            except ClientError as error:
                self._world.history.note(f"the producer of cleaned topics is replaced after {error!r:.160}")

    async def _produce_with_one(self, run: int) -> None:
        random = self._world.random(f"cleaned-{run}")
        runtime = RUNTIME.get()
        assert runtime is not None, "a workload runs on a simulated machine"
        producer: AsyncProducer[bytes, bytes] = AsyncProducer(
            bootstrap_servers=self._world.bootstrap,
            client_id=f"cleaned-{run}",
            delivery_timeout_ms=20_000,
            request_timeout_ms=4_000,
            max_block_ms=10_000,
        )
        waiting: dict[RecordFuture, None] = {}
        async with producer:
            while not self._world.is_stopping:
                self._count += 1
                value = b"%d-%d" % (run, self._count)
                choice = random.random()
                if choice < 0.6:
                    partition = random.randrange(_PARTITIONS)
                    key = b"key-%d-%d" % (run, random.randrange(_KEYS))
                    history = self._keys.setdefault((partition, key), KeyHistory())
                    sent = None if random.random() < 0.15 else value + b"." * 60
                    index = len(history.sent)
                    history.sent.append(sent)
                    future = await producer.send(COMPACTED, sent, key, partition=partition)
                    settled: Callable[[int], None] = partial(_acknowledge, history, index)
                elif choice < 0.8:
                    future = await producer.send(SIZED, value + b"." * 300, partition=0)
                    settled = _ignore
                else:
                    now_ms = runtime.clock.time_ms()
                    is_old = self._world.now < _OLD_SECONDS or random.random() < 0.3
                    timestamp_ms = now_ms - _OLD_MS if is_old else now_ms
                    future = await producer.send(AGED, value, partition=0, timestamp_ms=timestamp_ms)
                    settled = _ignore if is_old else partial(self._note_new, value)
                waiting[future] = None
                future.add_done_callback(partial(_settle, settled, waiting))
                if random.random() < 0.5 or len(waiting) >= 20:
                    await asyncio.sleep(random.random() * 0.8)

    def _note_new(self, value: bytes, offset: int) -> None:
        self._new[0, offset] = value


def _settle(settled: Callable[[int], None], waiting: dict[RecordFuture, None], future: RecordFuture) -> None:
    waiting.pop(future, None)
    if future.exception() is None:
        settled(future.result().offset)


def _acknowledge(history: KeyHistory, index: int, offset: int) -> None:
    history.acknowledge(index)


def _ignore(offset: int) -> None:
    """Nothing is asked of this record."""
