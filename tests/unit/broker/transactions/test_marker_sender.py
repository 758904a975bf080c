"""Markers reach whoever leads, however often that changes and whatever he answers."""

import asyncio
import math
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.transactions.marker_appends import Codes, Marker
from kalda.broker.transactions.marker_sender import UNKNOWN_SECONDS_MAX, TransactionMarkers
from kalda.cluster.schema import LEADER_DURING_DELETE, BrokerInfo, ListenerEndpoint
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.controller.effects import PartitionLeadership, UpdateMetadata
from kalda.coordinator.transaction.transaction_coordinator import MarkerWork
from kalda.coordinator.transaction.transaction_metadata import TransactionMetadata
from kalda.coordinator.transaction.transaction_state import TransactionState
from kalda.net.peer.peer_batches import PeerBatches
from kalda.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kalda.runtime.clock import Clock, ManualClock
from kalda.zookeeper.errors import ConnectionLossError
from tests.runtimes import seeded
from tests.unit.broker.data_path_fakes import leadership
from tests.virtual_time import LoopClock, run_virtual

HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 1)
NONE = ErrorCode.NONE


class FakeAppends:
    """This broker's own logs."""

    def __init__(self) -> None:
        self.markers: list[Marker] = []
        self.code = NONE

    def write(self, markers: list[Marker], on_done: Callable[[list[Codes]], None]) -> None:
        self.markers.extend(markers)
        on_done([dict.fromkeys(marker.partitions, self.code) for marker in markers])


class FakePeer:
    """Another broker: it answers every marker with one code, or not at all."""

    def __init__(self) -> None:
        self.requests: list[WriteTxnMarkersRequest] = []
        self.code = NONE
        self.is_down = False
        self.is_closed = False
        self.dials = 0

    async def dial(self, host: str, port: int, _: object) -> "FakePeer":
        self.dials += 1
        if self.is_down:
            raise ConnectionError("refused")
        self.is_closed = False
        return self

    async def request(self, request: WriteTxnMarkersRequest, **_: object) -> WriteTxnMarkersResponse:
        if self.is_down:
            self.is_closed = True
            raise ConnectionError("gone")
        self.requests.append(request)
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=each, error_code=self.code)
                                for each in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def close(self) -> None:
        self.is_closed = True


class Sender:
    """A sender of broker 1 with another broker 2."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = ManualClock()
        self.cache = MetadataCache()
        self.appends = FakeAppends()
        self.peer = FakePeer()
        self.done: list[MarkerWork] = []
        self.markers = TransactionMarkers(
            1,
            self.cache,
            cast("Any", self.appends),
            clock or self.clock,
            seeded(),
            cast("Any", self.peer),
            listener="PLAINTEXT",
            timeout_ms=1000,
            deleted_topics=self.deleted_topics,
        )
        self.deleted: set[str] | None = set()
        """The topics that ZooKeeper says are deleted; None while it does not answer."""
        self.lead({HERE: 1, THERE: 2})

    async def deleted_topics(self, topics: Collection[str]) -> set[str]:
        if self.deleted is None:
            raise ConnectionLossError("gone")
        return self.deleted & {*topics}

    def lead(self, leaders: dict[TopicPartition, int]) -> None:
        brokers = [
            BrokerInfo(each, (ListenerEndpoint("PLAINTEXT", f"host{each}", 9092),), None) for each in (1, 2)
        ]
        partitions: list[PartitionLeadership] = [
            leadership(each.partition, leader=leader, replicas=(1, 2)) for each, leader in leaders.items()
        ]
        self.cache.apply(UpdateMetadata(1, 1, partitions, brokers))

    def send(
        self, *partitions: TopicPartition, state_partition: int = 0, client_version: int = 0
    ) -> MarkerWork:
        metadata = TransactionMetadata(
            "t",
            9,
            3,
            1000,
            TransactionState.PREPARE_COMMIT,
            frozenset(partitions),
            1,
            1,
            client_version=client_version,
        )
        work = MarkerWork(state_partition, 7, metadata, self.done.append)
        self.markers.send(work)
        return work


@pytest.fixture
def sender() -> Sender:
    return Sender()


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def running(sender: Sender) -> "asyncio.Task[None]":
    task = asyncio.get_running_loop().create_task(sender.markers._peers.run(), name="peers of the test")
    await settle()
    return task


async def end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_every_leader_gets_its_markers(sender: Sender) -> None:
    task = await running(sender)
    work = sender.send(HERE, THERE)
    await settle()
    assert [work] == sender.done
    assert [Marker(9, 3, True, 7, (HERE,))] == sender.appends.markers
    (request,) = sender.peer.requests
    assert (9, 3, True, 7) == (
        request.markers[0].producer_id,
        request.markers[0].producer_epoch,
        request.markers[0].transaction_result,
        request.markers[0].coordinator_epoch,
    )
    assert 0 == sender.markers.waiting_count
    await end(task)


async def test_leaders_are_told_the_version_of_the_transaction(sender: Sender) -> None:
    """With it they refuse a late marker that would end the producer's next transaction (KIP-1228)."""
    task = await running(sender)
    sender.send(HERE, THERE, client_version=2)
    await settle()
    assert [2] == [each.transaction_version for each in sender.appends.markers]
    (request,) = sender.peer.requests
    assert [2] == [each.transaction_version for each in request.markers]
    await end(task)


async def test_a_leader_that_cannot_be_reached_is_tried_again_or_his_successor(sender: Sender) -> None:
    task = await running(sender)
    sender.peer.is_down = True
    sender.send(THERE)
    await settle()
    sender.markers.retry_due(math.inf)
    await settle()
    assert [] == sender.done
    sender.lead({THERE: 1})
    sender.markers.retry_due(math.inf)
    assert 1 == len(sender.done)
    await end(task)


def test_a_retriable_refusal_is_followed_by_another_attempt(sender: Sender) -> None:
    sender.appends.code = ErrorCode.NOT_ENOUGH_REPLICAS
    work = sender.send(HERE)
    assert {HERE} == work.remaining
    sender.appends.code = NONE
    sender.markers.retry_due(math.inf)
    assert [work] == sender.done
    assert 2 == len(sender.appends.markers)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_transaction_that_was_taken_over_is_given_up(sender: Sender, code: ErrorCode) -> None:
    sender.appends.code = code
    sender.send(HERE)
    sender.appends.code = NONE
    sender.markers.retry_due(math.inf)
    assert [] == sender.done
    assert 0 == sender.markers.waiting_count


def test_a_partition_without_a_leader_waits_for_one(sender: Sender) -> None:
    sender.lead({HERE: -1})
    sender.send(HERE)
    assert [] == sender.appends.markers
    sender.lead({HERE: 1})
    sender.markers.retry_due(math.inf)
    assert 1 == len(sender.done)


def test_a_deleted_partition_is_left_out_after_a_while(sender: Sender) -> None:
    """Not at once: this broker may not have been told of all partitions yet."""
    sender.lead({HERE: LEADER_DURING_DELETE})
    sender.send(HERE)
    sender.markers.retry_due(math.inf)
    assert [] == sender.done
    sender.clock.advance(UNKNOWN_SECONDS_MAX)
    sender.markers.retry_due(math.inf)
    assert 1 == len(sender.done)


async def test_a_partition_of_a_deleted_topic_is_left_out_at_once(sender: Sender) -> None:
    """The next producer with the transactional id waits for the end of the transaction."""
    task = await running(sender)
    gone, other = TopicPartition("gone", 0), TopicPartition("orders", 5)
    work = sender.send(gone, other, HERE)
    await settle()
    assert {gone, other} == work.remaining

    for sender.deleted in (None, set(), {"gone", "never used"}):
        await sender.markers.leave_out_deleted()
        sender.markers.retry_due(math.inf)
    assert {other} == work.remaining

    sender.lead({other: 1})
    sender.markers.retry_due(math.inf)
    assert [work] == sender.done
    await end(task)


def test_markers_of_a_partition_that_is_coordinated_elsewhere_are_dropped(sender: Sender) -> None:
    sender.appends.code = ErrorCode.NOT_ENOUGH_REPLICAS
    sender.send(HERE, state_partition=4)
    sender.send(HERE, state_partition=5)
    sender.markers.drop(4)
    sender.appends.code = NONE
    sender.markers.retry_due(math.inf)
    assert [5] == [work.state_partition for work in sender.done]


async def test_work_that_piles_up_goes_out_together_and_comes_back_if_nobody_is_there() -> None:
    peer = FakePeer()
    sent: list[list[int]] = []
    failed: list[list[int]] = []

    async def request(_: object, batch: list[int]) -> None:
        if peer.is_down:
            raise ConnectionError("gone")
        sent.append(batch)

    endpoints: dict[int, BrokerEndpoint] = {2: BrokerEndpoint(2, "host", 9092)}
    peers = PeerBatches[int](
        "numbers",
        cast("Any", peer),
        1,
        cast("Any", SimpleNamespace(endpoint=lambda id, _: endpoints.get(id), on_change=lambda _: None)),
        seeded(),
        listener="PLAINTEXT",
        timeout_ms=1000,
        request=cast("Any", request),
        failed=failed.append,
    )
    for number in range(3):
        peers.submit(2, number)
    peers.submit(3, 7)
    task = asyncio.get_running_loop().create_task(peers.run(), name="peers of the test")
    await settle()
    assert [[0, 1, 2]] == sent
    assert [[7]] == failed
    peer.is_down = True
    peers.submit(2, 3)
    await settle()
    assert [[7], [3]] == failed
    endpoints[2] = BrokerEndpoint(2, "moved", 9092)
    peer.is_down = False
    peers.submit(2, 4)
    await settle()
    assert [0, 1, 2, 4] == [number for batch in sent for number in batch]
    assert 2 == peer.dials, "an endpoint that changed is dialled anew"
    closed = []
    for _ in range(2):
        peers.drop_gone()
        closed.append(peer.is_closed)
        endpoints.pop(2, None)
    assert [False, True] == closed, "what is under way at a broker that is gone fails at once"
    await end(task)


@pytest.mark.parametrize("code", [None, *(each for each in ErrorCode if each is not NONE)])
def test_no_answer_makes_markers_follow_each_other_without_pauses(code: ErrorCode | None) -> None:
    """A leader that refuses has a problem already; None stands for one that cannot be reached."""

    async def scenario() -> int:
        sender = Sender(LoopClock())
        sender.peer.is_down = code is None
        sender.peer.code = code or NONE
        task = asyncio.get_running_loop().create_task(sender.markers.run(), name="markers of the test")
        for state_partition in range(20):
            sender.send(THERE, state_partition=state_partition)
        await asyncio.sleep(5.0)
        await end(task)
        return max(sender.peer.dials, len(sender.peer.requests))

    assert run_virtual(scenario()) <= 50
