"""Fetches from one replica, leader or follower, and reduces the response to what a comparison needs."""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from kalda.clients.errors import BrokerResponseError, ClientError
from kalda.clients.network_client import NetworkClient
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID, TopicPartition, by_topic
from kalda.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from kalda.records.batch import iter_headers, validate_bytes
from kalda.records.errors import RecordsError
from kalda.tools.verify_replicas.comparison import Fetched, FetchedBatch
from kalda.tools.verify_replicas.verification import Verification

_DEBUGGING_CONSUMER: Final = -2
"""The replica id of tools: brokers do not send such a reader on to a replica that is closer."""

_FOLLOWERS_FROM: Final = 11
"""The first version in which followers serve readers (KIP-392)."""

_IDS_FROM: Final = 13
_STATE_FROM: Final = 15

_RESPONSE_BYTES_MAX: Final = 50 * 1024 * 1024


async def fetch_replica(
    client: NetworkClient,
    broker: int,
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, UUID],
    verification: Verification,
    *,
    fetch_size: int,
    max_wait_ms: int,
) -> None:
    """Fetch from one broker and report to `verification`; an error of the broker is reported too."""
    named = {topic_ids.get(topic, ZERO_UUID): topic for topic in {each.topic for each in offsets}}
    version_max = None if ZERO_UUID not in named else _IDS_FROM - 1

    def build(version: int) -> FetchRequest:
        return _request(version, offsets, topic_ids, fetch_size, max_wait_ms)

    request = VersionedRequest(ApiKey.FETCH, build, version_max, _FOLLOWERS_FROM)
    try:
        response = await client.send(broker, request, FetchResponse)
        if response.error_code:
            raise BrokerResponseError(ErrorCode(response.error_code), "the fetch was refused")
    except ClientError as error:
        for each in offsets:
            verification.failed(broker, each, str(error))
        return
    for topic in response.responses:
        name = topic.topic or named.get(topic.topic_id, "")
        for data in topic.partitions:
            each = TopicPartition(name, data.partition_index)
            if each in offsets:
                _report(broker, each, offsets[each], data, verification)


def _request(
    version: int,
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, UUID],
    fetch_size: int,
    max_wait_ms: int,
) -> FetchRequest:
    topics = [
        FetchTopic(
            topic=topic,
            topic_id=topic_ids.get(topic, ZERO_UUID),
            partitions=[
                FetchPartition(
                    partition=each.partition, fetch_offset=offsets[each], partition_max_bytes=fetch_size
                )
                for each in partitions
            ],
        )
        for topic, partitions in by_topic(offsets).items()
    ]
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=_RESPONSE_BYTES_MAX, topics=topics)
    if version >= _STATE_FROM:
        request.replica_state = ReplicaState(replica_id=_DEBUGGING_CONSUMER)
    else:
        request.replica_id = _DEBUGGING_CONSUMER
    return request


def _report(
    broker: int, partition: TopicPartition, offset: int, data: PartitionData, verification: Verification
) -> None:
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        # Either records were deleted meanwhile, or this replica is not as far yet as the others.
        verification.moved(partition, data.log_start_offset)
        verification.received(broker, partition, Fetched(data.high_watermark, ()))
        return
    if data.error_code:
        verification.failed(broker, partition, ErrorCode(data.error_code).name)
        return
    records = data.records
    assert records is None or isinstance(records, bytes | bytearray | memoryview), "a response is decoded"
    try:
        batches = tuple(_batches(records or b"", offset))
    except RecordsError as error:
        verification.failed(broker, partition, f"its copy is corrupt: {error}")
        return
    verification.received(broker, partition, Fetched(data.high_watermark, batches))


def _batches(records: bytes | bytearray | memoryview, offset: int) -> "list[FetchedBatch]":
    """Return the whole batches that end at `offset` or later; raises `RecordsError` for a damaged one."""
    found = []
    for position, header in iter_headers(records):
        validate_bytes(records, position, header)
        if header.last_offset >= offset:
            found.append(FetchedBatch(header.last_offset, header.crc))
    return found
