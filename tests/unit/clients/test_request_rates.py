"""How often whole clients ask a broker that answers one API with one error for ever, in virtual time.

The broker is scripted below the clients' connections, so that every loop of a client is in the test:
metadata, coordinators, groups, positions, fetches, batches, transactions and admin calls. Every API that a
client uses is answered with every error code; the number of requests in some seconds has a bound.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self
from uuid import UUID

import pytest

from kalda.clients import node_connection
from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.topics import NewTopic
from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.consumer.consumer_record import OffsetAndMetadata
from kalda.clients.errors import BrokerConnectionError, ClientError, UnknownTopicOrPartitionError
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.common.api_keys import ApiKey
from kalda.common.clock import SystemClock
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol import registry
from kalda.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    consumer_group_heartbeat,
    create_topics,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
)
from kalda.protocol.schema import Message, Struct
from tests.virtual_time import LoopClock, run_virtual

TOPIC = "t"
TOPIC_ID = UUID(int=77)
SECONDS = 1.5
REQUESTS_MAX = 45
"""Some ten in a second, and a few that may follow each other at once. A storm has hundreds."""
ROUND_TRIP_S = 0.001
USER_PAUSE_S = 0.5
"""What a program waits after an error."""
WITH_ERRORS_AT_TOP_AND_BELOW = (
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.METADATA,
    ApiKey.OFFSET_FETCH,
)
ERRORS = [code for code in ErrorCode if code is not ErrorCode.NONE]


def answer(request: Any) -> Message:
    """Return the answer of a broker that does what it is asked for."""
    match request:
        case metadata.MetadataRequest():
            partition = metadata.MetadataResponsePartition(leader_id=0, leader_epoch=3, replica_nodes=[0])
            return metadata.MetadataResponse(
                brokers=[metadata.MetadataResponseBroker(node_id=0, host="b", port=9092)],
                controller_id=0,
                topics=[
                    metadata.MetadataResponseTopic(
                        name=each.name or TOPIC, topic_id=TOPIC_ID, partitions=[partition]
                    )
                    for each in request.topics or [metadata.MetadataRequestTopic(name=TOPIC)]
                ],
            )
        case find_coordinator.FindCoordinatorRequest():
            return find_coordinator.FindCoordinatorResponse(
                coordinators=[
                    find_coordinator.Coordinator(key=key, node_id=0, host="b", port=9092)
                    for key in request.coordinator_keys
                ]
            )
        case produce.ProduceRequest():
            return produce.ProduceResponse(
                responses=[
                    produce.TopicProduceResponse(
                        topic_id=topic.topic_id,
                        name=topic.name,
                        partition_responses=[
                            produce.PartitionProduceResponse(index=each.index)
                            for each in topic.partition_data
                        ],
                    )
                    for topic in request.topic_data
                ]
            )
        case fetch.FetchRequest():
            return fetch.FetchResponse(
                responses=[
                    fetch.FetchableTopicResponse(
                        topic_id=topic.topic_id,
                        partitions=[
                            fetch.PartitionData(partition_index=each.partition) for each in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        case list_offsets.ListOffsetsRequest():
            return list_offsets.ListOffsetsResponse(
                topics=[
                    list_offsets.ListOffsetsTopicResponse(
                        name=topic.name,
                        partitions=[
                            list_offsets.ListOffsetsPartitionResponse(
                                partition_index=each.partition_index, offset=0, leader_epoch=1
                            )
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        case offset_for_leader_epoch.OffsetForLeaderEpochRequest():
            return offset_for_leader_epoch.OffsetForLeaderEpochResponse(
                topics=[
                    offset_for_leader_epoch.OffsetForLeaderTopicResult(
                        topic=topic.topic,
                        partitions=[
                            offset_for_leader_epoch.EpochEndOffset(
                                partition=each.partition, leader_epoch=1, end_offset=100
                            )
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        case join_group.JoinGroupRequest():
            member = join_group.JoinGroupResponseMember(member_id="m", metadata=request.protocols[0].metadata)
            return join_group.JoinGroupResponse(
                generation_id=1,
                protocol_type="consumer",
                protocol_name=request.protocols[0].name,
                leader="m",
                member_id="m",
                members=[member],
            )
        case sync_group.SyncGroupRequest():
            return sync_group.SyncGroupResponse(
                protocol_type="consumer",
                protocol_name=request.protocol_name,
                assignment=request.assignments[0].assignment if request.assignments else b"",
            )
        case offset_fetch.OffsetFetchRequest():
            return offset_fetch.OffsetFetchResponse(
                groups=[
                    offset_fetch.OffsetFetchResponseGroup(
                        group_id=group.group_id,
                        topics=[
                            offset_fetch.OffsetFetchResponseTopics(
                                name=topic.name,
                                partitions=[
                                    offset_fetch.OffsetFetchResponsePartitions(
                                        partition_index=index,
                                        committed_offset=5,
                                        committed_leader_epoch=1,
                                        metadata="",
                                    )
                                    for index in topic.partition_indexes
                                ],
                            )
                            for topic in group.topics or []
                        ],
                    )
                    for group in request.groups
                ]
            )
        case offset_commit.OffsetCommitRequest():
            return offset_commit.OffsetCommitResponse(
                topics=[
                    offset_commit.OffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=[
                            offset_commit.OffsetCommitResponsePartition(partition_index=each.partition_index)
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        case consumer_group_heartbeat.ConsumerGroupHeartbeatRequest():
            assignment = consumer_group_heartbeat.Assignment(
                topic_partitions=[consumer_group_heartbeat.TopicPartitions(topic_id=TOPIC_ID, partitions=[0])]
            )
            return consumer_group_heartbeat.ConsumerGroupHeartbeatResponse(
                member_id=request.member_id,
                member_epoch=max(request.member_epoch, 1),
                heartbeat_interval_ms=1_000,
                assignment=assignment,
            )
        case init_producer_id.InitProducerIdRequest():
            return init_producer_id.InitProducerIdResponse(producer_id=7, producer_epoch=0)
        case add_partitions_to_txn.AddPartitionsToTxnRequest():
            return add_partitions_to_txn.AddPartitionsToTxnResponse(
                results_by_topic_v3_and_below=[
                    add_partitions_to_txn.AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            add_partitions_to_txn.AddPartitionsToTxnPartitionResult(partition_index=index)
                            for index in topic.partitions
                        ],
                    )
                    for topic in request.v3_and_below_topics
                ]
            )
        case txn_offset_commit.TxnOffsetCommitRequest():
            return txn_offset_commit.TxnOffsetCommitResponse(
                topics=[
                    txn_offset_commit.TxnOffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=[
                            txn_offset_commit.TxnOffsetCommitResponsePartition(
                                partition_index=each.partition_index
                            )
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        case create_topics.CreateTopicsRequest():
            return create_topics.CreateTopicsResponse(
                topics=[create_topics.CreatableTopicResult(name=each.name) for each in request.topics]
            )
        case end_txn.EndTxnRequest():
            return end_txn.EndTxnResponse()
        case add_offsets_to_txn.AddOffsetsToTxnRequest():
            return add_offsets_to_txn.AddOffsetsToTxnResponse()
        case heartbeat.HeartbeatRequest():
            return heartbeat.HeartbeatResponse()
        case leave_group.LeaveGroupRequest():
            return leave_group.LeaveGroupResponse()
    raise AssertionError(f"no answer to {type(request).__name__}")


def set_errors(message: Struct, code: ErrorCode, *, at_top: bool) -> None:
    """Set every error code of a response; with `at_top` False only those below its own."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name in ("error_code", "partition_error_code"):
            if at_top:
                setattr(message, field.name, int(code))
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                set_errors(each, code, at_top=True)


class Broker:
    """Answers at once, one API with an error; counts the requests."""

    def __init__(self, api: ApiKey, code: ErrorCode, *, at_top: bool) -> None:
        self.api = api
        self.code = code
        self.at_top = at_top
        self.counts: Counter[ApiKey] = Counter()

    def respond(self, request: Message) -> tuple[Message, float]:
        """Return the answer and after how long it arrives."""
        api_key = request.SCHEMA.api_key
        assert api_key is not None
        self.counts[api_key] += 1
        response = answer(request)
        if api_key is self.api:
            set_errors(response, self.code, at_top=self.at_top)
        elif isinstance(request, fetch.FetchRequest):
            return response, request.max_wait_ms / 1000
        return response, ROUND_TRIP_S


class Connection:
    """A connection of a client to the scripted broker, in place of `PipelinedConnection`."""

    broker: Broker

    def __init__(self) -> None:
        self.versions = NodeApiVersions(
            "b:9092", {key: registry.spec(key).versions for key in registry.declared_keys()}, {}, 0
        )
        self.failure: ClientError | None = None
        self.renew_at: float | None = None
        self.bytes_sent = self.bytes_received = 0
        self.last_used = 0.0
        self.in_flight: list[asyncio.Future[Message]] = []

    @classmethod
    async def open(cls, host: str, port: int, **settings: Any) -> Self:
        await asyncio.sleep(ROUND_TRIP_S)
        return cls()

    @property
    def in_flight_count(self) -> int:
        return len(self.in_flight)

    def send(
        self, request: Message, version: int, timeout_s: float, on_response: Callable[[Any], None]
    ) -> "asyncio.Future[Message]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Message] = loop.create_future()
        response, delay_s = self.broker.respond(request)
        self.in_flight.append(future)

        def arrive() -> None:
            if future in self.in_flight:
                self.in_flight.remove(future)
                if not future.done():
                    future.set_result(response)
                    on_response(future)

        loop.call_later(delay_s, arrive)
        return future

    def hold_writes(self) -> None:
        return

    def write_held(self) -> None:
        return

    def close(self, failure: ClientError | None = None) -> None:
        self.failure = failure or BrokerConnectionError("closed")
        pending, self.in_flight = self.in_flight, []
        for future in pending:
            future.cancel()


@pytest.fixture(autouse=True)
def virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_connection, "PipelinedConnection", Connection)
    monkeypatch.setattr(SystemClock, "monotonic", LoopClock.monotonic)


async def turns(turn: Callable[[], Awaitable[object]]) -> None:
    """Call `turn` again and again, as a program that does not give up does, and pauses after errors."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    await turn()
                except (ClientError, ValueError, KeyError):
                    await asyncio.sleep(USER_PAUSE_S)


async def produces() -> None:
    producer = AsyncProducer(bootstrap_servers="b:9092", enable_metrics_push=False, max_block_ms=2_000)

    async def turn() -> None:
        future = await producer.send(TOPIC, b"v")
        await future
        await asyncio.sleep(USER_PAUSE_S)

    await producer.start()
    await turns(turn)
    await producer.close(0.0)


async def transacts() -> None:
    producer = AsyncProducer(
        bootstrap_servers="b:9092", enable_metrics_push=False, transactional_id="x", max_block_ms=2_000
    )
    group = AsyncConsumer(bootstrap_servers="b:9092", enable_metrics_push=False, group_id="g")

    async def turn() -> None:
        await producer.init_transactions()
        await producer.begin_transaction()
        try:
            await producer.send(TOPIC, b"v")
            offsets = {TopicPartition(TOPIC, 0): OffsetAndMetadata(1)}
            await producer.send_offsets_to_transaction(offsets, await group.group_metadata())
            await producer.commit_transaction()
        except ClientError:
            await producer.abort_transaction()
            raise
        await asyncio.sleep(USER_PAUSE_S)

    await producer.start()
    await group.start()
    await turns(turn)
    await group.close(0.0)
    await producer.close(0.0)


async def consumes(**options: Any) -> None:
    if not options:
        options = {"heartbeat_interval_ms": 1_000}
    consumer = AsyncConsumer(
        bootstrap_servers="b:9092",
        enable_metrics_push=False,
        group_id="g",
        auto_commit_interval_ms=1_000,
        auto_offset_reset="earliest",
        default_api_timeout_ms=2_000,
        **options,
    )
    await consumer.start()
    await consumer.subscribe([TOPIC])
    await turns(lambda: consumer.poll(0.2))
    await consumer.close(0.0)


async def consumes_by_the_new_protocol() -> None:
    await consumes(group_protocol="consumer")


async def administers() -> None:
    admin = AsyncAdmin(bootstrap_servers="b:9092", enable_metrics_push=False, default_api_timeout_ms=2_000)

    async def turn() -> None:
        created = await admin.create_topics([NewTopic("new", 1, 1)])
        created.raise_for_errors()
        await asyncio.sleep(USER_PAUSE_S)

    await turns(turn)
    await admin.close(0.0)


CASES: list[tuple[Callable[[], Coroutine[Any, Any, None]], ApiKey]] = [
    *((produces, key) for key in (ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.PRODUCE)),
    *(
        (transacts, key)
        for key in (
            ApiKey.FIND_COORDINATOR,
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.END_TXN,
        )
    ),
    *(
        (consumes, key)
        for key in (
            ApiKey.METADATA,
            ApiKey.FIND_COORDINATOR,
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.OFFSET_FETCH,
            ApiKey.OFFSET_COMMIT,
            ApiKey.LIST_OFFSETS,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            ApiKey.FETCH,
        )
    ),
    (consumes_by_the_new_protocol, ApiKey.CONSUMER_GROUP_HEARTBEAT),
    *((administers, key) for key in (ApiKey.METADATA, ApiKey.CREATE_TOPICS)),
]


@pytest.mark.parametrize(
    ("client", "api"), CASES, ids=lambda value: value.name if isinstance(value, ApiKey) else value.__name__
)
def test_no_error_makes_a_client_ask_without_pauses(
    client: Callable[[], Coroutine[Any, Any, None]], api: ApiKey
) -> None:
    """Thousands of requests in a second harm the broker most when it has a problem already."""
    storms = {}
    for code in ERRORS:
        for at_top in (True, False) if api in WITH_ERRORS_AT_TOP_AND_BELOW else (True,):
            broker = Connection.broker = Broker(api, code, at_top=at_top)
            run_virtual(client())
            if most := {key.name: count for key, count in broker.counts.items() if count > REQUESTS_MAX}:
                storms[code.name, at_top] = most
    assert {} == storms


def test_a_partition_that_the_topic_lacks_is_named_soon_and_with_few_questions() -> None:
    """Brokers may have to learn of a new partition first, so the client asks for a short time."""

    async def scenario() -> None:
        producer = AsyncProducer(bootstrap_servers="b:9092", enable_metrics_push=False)
        await producer.start()
        before = asyncio.get_running_loop().time()
        with pytest.raises(UnknownTopicOrPartitionError, match=r"partition 7 of topic t: .*has 1 partition"):
            await producer.send(TOPIC, b"v", partition=7)
        assert asyncio.get_running_loop().time() - before < 2.0
        await producer.close(0.0)

    broker = Connection.broker = Broker(ApiKey.METADATA, ErrorCode.NONE, at_top=True)
    run_virtual(scenario())
    assert broker.counts[ApiKey.METADATA] <= 10
