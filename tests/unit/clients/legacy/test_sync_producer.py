"""One broker's requests: the version that it takes, formats, codecs, acknowledgements, new connections."""

import asyncio
from typing import Any, cast

import pytest

from kalda.clients.errors import BrokerConnectionError
from kalda.clients.legacy import Message, ProducerConfig
from kalda.clients.legacy.producer import sync_producer
from kalda.clients.legacy.producer.sync_producer import ProducerPool, SyncProducer
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kalda.protocol.schema import VersionRange
from kalda.records.batch import iter_headers
from kalda.records.format_conversion import iter_any_records
from kalda.runtime.clock import ManualClock

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BROKER = BrokerEndpoint(7, "host", 9092)


class Node:
    """A connection to a broker that takes Produce 0 to `produce_max` and answers each partition with NONE."""

    produce_max = 2

    def __init__(self, *arguments: object) -> None:
        self.requests: list[tuple[int, ProduceRequest]] = []
        self.answer: ProduceResponse | None = None
        self.is_closed = False
        self.in_flight_count = 0
        self.peer = "host:9092"
        NODES.append(self)

    async def ready(self, deadline: float) -> NodeApiVersions:
        return NodeApiVersions("host:9092", {0: VersionRange(0, self.produce_max)}, {})

    def send(self, request: ProduceRequest, version: int, timeout_s: float) -> "asyncio.Future[object]":
        self.requests.append((version, request))
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        answer = self.answer or ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(index=each.index, error_code=0, base_offset=0)
                        for each in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )
        future.set_result(request if request.acks == 0 else answer)
        return future

    def close(self) -> None:
        self.is_closed = True


NODES: list[Node] = []


@pytest.fixture(autouse=True)
def _scripted_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    NODES.clear()
    monkeypatch.setattr(sync_producer, "NodeConnection", Node)
    monkeypatch.setattr(Node, "produce_max", 2)


def producer(clock: ManualClock | None = None, **options: object) -> SyncProducer:
    config = ProducerConfig({"metadata.broker.list": "h:1", "request.required.acks": 1}, **options)
    return SyncProducer(
        BROKER, config, config.connections(), cast(Any, None), clock or ManualClock(5_000), lambda: None
    )


def stored(request: ProduceRequest) -> list[tuple[int, int, bytes | None, bytes | None, int]]:
    """Return magic, partition, key, value and timestamp of each message."""
    found = []
    for topic in request.topic_data:
        for each in topic.partition_data:
            records = cast(bytearray, each.records)
            for position, header in iter_headers(records):
                found += [
                    (header.magic, each.index, record.key, record.value, record.timestamp)
                    for record in iter_any_records(records, position, header)
                ]
    return found


async def test_broker_of_010_gets_timestamps() -> None:
    sets = {T0: [Message(b"a", b"k"), Message(None, b"k", 77)], T1: [Message(b"b")]}
    assert {T0: ErrorCode.NONE, T1: ErrorCode.NONE} == await producer().produce(sets)
    ((version, request),) = NODES[0].requests
    assert (2, 1, 10_000) == (version, request.acks, request.timeout_ms)
    assert [(1, 0, b"k", b"a", 5_000), (1, 0, b"k", None, 77), (1, 1, None, b"b", 5_000)] == stored(request)


@pytest.mark.parametrize("produce_max", [0, 1])
async def test_older_broker_gets_messages_of_08(produce_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Node, "produce_max", produce_max)
    await producer(compression_codec="snappy").produce({T0: [Message(b"a", b"k", 77), Message(b"b")]})
    ((version, request),) = NODES[0].requests
    assert produce_max == version
    assert [(0, 0, b"k", b"a", -1), (0, 0, None, b"b", -1)] == stored(request)


async def test_topics_are_compressed_as_the_settings_say() -> None:
    sender = producer(compression_codec="gzip", compressed_topics="other")
    many = [Message(b"x" * 1_000)] * 5
    await sender.produce({T0: many, TopicPartition("other", 0): many})
    ((_, request),) = NODES[0].requests
    sizes = [len(cast(bytes, each.partition_data[0].records)) for each in request.topic_data]
    assert sizes[0] > 5_000 > 500 > sizes[1]


async def test_without_acknowledgement_nothing_is_waited_for() -> None:
    assert {T0: ErrorCode.NONE} == await producer(request_required_acks=0).produce({T0: [Message(b"a")]})


async def test_answer_for_other_partitions_is_an_error() -> None:
    sender = producer()
    NODES[0].answer = ProduceResponse(responses=[])
    with pytest.raises(BrokerConnectionError, match="answered for"):
        await sender.produce({T0: [Message(b"a")]})


async def test_connection_is_replaced_after_its_interval() -> None:
    """By requests or by time, but not while a response is outstanding."""
    clock = ManualClock()
    sender = producer(clock, reconnect_interval=2, reconnect_time_interval_ms=60_000)
    for _ in range(3):
        await sender.produce({T0: [Message(b"a")]})
    assert [(True, 2), (False, 1)] == [(each.is_closed, len(each.requests)) for each in NODES]
    clock.advance(60)
    NODES[1].in_flight_count = 1
    await sender.produce({T0: [Message(b"a")]})
    NODES[1].in_flight_count = 0
    await sender.produce({T0: [Message(b"a")]})
    assert [2, 2, 1] == [len(each.requests) for each in NODES]


def test_pool_has_one_producer_for_each_broker() -> None:
    made: list[BrokerEndpoint] = []

    def make(endpoint: BrokerEndpoint) -> SyncProducer:
        made.append(endpoint)
        sender = producer()
        sender.__dict__["endpoint"] = endpoint
        return sender

    pool = ProducerPool(make)
    moved = BrokerEndpoint(7, "elsewhere", 9092)
    assert pool.producer(BROKER) is pool.producer(BROKER)
    pool.producer(moved)
    pool.producer(BrokerEndpoint(8, "host", 9093))
    assert [7, 7, 8] == [each.id for each in made]
    assert [True, False, False] == [each.is_closed for each in NODES]
    pool.close()
    assert [True, True, True] == [each.is_closed for each in NODES]
