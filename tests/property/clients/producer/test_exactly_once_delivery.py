"""Accumulator, results and sequences against a model of a broker, on a network that loses requests and
responses.

The model checks sequence numbers as brokers do; from a producer that a partition does not know, any sequence
is taken, not only 0. Whatever is lost, refused or split, each record is in the log
exactly once and in order, each future completes, and all memory comes back.
"""

import random
from collections import deque
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from kalda.clients.metadata import Metadata
from kalda.clients.producer.buffer_pool import MemoryWaiter
from kalda.clients.producer.produce_results import PartitionResult, ProduceResults
from kalda.clients.producer.producer_batch import ProducerBatch
from kalda.clients.producer.record_accumulator import AccumulatorSettings, RecordAccumulator
from kalda.clients.producer.record_future import RecordFuture
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.clients.producer.transaction_requests import InitProducerId
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.init_producer_id import InitProducerIdResponse
from kalda.records.batch import increment_sequence, read_header
from kalda.records.record import iter_records
from tests.unit.clients.producer.producer_fixtures import TOPIC, snapshot

IN_FLIGHT_MAX = 5
REMEMBERED_BATCHES = 5
TIMEOUT_S = 30.0
MEMORY = 3_000


@dataclass
class ModelPartition:
    """A log, and what a broker knows of the one producer that writes to it."""

    log: list[bytes] = field(default_factory=list)
    epoch: int = -1
    next_sequence: int = 0
    last_batches: deque[tuple[int, int, int]] = field(
        default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES)
    )
    """First sequence, last sequence and base offset."""

    def append(self, batch: bytes | bytearray, records_max: int) -> PartitionResult:
        header = read_header(batch)
        values = [record.value or b"" for record in iter_records(batch)]
        if len(values) > records_max:
            return PartitionResult(ErrorCode.MESSAGE_TOO_LARGE)
        if header.producer_id >= 0:
            if header.producer_epoch < self.epoch:
                return PartitionResult(ErrorCode.INVALID_PRODUCER_EPOCH)
            if header.producer_epoch > self.epoch:
                if self.epoch >= 0 and header.base_sequence != 0:
                    return PartitionResult(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
                self.epoch = header.producer_epoch
                self.last_batches.clear()
            else:
                for first, last, offset in self.last_batches:
                    if (first, last) == (header.base_sequence, header.last_sequence):
                        return PartitionResult(ErrorCode.NONE, offset)
                if header.base_sequence != self.next_sequence:
                    return PartitionResult(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            self.next_sequence = increment_sequence(header.last_sequence, 1)
            self.last_batches.append((header.base_sequence, header.last_sequence, len(self.log)))
        self.log += values
        return PartitionResult(ErrorCode.NONE, len(self.log) - len(values))


@dataclass
class Request:
    """A request in flight, with the bytes that were sent."""

    batches: list[tuple[ProducerBatch, bytes]]
    results: list[PartitionResult] | None = None


class Simulation:
    """A producer without I/O, a broker and a network between them."""

    def __init__(
        self, seed: int, *, is_idempotent: bool, in_flight_max: int, delivery_timeout_s: float
    ) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.in_flight_max = in_flight_max
        self.transactions = TransactionManager() if is_idempotent else None
        settings = AccumulatorSettings(
            batch_size=150,
            buffer_memory=MEMORY,
            max_request_size=400,
            linger_s=0.05,
            delivery_timeout_s=delivery_timeout_s,
        )
        backoff = ExponentialBackoff(50, 500, lambda low, high: self.random.uniform(low, high))
        self.accumulator = RecordAccumulator(settings, backoff, self.random.randrange, self.transactions)
        self.results = ProduceResults(
            self.accumulator,
            Metadata(),
            self.transactions,
            retries=2**31 - 1,
            keeps_order=in_flight_max == 1,
        )
        self.metadata = snapshot([0, 0], brokers=1)
        self.partitions = [ModelPartition(), ModelPartition()]
        self.in_flight: deque[Request] = deque()
        self.sent: list[list[tuple[bytes, RecordFuture]]] = [[], []]
        self.records_max = 100
        self.refusals = 0.0
        """How often the broker refuses a batch for good before it looks at the sequence."""

    def send(self) -> None:
        number = self.random.randrange(2)
        value = b"%d" % len(self.sent[number]) + b"." * self.random.randrange(40)
        future = self.accumulator.try_append(TOPIC, number, None, value, 1, (), None)
        if future is None:
            size = self.accumulator.memory_for(None, value, ())
            waiter = MemoryWaiter(size, lambda: None)
            if not self.accumulator.reserve(waiter):
                self.accumulator.cancel_reservation(waiter)
                return
            future = self.accumulator.append(
                TOPIC, number, None, value, 1, (), None, reserved=waiter, now=self.now, snapshot=self.metadata
            ).future
        self.sent[number].append((value, future))

    def drain(self) -> None:
        if self.transactions is not None:
            self.transactions.maybe_resolve_sequences()
            self.transactions.bump_idempotent_epoch_and_reset_id_if_needed()
            request = self.transactions.next_request(self.accumulator.has_incomplete)
            if request is not None:
                assert isinstance(request, InitProducerId)
                self.transactions.handle_response(
                    request, InitProducerIdResponse(producer_id=7, producer_epoch=0)
                )
        check = self.accumulator.ready(self.metadata, self.now)
        for batch in check.expired:
            self.results.expire(batch, self.now, {})
        if not check.nodes or len(self.in_flight) >= self.in_flight_max:
            return
        for batches in self.accumulator.drain(check, check.nodes, self.metadata, self.now).values():
            assert len({batch.topic_partition for batch in batches}) == len(batches)
            for batch in batches:
                if self.in_flight_max == 1:
                    self.accumulator.mute(batch.topic_partition, is_muted=True)
            self.in_flight.append(Request([(batch, bytes(batch.build())) for batch in batches]))

    def process(self) -> None:
        """Let the broker process the oldest request that it has not seen."""
        for request in self.in_flight:
            if request.results is None:
                request.results = [self._append(batch, data) for batch, data in request.batches]
                return

    def _append(self, batch: ProducerBatch, data: bytes) -> PartitionResult:
        if self.random.random() < 0.1:
            return PartitionResult(ErrorCode.NOT_ENOUGH_REPLICAS)
        if self.random.random() < self.refusals:
            return PartitionResult(ErrorCode.INVALID_RECORD)
        return self.partitions[batch.topic_partition.partition].append(data, self.records_max)

    def respond(self) -> None:
        if self.in_flight and self.in_flight[0].results is not None:
            request = self.in_flight.popleft()
            assert request.results is not None
            for (batch, _), result in zip(request.batches, request.results, strict=True):
                self.results.apply(batch, result, self.now)

    def disconnect(self) -> None:
        """Lose the connection: the broker processed what `process` did, and no response arrives."""
        while self.in_flight:
            for batch, _ in self.in_flight.popleft().batches:
                self.results.apply(batch, PartitionResult(ErrorCode.NETWORK_EXCEPTION), self.now)

    def step(self) -> None:
        self.now += self.random.random() * 0.05
        action = self.random.choices(
            [self.send, self.drain, self.process, self.respond, self.disconnect], [10, 5, 5, 5, 0.3]
        )[0]
        action()

    def finish(self) -> None:
        """Send everything over a network that works."""
        self.records_max = 100
        self.accumulator.close()
        for _ in range(3_000):
            if not self.accumulator.has_incomplete:
                return
            self.now += 0.1
            self.drain()
            self.process()
            self.respond()
        raise AssertionError("the producer does not come to an end")


def run(
    seed: int,
    *,
    is_idempotent: bool,
    in_flight_max: int,
    splits: bool = False,
    timeout_s: float = 1e9,
    refusals: float = 0.0,
) -> Simulation:
    simulation = Simulation(
        seed, is_idempotent=is_idempotent, in_flight_max=in_flight_max, delivery_timeout_s=timeout_s
    )
    simulation.records_max = 2 if splits else 100
    simulation.refusals = refusals
    for _ in range(600):
        simulation.step()
    simulation.finish()
    assert MEMORY == simulation.accumulator.pool.available
    assert all(future.done() for sent in simulation.sent for _, future in sent)
    return simulation


@given(st.integers(0, 2**32), st.booleans())
def test_with_idempotence_each_record_is_written_once_and_in_order(seed: int, splits: bool) -> None:
    simulation = run(seed, is_idempotent=True, in_flight_max=5, splits=splits)
    for partition, sent in zip(simulation.partitions, simulation.sent, strict=True):
        assert [value for value, _ in sent] == partition.log
        # The broker may have forgotten where a batch is that it wrote long before the producer got to know.
        assert all(future.result(0).offset in (-1, index) for index, (_, future) in enumerate(sent))


@given(st.integers(0, 2**32))
def test_one_in_flight_keeps_the_order_without_idempotence(seed: int) -> None:
    """Records may be written twice, but the first occurrences are in order and none is missing."""
    simulation = run(seed, is_idempotent=False, in_flight_max=1)
    for partition, sent in zip(simulation.partitions, simulation.sent, strict=True):
        assert [value for value, _ in sent] == list(dict.fromkeys(partition.log))


@given(st.integers(0, 2**32), st.sampled_from([0.6, 1e9]), st.sampled_from([0.0, 0.05]))
def test_failed_records_never_lead_to_duplicates_or_disorder(
    seed: int, timeout_s: float, refusals: float
) -> None:
    """Records that expire or are refused leave gaps; those acknowledged are written once and in order."""
    simulation = run(seed, is_idempotent=True, in_flight_max=5, timeout_s=timeout_s, refusals=refusals)
    for partition, sent in zip(simulation.partitions, simulation.sent, strict=True):
        assert len(set(partition.log)) == len(partition.log)
        order = {value: index for index, value in enumerate(partition.log)}
        positions = [order[value] for value, future in sent if future.exception(0) is None]
        assert sorted(positions) == positions
