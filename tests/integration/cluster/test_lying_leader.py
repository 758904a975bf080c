"""A broker that follows a leader which lies: it keeps serving, and keeps its log."""

import asyncio
import itertools
import logging
import struct
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol import framing, headers, registry
from kalda.protocol.codec import decode, encode
from kalda.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kalda.protocol.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from kalda.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from kalda.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kalda.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset as LeaderEpochEnd,
)
from kalda.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kalda.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from kalda.protocol.schema import Message
from tests.integration.cluster.peer_cluster import PeerCluster, peer_cluster
from tests.unit.broker.replicas.follower_fixtures import at

LEADER, TOPIC_ID, EPOCH = 9, uuid.UUID(int=5), 5
PARTITION = TopicPartition("t", 0)
OFFSET_MAX = 2**63 - 1
GOOD = at(0, b"a", b"b")

LIES: list[bytes | PartitionData] = [
    PartitionData(records=bytes(at(0, b"a")[:-1] + b"\xff")),
    PartitionData(records=bytes(at(2, b"a", epoch=EPOCH + 1))),
    PartitionData(records=bytes(at(0, b"again"))),
    PartitionData(records=bytes(at(2, b"a") + at(2, b"a"))),
    PartitionData(records=bytes(at(OFFSET_MAX, b"a"))),
    PartitionData(records=bytes(at(-7, b"a"))),
    PartitionData(records=b"\xff" * 100),
    PartitionData(high_watermark=-5, log_start_offset=-5),
    PartitionData(high_watermark=OFFSET_MAX),
    PartitionData(partition_index=77, records=bytes(at(2, b"a"))),
    PartitionData(diverging_epoch=EpochEndOffset(epoch=99, end_offset=OFFSET_MAX)),
    PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
    PartitionData(error_code=31_000),
    b"",
    b"\x00" * 9,
    # An array of more elements than there are bytes.
    struct.pack(">ihi", 0, 0, 0) + b"\xff\xff\xff\xff\x07",
]
"""Answers to fetches: of the partition, or as bytes of the body."""


class LyingLeader:
    """A broker that only followers know; it serves two records, and between them what `LIES` has."""

    def __init__(self) -> None:
        self.port = 0
        self.fetches = 0
        self.honest = asyncio.Event()
        """Set when all lies were told, each several times."""
        self._answers = self._all_answers()
        self.connections: set[asyncio.Task[object] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self.connections.add(asyncio.current_task())
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                request = await reader.readexactly(size)
                header, position = headers.read_request_header(request)
                body = await self._answer(ApiKey(header.api_key), header.api_version, request[position:])
                version = registry.response_header_version(header.api_key, header.api_version)
                writer.write(framing.frame([headers.response_header(header.correlation_id, version), body]))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, key: ApiKey, version: int, body: bytes) -> bytes:
        if key is ApiKey.FETCH:
            self.fetches += 1
            told = next(self._answers, None)
            if told is None:
                self.honest.set()
                # As a leader without new records does.
                await asyncio.sleep(0.5)
                told = PartitionData(high_watermark=2)
            return told if isinstance(told, bytes) else encode(_fetch_response(told), version)
        answers: dict[ApiKey, Callable[[], Message]] = {
            ApiKey.API_VERSIONS: _api_versions,
            ApiKey.LIST_OFFSETS: lambda: _offsets(decode(ListOffsetsRequest, version, body)),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda: _epoch_end(
                decode(OffsetForLeaderEpochRequest, version, body)
            ),
        }
        return encode(answers[key](), version)

    def _all_answers(self) -> Iterator[bytes | PartitionData]:
        yield PartitionData(records=bytes(GOOD), high_watermark=2)
        yield from itertools.chain(*([lie] * 3 for lie in LIES))


def _fetch_response(told: PartitionData) -> FetchResponse:
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[told])
    return FetchResponse(responses=[topic])


def _api_versions() -> Message:
    keys = (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.API_VERSIONS)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(
                api_key=key,
                min_version=0,
                max_version=13 if key is ApiKey.FETCH else registry.spec(key).versions.highest,
            )
            for key in keys
        ]
    )


def _offsets(request: ListOffsetsRequest) -> Message:
    wanted = request.topics[0].partitions[0]
    found = ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, offset=0 if wanted.timestamp == -2 else 2, leader_epoch=EPOCH
    )
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])


def _epoch_end(_request: OffsetForLeaderEpochRequest) -> Message:
    found = LeaderEpochEnd(partition=0, leader_epoch=EPOCH, end_offset=2)
    return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[found])])


async def follow(cluster: PeerCluster, port: int) -> None:
    """Let broker 0 follow the liar, as a controller would."""
    broker = cluster.brokers[0]
    epoch = broker.services.controller.epoch
    host, _, own_port = broker.bootstrap.rpartition(":")
    live = [
        UpdateMetadataBroker(
            id=broker_id, endpoints=[UpdateMetadataEndpoint(port=each, host=host, listener="PLAINTEXT")]
        )
        for broker_id, each in ((0, int(own_port)), (LEADER, port))
    ]
    metadata = UpdateMetadataRequest(controller_epoch=epoch, type=1, live_brokers=live)
    assert 0 == (await cluster.ask(broker, metadata, UpdateMetadataResponse)).error_code
    state = LeaderAndIsrPartitionState(
        controller_epoch=epoch,
        leader=LEADER,
        leader_epoch=EPOCH,
        isr=[LEADER],
        replicas=[LEADER, 0],
        is_new=True,
    )
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state])
    roles = LeaderAndIsrRequest(controller_epoch=epoch, type=1, topic_states=[topic])
    assert 0 == (await cluster.ask(broker, roles, LeaderAndIsrResponse)).error_code


async def test_a_broker_outlives_a_leader_that_lies(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every lie several times in a row, then the truth: the log has what it had, and is in order."""
    leader = LyingLeader()
    server = await asyncio.start_server(leader.serve, "127.0.0.1", 0)
    async with server:
        async with peer_cluster(tmp_path, count=1, replica_fetch_backoff_ms="50") as cluster:
            await follow(cluster, server.sockets[0].getsockname()[1])
            async with asyncio.timeout(60):
                await leader.honest.wait()
            log = cluster.brokers[0].services.replica_manager.partitions[PARTITION].log
            assert (0, 2, 2) == (log.log_start_offset, log.high_watermark, log.log_end_offset)
            assert len(GOOD) == log.size
            answer = await cluster.ask(cluster.brokers[0], MetadataRequest(topics=None), MetadataResponse)
            assert answer.brokers
        await asyncio.gather(*(each for each in leader.connections if each is not None))
    assert [] == [each for each in caplog.records if each.levelno >= logging.ERROR]
