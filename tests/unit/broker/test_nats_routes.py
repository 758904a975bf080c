"""Routes to other brokers: which are dialled, what they get, and what happens when one is slow."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.nats.nats_routes import NatsRoutes, decode_batch, encode_batch
from kalda.broker.requests.api import RequestContext
from kalda.broker.requests.route_nats import handle, route_handler
from kalda.cluster.registered_brokers import RegisteredBrokers
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.steps import result_of
from kalda.common.types import BrokerEndpoint
from kalda.nats.exchange import Exchange
from kalda.nats.operations import Publish
from kalda.nats.routing import REQUEST, RouteBatch, RoutedMessage, Routing
from kalda.net.peer.dialer import Dialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.codec import decode, encode
from kalda.protocol.messages.route_nats import (
    NatsInterest,
    NatsMessage,
    RouteNatsRequest,
    RouteNatsResponse,
)
from kalda.runtime.clock import ManualClock
from kalda.runtime.random import Random
from tests.unit.nats.sessions import Client

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


class Chooses:
    """A source of numbers that all differ."""

    def __init__(self) -> None:
        self.last = 0

    def randrange(self, stop: int) -> int:
        self.last += 1
        return self.last % stop

    def uniform(self, low: float, high: float) -> float:
        return 0.0


class Peer:
    """Another broker: what it was asked, and how it answers."""

    def __init__(self, *, has_api: bool = True) -> None:
        self.has_api = has_api
        self.dialled = 0
        self.requests: asyncio.Queue[RouteNatsRequest] = asyncio.Queue()
        self.codes: list[ErrorCode] = []
        self.is_silent = False
        self.connections: list[FakeConnection] = []

    async def next(self) -> RouteNatsRequest:
        async with asyncio.timeout(60):
            return await self.requests.get()


class FakeConnection:
    """A connection to a `Peer`."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.closed = asyncio.Event()

    def version_of(self, key: ApiKey) -> int:
        assert ApiKey.ROUTE_NATS == key
        if not self.peer.has_api:
            raise ConnectionError("no such API")
        return 0

    async def request(self, request: RouteNatsRequest, *, timeout_seconds: float) -> RouteNatsResponse:
        self.peer.requests.put_nowait(request)
        if self.peer.is_silent:
            await self.closed.wait()
            raise ConnectionError("closed")
        code = self.peer.codes.pop(0) if self.peer.codes else ErrorCode.NONE
        return RouteNatsResponse(error_code=code)

    def close(self) -> None:
        self.closed.set()


class Brokers:
    """The metadata, the registrations and the network of a cluster."""

    def __init__(self, peers: dict[int, Peer], kafka: frozenset[int] = frozenset()) -> None:
        self.peers = peers
        self.kafka = kafka
        self.listeners: list[Callable[..., None]] = []

    @property
    def brokers(self) -> dict[int, Peer]:
        return self.peers

    def endpoint(self, broker_id: int, listener: str) -> BrokerEndpoint | None:
        if broker_id not in self.peers:
            return None
        return BrokerEndpoint(broker_id, "host", broker_id, None)

    def is_kafka(self, broker_id: int) -> bool:
        return broker_id in self.kafka

    def on_change(self, listener: Callable[..., None]) -> None:
        self.listeners.append(listener)

    def changed(self) -> None:
        """Announce a change of the metadata, whose listener is the first one."""
        self.listeners[0](())

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        self.peers[port].dialled += 1
        connection = FakeConnection(self.peers[port])
        self.peers[port].connections.append(connection)
        return cast("PeerConnection", connection)


class Site:
    """One broker with its routes."""

    def __init__(self, brokers: Brokers, pending_bytes_max: int = 1_000_000) -> None:
        self.exchange = Exchange(lambda count: 0)
        self.routing = Routing(0, self.exchange, lambda count: 0)
        self.clock = ManualClock()
        self.routes = NatsRoutes(
            0,
            self.routing,
            cast("MetadataCache", brokers),
            cast("RegisteredBrokers", brokers),
            cast("Dialer", brokers),
            self.clock,
            cast("Random", Chooses()),
            listener="PLAINTEXT",
            pending_bytes_max=pending_bytes_max,
        )

    def client(self, sent: bytes = b"") -> Client:
        client = Client(self.exchange)
        client.write(QUIET + sent)
        return client

    def receive(self, *wanted: bytes, broker_id: int = 1) -> bool:
        interest = [NatsInterest(subject=each, is_on=True) for each in wanted]
        request = RouteNatsRequest(broker_id=broker_id, session=7, number=0, interest=interest)
        return result_of(self.routes.receive(request))


@asynccontextmanager
async def running(site: Site) -> AsyncIterator[None]:
    task = asyncio.ensure_future(site.routes.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_interest_and_messages_reach_another_broker() -> None:
    peer = Peer()
    site = Site(Brokers({0: Peer(), 1: peer}))
    client = site.client(b"SUB a 1\r\n")
    async with running(site):
        first = await peer.next()
        assert (0, 0) == (first.broker_id, first.number)
        assert [NatsInterest(subject=b"a", is_on=True)] == first.interest
        site.receive(b"b")
        client.write(b"PUB b r 1\r\nx\r\nPUB c 1\r\ny\r\n")
        second = await peer.next()
        assert (first.session, 1) == (second.session, second.number)
        assert [NatsMessage(subject=b"b", reply=b"r", payload=b"x")] == second.messages
        assert 1 == site.routes.connected_count


async def test_a_broker_of_apache_kafka_is_not_dialled() -> None:
    kafka, peer = Peer(), Peer()
    site = Site(Brokers({1: kafka, 2: peer}, frozenset((1,))))
    async with running(site):
        await peer.next()
    assert (0, 1) == (kafka.dialled, peer.dialled)


async def test_a_broker_without_the_api_gets_nothing() -> None:
    absent, peer = Peer(has_api=False), Peer()
    site = Site(Brokers({1: absent, 2: peer}))
    async with running(site):
        await peer.next()
        site.client(b"SUB a 1\r\n")
        await peer.next()
    assert 1 == absent.dialled
    assert absent.requests.empty()


async def test_a_receiver_that_does_not_know_the_session_gets_all_interest_again() -> None:
    peer = Peer()
    peer.codes = [ErrorCode.NONE, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
    site = Site(Brokers({1: peer}))
    client = site.client(b"SUB a 1\r\n")
    async with running(site):
        first = await peer.next()
        client.write(b"SUB b 2\r\n")
        await peer.next()
        again = await peer.next()
        assert 0 == again.number
        assert first.session != again.session
        assert [b"a", b"b"] == [each.subject for each in again.interest]
        assert 1 == peer.dialled


async def test_what_a_receiver_has_not_taken_is_sent_again() -> None:
    peer = Peer()
    peer.codes = [ErrorCode.NONE, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
    site = Site(Brokers({1: peer}))
    async with running(site):
        await peer.next()
        site.receive(b"a")
        site.client(b"PUB a 1\r\nx\r\n")
        lost, again = await peer.next(), await peer.next()
        assert 0 == again.number
        assert [b"x"] == [each.payload for each in lost.messages]
        assert lost.messages == again.messages


async def test_requests_go_while_there_is_a_connection_and_fail_with_it() -> None:
    peer = Peer()
    site = Site(Brokers({1: peer}), pending_bytes_max=4_000)
    request = RoutedMessage(Publish(b"$JS.API.INFO", b"answer 0 1", b"", b"x" * 1_000), kind=REQUEST)
    lost: asyncio.Queue[int] = asyncio.Queue()
    site.routes.on_lost = lost.put_nowait
    assert not site.routes.takes(1)
    async with running(site):
        await peer.next()
        assert site.routes.takes(1)
        assert not site.routes.takes(2)
        peer.is_silent = True
        site.receive(b"a")
        site.client(b"PUB a 1\r\nx\r\n")
        await peer.next()
        # The rest waits behind a request without an answer.
        for _ in range(2):
            assert site.routes.takes(1)
            site.routes.send(1, request)
        assert not site.routes.takes(1)
        peer.is_silent = False
        for connection in peer.connections:
            connection.close()
        async with asyncio.timeout(60):
            assert 1 == await lost.get()
        first = await peer.next()
        assert (0, []) == (first.number, first.messages)
        assert site.routes.takes(1)


def test_requests_name_their_client_on_the_wire() -> None:
    sent = Publish(b"orders.eu", b"answer 0 7", b"NATS/1.0\r\n\r\n", b"17")
    message = RoutedMessage(sent, (), b"route", REQUEST, "ORDERS", "User:ann", "10.0.0.7")
    batch = RouteBatch(5, 2, [], [message])
    encoded = encode(encode_batch(3, batch), 0)
    assert batch == decode_batch(decode(RouteNatsRequest, 0, encoded))


async def test_a_refusal_leads_to_another_connection() -> None:
    peer = Peer()
    peer.codes = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    site = Site(Brokers({1: peer}))
    async with running(site):
        await peer.next()
        assert 0 == (await peer.next()).number
    assert 2 == peer.dialled


async def test_a_slow_broker_is_cut_off_and_gets_later_messages() -> None:
    peer = Peer()
    peer.is_silent = True
    site = Site(Brokers({1: peer}), pending_bytes_max=2_000)
    client = site.client()
    async with running(site):
        await peer.next()
        site.receive(b"a")
        for _ in range(20):
            client.write(b"PUB a 200\r\n" + b"x" * 200 + b"\r\n")
        assert site.routes.slow_routes >= 1
        assert site.routing.outgoing(1).pending_bytes <= 2_000
        peer.is_silent = False
        client.write(b"PUB a 4\r\nlast\r\n")
        payloads: list[bytes] = []
        while b"last" not in payloads:
            payloads += [each.payload for each in (await peer.next()).messages]
        assert 2 == peer.dialled


async def test_a_broker_that_is_gone_is_forgotten_and_may_come_back() -> None:
    peer = Peer()
    brokers = Brokers({1: peer})
    site = Site(brokers)
    async with running(site):
        await peer.next()
        site.receive(b"a")
        assert site.exchange.publish(Publish(b"a", b"", b"", b"x"), None)
        del brokers.peers[1]
        brokers.changed()
        # The connection closes, its task ends, and with it the interest.
        for _ in range(10_000):
            await asyncio.sleep(0)
            if not site.exchange.publish(Publish(b"a", b"", b"", b"x"), None):
                break
        else:
            raise AssertionError("the broker is still known")
        brokers.peers[1] = peer
        brokers.changed()
        async with asyncio.timeout(60):
            while (await peer.next()).number != 0:
                pass


def test_only_brokers_may_send_and_only_on_their_listener() -> None:
    site = Site(Brokers({}))
    handler = route_handler(site.routes, "INTERNAL")
    assert handler.access is not None
    assert handler.is_of_brokers

    class Context:
        listener = "EXTERNAL"

    request = RouteNatsRequest(broker_id=1, session=1, number=0)
    refused = handle(site.routes, "INTERNAL", request, cast("RequestContext", Context()))
    assert isinstance(refused, RouteNatsResponse)
    assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED == refused.error_code
    Context.listener = "INTERNAL"
    taken = handle(site.routes, "INTERNAL", request, cast("RequestContext", Context()))
    assert isinstance(taken, RouteNatsResponse)
    assert ErrorCode.NONE == taken.error_code
    later = RouteNatsRequest(broker_id=2, session=1, number=5)
    unknown = handle(site.routes, "INTERNAL", later, cast("RequestContext", Context()))
    assert isinstance(unknown, RouteNatsResponse)
    assert ErrorCode.INVALID_FETCH_SESSION_EPOCH == unknown.error_code
