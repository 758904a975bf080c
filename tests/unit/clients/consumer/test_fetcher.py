"""The fetcher with a network whose answers the test gives: no sockets, and time that only timers move."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.consumer.consumer_errors import FetchCorruptionError, OffsetsOutOfRangeError
from kalda.clients.consumer.fetch_buffer import FetchBuffer
from kalda.clients.consumer.fetcher import Fetcher
from kalda.clients.consumer.offset_reset import EARLIEST, NONE, OffsetReset
from kalda.clients.consumer.record_decoder import Deserializers
from kalda.clients.consumer.subscription_state import SubscriptionState
from kalda.clients.errors import BrokerResponseError, ClientError, UnsupportedApiError
from kalda.clients.fetch_position import FetchPosition, LeaderAndEpoch
from kalda.clients.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol.fetch_session import FINAL_EPOCH
from kalda.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from kalda.protocol.schema import VersionRange
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import RecordBatchBuilder
from tests.unit.clients.scripted_network import ScriptedNetwork, settle
from tests.virtual_time import LoopClock, run_virtual

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
TOPIC_ID = UUID(int=10)
BACKOFF_S = 0.1
EPOCH = 5


def cluster() -> ClusterMetadata:
    """Return brokers 1 to 3; the first two lead the partitions."""
    partitions = {
        number: PartitionMetadata(TopicPartition("a", number), leader, EPOCH, ErrorCode.NONE, (1, 2, 3))
        for number, leader in enumerate((1, 2))
    }
    topics = {"a": TopicMetadata("a", TOPIC_ID, False, ErrorCode.NONE, partitions)}
    brokers = {number: BrokerEndpoint(number, "h", 9092) for number in (1, 2, 3)}
    return ClusterMetadata(1, "c", 1, brokers, topics)


def records(base_offset: int, count: int) -> memoryview:
    builder = RecordBatchBuilder(base_offset=base_offset, partition_leader_epoch=EPOCH)
    for number in range(count):
        builder.append(None, b"%d" % (base_offset + number), 1_000)
    return memoryview(builder.build())


def data(partition: int = 0, code: ErrorCode = ErrorCode.NONE, **fields: Any) -> PartitionData:
    return PartitionData(partition_index=partition, error_code=int(code), **{"high_watermark": 100, **fields})


def response(
    *partitions: PartitionData, code: ErrorCode = ErrorCode.NONE, session_id: int = 77, throttle_ms: int = 0
) -> FetchResponse:
    topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(partitions))] if partitions else []
    return FetchResponse(
        error_code=int(code), session_id=session_id, throttle_time_ms=throttle_ms, responses=topics
    )


class Fetching:
    """A fetcher for partition 0 of broker 1 and partition 1 of broker 2, both at offset 0."""

    def __init__(
        self,
        *,
        reset: OffsetReset = EARLIEST,
        partitions: tuple[TopicPartition, ...] = (A0,),
        isolation: str = "read_uncommitted",
        fetch_max: int | None = None,
        shares_loop: bool = False,
    ) -> None:
        config = ConsumerConfig.from_options(
            {
                "bootstrap_servers": "h:1",
                "retry_backoff_ms": 100,
                "metadata_max_age_ms": 60_000,
                "isolation_level": isolation,
            }
        )
        self.network = ScriptedNetwork(LoopClock(), cluster())
        if fetch_max is not None:
            versions = NodeApiVersions("b:1", {ApiKey.FETCH: VersionRange(0, fetch_max)}, {})
            self.network.versions = lambda node_id: versions  # type: ignore[method-assign]  # an older broker
        self.subscription = SubscriptionState(reset)
        self.subscription.assign_from_user(partitions)
        for partition in partitions:
            leader = LeaderAndEpoch(partition.partition + 1, EPOCH)
            self.subscription.seek(partition, FetchPosition(0, -1, leader))
        self.buffer = FetchBuffer(self.subscription)
        self.errors: list[ClientError] = []
        self.ready_count = 0
        self.sent_when_ready = 0
        client: Any = self.network
        self.fetcher = Fetcher(
            config,
            client,
            self.subscription,
            self.buffer,
            on_ready=self._ready,
            on_error=self.errors.append,
            shares_loop=shares_loop,
        )

    def _ready(self) -> None:
        self.ready_count += 1
        self.sent_when_ready = len(self.network.sent)

    async def look(self) -> None:
        """Let the fetcher look for what to send, and its connections come up."""
        self.fetcher.wake()
        await settle()

    def nodes(self) -> list[int]:
        """Return the brokers of all requests so far."""
        return [sent.node_id for sent in self.network.sent]

    def last(self) -> FetchRequest:
        request = self.network.sent[-1].request
        assert isinstance(request, FetchRequest)
        return request

    def offsets(self) -> list[int]:
        """Return the offsets that the last request asks for."""
        return [each.fetch_offset for topic in self.last().topics for each in topic.partitions]

    def take(self) -> list[int]:
        return [record.offset for record in self.buffer.take(100, Deserializers())]


def fetching(scenario: Callable[[Fetching], Awaitable[None]], it: Callable[[], Fetching] = Fetching) -> None:
    """Run a scenario whose fetcher has begun; it is closed in the end."""

    async def run() -> None:
        made = it()
        await made.look()
        await scenario(made)
        await made.fetcher.close(0.0)

    run_virtual(run())


def test_one_fetch_goes_to_each_broker_at_a_time() -> None:
    async def scenario(it: Fetching) -> None:
        assert [1, 2] == it.nodes()
        await it.look()
        assert [1, 2] == it.nodes()
        it.network.answer(response(data(1, records=records(0, 2))), node_id=2)
        await settle()
        assert [1, 2, 2] == it.nodes()

    fetching(scenario, lambda: Fetching(partitions=(A0, A1)))


def test_a_response_is_followed_by_the_next_fetch_from_where_it_ended() -> None:
    """Also before the user has read the records, and in the session that the broker opened."""

    async def scenario(it: Fetching) -> None:
        assert (0, 0, [0]) == (it.last().session_id, it.last().session_epoch, it.offsets())
        it.network.answer(response(data(records=records(0, 3))))
        assert 1 == it.ready_count
        assert (77, 1, [3]) == (it.last().session_id, it.last().session_epoch, it.offsets())
        assert [0, 1, 2] == it.take()
        it.network.answer(response())
        assert 3 == len(it.network.sent)
        assert 1 == it.ready_count, "nothing new has come"

    fetching(scenario)


def test_a_task_on_the_same_loop_gets_few_records_before_the_next_fetch_is_sent() -> None:
    async def scenario(it: Fetching) -> None:
        it.network.answer(response(data(records=records(0, 3))))
        assert (1, 1) == (it.ready_count, len(it.network.sent))
        await asyncio.sleep(0)
        assert [3] == it.offsets()
        assert [0, 1, 2] == it.take()

    fetching(scenario, lambda: Fetching(shares_loop=True))


def test_the_next_fetch_is_under_way_before_a_task_on_the_same_loop_gets_many_records() -> None:
    async def scenario(it: Fetching) -> None:
        it.network.answer(response(data(records=records(0, 3_000))))
        assert (1, 2) == (it.ready_count, it.sent_when_ready)
        assert [3_000] == it.offsets()

    fetching(scenario, lambda: Fetching(shares_loop=True))


def test_a_full_fetch_that_is_refused_again_and_again_is_repeated_after_the_back_off() -> None:
    """A broker that answers at once would be asked thousands of times in a second."""

    async def scenario(it: Fetching) -> None:
        for count in (1, 2, 3):
            it.network.answer(response(code=ErrorCode.UNKNOWN_SERVER_ERROR, session_id=0))
            await it.look()
            await asyncio.sleep(BACKOFF_S * 0.9)
            assert count == len(it.network.sent), "the back-off is not over"
            await asyncio.sleep(BACKOFF_S * 0.2)
            assert count + 1 == len(it.network.sent)
            assert [0] == it.offsets()
        it.network.answer(response(data(records=records(0, 1))))
        assert [0] == it.take()

    fetching(scenario)


def test_a_broker_that_refuses_holds_up_no_other() -> None:
    async def scenario(it: Fetching) -> None:
        it.network.answer(response(code=ErrorCode.UNKNOWN_SERVER_ERROR, session_id=0), node_id=1)
        it.network.answer(response(data(1, records=records(0, 1))), node_id=2)
        await settle()
        assert [1, 2, 2] == it.nodes()

    fetching(scenario, lambda: Fetching(partitions=(A0, A1)))


def test_a_session_that_the_broker_has_evicted_starts_over_at_once() -> None:
    async def scenario(it: Fetching) -> None:
        it.network.answer(response())
        assert 1 == it.last().session_epoch
        it.network.answer(response(code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, session_id=0))
        assert (0, 0, [0]) == (it.last().session_id, it.last().session_epoch, it.offsets())

    fetching(scenario)


def test_a_lost_connection_asks_for_metadata_and_is_opened_again() -> None:
    """The broker may have counted the lost request: the next one is a full fetch."""

    async def scenario(it: Fetching) -> None:
        it.network.answer(response())
        before = it.network.update_count
        await it.network.lose()
        await settle()
        assert before < it.network.update_count
        assert 1 == it.network.connect_count
        assert (77, 0, [0]) == (it.last().session_id, it.last().session_epoch, it.offsets())
        assert [] == it.errors, "the user has nothing to do about it"

    fetching(scenario)


def test_a_broker_that_cannot_be_reached_is_tried_again() -> None:
    async def scenario(it: Fetching) -> None:
        it.network.unreachable.add(1)
        await it.network.lose()
        it.network.hold(1, 1.0)
        await settle()
        it.network.unreachable.clear()
        await asyncio.sleep(0.9)
        assert 1 == len(it.network.sent)
        await asyncio.sleep(0.2)
        assert 2 == len(it.network.sent)

    fetching(scenario)


def test_a_throttle_holds_the_next_fetch_back() -> None:
    async def scenario(it: Fetching) -> None:
        it.network.answer(response(data(records=records(0, 1)), throttle_ms=500))
        await asyncio.sleep(0.49)
        assert 1 == len(it.network.sent)
        await asyncio.sleep(0.02)
        assert 2 == len(it.network.sent)

    fetching(scenario)


def test_the_replica_that_the_leader_names_is_read_until_its_lease_ends() -> None:
    async def scenario(it: Fetching) -> None:
        it.network.answer(response(data(preferred_read_replica=3)))
        assert [1, 3] == it.nodes()
        await asyncio.sleep(59.0)
        it.network.answer(response(data(), session_id=88))
        assert [1, 3, 3] == it.nodes()
        await asyncio.sleep(2.0)
        it.network.answer(response(session_id=88))
        assert [1, 3, 3, 1] == it.nodes()

    fetching(scenario)


def test_a_replica_whose_connection_is_lost_is_given_up() -> None:
    async def scenario(it: Fetching) -> None:
        it.network.answer(response(data(preferred_read_replica=3)))
        await it.network.lose(3)
        await settle()
        assert [1, 3, 1] == it.nodes()

    fetching(scenario)


def test_a_replica_that_lags_behind_is_given_up_without_a_reset() -> None:
    """The offset may be out of its range only; the leader decides."""

    async def scenario(it: Fetching) -> None:
        it.network.answer(response(data(preferred_read_replica=3)))
        it.network.answer(response(data(code=ErrorCode.OFFSET_OUT_OF_RANGE)))
        await asyncio.sleep(BACKOFF_S * 1.1)
        assert [1, 3, 1] == it.nodes()
        assert {} == it.subscription.needing_reset(0.0)

    fetching(scenario)


def test_an_offset_out_of_range_is_reset() -> None:
    async def scenario(it: Fetching) -> None:
        it.network.answer(response(data(code=ErrorCode.OFFSET_OUT_OF_RANGE)))
        assert {A0: EARLIEST} == it.subscription.needing_reset(0.0)
        assert 1 == it.ready_count, "a poll that waits looks the offset up"
        await asyncio.sleep(1.0)
        assert 1 == len(it.network.sent)

    fetching(scenario)


def test_an_offset_out_of_range_is_an_error_where_nothing_says_how_to_reset() -> None:
    async def scenario(it: Fetching) -> None:
        it.network.answer(response(data(code=ErrorCode.OFFSET_OUT_OF_RANGE)))
        assert [OffsetsOutOfRangeError] == [type(error) for error in it.errors]
        assert {} == it.subscription.needing_reset(0.0)

    fetching(scenario, lambda: Fetching(reset=NONE))


def test_an_offset_out_of_range_behind_unread_records_waits_for_them() -> None:
    async def scenario(it: Fetching) -> None:
        it.network.answer(response(data(records=records(0, 2))))
        it.network.answer(response(data(code=ErrorCode.OFFSET_OUT_OF_RANGE)))
        assert {} == it.subscription.needing_reset(0.0)
        assert [0, 1] == it.take()
        await asyncio.sleep(BACKOFF_S * 1.1)
        it.network.answer(response(data(code=ErrorCode.OFFSET_OUT_OF_RANGE)))
        assert {A0: EARLIEST} == it.subscription.needing_reset(0.0)

    fetching(scenario)


def test_a_new_leader_is_asked_while_the_old_one_still_holds_the_fetch() -> None:
    """What the old one sends then is dropped: the new leader's log may be shorter."""

    async def scenario(it: Fetching) -> None:
        it.network.metadata.update_leaders({A0: (3, EPOCH + 1)})
        await settle()
        assert [1, 3] == it.nodes()
        it.network.answer(response(data(records=records(0, 2))), node_id=1)
        assert [] == it.take()
        it.network.answer(response(data(records=records(0, 1)), session_id=88), node_id=3)
        assert [0] == it.take()

    fetching(scenario)


def test_a_response_that_names_the_new_leader_is_followed_without_new_metadata() -> None:
    """KIP-951."""

    async def scenario(it: Fetching) -> None:
        moved = LeaderIdAndEpoch(leader_id=2, leader_epoch=EPOCH + 1)
        it.network.answer(response(data(code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=moved)))
        await asyncio.sleep(BACKOFF_S * 1.1)
        assert [1, 2] == it.nodes()

    fetching(scenario)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID])
def test_a_leader_that_moved_is_looked_up_and_asked_after_the_back_off(code: ErrorCode) -> None:
    async def scenario(it: Fetching) -> None:
        before = it.network.update_count
        it.network.answer(response(data(code=code)))
        assert before < it.network.update_count
        # The other partitions of the broker are not held up: a session without this one goes on.
        await asyncio.sleep(BACKOFF_S * 0.9)
        assert 1 == len(it.network.sent)
        await asyncio.sleep(BACKOFF_S * 0.2)
        assert 2 == len(it.network.sent)
        assert [] == it.errors

    fetching(scenario)


def test_an_error_that_retrying_does_not_cure_reaches_the_user() -> None:
    async def scenario(it: Fetching) -> None:
        it.network.answer(response(data(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
        (error,) = it.errors
        assert isinstance(error, BrokerResponseError)
        assert "TOPIC_AUTHORIZATION_FAILED" in str(error)
        assert "a-0 at offset 0" in str(error)

    fetching(scenario)


def test_records_without_a_whole_batch_reach_the_user_as_an_error() -> None:
    async def scenario(it: Fetching) -> None:
        it.network.answer(response(data(records=records(0, 2)[:20])))
        assert [FetchCorruptionError] == [type(error) for error in it.errors]
        assert 1 == len(it.network.sent), "the back-off is not over"

    fetching(scenario)


def test_records_that_a_seek_made_useless_are_dropped() -> None:
    async def scenario(it: Fetching) -> None:
        it.subscription.seek(A0, FetchPosition(9, -1, LeaderAndEpoch(1, EPOCH)))
        it.network.answer(response(data(records=records(0, 2))))
        assert {} == it.buffer.unread_bytes()
        assert [9] == it.offsets()

    fetching(scenario)


def test_an_error_that_a_seek_made_useless_is_dropped() -> None:
    """The user hears of nothing, and what was sought is fetched without back-off."""

    async def scenario(it: Fetching) -> None:
        it.subscription.seek(A0, FetchPosition(9, -1, LeaderAndEpoch(1, EPOCH)))
        it.network.answer(response(data(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
        assert [] == it.errors
        assert [9] == it.offsets()

    fetching(scenario)


def test_close_ends_the_session_of_an_idle_broker() -> None:
    async def run() -> None:
        it = Fetching()
        await it.look()
        it.network.answer(response(data(records=records(0, 1)), throttle_ms=1))
        await asyncio.sleep(0)
        it.subscription.pause([A0])
        await asyncio.sleep(0.1)
        closing = asyncio.ensure_future(it.fetcher.close(5.0))
        await settle()
        assert (77, FINAL_EPOCH) == (it.last().session_id, it.last().session_epoch)
        assert [] == list(it.last().topics)
        it.network.answer(response(session_id=0))
        await closing
        assert {} == it.buffer.unread_bytes()

    run_virtual(run())


def test_close_waits_for_the_end_of_a_session_for_its_time_only() -> None:
    async def run() -> None:
        it = Fetching()
        await it.look()
        it.network.answer(response(data(records=records(0, 1)), throttle_ms=1))
        it.subscription.pause([A0])
        await asyncio.sleep(0.1)
        before = it.network.clock.monotonic()
        await it.fetcher.close(5.0)
        assert 5.0 == pytest.approx(it.network.clock.monotonic() - before)
        it.network.answer(response(session_id=0))
        await settle()

    run_virtual(run())


def test_close_does_not_wait_for_a_fetch_in_flight() -> None:
    """Neither does it send behind it; and nothing is fetched any more."""

    async def run() -> None:
        it = Fetching()
        await it.look()
        it.network.answer(response(data(records=records(0, 1))))
        before = it.network.clock.monotonic()
        await it.fetcher.close(5.0)
        assert before == it.network.clock.monotonic()
        assert it.network.in_flight[0].future.cancelled()
        await it.look()
        await asyncio.sleep(10.0)
        assert 2 == len(it.network.sent)
        assert [] == it.network.metadata.on_update

    run_virtual(run())


def test_close_ends_a_connection_that_does_not_come_up() -> None:
    async def run() -> None:
        it = Fetching()
        it.network.connected.clear()
        it.network.ready = never  # type: ignore[assignment]
        await it.look()
        await it.fetcher.close(5.0)

    async def never(node_id: int) -> None:
        await asyncio.Event().wait()

    run_virtual(run())


def test_broker_of_010_is_read() -> None:
    """Its answers have old messages, and no last stable offset."""

    async def scenario(it: Fetching) -> None:
        assert [2] == [sent.version for sent in it.network.sent]
        builder = MessageSetBuilder(1)
        builder.append(None, b"0", 1_000)
        found = FetchableTopicResponse(topic="a", partitions=[data(records=memoryview(builder.build()))])
        it.network.answer(FetchResponse(responses=[found]))
        assert [0] == it.take()

    fetching(scenario, lambda: Fetching(fetch_max=2))


@pytest.mark.parametrize(("isolation", "fetch_max"), [("read_committed", 3), ("read_uncommitted", 1)])
def test_broker_that_is_too_old_is_an_error_of_poll(isolation: str, fetch_max: int) -> None:
    """Else a poll would wait for ever; a broker without transactions cannot read what is committed only."""

    async def scenario(it: Fetching) -> None:
        assert [UnsupportedApiError] == [type(each) for each in it.errors]
        await it.look()
        assert 1 == len(it.errors), "it is asked again after a pause"
        await asyncio.sleep(BACKOFF_S)
        await it.look()
        assert 2 == len(it.errors)
        assert [] == it.network.sent

    fetching(scenario, lambda: Fetching(isolation=isolation, fetch_max=fetch_max))
