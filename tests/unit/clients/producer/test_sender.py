"""The sender with a network whose answers the test gives: no sockets, and time moves by hand."""

import asyncio
from collections.abc import Callable
from typing import Any

from kalda.clients.errors import BrokerConnectionError, IllegalStateError, RequestTimedOutError
from kalda.clients.metadata import ClusterMetadata
from kalda.clients.producer.produce_results import ProduceResults
from kalda.clients.producer.record_accumulator import RecordAccumulator
from kalda.clients.producer.record_future import RecordFuture
from kalda.clients.producer.sender import Sender, SenderSettings
from kalda.common.api_keys import ApiKey
from kalda.common.clock import ManualClock
from kalda.common.errors import ErrorCode
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kalda.protocol.schema import Message, VersionRange
from tests.unit.clients.producer.producer_fixtures import TOPIC, accumulator, send, snapshot


class ScriptedMetadata:
    """A cluster with one leader, which counts what it is asked for."""

    def __init__(self) -> None:
        self.snapshot = snapshot()
        self.on_update: list[Callable[[ClusterMetadata], None]] = []
        self.update_count = 0

    def add_topic(self, name: str, now: float) -> None:
        return

    def request_update(self) -> int:
        self.update_count += 1
        return 1


class ScriptedNetwork:
    """Takes Produce requests, and answers them when the test says so."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metadata = ScriptedMetadata()
        self.is_connected = True
        self.sent: list[ProduceRequest] = []
        self.in_flight: list[Callable[[asyncio.Future[Message]], None]] = []
        self.on_read: Callable[[], None] = lambda: None
        self._versions = NodeApiVersions("b:1", {ApiKey.PRODUCE: VersionRange(3, 11)}, {}, 0)

    def is_ready(self, node_id: int) -> bool:
        return self.is_connected

    async def ready(self, node_id: int) -> NodeApiVersions:
        self.is_connected = True
        return self._versions

    def versions(self, node_id: int) -> NodeApiVersions:
        return self._versions

    def connection_delay(self, node_id: int) -> float:
        return 0.0

    def in_flight_count(self, node_id: int) -> int:
        return len(self.in_flight)

    def hold_writes(self, node_id: int) -> None:
        return

    def write_held(self, node_id: int) -> None:
        return

    def send_nowait(
        self,
        node_id: int,
        request: ProduceRequest,
        version: int,
        timeout_ms: int,
        on_done: Callable[[asyncio.Future[Message]], None],
    ) -> None:
        self.sent.append(request)
        self.in_flight.append(on_done)

    def answer(self, code: ErrorCode = ErrorCode.NONE, base_offset: int = 0) -> None:
        """Answer the oldest request."""
        partition = PartitionProduceResponse(index=0, error_code=int(code), base_offset=base_offset)
        response = ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, partition_responses=[partition])]
        )
        done: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        done.set_result(response)
        self._end(done)

    def lose(self) -> None:
        """Lose the connection of the oldest request."""
        done: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        done.set_exception(BrokerConnectionError("gone"))
        self._end(done)

    def _end(self, done: asyncio.Future[Message]) -> None:
        self.in_flight.pop(0)(done)
        self.on_read()


class Sending:
    """A sender, its accumulator, and the network below it."""

    def __init__(self, *, max_in_flight: int = 5, retries: int = 10) -> None:
        self.network = ScriptedNetwork()
        self.records: RecordAccumulator = accumulator(linger_s=0.0)
        client: Any = self.network
        results = ProduceResults(
            self.records, client.metadata, None, retries=retries, keeps_order=max_in_flight == 1
        )
        settings = SenderSettings(acks=-1, request_timeout_ms=30_000, max_in_flight=max_in_flight)
        self.sender = Sender(settings, client, self.records, results, None)
        self.sender.start()

    async def send(self, value: bytes) -> RecordFuture:
        future = send(self.records, value, now=self.network.clock.monotonic())
        await self.look()
        return future

    async def look(self) -> None:
        """Let the sender look for what to send, and its connections come up."""
        self.sender.wakeup()
        for _ in range(4):
            await asyncio.sleep(0)


async def test_a_batch_is_sent_and_completed() -> None:
    it = Sending()
    future = await it.send(b"1")
    assert not future.done()
    it.network.answer(base_offset=7)
    assert 7 == future.result(0).offset
    await it.sender.wait_idle()
    await it.sender.close(IllegalStateError("closed"))


async def test_no_more_requests_are_in_flight_than_allowed() -> None:
    it = Sending(max_in_flight=2)
    futures = [await it.send(b"x" * 190) for _ in range(3)]
    assert 2 == len(it.network.in_flight) == it.sender.in_flight_count
    it.network.answer(base_offset=0)
    await it.look()
    assert 3 == len(it.network.sent)
    it.network.answer(base_offset=1)
    it.network.answer(base_offset=2)
    assert [0, 1, 2] == [future.result(0).offset for future in futures]
    await it.sender.close(IllegalStateError("closed"))


async def test_a_missing_connection_is_opened_first() -> None:
    it = Sending()
    it.network.is_connected = False
    await it.send(b"1")
    await it.look()
    assert 1 == len(it.network.sent)
    await it.sender.close(IllegalStateError("closed"))


async def test_a_retriable_error_is_sent_again_after_the_back_off() -> None:
    """With new metadata where the leader may have moved."""
    it = Sending()
    future = await it.send(b"1")
    it.network.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await it.look()
    assert 1 == len(it.network.sent), "the back-off is not over"
    assert it.network.metadata.update_count
    it.network.clock.advance(0.2)
    await it.look()
    assert 2 == len(it.network.sent)
    it.network.answer(base_offset=3)
    assert 3 == future.result(0).offset
    await it.sender.close(IllegalStateError("closed"))


async def test_a_lost_connection_is_retried_until_the_retries_are_over() -> None:
    it = Sending(retries=1)
    future = await it.send(b"1")
    it.network.lose()
    it.network.clock.advance(1.5)
    await it.look()
    assert 2 == len(it.network.sent)
    it.network.lose()
    assert isinstance(future.exception(0), BrokerConnectionError)
    await it.sender.close(IllegalStateError("closed"))


async def test_an_error_that_retrying_does_not_cure_fails_the_records() -> None:
    it = Sending()
    future = await it.send(b"1")
    it.network.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    error = future.exception(0)
    assert error is not None
    assert "TOPIC_AUTHORIZATION_FAILED" in str(error)
    assert 1 == len(it.network.sent)
    await it.sender.close(IllegalStateError("closed"))


async def test_a_batch_in_flight_fails_when_its_time_is_over() -> None:
    """Its late answer changes nothing any more."""
    it = Sending()
    future = await it.send(b"1")
    it.network.clock.advance(60.0)
    await it.look()
    assert isinstance(future.exception(0), RequestTimedOutError)
    it.network.answer(base_offset=9)
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
    it.network.answer(base_offset=0)
    await waiting
    await it.look()
    assert 1 == len(it.network.sent)
