"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and InitProducerId over real logs."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kalda.broker.requests.api import Pending
from kalda.broker.requests.handlers import (
    delete_records,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
)
from kalda.broker.transactions.producer_ids import ProducerIds
from kalda.cluster.schema import ProducerIdBlock
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kalda.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kalda.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kalda.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kalda.records.batch import set_max_timestamp
from kalda.records.compression import Compression
from kalda.records.record import RecordBatchBuilder
from kalda.storage.log_config import CleanupPolicy
from kalda.zookeeper.errors import ConnectionLossError
from tests.unit.broker.data_path_fakes import DataPath, HeldConversions, batch, leadership
from tests.unit.broker.handler_parts import finished


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.host(leadership())
    yield path
    path.close()


def timed(*timestamps: int) -> bytes:
    builder = RecordBatchBuilder()
    for timestamp in timestamps:
        builder.append(timestamp=timestamp, key=None, value=b"v")
    return bytes(builder.build())


def list_offset(
    broker: DataPath, timestamp: int, *, version: int = 11, replica_id: int = -1, **fields: Any
) -> ListOffsetsPartitionResponse:
    topic = ListOffsetsTopic(
        name=fields.pop("topic", "orders"),
        partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp, **fields)],
    )
    request = ListOffsetsRequest(replica_id=replica_id, topics=[topic])
    answer = list_offsets.handle(broker.replicas, broker.clock, broker.logs, request, broker.context(version))
    assert isinstance(answer, ListOffsetsResponse)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, (-1, 4, 3)),
        (-2, (-1, 0, 3)),
        (-3, (400, 2, 3)),
        (-4, (-1, 0, 3)),
        (-5, (-1, -1, -1)),
        (-6, (-1, -1, -1)),
        (0, (100, 0, 3)),
        (101, (200, 1, 3)),
        (300, (400, 2, 3)),
        (401, (-1, -1, -1)),
    ],
)
def test_offsets_are_found_by_time_and_by_special_timestamps(
    broker: DataPath, timestamp: int, expected: tuple[int, int, int]
) -> None:
    broker.produce(timed(100, 200))
    broker.produce(timed(400, 50))

    found = list_offset(broker, timestamp)

    assert expected == (found.timestamp, found.offset, found.leader_epoch)


def test_consumers_see_no_further_than_the_high_watermark_and_replicas_the_end(broker: DataPath) -> None:
    broker.host(leadership(leader_epoch=4, replicas=(1, 2)))
    broker.produce(timed(100))
    assert [0, 1, 1] == [list_offset(broker, -1, replica_id=replica).offset for replica in (-1, 2, -2)]
    assert -1 == list_offset(broker, 100).offset


@pytest.mark.parametrize(("timestamp", "first"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_special_timestamps_are_refused_before_their_version(
    broker: DataPath, timestamp: int, first: int
) -> None:
    assert 0 == list_offset(broker, timestamp, version=first).error_code
    if first > 1:
        code = list_offset(broker, timestamp, version=first - 1).error_code
        assert ErrorCode.UNSUPPORTED_VERSION == code


def test_leader_epochs_fence_and_are_told_from_version_4(broker: DataPath) -> None:
    assert ErrorCode.FENCED_LEADER_EPOCH == list_offset(broker, -1, current_leader_epoch=2).error_code
    assert ErrorCode.FENCED_LEADER_EPOCH == list_offset(broker, -1, current_leader_epoch=-5).error_code
    assert ErrorCode.UNKNOWN_LEADER_EPOCH == list_offset(broker, -1, current_leader_epoch=4).error_code
    assert [3, -1] == [list_offset(broker, -1, version=version).leader_epoch for version in (4, 3)]


def test_unknown_topics_and_partitions_named_twice_are_errors(broker: DataPath) -> None:
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == list_offset(broker, -1, topic="none").error_code
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=[wanted, wanted])]
    )
    answer = list_offsets.handle(broker.replicas, broker.clock, broker.logs, request, broker.context(5))
    assert isinstance(answer, ListOffsetsResponse)
    (topic,) = answer.topics
    assert [ErrorCode.INVALID_REQUEST] * 2 == [each.error_code for each in topic.partitions]


def test_version_0_lists_starts_of_segments_from_the_end(broker: DataPath) -> None:
    broker.configure(segment_bytes=200)
    for _ in range(3):
        broker.produce(batch(b"x" * 100))
    latest = list_offset(broker, -1, version=0, max_num_offsets=2)
    assert [3, 2] == latest.old_style_offsets
    assert [0] == list_offset(broker, -2, version=0, max_num_offsets=5).old_style_offsets


def test_a_lagging_high_watermark_gives_no_end_from_before_the_epoch(broker: DataPath) -> None:
    """A new leader learns the high watermark from its followers; until then the end could go backwards."""
    broker.host(leadership(leader_epoch=4, replicas=(1, 2)))
    broker.produce(timed(100))
    broker.host(leadership(leader_epoch=5, replicas=(1, 2)))
    assert ErrorCode.OFFSET_NOT_AVAILABLE == list_offset(broker, -1).error_code
    assert ErrorCode.LEADER_NOT_AVAILABLE == list_offset(broker, -1, version=4).error_code
    assert 0 == list_offset(broker, -2).error_code


def end_of_epoch(broker: DataPath, epoch: int, **fields: Any) -> EpochEndOffset:
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, **fields)
    topic = OffsetForLeaderTopic(topic="orders", partitions=[wanted])
    request = OffsetForLeaderEpochRequest(topics=[topic])
    handled = finished(offset_for_leader_epoch.handle(broker.replicas, request, broker.context(4)))
    return handled.topics[0].partitions[0]


def test_epochs_end_where_the_next_one_began(broker: DataPath) -> None:
    broker.produce(batch(b"a"))
    broker.host(leadership(leader_epoch=5))
    broker.produce(batch(b"b", b"c"))
    found = [end_of_epoch(broker, epoch) for epoch in (2, 3, 4, 5, 6)]
    assert [(2, 0), (3, 1), (3, 1), (5, 3), (-1, -1)] == [
        (each.leader_epoch, each.end_offset) for each in found
    ]
    assert ErrorCode.FENCED_LEADER_EPOCH == end_of_epoch(broker, 3, current_leader_epoch=3).error_code


@pytest.mark.parametrize(("current", "expected"), [(-1, 0), (-2, 74), (-5, 74), (3, 0), (4, 75)])
def test_every_current_epoch_but_minus_one_is_compared(broker: DataPath, current: int, expected: int) -> None:
    assert expected == end_of_epoch(broker, -5, current_leader_epoch=current).error_code


def delete(broker: DataPath, offset: int, topic: str = "orders") -> tuple[int, int]:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
            )
        ]
    )
    reply = finished(
        delete_records.handle(
            broker.replicas, broker.purgatories["delete_records"], request, broker.context(2)
        )
    )
    result = reply.value.topics[0].partitions[0]
    return result.error_code, result.low_watermark


def test_records_are_deleted_up_to_an_offset_and_readers_told(broker: DataPath) -> None:
    for _ in range(3):
        broker.produce(batch(b"a"))
    assert (0, 2) == delete(broker, 2)
    assert 2 == list_offset(broker, -2).offset
    assert ErrorCode.OFFSET_OUT_OF_RANGE == broker.fetch({0: 1}).responses[0].partitions[0].error_code
    assert (0, 2) == delete(broker, 1)
    assert (0, 3) == delete(broker, -1)


def test_what_may_not_be_deleted_is_refused(broker: DataPath) -> None:
    broker.produce(batch(b"a"))
    assert (ErrorCode.OFFSET_OUT_OF_RANGE, -1) == delete(broker, 2)
    assert (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1) == delete(broker, 0, "none")
    broker.configure(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    assert (ErrorCode.POLICY_VIOLATION, -1) == delete(broker, 1)
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    assert (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1) == delete(broker, 1)


class FakeCluster:
    """Gives out blocks of two producer ids."""

    def __init__(self) -> None:
        self.blocks = 0
        self.fails = False

    async def allocate_producer_ids(self, broker_id: int) -> ProducerIdBlock:
        await asyncio.sleep(0)
        if self.fails:
            raise ConnectionLossError("on purpose", "/latest_producer_id_block")
        first = 2 * self.blocks
        self.blocks += 1
        return ProducerIdBlock(broker_id, first, first + 1)


async def init_producer(
    broker: DataPath, ids: ProducerIds, transactional_id: str | None = None
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
    return await answer_of(broker, ids, request)


async def answer_of(
    broker: DataPath, ids: ProducerIds, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    handled = init_producer_id.handle(cast("Any", None), ids, request, broker.context(5))
    assert not isinstance(handled, Pending), "only transactional producers wait for a coordinator"
    return handled if isinstance(handled, InitProducerIdResponse) else await handled


async def test_producer_ids_are_unique_though_many_ask_at_once(broker: DataPath) -> None:
    cluster = FakeCluster()
    ids = ProducerIds(1, cast("Any", cluster))
    answers = await asyncio.gather(*(init_producer(broker, ids) for _ in range(7)))
    assert list(range(7)) == sorted(answer.producer_id for answer in answers)
    assert {(0, 0)} == {(answer.error_code, answer.producer_epoch) for answer in answers}
    assert 4 == cluster.blocks


async def test_without_coordination_the_producer_is_told_to_try_again(broker: DataPath) -> None:
    cluster = FakeCluster()
    cluster.fails = True
    ids = ProducerIds(1, cast("Any", cluster))
    code = ErrorCode((await init_producer(broker, ids)).error_code)
    assert code.retriable
    cluster.fails = False
    assert 0 == (await init_producer(broker, ids)).error_code


@pytest.mark.parametrize(("producer_id", "epoch", "expected"), [(5, -1, 42), (-1, 5, 42), (5, 5, 0)])
async def test_id_and_epoch_come_together_or_not_at_all(
    broker: DataPath, producer_id: int, epoch: int, expected: int
) -> None:
    ids = ProducerIds(1, cast("Any", FakeCluster()))
    request = InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch)
    assert expected == (await answer_of(broker, ids, request)).error_code


@pytest.mark.parametrize("timestamp", [1_500, -3])
def test_batch_that_holds_much_is_searched_in_the_background(
    broker: DataPath, monkeypatch: pytest.MonkeyPatch, timestamp: int
) -> None:
    """A header can claim a time that no record has, so the search goes on behind the batch."""
    for first in (1_000, 2_000):
        builder = RecordBatchBuilder(compression=Compression.ZSTD)
        builder.append(b"k", bytes(1 << 20), first)
        builder.append(b"k", bytes(1 << 20), first)
        sent = builder.build()
        if first == 1_000:
            set_max_timestamp(sent, 0, 2_000)
        assert 0 == broker.produce(bytes(sent)).error_code
    conversions = HeldConversions()
    monkeypatch.setattr(broker.logs.resources, "conversions", conversions)
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=[wanted])])
    answer = list_offsets.handle(broker.replicas, broker.clock, broker.logs, request, broker.context(9))
    assert isinstance(answer, Pending)
    for _ in range(2):
        assert not answer.is_done
        conversions.run()
    found = answer.value.topics[0].partitions[0]
    assert (0, 2_000, 2) == (found.error_code, found.timestamp, found.offset)
