"""A network client without sockets: it keeps what is sent, and answers when the test says so.

It stands in for `NetworkClient` below the drivers of clients. Like that one it calls `on_response` in the
turn of a response and in a later turn of a failure, and heeds `throttle_time_ms`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.errors import BrokerConnectionError, ClientError, RequestTimedOutError
from kalda.clients.metadata import ClusterMetadata, Metadata
from kalda.clients.network_client import NO_NODE, coordinator_node_id
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.backoff import ExponentialBackoff
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol import registry
from kalda.protocol.schema import Message
from kalda.runtime.clock import Clock

R = TypeVar("R", bound=Message)
M = TypeVar("M", bound=Message)
T = TypeVar("T")
OnResponse = Callable[["asyncio.Future[Message]"], object]

EVERY_VERSION = NodeApiVersions(
    "b:1", {key: registry.spec(key).versions for key in registry.declared_keys()}, {}, 0
)
CONFIG = CommonClientConfig.from_options({"bootstrap_servers": "h:1"})


@dataclass(slots=True)
class Sent:
    """A request that a broker has not answered."""

    node_id: int
    request: Message
    version: int
    timeout_ms: int
    future: "asyncio.Future[Message]"
    on_response: OnResponse | None


async def settle() -> None:
    """Let every task do what it can do without time going on."""
    for _ in range(12):
        await asyncio.sleep(0)


class ScriptedNetwork:
    """Connections to the brokers of `snapshot`; those in `connected` are open."""

    def __init__(
        self, clock: Clock, snapshot: ClusterMetadata, *, config: CommonClientConfig = CONFIG
    ) -> None:
        self.clock = clock
        self.config = config
        self.retry_backoff = ExponentialBackoff(
            config.retry_backoff_ms, config.retry_backoff_max_ms, lambda low, high: 1.0
        )
        self.metadata = Metadata()
        self.metadata.set_topics(snapshot.topics, 0.0)
        self.metadata.snapshot = snapshot
        self.metadata.on_update_requested = self._count_update
        self.update_count = 0
        """How often new metadata was asked for."""
        self.refresh_count = 0
        """How often a caller waited for new metadata."""
        self.last_failure: ClientError | None = None
        """Why no broker answers with metadata: a caller that waits for some gets none."""
        self.is_closed = False
        self.connected = set(snapshot.brokers)
        self.unreachable: set[int] = set()
        self.connect_count = 0
        self.sent: list[Sent] = []
        self.in_flight: list[Sent] = []
        self.coordinator_id = coordinator_node_id(1)
        self.coordinator_errors: list[ClientError] = []
        """What the next look-ups of a coordinator fail with."""
        self.forget_count = 0
        self.on_read: Callable[[], None] | None = None
        self._not_before: dict[int, float] = {}

    # What the clients call

    def is_ready(self, node_id: int) -> bool:
        return node_id in self.connected and self.connection_delay(node_id) <= 0

    async def ready(self, node_id: int, *, timeout_ms: int | None = None) -> NodeApiVersions:
        await asyncio.sleep(self.connection_delay(node_id))
        if node_id in self.unreachable:
            raise BrokerConnectionError(f"node {node_id} cannot be reached")
        if node_id not in self.connected:
            self.connect_count += 1
            self.connected.add(node_id)
        return EVERY_VERSION

    def versions(self, node_id: int) -> NodeApiVersions:
        assert node_id in self.connected, f"node {node_id} is not connected"
        return EVERY_VERSION

    def connection_delay(self, node_id: int) -> float:
        return max(0.0, self._not_before.get(node_id, 0.0) - self.clock.monotonic())

    def in_flight_count(self, node_id: int) -> int:
        return len([each for each in self.in_flight if each.node_id == node_id])

    def hold_writes(self, node_id: int) -> None:
        return

    def write_held(self, node_id: int) -> None:
        return

    async def retry(self, what: str, attempt: Callable[[], Awaitable[T]], *, timeout_ms: int) -> T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        for failures in count(1):
            try:
                async with asyncio.timeout_at(deadline):
                    return await attempt()
            except TimeoutError:
                break
            except ClientError as error:
                if not error.is_retriable:
                    raise
            wait = self.retry_backoff.seconds(failures)
            if loop.time() + wait >= deadline:
                break
            await asyncio.sleep(wait)
        raise RequestTimedOutError(f"{what}: gave up after {timeout_ms} ms")

    def candidates(self) -> list[int]:
        return sorted(self.metadata.snapshot.brokers)

    def send_nowait(
        self,
        node_id: int,
        request: Message,
        version: int,
        timeout_ms: int,
        on_response: OnResponse | None = None,
    ) -> "asyncio.Future[Message]":
        assert self.is_ready(node_id), f"node {node_id} is not ready"
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        sent = Sent(node_id, request, version, timeout_ms, future, on_response)
        self.sent.append(sent)
        self.in_flight.append(sent)
        return future

    async def send(
        self,
        node_id: int,
        request: Message | VersionedRequest,
        response_class: type[R],
        *,
        timeout_ms: int | None = None,
    ) -> R:
        versions = await self.ready(node_id)
        if isinstance(request, VersionedRequest):
            version = versions.latest(request.api_key, request.version_max, request.version_min)
            message = request.build(version)
        else:
            message, version = request, type(request).SCHEMA.versions.highest
        timeout_ms = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                response = await self.send_nowait(node_id, message, version, timeout_ms)
        except TimeoutError as error:
            raise RequestTimedOutError(f"no response within {timeout_ms} ms") from error
        assert isinstance(response, response_class), f"a {type(response).__name__}"
        return response

    async def send_to_any(
        self, request: Message | VersionedRequest, response_class: type[R], *, timeout_ms: int | None = None
    ) -> R:
        return await self.send(self.candidates()[0], request, response_class, timeout_ms=timeout_ms)

    async def refresh_metadata(self, *, timeout_ms: int) -> ClusterMetadata:
        self.refresh_count += 1
        if self.last_failure is not None:
            await asyncio.get_running_loop().create_future()
        return self.metadata.snapshot

    async def coordinator(self, key: str, kind: CoordinatorType) -> int:
        if self.coordinator_errors:
            raise self.coordinator_errors.pop(0)
        return self.coordinator_id

    async def coordinators(self, keys: Iterable[str], kind: CoordinatorType) -> dict[str, int | ClientError]:
        return dict.fromkeys(keys, self.coordinator_id)

    def forget_coordinator(self, key: str, kind: CoordinatorType) -> None:
        self.forget_count += 1

    # What tests call

    def oldest(self, request_class: type[M], node_id: int = NO_NODE) -> M:
        """Return the oldest request of a class that is in flight, to any node unless one is given."""
        request = self._find(request_class, node_id).request
        assert isinstance(request, request_class)
        return request

    def count(self, request_class: type[Message]) -> int:
        """Return how many requests of a class were sent."""
        return len([each for each in self.sent if isinstance(each.request, request_class)])

    def answer(
        self, response: Message, request_class: type[Message] = Message, node_id: int = NO_NODE
    ) -> None:
        """Answer the oldest request in flight, of those of a class or to a node."""
        sent = self._find(request_class, node_id)
        self.in_flight.remove(sent)
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.hold(sent.node_id, throttle_ms / 1000)
        if not sent.future.done():
            sent.future.set_result(response)
            if sent.on_response is not None:
                sent.on_response(sent.future)
        if self.on_read is not None:
            self.on_read()

    def hold(self, node_id: int, seconds: float) -> None:
        """Let nothing go to a node for a time: a throttle, or the back-off of its connection."""
        self._not_before[node_id] = self.clock.monotonic() + seconds

    async def lose(self, node_id: int | None = None) -> None:
        """Lose the connection to a node, that of the oldest request unless given, with what is in flight."""
        node_id = self.in_flight[0].node_id if node_id is None else node_id
        lost = [each for each in self.in_flight if each.node_id == node_id]
        self.in_flight = [each for each in self.in_flight if each.node_id != node_id]
        self.connected.discard(node_id)
        for sent in lost:
            if not sent.future.done():
                sent.future.set_exception(BrokerConnectionError("gone"))
                if sent.on_response is not None:
                    asyncio.get_running_loop().call_soon(sent.on_response, sent.future)
        await asyncio.sleep(0)
        if self.on_read is not None:
            self.on_read()

    def _find(self, request_class: type[Message], node_id: int) -> Sent:
        for sent in self.in_flight:
            if isinstance(sent.request, request_class) and node_id in (NO_NODE, sent.node_id):
                return sent
        in_flight = [(each.node_id, type(each.request).__name__) for each in self.in_flight]
        raise AssertionError(f"no {request_class.__name__} is in flight, only {in_flight}")

    def _count_update(self) -> None:
        self.update_count += 1
