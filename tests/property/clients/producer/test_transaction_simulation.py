"""Producers and the coordinator of Kalda's broker play together, with lost messages and fail-overs.

Every transaction that was reported committed is read whole and once; one that was aborted is not read at all;
one whose end is unknown is read whole or not at all. A failure names its seed.
"""

import random
from dataclasses import dataclass, field

import pytest

from kalda.clients.errors import ClientError, RequestTimedOutError, error_for
from kalda.clients.producer.producer_identity import NO_PRODUCER_ID
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.clients.producer.transaction_requests import (
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    TransactionRequest,
    TransactionResult,
)
from kalda.clients.producer.transaction_state import TransactionState
from kalda.clients.producer.txn_partition_map import last_sequence
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.coordinator.transaction.transaction_metadata import Identity
from kalda.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kalda.protocol.messages.end_txn import EndTxnResponse
from kalda.protocol.messages.init_producer_id import InitProducerIdResponse
from kalda.protocol.schema import Message
from tests.golden.clients.transaction_player import Batch, Player
from tests.unit.coordinator.transaction_simulation import Simulation

PARTITIONS = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0))
STEPS = 400


@dataclass(eq=False)
class Records(Batch):
    """A batch with the transaction that each of its records belongs to."""

    transaction: int = -1


@dataclass
class PartitionLog:
    """A partition's leader: sequences, epochs, and what a reader of committed records sees."""

    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    open: dict[int, list[int]] = field(default_factory=dict)
    committed: list[int] = field(default_factory=list)

    def refusal(self, batch: Records) -> ErrorCode | None:
        """Return why the batch cannot be appended; NONE for a duplicate, None if it can be."""
        known = self.epochs.get(batch.producer_id, -1)
        if batch.producer_epoch < known:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        expected = self.sequences.get(batch.producer_id, -1) + 1 if batch.producer_epoch == known else 0
        if batch.producer_epoch == known and last_sequence(batch) < expected:
            return ErrorCode.NONE
        return None if batch.base_sequence == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def append(self, batch: Records) -> None:
        producer = batch.producer_id
        self.epochs[producer] = batch.producer_epoch
        self.sequences[producer] = last_sequence(batch)
        self.open.setdefault(producer, []).extend([batch.transaction] * batch.record_count)

    def end(self, identity: Identity, *, is_commit: bool) -> None:
        producer = identity.producer_id
        if identity.epoch > self.epochs.get(producer, -1):
            self.epochs[producer] = identity.epoch
            self.sequences[producer] = -1
        ended = self.open.pop(producer, [])
        if is_commit:
            self.committed += ended


class World:
    """The coordinator, the partitions, and the producers that follow each other with one transactional id."""

    def __init__(self, seed: int, version: int) -> None:
        self.random = random.Random(seed)
        self.coordinator = Simulation(version=version)
        self.logs = {partition: PartitionLog() for partition in PARTITIONS}
        self.version = version
        self.sent: dict[int, dict[TopicPartition, int]] = {}
        """By transaction, how many records were appended to batches of each partition."""
        self.ends: dict[int, str] = {}
        self.transaction_count = 0
        self.producers: list[Application] = [Application(self)]

    def run(self) -> None:
        for _ in range(STEPS):
            self.random.choice(self.producers).step()
            self.random.choices(
                (self.write_a_marker, self.fail_over, self.add_producer, lambda: None), (30, 2, 1, 67)
            )[0]()
        for _ in range(300):
            for producer in self.producers:
                producer.settle()
            self.write_markers()
        self.coordinator.clock.advance(100_000)
        self.coordinator.coordinator.abort_timed_out()
        for _ in range(5):
            self.write_markers()
            self.coordinator.loop.settle()

    def write_a_marker(self) -> None:
        works = self.coordinator.markers.works
        if works:
            work = self.random.choice(works)
            self.write_marker(self.random.choice(sorted(work.remaining)))

    def write_markers(self) -> None:
        while self.coordinator.markers.works:
            self.write_marker(sorted(self.coordinator.markers.works[0].remaining)[0])

    def write_marker(self, partition: TopicPartition) -> None:
        for work in self.coordinator.markers.works:
            if partition in work.remaining:
                self.logs[partition].end(work.metadata.identity, is_commit=work.metadata.is_commit)
        self.coordinator.markers.write(partition)
        self.coordinator.loop.settle()

    def fail_over(self) -> None:
        self.coordinator.fail_over()

    def add_producer(self) -> None:
        if len(self.producers) < 4:
            self.producers.append(Application(self))

    def produce(self, batch: Records) -> ErrorCode:
        log = self.logs[batch.topic_partition]
        refusal = log.refusal(batch)
        if refusal is not None:
            return refusal
        identity = Identity(batch.producer_id, batch.producer_epoch)
        if batch.producer_id not in log.open or log.epochs[batch.producer_id] != batch.producer_epoch:
            code = (
                self.coordinator.add(identity, batch.topic_partition)
                if self.version >= 2
                else self.coordinator.verify(identity, batch.topic_partition)[batch.topic_partition]
            )
            if code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                return ErrorCode.NOT_ENOUGH_REPLICAS
            if code is ErrorCode.PRODUCER_FENCED:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if code is not ErrorCode.NONE:
                return code
        log.append(batch)
        return ErrorCode.NONE

    def answer(self, request: TransactionRequest) -> Message:
        """Let the coordinator process a request."""
        match request:
            case InitProducerId():
                given = request.identity
                expected = None if given.producer_id == NO_PRODUCER_ID else Identity(*given)
                begun = self.coordinator.begin(expected=expected)
                return InitProducerIdResponse(
                    error_code=begun.code,
                    producer_id=begun.identity.producer_id,
                    producer_epoch=begun.identity.epoch,
                )
            case AddPartitionsToTxn():
                code = self.coordinator.add(Identity(*request.identity), *request.partitions)
                return AddPartitionsToTxnResponse(
                    results_by_transaction=[],
                    results_by_topic_v3_and_below=[
                        AddPartitionsToTxnTopicResult(
                            name=each.topic,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=each.partition, partition_error_code=code
                                )
                            ],
                        )
                        for each in request.partitions
                    ],
                )
            case EndTxn():
                ended = self.coordinator.end(Identity(*request.identity), commit=request.is_commit)
                if not request.is_v2:
                    return EndTxnResponse(error_code=ended.code)
                return EndTxnResponse(
                    error_code=ended.code,
                    producer_id=ended.identity.producer_id,
                    producer_epoch=ended.identity.epoch,
                )
        raise AssertionError(f"unexpected {request}")


class Application:
    """One producer and the program that uses it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random
        self.player = Player(TransactionManager("t"))
        self.player.manager.note_node_versions(
            coordinator_bumps_epochs=True, features_epoch=1, transaction_version=world.version
        )
        self.transaction = -1
        self.pending: tuple[str, TransactionResult] | None = None
        self.pending = ("init", self.player.manager.initialize_transactions())

    def step(self) -> None:
        self.random.choices((self.call, self.round, self.coordinate, self.deliver), (20, 40, 20, 20))[0]()

    def settle(self) -> None:
        """Go on without faults until the last transaction has ended."""
        self.see_result()
        manager = self.player.manager
        if self.pending is None and manager.has_ongoing_transaction:
            self.end("abort")
        self.round()
        self.coordinate(is_faulty=False)
        self.deliver(is_faulty=False)

    def call(self) -> None:
        self.see_result()
        manager = self.player.manager
        if self.pending is not None or manager.has_fatal_error:
            return
        if manager.state is TransactionState.READY:
            manager.begin_transaction()
            self.transaction = self.world.transaction_count
            self.world.transaction_count += 1
            self.world.sent[self.transaction] = {}
        elif manager.state is TransactionState.ABORTABLE_ERROR or self.random.random() < 0.1:
            self.end("abort")
        elif self.random.random() < 0.3:
            self.end("commit")
        else:
            self.append(self.random.choice(PARTITIONS), self.random.randint(1, 3))

    def append(self, partition: TopicPartition, count: int) -> None:
        self.player.manager.maybe_add_partition(partition)
        self.player.queued.append(Records(partition, count, transaction=self.transaction))
        sent = self.world.sent[self.transaction]
        sent[partition] = sent.get(partition, 0) + count

    def end(self, kind: str) -> None:
        manager = self.player.manager
        self.world.ends[self.transaction] = "unknown"
        try:
            self.pending = (kind, manager.begin_commit() if kind == "commit" else manager.begin_abort())
        except ClientError:
            self.pending = None

    def see_result(self) -> None:
        if self.pending is None or not self.pending[1].is_completed:
            return
        kind, result = self.pending
        result.is_acked = True
        self.pending = None
        if result.error is None and kind != "init":
            self.world.ends[self.transaction] = kind

    def round(self) -> None:
        self.player.do_round()

    def coordinate(self, *, is_faulty: bool = True) -> None:
        if self.player.request is None:
            return
        request = self.player.take()
        manager = self.player.manager
        fate = self.random.random() if is_faulty else 1.0
        if fate < 0.1:
            manager.handle_failure(request, RequestTimedOutError("the request was lost"))
            return
        response = self.world.answer(request)
        if fate < 0.2:
            manager.handle_failure(request, RequestTimedOutError("the response was lost"))
        else:
            manager.handle_response(request, response)

    def deliver(self, *, is_faulty: bool = True) -> None:
        """Carry the first batch in flight of some partition to its leader, and perhaps the answer back."""
        flying = self.player.in_flight
        if not flying:
            return
        partition = self.random.choice(flying).topic_partition
        batch = next(each for each in flying if each.topic_partition == partition)
        flying.remove(batch)
        assert isinstance(batch, Records)
        fate = self.random.random() if is_faulty else 1.0
        code = ErrorCode.NETWORK_EXCEPTION if fate < 0.1 else self.world.produce(batch)
        if 0.1 <= fate < 0.2:
            code = ErrorCode.NETWORK_EXCEPTION
        manager = self.player.manager
        if code is ErrorCode.NONE:
            manager.handle_completed_batch(batch, 0)
        elif manager.can_retry(code, batch):
            self.player.queued.append(batch)
            self.player.queued.sort(key=lambda each: (each.base_sequence < 0, each.base_sequence))
        else:
            manager.handle_failed_batch(batch, error_for(code, str(partition)), adjusts_sequences=False)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", range(60))
def test_transactions_are_read_whole_or_not_at_all(seed: int, version: int) -> None:
    world = World(seed, version)
    world.run()

    read: dict[int, dict[TopicPartition, int]] = {}
    for partition, log in world.logs.items():
        assert not log.open, f"seed {seed}: a transaction stays open in {partition}"
        for transaction in log.committed:
            found = read.setdefault(transaction, {})
            found[partition] = found.get(partition, 0) + 1
    for transaction, end in world.ends.items():
        found = read.pop(transaction, {})
        sent = world.sent[transaction]
        if end == "commit":
            assert sent == found, f"seed {seed}: transaction {transaction} was committed"
        elif end == "abort":
            assert {} == found, f"seed {seed}: transaction {transaction} was aborted"
        else:
            assert found in ({}, sent), f"seed {seed}: transaction {transaction} is torn"
    assert {} == read, f"seed {seed}: transactions nobody ended are read"
