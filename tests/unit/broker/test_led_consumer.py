"""A consumer of a stream that this broker leads: who gets messages, and what its end costs in one turn."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import cast
from uuid import UUID

from kalda.broker.nats.jetstream.jetstream_parts import QUEUED_BYTES_MAX, JetStreamCounts
from kalda.broker.nats.jetstream.later_calls import LaterCalls
from kalda.broker.nats.jetstream.led_consumer import LedConsumer
from kalda.broker.nats.jetstream.led_stream import LedStream
from kalda.broker.nats.jetstream.stream_consumer import StreamConsumer
from kalda.common.types import uuid_to_text
from kalda.nats.exchange import Exchange
from kalda.nats.jetstream.consumer_config import ConsumerConfig
from kalda.nats.jetstream.consumer_state import ConsumerState
from kalda.nats.jetstream.shared_limits import ClientShares, SharedLimits
from kalda.nats.jetstream.stored_message import StoredMessage
from kalda.nats.jetstream.stream_index import StreamIndex
from kalda.nats.operations import Publish
from tests.virtual_time import LoopClock, run_virtual

CONFIG = ConsumerConfig(ack_policy="none", max_waiting=2_000)


class OtherBrokers:
    """All clients are elsewhere; those of slow brokers have much to read."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes]] = []

    def forward(self, sent: Publish, served: object, route: bytes = b"") -> bool:
        self.sent.append((route or sent.subject, sent.payload))
        return True

    def has_interest(self, subject: bytes) -> bool:
        return not subject.startswith(b"gone")

    def queued_bytes(self, subject: bytes, served: object = ()) -> int:
        return QUEUED_BYTES_MAX + 1 if subject.startswith(b"slow") else 0


class Site:
    """One consumer of a stream of messages, and its owner."""

    def __init__(self, message_count: int, limits: SharedLimits | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.others = OtherBrokers()
        self.limits = limits or SharedLimits()
        self.rooms_made = 0
        self.ended: list[LedConsumer] = []
        exchange = Exchange(lambda _: 0)
        exchange.others = self.others
        parts = SimpleNamespace(
            loop=loop,
            exchange=exchange,
            limits=self.limits,
            counts=JetStreamCounts(),
            clock=LoopClock(),
            later=LaterCalls(),
            send=lambda subject, payload, headers=b"": self.others.forward(
                Publish(subject, b"", headers, headers), ()
            ),
        )
        index = StreamIndex()
        for sequence in range(1, message_count + 1):
            index.append(sequence, b"s", 10, 0)
        stream = SimpleNamespace(
            parts=parts,
            name="S",
            index=index,
            committed=index.next,
            is_open=True,
            is_current=True,
            consumers={},
            stored=SimpleNamespace(topic_id=uuid_to_text(UUID(int=1))),
            cached=lambda sequence: StoredMessage(sequence, b"s", b"", b"%d" % sequence, 0),
        )
        state = ConsumerState(CONFIG, 1, limit=self.limits.unacknowledged)
        self.consumer = LedConsumer(cast("LedStream", stream), "c", CONFIG, state, 0, 1, self)

    async def remove(self, stream: LedStream, consumer: StreamConsumer) -> None:
        raise AssertionError("the consumer has no threshold")

    def closed(self, consumer: LedConsumer) -> None:
        self.ended.append(consumer)

    def make_room(self) -> None:
        self.rooms_made += 1


def run(scenario: Coroutine[object, object, None]) -> None:
    run_virtual(scenario)


def test_a_request_over_a_slow_route_does_not_hold_up_others() -> None:
    """The first request waited for its client's broker, and all behind it waited as well."""

    async def scenario() -> None:
        site = Site(6)
        for reply in (b"slow.1", b"fast.1", b"slow.2", b"fast.2"):
            site.consumer.pull(b"3", reply, "client")
        await asyncio.sleep(0.1)
        expected = [(b"fast.%d" % (1 + number % 2), b"%d" % (number + 1)) for number in range(6)]
        assert expected == site.others.sent
        assert 2 == site.consumer.waiting_count

    run(scenario())


def test_very_many_slow_routes_are_looked_at_some_at_a_time() -> None:
    async def scenario() -> None:
        site = Site(1)
        for number in range(1_000):
            site.consumer.pull(b"1", b"slow.%d" % number, "client")
        site.consumer.pull(b"1", b"fast", "client")
        looks = []
        count = [0]
        has_interest = site.others.has_interest

        def counted(subject: bytes) -> bool:
            count[0] += 1
            return has_interest(subject)

        site.others.has_interest = counted  # type: ignore[method-assign]
        while not site.others.sent:
            await asyncio.sleep(0.01)
            looks.append(count[0])
            count[0] = 0
        assert [(b"fast", b"1")] == site.others.sent
        # Two pauses may end in one of these.
        assert 260 > max(looks)

    run(scenario())


def test_the_end_of_a_consumer_is_answered_in_later_turns() -> None:
    """Thousands of requests at hundreds of consumers were answered in one turn when a leader changed."""

    async def scenario() -> None:
        site = Site(0)
        for number in range(500):
            site.consumer.pull(b"1", b"r.%d" % number, number % 7)
        site.consumer.close()
        assert [] == site.others.sent
        assert (0, 0) == (site.limits.requests.limit.used, site.limits.unacknowledged.used)
        assert [site.consumer] == site.ended
        await asyncio.sleep(0.1)
        assert [b"r.%d" % number for number in range(500)] == [subject for subject, _ in site.others.sent]

    run(scenario())


def test_a_refused_request_lets_those_of_gone_clients_be_looked_for() -> None:
    async def scenario() -> None:
        site = Site(0, SharedLimits(requests=ClientShares(5_000, 1)))
        for _ in range(20):
            site.consumer.pull(b"1", b"gone", "gone")
        assert 0 < site.rooms_made < 20
        assert b"409 Exceeded MaxWaiting" in site.others.sent[0][1]
        for _ in site.consumer.end_abandoned():
            pass
        assert (0, 0) == (site.consumer.waiting_count, site.limits.requests.limit.used)

    run(scenario())
