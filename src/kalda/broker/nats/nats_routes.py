"""Keeps the routes of a broker to the others with listeners of NATS: one task and one connection each.

The inter-broker listener carries them, so that its security holds, as requests of an API of its own. A broker
that does not offer the API has no listener of NATS, or is an older one; it is asked again now and then, and
brokers of Apache Kafka are never asked. What was in a request whose answer is missing is not sent again: it
may have been delivered. Requests for JetStream of a broker go while there is a connection to it, and when
that ends they have failed.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.nats.ended_removal import EndedRemoval
from kalda.cluster.registered_brokers import RegisteredBrokers
from kalda.common.api_keys import ApiKey
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.common.metrics import Metrics
from kalda.common.turns import Steps
from kalda.common.types import BrokerEndpoint
from kalda.nats.operations import Publish
from kalda.nats.routing import InterestChange, OutgoingRoute, RouteBatch, RoutedMessage, Routing
from kalda.nats.subjects import is_valid_subject
from kalda.net.peer.dialer import Dialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.messages.route_nats import (
    NatsInterest,
    NatsMessage,
    RouteNatsRequest,
    RouteNatsResponse,
)
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random

logger: Final = logging.getLogger(__name__)

KEEPALIVE_SECONDS: Final = 2.0
"""After this time without anything to send, a broker says that it is there."""

SILENCE_SECONDS_MAX: Final = 10.0
"""After this time, what a silent broker wanted is forgotten: members of groups elsewhere get its messages."""

REQUEST_SECONDS_MAX: Final = 10.0

ABSENT_SECONDS: Final = 30.0
"""The pause before a broker that does not offer the API is asked again: an update may bring it."""

_BACKOFF_MS: Final = (50, 1_000)
_SESSIONS: Final = 2**63 - 1


class _AbsentError(Exception):
    """A broker has no such API."""


class _Link:
    """The way to one other broker."""

    def __init__(self, broker_id: int, route: OutgoingRoute) -> None:
        self.broker_id: Final = broker_id
        self.route = route
        self.waker: Final = asyncio.Event()
        self.idle: Final = asyncio.Event()
        """Set while nothing waits for an answer."""
        self.moved: Final = asyncio.Event()
        """Set when the broker is gone, or has another address."""
        self.failures = 0
        """In a row."""
        self.endpoint: BrokerEndpoint | None = None
        self.connection: PeerConnection | None = None


class NatsRoutes:
    """The routes of one broker: `run` sends the queued batches; `receive` takes those of others."""

    def __init__(
        self,
        broker_id: int,
        routing: Routing,
        cache: MetadataCache,
        brokers: RegisteredBrokers,
        dialer: Dialer,
        clock: Clock,
        random: Random,
        *,
        listener: str,
        pending_bytes_max: int,
    ) -> None:
        self._broker_id: Final = broker_id
        self._routing: Final = routing
        self._cache: Final = cache
        self._brokers: Final = brokers
        self._dialer: Final = dialer
        self._clock: Final = clock
        self._random: Final = random
        self._listener: Final = listener
        self._pending_bytes_max: Final = pending_bytes_max
        self._options: Final = DialOptions(client_id=str(broker_id), timeout_seconds=REQUEST_SECONDS_MAX)
        self._backoff: Final = ExponentialBackoff(*_BACKOFF_MS, random.uniform)
        self._links: Final[dict[int, _Link]] = {}
        """By broker, one for each task."""
        self._tasks: asyncio.TaskGroup | None = None
        self.slow_routes = 0
        self.on_lost: Callable[[int], None] = lambda broker_id: None
        """Called when the connection to a broker has ended."""
        routing.on_work = self._on_work
        routing.on_ended = EndedRemoval(routing.remove_ended).soon
        cache.on_change(self._on_change)
        brokers.on_change(self._look)

    @property
    def connected_count(self) -> int:
        """The number of brokers that messages are sent to."""
        return sum(each.connection is not None for each in self._links.values())

    # Which brokers there are.

    def _on_change(self, topics: object) -> None:
        self._look()

    def _look(self) -> None:
        """Start a task for each other broker of Kalda, and close connections to former addresses."""
        if self._tasks is None:
            return
        for broker_id in self._cache.brokers:
            if broker_id != self._broker_id and broker_id not in self._links and self._endpoint(broker_id):
                link = self._links[broker_id] = _Link(broker_id, self._routing.outgoing(broker_id))
                self._tasks.create_task(self._serve(link), name=f"NATS route to {broker_id}")
        for broker_id, link in self._links.items():
            if link.endpoint != self._endpoint(broker_id):
                link.moved.set()
                link.waker.set()
                if link.connection is not None:
                    link.connection.close()

    def _endpoint(self, broker_id: int) -> BrokerEndpoint | None:
        if self._brokers.is_kafka(broker_id):
            return None
        return self._cache.endpoint(broker_id, self._listener)

    # Sending.

    def takes(self, broker_id: int) -> bool:
        """Return whether a request can be sent to a broker."""
        link = self._links.get(broker_id)
        if link is None or link.connection is None:
            return False
        # Live messages and answers have the rest.
        return link.route.pending_bytes * 2 <= self._pending_bytes_max

    def send(self, broker_id: int, message: RoutedMessage) -> None:
        """Send a request to a broker that takes it."""
        self._routing.send_to(broker_id, message)

    def answer(self, reply: bytes, headers: bytes, payload: bytes) -> bool:
        """Answer a request of another broker; return False for the reply subject of a client."""
        return self._routing.answer(reply, headers, payload)

    def on_carried(self, take: Callable[[int, RoutedMessage], None]) -> None:
        """Call `take` with the requests and answers of other brokers."""
        self._routing.on_carried = take

    def on_interest(self, note: Callable[[bytes], None]) -> None:
        """Call `note` with each pattern that clients of another broker begin to subscribe to."""
        self._routing.on_interest = note

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                self._look()
                while True:
                    await asyncio.sleep(KEEPALIVE_SECONDS)
                    before = self._clock.monotonic() - SILENCE_SECONDS_MAX
                    for broker_id in self._routing.forget_silent(before):
                        logger.info("broker %d is silent; messages of NATS do not go there now", broker_id)
            finally:
                self._tasks = None

    async def drain(self, seconds_max: float) -> None:
        """Give the messages that wait some time to leave; what clients here want does not count any more."""
        for each in self._links.values():
            each.route.drop_changes()
        waiting = [each.idle.wait() for each in self._links.values() if each.connection is not None]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                await asyncio.gather(*waiting)

    def _on_work(self, broker_id: int) -> None:
        link = self._links.get(broker_id)
        if link is None:
            return
        link.waker.set()
        link.idle.clear()
        if link.route.pending_bytes > self._pending_bytes_max:
            self.slow_routes += 1
            count = link.route.clear()
            logger.warning(
                "broker %d does not take messages of NATS fast enough; %d are dropped", broker_id, count
            )
            if link.connection is not None:
                link.connection.close()

    async def _serve(self, link: "_Link") -> None:
        """Send to a broker for as long as it is alive."""
        try:
            while (endpoint := self._endpoint(link.broker_id)) is not None:
                link.endpoint = endpoint
                link.moved.clear()
                try:
                    link.connection = await self._dial(endpoint)
                    await self._send(link, link.connection)
                except _AbsentError:
                    # Nothing waits for it, and nothing wakes this task but its end.
                    self._routing.close(link.broker_id)
                    await _wait(link.moved, ABSENT_SECONDS)
                    link.route = self._routing.outgoing(link.broker_id)
                    continue
                except ConnectionError as error:
                    logger.info("the NATS route to broker %d failed: %s", link.broker_id, error)
                except Exception:
                    # What another broker answers must not end this one.
                    logger.exception("the NATS route to broker %d failed", link.broker_id)
                finally:
                    if link.connection is not None:
                        link.connection.close()
                        link.connection = None
                        link.route.drop_requests()
                        self.on_lost(link.broker_id)
                link.failures += 1
                await asyncio.sleep(self._backoff.seconds(link.failures))
        finally:
            del self._links[link.broker_id]
            self._routing.close(link.broker_id)
            # It may have come back meanwhile.
            self._look()

    async def _dial(self, endpoint: BrokerEndpoint) -> PeerConnection:
        connection = await self._dialer.dial(endpoint.host, endpoint.port, self._options)
        try:
            connection.version_of(ApiKey.ROUTE_NATS)
        except ConnectionError:
            connection.close()
            raise _AbsentError from None
        return connection

    async def _send(self, link: "_Link", connection: PeerConnection) -> NoReturn:
        """Send batch after batch.

        Raises:
            ConnectionError: the broker is gone, or refuses.
        """
        route, waker = link.route, link.waker
        route.begin(self._random.randrange(_SESSIONS))
        while True:
            waker.clear()
            batch = route.next()
            request = encode_batch(self._broker_id, batch)
            response = await connection.request(request, timeout_seconds=REQUEST_SECONDS_MAX)
            if not isinstance(response, RouteNatsResponse):
                raise ConnectionError(f"a response of class {type(response).__name__}")
            if response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH:
                # The broker has taken nothing.
                route.give_back(batch.messages)
                route.begin(self._random.randrange(_SESSIONS))
                continue
            if response.error_code != ErrorCode.NONE:
                raise ConnectionError(f"it answers {ErrorCode.of(response.error_code).name}")
            link.failures = 0
            if not route.has_work:
                link.idle.set()
                await _wait(waker, KEEPALIVE_SECONDS)
                if self._endpoint(link.broker_id) != link.endpoint:
                    raise ConnectionError("it is gone")

    # Receiving.

    def receive(self, request: RouteNatsRequest) -> Steps[bool]:
        """Take a request of another broker in steps; the result is False if its session is not known."""
        batch = decode_batch(request)
        return self._routing.receive(request.broker_id, batch, self._clock.monotonic())

    def register_metrics(self, metrics: Metrics) -> None:
        """Register the metrics of the routes."""
        routing = self._routing
        metrics.gauge(
            "kalda_nats_routes", "Brokers to which messages of NATS go.", lambda: self.connected_count
        )
        for name, help_text, value in (
            (
                "routed_in_messages",
                "Messages of NATS that other brokers sent here.",
                lambda: routing.messages_in,
            ),
            (
                "routed_out_messages",
                "Messages of NATS sent to other brokers.",
                lambda: routing.messages_out,
            ),
            (
                "slow_routes",
                "Times that a broker took messages of NATS too slowly.",
                lambda: self.slow_routes,
            ),
        ):
            metrics.counter_function(f"kalda_nats_{name}", help_text, value)


async def _wait(waker: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await waker.wait()


def encode_batch(broker_id: int, batch: RouteBatch) -> RouteNatsRequest:
    """Return the request that carries a batch."""
    return RouteNatsRequest(
        broker_id=broker_id,
        session=batch.session,
        number=batch.number,
        interest=[
            NatsInterest(subject=each.subject, queue=each.queue, is_on=each.is_on) for each in batch.changes
        ],
        messages=[
            NatsMessage(
                subject=sent.subject,
                reply=sent.reply,
                headers=sent.headers,
                payload=sent.payload,
                queues=list(queues),
                route=route,
                kind=kind,
                stream=stream,
                principal=principal,
                host=host,
            )
            for sent, queues, route, kind, stream, principal, host in batch.messages
        ],
    )


def decode_batch(request: RouteNatsRequest) -> RouteBatch:
    """Return the batch of a request."""
    return RouteBatch(
        request.session,
        request.number,
        [
            InterestChange(each.subject, each.queue, each.is_on)
            for each in request.interest
            if is_valid_subject(each.subject)
        ],
        [
            RoutedMessage(
                Publish(each.subject, each.reply, each.headers, each.payload),
                tuple(each.queues),
                each.route,
                each.kind,
                each.stream,
                each.principal,
                each.host,
            )
            for each in request.messages
        ],
    )
