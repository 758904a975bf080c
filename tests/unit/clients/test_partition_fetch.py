import asyncio
import contextlib
import struct
from uuid import UUID

import pytest

from kalda.clients.errors import BrokerResponseError, ClientError, UnknownTopicOrPartitionError
from kalda.clients.metadata import ClusterMetadata, Metadata, PartitionMetadata, TopicMetadata
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.clients.range_reader.partition_fetch import PartitionFetch
from kalda.common.api_keys import ApiKey
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID, BrokerEndpoint, TopicPartition
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kalda.protocol.schema import Message, VersionRange
from tests.virtual_time import run_virtual

PARTITION = TopicPartition("t", 0)


class Brokers:
    """Leader 1 names replica 2; the replica answers with `code`. `asked` notes the brokers in order."""

    def __init__(self) -> None:
        self.metadata = Metadata()
        self.set_topic_id(ZERO_UUID)
        self.code = ErrorCode.NONE
        self.asked: list[int] = []
        self.sizes: list[int] = []
        self.records: list[bytes] = []
        self.leader_code = ErrorCode.NONE
        self.retry_backoff = ExponentialBackoff(100, 1_000, lambda low, high: (low + high) / 2)
        self.version_max = 12
        self.topic_ids: list[UUID] = []

    def set_topic_id(self, topic_id: UUID) -> None:
        partition = PartitionMetadata(PARTITION, 1, 0, ErrorCode.NONE)
        topic = TopicMetadata("t", topic_id, False, ErrorCode.NONE, {0: partition})
        endpoints = {number: BrokerEndpoint(number, "localhost", number) for number in (1, 2)}
        self.metadata.snapshot = ClusterMetadata(1, "c", 1, endpoints, {"t": topic})

    async def ready(self, node_id: int) -> NodeApiVersions:
        return NodeApiVersions("b", {ApiKey.FETCH: VersionRange(4, self.version_max)}, {})

    def is_ready(self, node_id: int) -> bool:
        return True

    def send_nowait(
        self, node_id: int, request: Message, version: int, timeout_ms: int
    ) -> "asyncio.Future[Message]":
        self.asked.append(node_id)
        assert isinstance(request, FetchRequest)
        self.topic_ids.append(request.topics[0].topic_id)
        self.sizes.append(request.topics[0].partitions[0].partition_max_bytes)
        data = PartitionData(
            partition_index=0,
            error_code=self.leader_code if node_id == 1 else self.code,
            preferred_read_replica=2 if node_id == 1 else -1,
            high_watermark=5,
            records=self.records.pop(0) if self.records else None,
        )
        response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        future.set_result(response)
        return future


def fetch_from(brokers: Brokers, end: int = 5, topic_id: UUID = ZERO_UUID) -> PartitionFetch:
    config = LogReaderConfig.from_options({"bootstrap_servers": "localhost:1", "client_rack": "r"})
    return PartitionFetch(brokers, config, PARTITION, start=0, end=end, topic_id=topic_id)


def batch_bytes(base_offset: int, count: int, size: int) -> bytes:
    """Return what a fetch looks at of a batch in format 2: offsets and length."""
    return struct.pack(">qi11xi", base_offset, size - 12, count - 1).ljust(size, b"\0")


async def test_a_reader_follows_the_leader_to_the_replica_of_its_rack() -> None:
    """A leader that names a replica sends no records, so that asking it again would go on for ever."""
    brokers = Brokers()
    fetch = fetch_from(brokers)
    for _ in range(3):
        await fetch.next()

    assert [1, 2, 2] == brokers.asked


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
async def test_the_leader_is_asked_again_after_an_error_of_a_replica(code: ErrorCode) -> None:
    """A replica may lag behind, or be none any more; only the leader knows what the log holds."""
    brokers = Brokers()
    fetch = fetch_from(brokers)
    await fetch.next()
    brokers.code = code
    with pytest.raises(BrokerResponseError) as caught:
        await fetch.next()
    await fetch.next()

    assert isinstance(caught.value, ClientError)
    assert caught.value.is_retriable
    assert [1, 2, 1] == brokers.asked


async def test_a_fetch_asks_for_about_what_is_missing_up_to_the_end() -> None:
    """A range of 400 KB brought 16 MB before, which the broker read and the reader dropped."""
    brokers = Brokers()
    fetch = fetch_from(brokers, end=100)
    brokers.records = [batch_bytes(0, 50, 500_000)]
    await fetch.next()
    first, second = brokers.sizes

    assert 100 * 1_024 < first < 200 * 1_024, "1 KiB for each record before any is known, and some room"
    assert 500_000 < second < 800_000, "50 more records, 10 KB each as those before, and some room"


async def test_a_long_range_is_fetched_in_pieces_of_the_configured_size() -> None:
    brokers = Brokers()
    await fetch_from(brokers, end=10_000_000).next()

    assert [2 * 1_048_576] == brokers.sizes


async def test_a_topic_created_again_under_the_name_is_another_one() -> None:
    """Offsets that were looked up in the former topic would return records of the new one."""
    brokers = Brokers()
    fetch = fetch_from(brokers, topic_id=UUID(int=1))
    # A cluster without ids cannot say.
    await fetch.next()
    brokers.set_topic_id(UUID(int=1))
    await fetch.next()
    brokers.set_topic_id(UUID(int=2))

    with pytest.raises(UnknownTopicOrPartitionError, match="created again"):
        await fetch.next()


async def test_a_topic_is_fetched_by_the_id_that_the_range_has() -> None:
    """Metadata without the topic has no id, and by its name another topic would be read."""
    brokers = Brokers()
    brokers.version_max = 13
    await fetch_from(brokers, topic_id=UUID(int=1)).next()

    assert [UUID(int=1)] == brokers.topic_ids


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE])
def test_a_broker_that_answers_at_once_without_records_is_not_asked_without_pauses(code: ErrorCode) -> None:
    """Mirrors and Spark's readers go on until they have the records that a broker has promised."""

    async def scenario() -> float:
        brokers = Brokers()
        brokers.leader_code = brokers.code = code
        fetch = fetch_from(brokers)
        before = asyncio.get_running_loop().time()
        for _ in range(40):
            with contextlib.suppress(ClientError):
                await fetch.next()
        return asyncio.get_running_loop().time() - before

    assert run_virtual(scenario()) > 20.0
