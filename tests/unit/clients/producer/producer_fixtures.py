"""Builds metadata, batches and accumulators for the producer's tests."""

from collections.abc import Callable, Sequence
from uuid import UUID

from kalda.clients.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from kalda.clients.producer.buffer_pool import MemoryWaiter
from kalda.clients.producer.record_accumulator import AccumulatorSettings, Appended, RecordAccumulator
from kalda.clients.producer.record_future import Delivery, RecordFuture
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.records.compression import Compression
from kalda.records.record import Header, iter_records

TOPIC = "t"
TOPIC_ID = UUID(int=1)
TIME_MS = 1_700_000_000_000


def snapshot(
    leaders: Sequence[int] = (0,),
    *,
    brokers: int = 3,
    leader_epoch: int = 0,
    topic: str = TOPIC,
    topic_id: UUID = TOPIC_ID,
) -> ClusterMetadata:
    """Return a cluster whose topic has a partition for each leader; -1 is none."""
    partitions = {
        number: PartitionMetadata(TopicPartition(topic, number), leader, leader_epoch, ErrorCode.NONE)
        for number, leader in enumerate(leaders)
    }
    endpoints = {number: BrokerEndpoint(number, "localhost", 9092 + number) for number in range(brokers)}
    return ClusterMetadata(
        1, "c", 0, endpoints, {topic: TopicMetadata(topic, topic_id, False, ErrorCode.NONE, partitions)}
    )


def accumulator(
    *,
    batch_size: int = 200,
    buffer_memory: int = 10_000,
    max_request_size: int = 10_000,
    linger_s: float = 1.0,
    compression: Compression = Compression.NONE,
    transactions: TransactionManager | None = None,
    availability_timeout_s: float = 0.0,
    random_below: Callable[[int], int] = lambda below: 0,
) -> RecordAccumulator:
    """Return an accumulator without jitter."""
    settings = AccumulatorSettings(
        batch_size=batch_size,
        buffer_memory=buffer_memory,
        max_request_size=max_request_size,
        linger_s=linger_s,
        delivery_timeout_s=60.0,
        compression=compression,
        availability_timeout_s=availability_timeout_s,
    )
    return RecordAccumulator(
        settings, ExponentialBackoff(100, 1_000, lambda low, high: 1.0), random_below, transactions
    )


def send(
    accumulator: RecordAccumulator,
    value: bytes,
    *,
    partition: int | None = 0,
    now: float = 0.0,
    metadata: ClusterMetadata | None = None,
    headers: Sequence[Header] = (),
    on_delivery: Delivery | None = None,
) -> RecordFuture:
    """Append a record as a producer does; fails the test if memory is missing."""
    future = accumulator.try_append(TOPIC, partition, None, value, TIME_MS, headers, on_delivery)
    if future is not None:
        return future
    return append(
        accumulator, value, partition=partition, now=now, metadata=metadata, on_delivery=on_delivery
    ).future


def append(
    accumulator: RecordAccumulator,
    value: bytes,
    *,
    partition: int | None = 0,
    now: float = 0.0,
    metadata: ClusterMetadata | None = None,
    on_delivery: Delivery | None = None,
) -> Appended:
    """Append a record on the slow way; fails the test if memory is missing."""
    size = accumulator.memory_for(None, value, ())
    reserved = MemoryWaiter(size, lambda: None)
    assert accumulator.reserve(reserved), f"no {size} bytes are free"
    return accumulator.append(
        TOPIC,
        partition,
        None,
        value,
        TIME_MS,
        (),
        on_delivery,
        reserved=reserved,
        now=now,
        snapshot=metadata or snapshot(),
    )


def values(batch: bytes | bytearray) -> list[bytes | None]:
    """Return the values of the records in a batch."""
    return [record.value for record in iter_records(batch)]
