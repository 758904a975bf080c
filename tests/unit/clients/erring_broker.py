"""A scripted broker below the clients' connections that answers one API with one error, or closes them.

Every other API gets the answer of a broker that does what it is asked for. The requests are counted.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeVar
from uuid import UUID

import pytest

from kalda.clients import node_connection
from kalda.clients.errors import BrokerConnectionError, ClientError, error_for
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
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
    get_telemetry_subscriptions,
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
    share_acknowledge,
    share_fetch,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
)
from kalda.protocol.schema import STRING, UUID_KIND, ArrayKind, Field, Kind, Message, Struct
from kalda.records.record import RecordBatchBuilder
from kalda.runtime.system.clock import SystemClock
from tests.virtual_time import LoopClock

M = TypeVar("M", bound=Struct)
_builder = RecordBatchBuilder()
_builder.append(b"k", b"v", 1000)
ONE_RECORD = bytes(_builder.build())
_ERRORS = ("error_code", "partition_error_code")
TOPIC = "t"
TOPIC_ID = UUID(int=77)
SECONDS = 1.5
REQUESTS_MAX = 45
"""Some ten in a second, and a few that may follow each other at once. A storm has hundreds."""
ROUND_TRIP_S = 0.001
USER_PAUSE_S = 0.5
"""What a program waits after an error."""


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
        case share_group_heartbeat.ShareGroupHeartbeatRequest():
            return share_group_heartbeat.ShareGroupHeartbeatResponse(
                member_id=request.member_id,
                member_epoch=max(request.member_epoch, 1),
                heartbeat_interval_ms=1_000,
                assignment=share_group_heartbeat.Assignment(
                    topic_partitions=[
                        share_group_heartbeat.TopicPartitions(topic_id=TOPIC_ID, partitions=[0])
                    ]
                ),
            )
        case share_fetch.ShareFetchRequest():
            return share_fetch.ShareFetchResponse(
                acquisition_lock_timeout_ms=30_000,
                responses=[
                    share_fetch.ShareFetchableTopicResponse(
                        topic_id=TOPIC_ID,
                        partitions=[
                            share_fetch.PartitionData(
                                acquired_records=[share_fetch.AcquiredRecords(delivery_count=1)],
                                records=ONE_RECORD,
                            )
                        ],
                    )
                ],
            )
        case share_acknowledge.ShareAcknowledgeRequest():
            return share_acknowledge.ShareAcknowledgeResponse(
                responses=[
                    share_acknowledge.ShareAcknowledgeTopicResponse(
                        topic_id=topic.topic_id,
                        partitions=[
                            share_acknowledge.PartitionData(partition_index=each.partition_index)
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
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
        case get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest():
            return get_telemetry_subscriptions.GetTelemetrySubscriptionsResponse(
                client_instance_id=TOPIC_ID,
                subscription_id=1,
                push_interval_ms=100,
                telemetry_max_bytes=1 << 20,
                requested_metrics=[""],
            )
    api_key = request.SCHEMA.api_key
    assert api_key is not None
    return filled(registry.spec(api_key).response_class)


def filled(message: type[M]) -> M:
    """Return a message with one element in each list; names and ids are those of the topic."""
    return message(**{field.name: _value(field.kind, field.default()) for field in message.FIELDS})


def _value(kind: Any, default: Any) -> Any:
    if isinstance(kind, ArrayKind):
        return [_value(kind.element, None)]
    if not isinstance(kind, Kind):
        return filled(kind)
    if kind is STRING:
        return TOPIC
    return TOPIC_ID if kind is UUID_KIND else kind.default if default is None else default


def set_errors(message: Struct, code: ErrorCode, *, at_top: bool) -> None:
    """Set every error code of a response; with `at_top` False only those below its own."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name in _ERRORS:
            if at_top:
                setattr(message, field.name, int(code))
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                set_errors(each, code, at_top=True)


def places(api: ApiKey, code: ErrorCode | None) -> tuple[bool, ...]:
    """Return each `at_top` that makes another response: two where it has errors at the top and below."""
    fields = registry.spec(api).response_class.FIELDS
    has_own = any(field.name in _ERRORS for field in fields)
    return (True, False) if code is not None and has_own and any(map(_has_error_below, fields)) else (True,)


def _has_error_below(field: Field) -> bool:
    kind = field.kind
    while isinstance(kind, ArrayKind):
        kind = kind.element
    if isinstance(kind, Kind):
        return False
    return any(each.name in _ERRORS or _has_error_below(each) for each in kind.FIELDS)


class Broker:
    """Answers at once, one API with an error, or closes the connection after it; counts the requests."""

    def __init__(self, api: ApiKey, code: ErrorCode | None, *, at_top: bool = True) -> None:
        """Without a `code`, the broker closes the connection; requests of no version count as connections."""
        self.api = api
        self.code = code
        self.at_top = at_top
        self.counts: Counter[ApiKey] = Counter()

    def most(self) -> dict[str, int]:
        """Return the APIs with more requests than a client may send, and their numbers."""
        return {key.name: count for key, count in self.counts.items() if count > REQUESTS_MAX}

    def respond(self, request: Message) -> tuple[Message | None, float]:
        """Return the answer, None to close the connection, and after how long it arrives."""
        api_key = request.SCHEMA.api_key
        assert api_key is not None
        self.counts[api_key] += 1
        if api_key is self.api and self.code is None:
            return None, ROUND_TRIP_S
        response = answer(request)
        if api_key is self.api:
            assert self.code is not None
            set_errors(response, self.code, at_top=self.at_top)
        elif isinstance(request, fetch.FetchRequest | share_fetch.ShareFetchRequest):
            return response, request.max_wait_ms / 1000
        return response, ROUND_TRIP_S


class Connection:
    """A connection of a client to the scripted broker, in place of `BrokerConnection`."""

    broker: Broker

    def __init__(self, on_closed: Callable[[Any], None]) -> None:
        self.on_closed = on_closed
        self.versions = NodeApiVersions(
            "b:9092", {key: registry.spec(key).versions for key in registry.declared_keys()}, {}, 0
        )
        self.failure: ClientError | None = None
        self.renew_at: float | None = None
        self.bytes_sent = self.bytes_received = 0
        self.last_used = 0.0
        self.in_flight: list[asyncio.Future[Message]] = []
        self.callbacks: dict[asyncio.Future[Message], Callable[[Any], None]] = {}

    @classmethod
    async def open(cls, host: str, port: int, **settings: Any) -> Self:
        broker = cls.broker
        broker.counts[ApiKey.API_VERSIONS] += 1
        await asyncio.sleep(ROUND_TRIP_S)
        if broker.api is ApiKey.API_VERSIONS:
            if broker.code is None:
                raise BrokerConnectionError("closed by the broker")
            raise error_for(broker.code, "versions")
        return cls(settings["on_closed"])

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
        self.callbacks[future] = on_response

        def arrive() -> None:
            if future in self.in_flight:
                self.in_flight.remove(future)
                if response is None:
                    self.break_off(future)
                elif not future.done():
                    future.set_result(response)
                    self.callbacks.pop(future)(future)

        loop.call_later(delay_s, arrive)
        return future

    def break_off(self, future: "asyncio.Future[Message]") -> None:
        self.failure = BrokerConnectionError("closed by the broker")
        pending, self.in_flight = [future, *self.in_flight], []
        for each in pending:
            if not each.done():
                each.set_exception(self.failure)
                self.callbacks.pop(each)(each)
        self.on_closed(self)

    def hold_writes(self) -> None:
        return

    def write_held(self) -> None:
        return

    def close(self, failure: ClientError | None = None) -> None:
        self.failure = failure or BrokerConnectionError("closed")
        pending, self.in_flight = self.in_flight, []
        for future in pending:
            future.cancel()


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_connection, "BrokerConnection", Connection)
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
