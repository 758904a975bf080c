"""The sender with a network whose answers the test gives: no sockets, and time moves by hand."""

import asyncio
from typing import Any
from uuid import UUID

from kalda.clients.errors import (
    BrokerConnectionError,
    IllegalStateError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from kalda.clients.producer.produce_results import ProduceResults
from kalda.clients.producer.record_accumulator import RecordAccumulator
from kalda.clients.producer.record_future import RecordFuture
from kalda.clients.producer.sender import PRODUCE_VERSION_TOPIC_IDS, Sender, SenderSettings
from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID
from kalda.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kalda.runtime.clock import ManualClock
from tests.unit.clients.producer.producer_fixtures import TOPIC, TOPIC_ID, accumulator, send, snapshot
from tests.unit.clients.scripted_network import ScriptedNetwork, settle


class Sending:
    """A sender, its accumulator, and the network below it."""

    def __init__(self, *, max_in_flight: int = 5, retries: int = 10) -> None:
        self.clock = ManualClock()
        self.network = ScriptedNetwork(self.clock, snapshot())
        self.records: RecordAccumulator = accumulator(linger_s=0.0)
        client: Any = self.network
        results = ProduceResults(
            self.records, client.metadata, None, retries=retries, keeps_order=max_in_flight == 1
        )
        settings = SenderSettings(acks=-1, request_timeout_ms=30_000, max_in_flight=max_in_flight)
        self.sender = Sender(settings, client, self.records, results, None)
        self.sender.start()

    async def send(self, value: bytes) -> RecordFuture:
        future = send(self.records, value, now=self.clock.monotonic())
        await self.look()
        return future

    async def look(self) -> None:
        """Let the sender look for what to send, and its connections come up."""
        self.sender.wakeup()
        await settle()

    def answer(self, code: ErrorCode = ErrorCode.NONE, base_offset: int = 0) -> None:
        """Answer the oldest request."""
        partition = PartitionProduceResponse(index=0, error_code=int(code), base_offset=base_offset)
        self.network.answer(
            ProduceResponse(
                responses=[
                    TopicProduceResponse(name=TOPIC, topic_id=TOPIC_ID, partition_responses=[partition])
                ]
            )
        )


async def test_a_batch_is_sent_and_completed() -> None:
    it = Sending()
    future = await it.send(b"1")
    assert not future.done()
    it.answer(base_offset=7)
    assert 7 == future.result(0).offset
    await it.sender.wait_idle()
    await it.sender.close(IllegalStateError("closed"))


async def test_a_batch_that_begins_while_nothing_is_in_flight_is_sent_at_once() -> None:
    """What a user of asyncio waits for has no turn of the loop before it."""
    it = Sending()
    await settle()
    first = send(it.records, b"1", now=it.clock.monotonic())
    it.sender.batch_begun()
    assert 1 == len(it.network.sent)
    second = send(it.records, b"2", now=it.clock.monotonic())
    it.sender.batch_begun()
    assert 1 == len(it.network.sent), "the sender takes all that the loop's next turn finds"
    await settle()
    assert 2 == len(it.network.sent)
    it.answer(base_offset=7)
    it.answer(base_offset=8)
    assert [7, 8] == [future.result(0).offset for future in (first, second)]
    await it.sender.close(IllegalStateError("closed"))


async def test_a_batch_that_begins_in_a_callback_of_another_is_sent_later() -> None:
    """The response that completes the other batch may complete more."""
    it = Sending()
    future = await it.send(b"1")
    sent: list[int] = []

    def begin(_: RecordFuture) -> None:
        send(it.records, b"2", now=it.clock.monotonic())
        it.sender.batch_begun()
        sent.append(len(it.network.sent))

    future.add_done_callback(begin)
    it.answer()
    await settle()
    assert [1] == sent
    assert 2 == len(it.network.sent)
    it.answer()
    await it.sender.close(IllegalStateError("closed"))


async def test_no_more_requests_are_in_flight_than_allowed() -> None:
    it = Sending(max_in_flight=2)
    futures = [await it.send(b"x" * 190) for _ in range(3)]
    assert 2 == len(it.network.in_flight) == it.sender.in_flight_count
    it.answer(base_offset=0)
    await it.look()
    assert 3 == len(it.network.sent)
    it.answer(base_offset=1)
    it.answer(base_offset=2)
    assert [0, 1, 2] == [future.result(0).offset for future in futures]
    await it.sender.close(IllegalStateError("closed"))


async def test_records_for_partitions_that_a_new_topic_lacks_fail_at_once() -> None:
    """The topic was deleted and created again with fewer partitions: no broker will ever lead them."""
    it = Sending()
    it.network.metadata.snapshot = snapshot([0, 0])
    it.network.connected.clear()
    for notify in it.network.metadata.on_update:
        notify(it.network.metadata.snapshot)
    futures = [send(it.records, b"1", partition=each) for each in (0, 1)]
    for notify in it.network.metadata.on_update:
        notify(snapshot([0], topic_id=UUID(int=2)))
    assert not futures[0].done()
    error = futures[1].exception(0)
    assert isinstance(error, UnknownTopicOrPartitionError)
    assert "created again with 1 partitions" in str(error)
    await it.sender.close(IllegalStateError("closed"))


async def test_metadata_without_topic_ids_is_sent_for_by_name() -> None:
    it = Sending()
    it.network.metadata.snapshot = snapshot(topic_id=ZERO_UUID)
    await it.send(b"1")
    assert PRODUCE_VERSION_TOPIC_IDS - 1 == it.network.sent[0].version
    await it.sender.close(IllegalStateError("closed"))


async def test_a_missing_connection_is_opened_first() -> None:
    it = Sending()
    it.network.connected.clear()
    await it.send(b"1")
    await it.look()
    assert (1, 1) == (it.network.connect_count, len(it.network.sent))
    await it.sender.close(IllegalStateError("closed"))


async def test_a_retriable_error_is_sent_again_after_the_back_off() -> None:
    """With new metadata where the leader may have moved."""
    it = Sending()
    future = await it.send(b"1")
    before = it.network.update_count
    it.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await it.look()
    assert 1 == len(it.network.sent), "the back-off is not over"
    assert before < it.network.update_count
    it.clock.advance(0.2)
    await it.look()
    assert 2 == len(it.network.sent)
    it.answer(base_offset=3)
    assert 3 == future.result(0).offset
    await it.sender.close(IllegalStateError("closed"))


async def test_a_lost_connection_is_retried_until_the_retries_are_over() -> None:
    it = Sending(retries=1)
    future = await it.send(b"1")
    await it.network.lose()
    it.clock.advance(1.5)
    await it.look()
    assert 2 == len(it.network.sent)
    await it.network.lose()
    assert isinstance(future.exception(0), BrokerConnectionError)
    await it.sender.close(IllegalStateError("closed"))


async def test_an_error_that_retrying_does_not_cure_fails_the_records() -> None:
    it = Sending()
    future = await it.send(b"1")
    it.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    error = future.exception(0)
    assert error is not None
    assert "TOPIC_AUTHORIZATION_FAILED" in str(error)
    assert 1 == len(it.network.sent)
    await it.sender.close(IllegalStateError("closed"))


async def test_a_batch_in_flight_fails_when_its_time_is_over() -> None:
    """Its late answer changes nothing any more."""
    it = Sending()
    future = await it.send(b"1")
    it.clock.advance(60.0)
    await it.look()
    assert isinstance(future.exception(0), RequestTimedOutError)
    it.answer(base_offset=9)
    assert isinstance(future.exception(0), RequestTimedOutError)
    await it.sender.wait_idle()
    await it.sender.close(IllegalStateError("closed"))


async def test_close_fails_what_is_incomplete() -> None:
    """In flight or not, and whoever waits for the end is woken."""
    it = Sending(max_in_flight=1)
    futures = [await it.send(b"x" * 190) for _ in range(2)]
    waiting = asyncio.ensure_future(it.sender.wait_idle())
    await it.look()
    await it.sender.close(IllegalStateError("closed early"))
    assert ["closed early"] * 2 == [str(future.exception(0)) for future in futures]
    it.answer(base_offset=0)
    await waiting
    await it.look()
    assert 1 == len(it.network.sent)
