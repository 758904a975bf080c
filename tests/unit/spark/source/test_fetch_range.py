"""Fetching one range: what is asked, what is skipped, when it ends."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from kalda.clients.errors import BrokerConnectionError, BrokerResponseError, OffsetOutOfRangeError
from kalda.clients.metadata import ClusterMetadata, Metadata
from kalda.clients.network_client import NetworkClient
from kalda.clients.range_reader.cluster_lookup import ClusterLookup
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.clients.range_reader.log_reader_core import LogReaderCore
from kalda.clients.range_reader.partition_fetch import offset_behind
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.net.client.api_versions import NodeApiVersions
from kalda.net.client.broker_connection import OnResponse
from kalda.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kalda.protocol.schema import Message, VersionRange
from kalda.records.record import RecordBatchBuilder
from kalda.spark.source.data_loss import DataLossError
from kalda.spark.source.options import SourceOptions, parse_batch_options
from kalda.spark.source.plan import OffsetRange
from kalda.spark.source.range_reader import fetch_range
from tests.unit.clients.metadata_responses import partition, response, topic
from tests.virtual_time import VirtualTimeLoop

T = TypeVar("T")
TP = TopicPartition("t", 0)


def batch(base_offset: int, count: int) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset)
    for index in range(count):
        builder.append(timestamp=1000 + index, key=None, value=b"v%d" % (base_offset + index))
    return bytes(builder.build())


class ScriptedClient(NetworkClient):
    """Answers fetches from a function of the offset, half a second later each."""

    def __init__(self, config: LogReaderConfig, answer: Callable[[int], PartitionData | Exception]) -> None:
        super().__init__(config, Metadata())
        self.answer = answer
        self.asked: list[int] = []
        self.pending: list[int] = []
        self.refreshes = 0
        self.metadata.add_topic("t", 0.0)
        self.metadata.received(response(topic("t", partition(0, 0, 1)), brokers=(0,)))

    async def refresh_metadata(self, *, timeout_ms: int) -> ClusterMetadata:
        self.refreshes += 1
        return self.metadata.snapshot

    async def ready(self, node_id: int, *, timeout_ms: int | None = None) -> NodeApiVersions:
        return NodeApiVersions("b:1", {ApiKey.FETCH: VersionRange(4, 12)}, {})

    def is_ready(self, node_id: int) -> bool:
        return True

    def send_nowait(
        self,
        node_id: int,
        request: Message,
        version: int,
        timeout_ms: int,
        on_response: OnResponse | None = None,
    ) -> "asyncio.Future[Message]":
        assert on_response is None, "a log reader awaits the future"
        assert isinstance(request, FetchRequest)
        offset = request.topics[0].partitions[0].fetch_offset
        self.pending.append(offset)
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        asyncio.get_running_loop().call_later(0.5, self._respond, offset, future)
        return future

    def _respond(self, offset: int, future: "asyncio.Future[Message]") -> None:
        self.pending.remove(offset)
        if future.cancelled():
            return
        self.asked.append(offset)
        data = self.answer(offset)
        if isinstance(data, Exception):
            future.set_exception(data)
        else:
            future.set_result(FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])]))


class ScriptedCore(LogReaderCore):
    """Runs on a loop of virtual time in the test's own thread."""

    def __init__(self, config: LogReaderConfig, client: ScriptedClient, loop: VirtualTimeLoop) -> None:
        self.loop = loop
        self.client = client  # type: ignore[misc]  # the base class creates its own, and a thread
        self.lookup = ClusterLookup(client, config)  # type: ignore[misc]  # likewise

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.loop.call_soon(callback)


class ScriptedBroker(LogReader):
    """A log reader over a scripted client; the log's edges are what the test says."""

    def __init__(self, answer: Callable[[int], PartitionData | Exception], **options: str | int) -> None:
        config = LogReaderConfig.from_options(
            {"bootstrap_servers": "b:1", "default_api_timeout_ms": 5_000, **options}
        )
        super().__init__(config)
        self.loop = VirtualTimeLoop()
        self.client = ScriptedClient(config, answer)
        self._core = ScriptedCore(config, self.client, self.loop)
        self.log_start = 0
        self.log_end = 0
        LOOPS.append(self.loop)

    @property
    def asked(self) -> list[int]:
        return self.client.asked

    def sleep(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def beginning_offsets(self, topic_partitions: object) -> dict[TopicPartition, int]:
        return {TP: self.log_start}

    def end_offsets(self, topic_partitions: object) -> dict[TopicPartition, int]:
        return {TP: self.log_end}


LOOPS: list[VirtualTimeLoop] = []


@pytest.fixture(autouse=True)
def closed_loops() -> Iterator[None]:
    yield
    while LOOPS:
        LOOPS.pop().close()


def records(data: bytes, high_watermark: int, **more: Any) -> PartitionData:
    return PartitionData(high_watermark=high_watermark, records=data, **more)


def options(**given: str) -> SourceOptions:
    return parse_batch_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t"} | given)


def fetch(broker: ScriptedBroker, start: int, end: int, **given: str) -> list[tuple[int, int]]:
    offset_range = OffsetRange(TP, start, end)
    fetches = fetch_range(broker, options(**given), offset_range, broker.loop.time, broker.sleep)
    return [(position, fetched.next_offset) for position, fetched in fetches]


def test_offset_behind_counts_whole_batches_only() -> None:
    two = batch(0, 5) + batch(5, 5)

    assert 10 == offset_behind(two, 0)
    assert 5 == offset_behind(two[:-1], 0)
    assert 7 == offset_behind(two[:30], 7)
    assert 3 == offset_behind(b"", 3)
    assert 20 == offset_behind(batch(0, 5), 20)


def test_the_next_fetch_is_under_way_before_the_caller_decodes() -> None:
    broker = ScriptedBroker(lambda offset: records(batch(offset, 10), 100))

    with broker.fetcher(TP, start=0, end=100) as fetcher:
        fetcher.next()
        assert [10] == broker.client.pending


def test_a_range_is_fetched_to_its_end_and_not_beyond() -> None:
    broker = ScriptedBroker(lambda offset: records(batch(offset, 10), 100))

    assert [(3, 13), (13, 23), (23, 33)] == fetch(broker, 3, 25)
    assert [3, 13, 23] == broker.asked


def test_a_range_whose_tail_holds_no_records_ends() -> None:
    """Compaction, or the markers of transactions, can leave nothing at a range's end."""
    broker = ScriptedBroker(lambda offset: records(batch(0, 10) if offset < 10 else b"", 15))

    assert [(0, 10)] == fetch(broker, 0, 15)
    assert [0, 10, 10] == broker.asked


def test_records_behind_a_gap_are_found() -> None:
    broker = ScriptedBroker(lambda offset: records(batch(90, 10), 100))

    assert [(5, 100)] == fetch(broker, 5, 95)


def test_a_lagging_high_watermark_is_waited_for() -> None:
    answers = [records(b"", 0), records(b"", 0), records(b"", 0), records(batch(0, 10), 10)]
    broker = ScriptedBroker(lambda offset: answers.pop(0))

    assert [(0, 10)] == fetch(broker, 0, 10)


def test_a_log_that_ends_too_early_is_a_loss_once_the_time_is_up() -> None:
    broker = ScriptedBroker(lambda offset: records(batch(0, 4) if offset < 4 else b"", 4))

    with pytest.raises(DataLossError, match="offsets 4 to 9 of t-0 cannot be read: the log ends at 4"):
        fetch(broker, 0, 10, **{"kafkaConsumer.pollTimeoutMs": "3000"})
    given = {"kafkaConsumer.pollTimeoutMs": "3000", "failOnDataLoss": "false"}
    assert [(0, 4)] == fetch(broker, 0, 10, **given)


def out_of_range_below(first: int) -> Callable[[int], PartitionData]:
    def answer(offset: int) -> PartitionData:
        if offset < first:
            return PartitionData(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE), high_watermark=-1)
        return records(batch(offset, 10), 100)

    return answer


def test_records_below_the_log_start_are_a_loss() -> None:
    broker = ScriptedBroker(out_of_range_below(6))
    broker.log_start, broker.log_end = 6, 100

    with pytest.raises(DataLossError, match="offsets 2 to 5 of t-0 cannot be read: the log starts at 6"):
        fetch(broker, 2, 12)
    assert [(6, 16)] == fetch(broker, 2, 12, failOnDataLoss="false")
    assert [] == fetch(broker, 2, 5, failOnDataLoss="false")


def test_what_retention_removes_before_earliest_is_read_is_no_loss() -> None:
    """A query from earliest wants what the log has; Spark's own connector looks earliest up in the task."""
    broker = ScriptedBroker(out_of_range_below(6))
    broker.log_start, broker.log_end = 6, 100
    offset_range = OffsetRange(TP, 2, 12, is_start_open=True)

    fetches = fetch_range(broker, options(), offset_range, broker.loop.time, broker.sleep)

    assert [(6, 16)] == [(position, fetched.next_offset) for position, fetched in fetches]


def test_a_truncated_log_is_a_loss() -> None:
    broker = ScriptedBroker(out_of_range_below(1000))
    broker.log_end = 40

    with pytest.raises(DataLossError, match="offsets 50 to 59 of t-0 cannot be read: the log ends at 40"):
        fetch(broker, 50, 60)
    assert [] == fetch(broker, 50, 60, failOnDataLoss="false")


def test_a_leader_that_is_behind_is_waited_for_but_not_for_ever() -> None:
    refusals = [PartitionData(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE), high_watermark=-1)] * 3
    broker = ScriptedBroker(lambda offset: refusals.pop() if refusals else records(batch(offset, 10), 100))
    broker.log_end = 100
    assert [(50, 60)] == fetch(broker, 50, 60)

    broker.client.answer = out_of_range_below(1000)
    with pytest.raises(OffsetOutOfRangeError, match="at offset 50"):
        fetch(broker, 50, 60, **{"kafkaConsumer.pollTimeoutMs": "3000"})


def test_a_deleted_topic_is_a_loss() -> None:
    broker = ScriptedBroker(
        lambda offset: PartitionData(error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), high_watermark=-1)
    )

    with pytest.raises(DataLossError, match="the partition does not exist any more"):
        fetch(broker, 0, 10)
    assert [] == fetch(broker, 0, 10, failOnDataLoss="false")


def test_a_lost_connection_is_replaced_and_nothing_is_read_twice() -> None:
    failures = {10: BrokerConnectionError("reset"), 20: BrokerConnectionError("reset")}

    def answer(offset: int) -> PartitionData | Exception:
        return failures.pop(offset, None) or records(batch(offset, 10), 100)

    broker = ScriptedBroker(answer)

    assert [(0, 10), (10, 20), (20, 30)] == fetch(broker, 0, 30)
    assert [0, 10, 10, 20, 20] == broker.asked


def test_a_moved_leader_is_followed() -> None:
    answers = [PartitionData(error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER), high_watermark=-1)]
    broker = ScriptedBroker(lambda offset: answers.pop() if answers else records(batch(offset, 10), 100))

    assert [(0, 10)] == fetch(broker, 0, 10)
    assert 1 == broker.client.refreshes


def test_bytes_that_hold_no_batch_are_an_error_not_a_loop() -> None:
    broker = ScriptedBroker(lambda offset: records(batch(0, 10)[:40], 100))

    with pytest.raises(BrokerResponseError, match="hold no whole batch"):
        fetch(broker, 0, 10)


def test_read_committed_stops_at_the_last_stable_offset() -> None:
    aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    data = records(batch(0, 10), 20, last_stable_offset=10, aborted_transactions=aborted)
    broker = ScriptedBroker(lambda offset: data, isolation_level="read_committed")

    with broker.fetcher(TP, start=0, end=10) as fetcher:
        fetched = fetcher.next()

    assert 10 == fetched.last_stable_offset
    assert ((7, 0),) == fetched.aborted_transactions
