"""Sends requests to the brokers of a cluster over connections that it opens, keeps and replaces.

`NetworkClient` is the I/O of every client: one connection for each broker, and a second one for a broker that
coordinates a group or a transaction, because a JoinGroup may wait for minutes and responses come in order.
It holds no decisions of producers or consumers. One event loop owns it.

`send` sends a request at most once. The caller decides whether to send it again, because it knows whether a
broker may process the request twice.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.coordinator_lookup import CoordinatorLookup, CoordinatorType
from kalda.clients.errors import (
    BrokerConnectionError,
    ClientError,
    RequestTimedOutError,
    UnsupportedApiError,
)
from kalda.clients.first_contact import FirstContact
from kalda.clients.metadata import ClusterMetadata, Metadata
from kalda.clients.metadata_refresher import MetadataRefresher
from kalda.clients.metrics.network_metrics import ConnectionMetrics, NetworkMetrics
from kalda.clients.node_connection import NodeConnection
from kalda.clients.race import first_success
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.backoff import ExponentialBackoff
from kalda.net.client.api_versions import NodeApiVersions
from kalda.net.client.broker_connection import OnResponse
from kalda.protocol.protocol_errors import MessageError
from kalda.protocol.schema import Message
from kalda.runtime.clock import Clock
from kalda.runtime.runtime import Runtime
from kalda.runtime.system.runtime import client_runtime

R = TypeVar("R", bound=Message)
T = TypeVar("T")

COORDINATOR_ID_BASE: Final = 2**31 - 1
"""Node ids count down from here for coordinators' connections, the second to a broker, as in Java."""

HEDGE_SECONDS: Final = 0.5
"""How long `send_to_any` waits for one broker before it asks the next as well. A broker answers such requests
in milliseconds; one that is paused or cut off never answers, and `request.timeout.ms` is half a minute."""

CANDIDATES_MAX: Final = 500
"""Brokers that `send_to_any` may ask. Apache Kafka's clusters have fewer; to sort the 100,000 that a faulty
response lists holds the client's thread for seconds."""

NO_NODE: Final = -1
BOOTSTRAP_ID_BASE: Final = -2
"""The id of the first bootstrap server, from which ids count down: broker ids are not known there."""


def coordinator_node_id(broker_id: int) -> int:
    """Return the node id of the second connection to a broker."""
    return COORDINATOR_ID_BASE - broker_id


def broker_id_of(node_id: int) -> int:
    """Return the broker id that a node id stands for; below 0 for a bootstrap server."""
    return coordinator_node_id(node_id) if is_coordinator_node_id(node_id) else node_id


def is_coordinator_node_id(node_id: int) -> bool:
    """Whether a node id stands for the second connection to a broker."""
    return node_id > COORDINATOR_ID_BASE // 2


class NetworkClient:
    """Connections to the brokers of one cluster, and requests over them.

    Args:
        config: The settings of connections, time-outs and back-off.
        metadata: The metadata that this client keeps up to date.
        runtime: The clock of metadata, randomness and the network; None is this machine. Connections use the
            loop's time.
        metrics: Counts connections, requests and responses; None leaves that out.
    """

    def __init__(
        self,
        config: CommonClientConfig,
        metadata: Metadata,
        runtime: Runtime | None = None,
        metrics: NetworkMetrics | None = None,
    ) -> None:
        self.config: Final = config
        self.metadata: Final = metadata
        self.runtime: Final = client_runtime() if runtime is None else runtime
        self.clock: Final[Clock] = self.runtime.clock
        self.retry_backoff: Final = ExponentialBackoff(
            config.retry_backoff_ms, config.retry_backoff_max_ms, self.runtime.random.uniform
        )
        self._metrics: Final = metrics
        self._nodes: Final[dict[int, NodeConnection]] = {}
        self._bootstrap = config.bootstrap_addresses
        self._is_bootstrap_resolved = config.client_dns_lookup == "use_all_dns_ips"
        self._is_bootstrap_first = False
        self.on_read: Callable[[], None] | None = None
        """Called when the responses of a broker that arrived together were delivered, in the same turn of the
        loop: to act once for all of them."""
        metadata.on_update.append(self._on_metadata)
        self._is_closed = False
        self._refresher: Final = MetadataRefresher(self, config, metadata, self.runtime)
        self._coordinators: Final = CoordinatorLookup(self)
        self._first_contact: Final = FirstContact(config)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def start(self) -> None:
        """Start to keep the metadata up to date; needs the running loop."""
        self._refresher.start()

    async def close(self, timeout_s: float = 5.0) -> None:
        """Close the connections and end the tasks; requests in flight fail. Takes `timeout_s` at most."""
        self._is_closed = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._refresher.close()
        except TimeoutError:
            pass
        finally:
            nodes = list(self._nodes.values())
            self._nodes.clear()
            for node in nodes:
                node.close()
        for node in nodes:
            await node.wait_closed()

    async def send(
        self,
        node_id: int,
        request: Message | VersionedRequest,
        response_class: type[R],
        *,
        timeout_ms: int | None = None,
    ) -> R:
        """Send a request to a broker in the highest version that both know; return the response.

        Connects first where needed. The time-out, `request.timeout.ms` unless given, bounds all of it.

        Raises:
            BrokerConnectionError: the broker cannot be reached, or the connection was lost before the
                response; the broker may have processed the request.
            RequestTimedOutError: the time is up; the broker may have processed the request.
            UnsupportedApiError: the broker knows no version of the request that this client knows, or the
                version cannot carry a value of the request.
        """
        timeout_seconds = (self.config.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        node = self._node(node_id)
        versions = await node.ready(deadline)
        if isinstance(request, VersionedRequest):
            version = versions.latest(request.api_key, request.version_max, request.version_min)
            message = request.build(version)
        else:
            message = request
            api_key = message.SCHEMA.api_key
            assert api_key is not None, f"{message.SCHEMA.name} is not a request"
            version = versions.latest(api_key)
        try:
            responded = node.send(message, version, max(deadline - loop.time(), 0.001))
        except MessageError as error:
            raise UnsupportedApiError(f"nothing was sent to broker {node.peer}: {error}") from error
        response = await responded
        assert isinstance(response, response_class), f"a {type(response).__name__}"
        return response

    async def send_to_any(
        self, request: Message | VersionedRequest, response_class: type[R], *, timeout_ms: int | None = None
    ) -> R:
        """Send a request to the broker with the fewest requests in flight; others follow where one fails.

        A broker that does not answer within `HEDGE_SECONDS` is not waited for alone: the next one gets the
        request too, and the first response counts. Only for requests that brokers may process twice.

        Known brokers come first, then the bootstrap servers unless `metadata.recovery.strategy` is ``none``.

        Raises:
            BrokerConnectionError, RequestTimedOutError: no broker could be reached; the last failure.
            BootstrapError: no broker has ever answered, and `bootstrap.wait.ms` is over.
            UnsupportedApiError: as `send`.
        """
        await self._resolve_bootstrap()
        attempts = [
            functools.partial(self.send, node_id, request, response_class, timeout_ms=timeout_ms)
            for node_id in self.candidates()
        ]
        return await self._first_contact.attempt(
            first_success(
                attempts,
                next_after_seconds=HEDGE_SECONDS,
                passing=(BrokerConnectionError, RequestTimedOutError),
            )
        )

    async def ready(self, node_id: int, *, timeout_ms: int | None = None) -> NodeApiVersions:
        """Connect to a broker where needed; return the versions that it offers. Raises as `send`."""
        timeout_seconds = (self.config.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        return await self._node(node_id).ready(asyncio.get_running_loop().time() + timeout_seconds)

    def is_ready(self, node_id: int) -> bool:
        """Whether the connection is open and the broker did not ask for a pause (`throttle_time_ms`)."""
        node = self._nodes.get(node_id)
        return node is not None and node.is_ready

    def versions(self, node_id: int) -> NodeApiVersions:
        """Return the versions of a broker whose connection is open."""
        return self._nodes[node_id].versions

    def in_flight_count(self, node_id: int) -> int:
        """Return how many requests wait for responses of a broker."""
        node = self._nodes.get(node_id)
        return 0 if node is None else node.in_flight_count

    def connection_delay(self, node_id: int) -> float:
        """Return the seconds until a request may go to a broker: a failure's back-off, or a throttle."""
        node = self._nodes.get(node_id)
        return 0.0 if node is None else node.delay()

    def send_nowait(
        self,
        node_id: int,
        request: Message,
        version: int,
        timeout_ms: int,
        on_response: OnResponse | None = None,
    ) -> "asyncio.Future[Message]":
        """Send a request to a broker that `is_ready`; return the future of the response.

        `on_response` gets the future as `BrokerConnection.send` describes: without a further turn of the
        loop, which counts for what a user waits for.

        The future fails as `send` does. A request without a response succeeds with itself as the result.

        Raises:
            BrokerConnectionError: the connection was closed meanwhile; nothing was sent.
        """
        return self._node(node_id).send(request, version, timeout_ms / 1000, on_response)

    def hold_writes(self, node_id: int) -> None:
        """Keep requests to a broker back until `write_held`; see `BrokerConnection.hold_writes`."""
        self._nodes[node_id].hold_writes()

    def write_held(self, node_id: int) -> None:
        """Write the requests to a broker that were kept back."""
        node = self._nodes.get(node_id)
        if node is not None:
            node.write_held()

    def candidates(self) -> list[int]:
        """Return the nodes that could take a request for any broker: best first, bootstrap servers last.

        Open connections with few requests in flight come before the others. Of more than `CANDIDATES_MAX`
        brokers, those with a connection and some others are returned.
        """
        brokers = self.metadata.snapshot.brokers
        known = list(brokers)
        if len(known) > CANDIDATES_MAX:
            connected = [node_id for node_id in self._nodes if node_id in brokers]
            sample = self.runtime.random.sample(known, CANDIDATES_MAX)
            known = list(dict.fromkeys((*connected, *sample)))[:CANDIDATES_MAX]
        bootstrap = [BOOTSTRAP_ID_BASE - index for index in range(len(self._bootstrap))]
        # Sorting is stable: among equals the order is random, so that not all clients ask the same broker.
        self.runtime.random.shuffle(known)
        self.runtime.random.shuffle(bootstrap)
        known.sort(key=self._preference)
        bootstrap.sort(key=self._preference)
        if not known:
            return bootstrap
        if self.config.metadata_recovery_strategy == "none":
            return known
        return bootstrap + known if self._is_bootstrap_first else known + bootstrap

    async def coordinator(self, key: str, kind: CoordinatorType) -> int:
        """Return the node id of a group's or transactional id's coordinator; ask a broker if it is unknown.

        One attempt. The id stands for a connection of its own to that broker.

        Raises:
            BrokerResponseError: there is none now (retriable), or the client may not use the key.
            BrokerConnectionError, RequestTimedOutError, UnsupportedApiError: as `send_to_any`.
        """
        return await self._coordinators.find(key, kind)

    async def coordinators(self, keys: Iterable[str], kind: CoordinatorType) -> dict[str, int | ClientError]:
        """Return each key's coordinator, or the error in its place; raises as `coordinator`."""
        return await self._coordinators.find_all(keys, kind)

    def forget_coordinator(self, key: str, kind: CoordinatorType) -> None:
        """Ask for the coordinator again before its next use."""
        self._coordinators.forget(key, kind)

    def coordinator_found(self, broker_id: int, host: str, port: int) -> int:
        """Take a coordinator's address, which metadata may not have yet; return the node id to send to."""
        node_id = coordinator_node_id(broker_id)
        node = self._nodes.get(node_id)
        if node is not None and node.address != (host, port):
            node.close()
            del self._nodes[node_id]
            node = None
        if node is None:
            self._nodes[node_id] = self._new_node(node_id, host, port)
        return node_id

    def nearest_topic(self, topic: str) -> str:
        """Return ``; did you mean `orders`?`` for a topic that does not exist, or the empty text."""
        return self._refresher.missing_topics.hint(topic)

    @property
    def last_failure(self) -> ClientError | None:
        """Why no broker has answered since the last metadata; None while brokers answer."""
        return self._refresher.last_failure

    async def refresh_metadata(self, *, timeout_ms: int) -> ClusterMetadata:
        """Wait for metadata that a broker sent after this call.

        Raises:
            RequestTimedOutError: none came in time; chained to the last failure.
        """
        return await self._refresher.refresh(timeout_ms / 1000)

    async def retry(self, what: str, attempt: Callable[[], Awaitable[T]], *, timeout_ms: int) -> T:
        """Run `attempt` until it succeeds, fails for good, or the time is up.

        Retriable failures are repeated with back-off and jitter.

        Raises:
            RequestTimedOutError: the time is up; chained to the last failure.
            ClientError: what `attempt` raised that another attempt would not change.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        failures = 0
        last: ClientError | None = None
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await attempt()
            except TimeoutError:
                # An attempt that waited for metadata has no failure of its own.
                last = last or self.last_failure
            except ClientError as error:
                if not error.is_retriable or self._is_closed:
                    raise
                last = error
            failures += 1
            wait = self.retry_backoff.seconds(failures)
            if loop.time() + wait >= deadline:
                raise RequestTimedOutError(
                    f"{what}: gave up after {timeout_ms} ms" + ("" if last is None else f"; last: {last}")
                ) from last
            await asyncio.sleep(wait)

    def close_idle(self) -> None:
        """Close the connections that were not used for `connections.max.idle.ms`."""
        idle_ms = self.config.connections_max_idle_ms
        if idle_ms >= 0:
            for node in self._nodes.values():
                node.close_if_idle(idle_ms / 1000)

    def rebootstrap(self) -> None:
        """Ask the bootstrap servers first, until a broker has answered with metadata (KIP-1102)."""
        if self.config.metadata_recovery_strategy != "none":
            self._is_bootstrap_first = True

    def _on_metadata(self, _: ClusterMetadata) -> None:
        self._is_bootstrap_first = False

    async def _resolve_bootstrap(self) -> None:
        """Replace bootstrap names by the canonical names of their addresses where the settings say so.

        A name that cannot be resolved now is looked up again by the next call.
        """
        if self._is_bootstrap_resolved:
            return
        resolved: list[tuple[str, int]] = []
        has_failed = False
        for host, port in self.config.bootstrap_addresses:
            try:
                async with asyncio.timeout(self.config.socket_connection_setup_timeout_ms / 1000):
                    resolved += await self.runtime.network.canonical_addresses(host, port)
            except OSError:  # a time-out is one
                has_failed = True
                resolved.append((host, port))
        self._bootstrap = tuple(dict.fromkeys(resolved))
        self._is_bootstrap_resolved = not has_failed

    def _preference(self, node_id: int) -> tuple[bool, float, int]:
        return (
            not self.is_ready(node_id),
            self.connection_delay(node_id),
            self.in_flight_count(node_id),
        )

    def _node(self, node_id: int) -> NodeConnection:
        """Return the connection of a node, made for its present address."""
        if self._is_closed:
            raise BrokerConnectionError("this client is closed")
        address = self._address(node_id)
        node = self._nodes.get(node_id)
        if node is not None and (address is None or node.address == address):
            return node
        if address is None:
            raise BrokerConnectionError(f"broker {node_id} is not in the cluster's metadata")
        if node is not None:
            node.close()
        node = self._nodes[node_id] = self._adopt_bootstrap(node_id, address) or self._new_node(
            node_id, *address
        )
        return node

    def _adopt_bootstrap(self, node_id: int, address: tuple[str, int]) -> NodeConnection | None:
        """Take over the connection to a bootstrap server that turned out to be this broker."""
        if node_id <= BOOTSTRAP_ID_BASE or is_coordinator_node_id(node_id):
            return None
        for index, bootstrap_address in enumerate(self._bootstrap):
            if bootstrap_address == address:
                node = self._nodes.pop(BOOTSTRAP_ID_BASE - index, None)
                if node is not None:
                    node.metrics = self._node_metrics(node_id)
                return node
        return None

    def _new_node(self, node_id: int, host: str, port: int) -> NodeConnection:
        return NodeConnection(
            host,
            port,
            self.config,
            self.metadata.request_update,
            self._node_metrics(node_id),
            self._after_read,
            self.runtime,
        )

    def _after_read(self) -> None:
        if self.on_read is not None:
            self.on_read()

    def _node_metrics(self, node_id: int) -> ConnectionMetrics | None:
        return None if self._metrics is None else self._metrics.node(node_id)

    def _address(self, node_id: int) -> tuple[str, int] | None:
        """Return where a node is now; None where the metadata does not have it."""
        if node_id <= BOOTSTRAP_ID_BASE:
            return self._bootstrap[BOOTSTRAP_ID_BASE - node_id]
        brokers = self.metadata.snapshot.brokers
        broker = brokers.get(node_id) or brokers.get(COORDINATOR_ID_BASE - node_id)
        return None if broker is None else (broker.host, broker.port)
