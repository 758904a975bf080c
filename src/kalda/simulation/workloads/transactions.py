"""Transactional producers that append to lists, in the style of Jepsen's list-append over Kafka.

Each transactional id has a partition of its own, and all share one more. Two clients use each id in turn, so
that one fences the other, often in the middle of a transaction. A client appends blindly once, then reads its
id's own partition up to that value: a leader that was replaced, and does not know it yet, may serve an older
state, as in Kafka. From then on its transactions are read-modify-writes: no update may be lost, and the
transactions of one id happen one after the other.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from random import Random as SeededRandom
from typing import Final

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.clusters import FeatureUpdate, UpgradeType
from kalda.clients.admin.topics import NewTopic
from kalda.clients.admin.transactions import TransactionState
from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.errors import ClientError, TransactionAbortableError
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.common.types import TopicPartition
from kalda.simulation.checks.list_append import Anomaly, Fate, Transaction, anomalies, cycles
from kalda.simulation.workloads.reading import polled, read_all
from kalda.simulation.world import World

TOPIC: Final = "ledger"
_IDS: Final = 2
_SHARED: Final = _IDS
"""The partition to which all ids append."""
_PARTITIONS: Final = _IDS + 1
_TIMEOUT_MS: Final = 8_000
_OPEN_STATES: Final = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.PREPARE_EPOCH_FENCE,
)
_SETTLE_SECONDS: Final = 60


@dataclass(slots=True)
class _Attempt:
    """A transaction that a client began."""

    name: str
    number: int
    """That of its transactional id."""
    reads: tuple[str, ...] | None
    """The values of its own partition; None for a blind append."""
    appends: list[tuple[int, str]] = field(default_factory=list)
    fate: Fate = Fate.UNKNOWN
    is_commit_called: bool = False

    def own_values(self) -> tuple[str, ...]:
        """Return the values that the transaction appended to its id's own partition."""
        return tuple(value for partition, value in self.appends if partition == self.number)

    def transaction(self) -> Transaction:
        """Return the transaction in the form of the checker."""
        reads = {} if self.reads is None else {self.number: self.reads}
        return Transaction(self.name, self.fate, self.appends, reads)


class Ledgers:
    """Clients of two transactional ids, and readers that see only what is committed."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        random = world.random("ledgers")
        self._has_listings: Final = world.knows_topic_ids
        """Whether all brokers list transactions, as those of 3.0 and later do."""
        self._version: Final = 0 if world.is_mixed else random.choice((0, 1, 2, 2))
        """The level of `transaction.version`."""
        # Only version 2 raises the epoch for each transaction, so that a token stands for one of them.
        chance = 0.3 if self._version == 2 else 0.0
        self._two_phase: Final = {number for number in range(_IDS) if random.random() < chance}
        """The ids whose transactions are parts of a two-phase commit."""
        self._attempts: Final[list[_Attempt]] = []
        self._of_value: Final[dict[str, _Attempt]] = {}
        self._decisions: Final[dict[str, _Attempt]] = {}
        """What the other resource of a two-phase commit has stored: the token of each decision to commit."""
        self._observed: Final[list[list[list[str]]]] = []
        """What each run of a reader saw, by partition."""
        self._runs = 0

    async def set_up(self) -> None:
        """Create the topic, and set the version of transactions."""
        async with AsyncAdmin(bootstrap_servers=self._world.bootstrap) as admin:
            topic = NewTopic(TOPIC, _PARTITIONS, 3, config={"min.insync.replicas": "2"})
            await admin.create_topics([topic])
            if self._version < 2 and not self._world.is_mixed:
                update = FeatureUpdate(self._version, UpgradeType.UNSAFE_DOWNGRADE)
                await admin.update_features({"transaction.version": update})

    def start(self) -> None:
        """Start two clients for each id, and a reader."""
        for number in range(_IDS):
            for rival in ("a", "b"):
                self._world.start_client(f"ledger-{number}{rival}", partial(self._append, number, rival))
        self._world.start_client("ledger-reader", self._follow)

    async def check(self) -> None:
        """Let every transaction come to its end, read everything, and look for anomalies."""
        for number in sorted(self._two_phase):
            await self._recover(number)
        if self._has_listings:
            await self._check_none_open()
        partitions = [TopicPartition(TOPIC, number) for number in range(_PARTITIONS)]
        found = await read_all(self._world.bootstrap, partitions, "read_committed")
        lists: dict[int, list[str]] = {number: [] for number in range(_PARTITIONS)}
        for (partition, _), record in sorted(found.items()):
            lists[partition].append((record.value or b"").decode())
        self._report(lists)

    def _report(self, lists: dict[int, list[str]]) -> None:
        history = [attempt.transaction() for attempt in self._attempts]
        observers = [
            Transaction(f"reader {run}", Fate.UNKNOWN, (), {partition: values})
            for run, observed in enumerate(self._observed)
            for partition, values in enumerate(observed)
        ]
        found: list[Anomaly] = [
            each for each in anomalies(history, lists) if each.name not in ("G0", "G1c", "G-single")
        ]
        # A reader's polls may end in the middle of a transaction; what it saw is a beginning all the same.
        found += [each for each in anomalies(observers, lists) if each.name == "incompatible order"]
        for number in range(_IDS):
            own = [attempt.transaction() for attempt in self._attempts if attempt.number == number]
            found += cycles(own, lists)
        for anomaly in found:
            self._world.history.violate(f"transactions: {anomaly.name}", anomaly.text)
        fates = {fate: sum(attempt.fate is fate for attempt in self._attempts) for fate in Fate}
        between = [anomaly.name for anomaly in cycles(history, lists)]
        self._world.history.note(
            f"transactions (version {self._version}, two-phase {sorted(self._two_phase)}): "
            f"{', '.join(f'{count} {fate.value}' for fate, count in fates.items())}; "
            f"{sum(map(len, lists.values()))} records; between ids, as Kafka allows: {between}"
        )

    # Clients.

    def _producer(self, number: int) -> AsyncProducer[bytes, bytes]:
        is_two_phase = number in self._two_phase
        timeout = {} if is_two_phase else {"transaction_timeout_ms": _TIMEOUT_MS}
        return AsyncProducer(
            bootstrap_servers=self._world.bootstrap,
            client_id=f"ledger-{number}",
            transactional_id=f"ledger-{number}",
            transaction_two_phase_commit_enable=is_two_phase,
            delivery_timeout_ms=12_000,
            request_timeout_ms=4_000,
            max_block_ms=15_000,
            **timeout,  # type: ignore[arg-type]  # a dictionary of options has no type of its own
        )

    async def _append(self, number: int, rival: str) -> None:
        self._runs += 1
        random = self._world.random(f"ledger-{number}{rival}.{self._runs}")
        while not self._world.is_stopping:
            try:
                async with self._producer(number) as producer:
                    await self._take_over(producer, number)
                    await self._use(producer, number, f"ledger-{number}{rival}", random)
            except ClientError as error:
                self._world.history.note(f"ledger-{number}{rival} gives up: {error!r:.160}")
            await self._pause(random.uniform(1.0, 14.0))

    async def _pause(self, seconds: float) -> None:
        for _ in range(int(seconds * 2)):
            if not self._world.is_stopping:
                await asyncio.sleep(0.5)

    async def _take_over(self, producer: AsyncProducer[bytes, bytes], number: int) -> None:
        """Fence the other client, and end the transaction that it left."""
        is_two_phase = number in self._two_phase
        prepared = await producer.init_transactions(keep_prepared=is_two_phase)
        if not prepared.has_transaction:
            return
        attempt = self._decisions.get(str(prepared))
        if attempt is None:
            await producer.complete_transaction("")
        else:
            await producer.complete_transaction(prepared)
            self._end(attempt, Fate.COMMITTED)

    def _end(self, attempt: _Attempt, fate: Fate) -> None:
        if attempt.fate not in (fate, Fate.UNKNOWN):
            self._world.history.violate(
                "a transaction has one outcome", f"{attempt.name} was {attempt.fate.value}, is {fate.value}"
            )
        attempt.fate = fate
        self._world.history.note(f"transaction {attempt.name} is {fate.value}")

    async def _use(
        self, producer: AsyncProducer[bytes, bytes], number: int, client: str, random: SeededRandom
    ) -> None:
        attempt = self._begin(number, client, None)
        await self._do_one(producer, attempt, random)
        if attempt.fate is not Fate.COMMITTED:
            return
        seen = await self._read_own(number, attempt)
        self._world.history.note(f"{client} reads {len(seen)} values")
        for _ in range(random.randrange(1, 6)):
            if random.random() < 0.6:
                await asyncio.sleep(random.random() * 3)
            if self._world.is_stopping:
                return
            attempt = self._begin(number, client, seen)
            await self._do_one(producer, attempt, random)
            if attempt.fate is Fate.UNKNOWN:
                return
            if attempt.fate is Fate.COMMITTED:
                seen += attempt.own_values()

    def _begin(self, number: int, client: str, reads: tuple[str, ...] | None) -> _Attempt:
        attempt = _Attempt(f"{number}.{len(self._attempts)}", number, reads)
        self._attempts.append(attempt)
        self._world.history.note(f"{client} begins transaction {attempt.name}")
        return attempt

    async def _read_own(self, number: int, attempt: _Attempt) -> tuple[str, ...]:
        """Return the values of an id's partition up to those of a transaction."""
        last = attempt.own_values()[-1]
        while True:
            partitions = [TopicPartition(TOPIC, number)]
            found = await read_all(self._world.bootstrap, partitions, "read_committed")
            values = tuple((record.value or b"").decode() for _, record in sorted(found.items()))
            if last in values or self._world.is_stopping:
                return values
            await asyncio.sleep(0.5)

    async def _do_one(
        self, producer: AsyncProducer[bytes, bytes], attempt: _Attempt, random: SeededRandom
    ) -> None:
        await producer.begin_transaction()
        try:
            for index in range(random.randrange(2, 6)):
                partition = (attempt.number, attempt.number, _SHARED)[min(index, random.randrange(3))]
                value = f"{attempt.name}:{index}"
                attempt.appends.append((partition, value))
                self._of_value[value] = attempt
                await producer.send(TOPIC, value.encode(), partition=partition)
                if random.random() < 0.2:
                    await asyncio.sleep(random.random() * 0.3)
            if random.random() < 0.12:
                # Slow enough to be fenced, or to be too late for the time-out.
                await asyncio.sleep(random.random() * 12)
            if random.random() < 0.2:
                await producer.abort_transaction()
                self._end(attempt, Fate.ABORTED)
                return
            await self._commit(producer, attempt)
        except TransactionAbortableError:
            await producer.abort_transaction()
            self._end(attempt, Fate.ABORTED)

    async def _commit(self, producer: AsyncProducer[bytes, bytes], attempt: _Attempt) -> None:
        if attempt.number in self._two_phase:
            token = await producer.prepare_transaction()
            self._decisions[str(token)] = attempt
            attempt.is_commit_called = True
            await producer.complete_transaction(token)
        else:
            attempt.is_commit_called = True
            await producer.commit_transaction()
        self._end(attempt, Fate.COMMITTED)

    async def _follow(self) -> None:
        observed: list[list[str]] = [[] for _ in range(_PARTITIONS)]
        self._observed.append(observed)
        consumer: AsyncConsumer[bytes, bytes] = AsyncConsumer(
            bootstrap_servers=self._world.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            request_timeout_ms=4_000,
        )
        async with consumer:
            await consumer.assign([TopicPartition(TOPIC, number) for number in range(_PARTITIONS)])
            while not self._world.is_stopping:
                for record in await polled(consumer, 0.5):
                    value = (record.value or b"").decode()
                    observed[record.partition].append(value)
                    self._see(value, record.partition, record.offset)

    def _see(self, value: str, partition: int, offset: int) -> None:
        attempt = self._of_value[value]
        if attempt.fate is Fate.ABORTED:
            anomaly = "G1a"
        elif not attempt.is_commit_called:
            anomaly = "G1b"
        else:
            return
        self._world.history.violate(
            f"transactions: {anomaly}",
            f"{value} at {offset} of partition {partition} was read while its transaction was "
            f"{attempt.fate.value}, commit called: {attempt.is_commit_called}",
        )

    # The end.

    async def _recover(self, number: int) -> None:
        async with self._producer(number) as producer:
            await self._take_over(producer, number)

    async def _check_none_open(self) -> None:
        async with AsyncAdmin(bootstrap_servers=self._world.bootstrap) as admin:
            for _ in range(_SETTLE_SECONDS):
                listed = (await admin.list_transactions(states=_OPEN_STATES)).all()
                if not listed:
                    break
                await asyncio.sleep(1)
            else:
                self._world.history.violate("no transaction is left open", f"{listed}")
                return
            partitions = [TopicPartition(TOPIC, number) for number in range(_PARTITIONS)]
            for partition, producers in (await admin.describe_producers(partitions)).items():
                for producer in producers:
                    if producer.current_transaction_start_offset is not None:
                        self._world.history.violate("no transaction is left open", f"{partition}: {producer}")
