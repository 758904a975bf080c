"""Keeps one client's connection to one address: opens it when needed, waits between attempts that fail.

It chooses no broker and repeats no request. Only one attempt to connect runs at a time, however many callers
wait for it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.errors import BrokerConnectionError, ClientError, RequestTimedOutError, TlsError
from kalda.clients.metrics.network_metrics import ConnectionMetrics
from kalda.common.backoff import ExponentialBackoff, Pacer
from kalda.net.client.api_versions import NodeApiVersions
from kalda.net.client.broker_connection import BrokerConnection, OnResponse
from kalda.protocol.schema import Message
from kalda.runtime.network import address_text
from kalda.runtime.runtime import Runtime
from kalda.runtime.system.loop_logger import loop_logger
from kalda.runtime.system.runtime import client_runtime

logger: Final = loop_logger(__name__)


_SHORT_SESSION_SECONDS: Final = 1.0
_RENEWALS_FREE: Final = 10
"""Logins in a row for sessions that end within a second; further ones wait for a back-off."""


class NodeConnection:
    """The connection to one address.

    Args:
        host, port: The address.
        config: The settings of connections.
        on_failure: Called when an attempt to connect fails or an open connection is lost: the metadata may be
            out of date.
        metrics: Counts connections, requests and responses; None leaves that out.
        on_read: Called when the responses that arrived together were delivered, in the same turn of the loop.
    """

    def __init__(
        self,
        host: str,
        port: int,
        config: CommonClientConfig,
        on_failure: Callable[[], object],
        metrics: ConnectionMetrics | None = None,
        on_read: Callable[[], None] | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self._runtime: Final = client_runtime() if runtime is None else runtime
        uniform = self._runtime.random.uniform
        self.address: Final = (host, port)
        self.peer: Final = address_text(host, port)
        self._config: Final = config
        self._on_failure: Final = on_failure
        self._on_read: Final = on_read
        self.metrics = metrics
        """Counts connections, requests and responses; None leaves that out."""
        self._counted_bytes = 0
        """Bytes received over the open connection that the metrics have."""
        self._backoff: Final = ExponentialBackoff(
            config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, uniform
        )
        self._renewals: Final = Pacer(self._backoff, _RENEWALS_FREE)
        self._setup_timeout: Final = ExponentialBackoff(
            config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms, uniform
        )
        self._connection: BrokerConnection | None = None
        self._connecting: asyncio.Task[BrokerConnection] | None = None
        self._renewing: asyncio.Task[None] | None = None
        """Logs in again over the open connection, which takes no other request meanwhile."""
        self._failures = 0
        """Failures since the last response: a broker that accepts connections and closes them is one that
        fails."""
        self._asks_for_tls = True
        """Whether to find out if a listener that ends plaintext connections speaks TLS."""
        self._not_before = 0.0
        """The loop's time before which nothing is sent: back-off, or the throttle of a response (KIP-219)."""
        self._is_closed = False
        self._closed: Final = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether a request can be sent now."""
        self._maybe_renew_login()
        return self._connection is not None and self._renewing is None and self.delay() <= 0

    @property
    def versions(self) -> NodeApiVersions:
        """The versions of the broker; the connection must be open."""
        assert self._connection is not None, f"no connection to {self.peer}"
        return self._connection.versions

    @property
    def in_flight_count(self) -> int:
        """Requests whose responses have not arrived."""
        return 0 if self._connection is None else self._connection.in_flight_count

    def delay(self) -> float:
        """Return the seconds until a request may be sent or a connection may be tried; 0 or less for now."""
        return max(0.0, self._not_before - asyncio.get_running_loop().time()) if self._not_before else 0.0

    async def ready(self, deadline: float) -> NodeApiVersions:
        """Wait until a request can be sent, connecting where needed, before `deadline` (the loop's time).

        Raises:
            BrokerConnectionError: the attempt to connect failed, or the client was closed meanwhile.
            RequestTimedOutError: the time is up.
        """
        try:
            async with asyncio.timeout_at(deadline):
                while not self.is_ready:
                    if self._is_closed:
                        raise BrokerConnectionError(
                            f"the connection to {self.peer} was closed by this client"
                        )
                    wait = self.delay()
                    if wait > 0:
                        await self._sleep(wait)
                    elif self._renewing is not None:
                        await asyncio.wait((self._renewing,))
                    elif self._connection is None:
                        await self._wait_connected()
        except TimeoutError:
            raise RequestTimedOutError(f"no connection to {self.peer} in time") from None
        return self.versions

    def send(
        self,
        request: Message,
        version: int,
        timeout_seconds: float,
        on_response: OnResponse | None = None,
    ) -> "asyncio.Future[Message]":
        """Send a request over the open connection; see `BrokerConnection.send`."""
        connection = self._connection
        if connection is None:
            raise BrokerConnectionError(f"the connection to {self.peer} is closed")
        metrics = self.metrics
        sent_before, sent_at = connection.bytes_sent, 0.0

        def responded(future: "asyncio.Future[Message]") -> None:
            if not future.cancelled() and future.exception() is None:
                if metrics is not None:
                    self._count_response(connection, sent_at)
                self._heed_throttle(future.result())
                self._failures = 0
            if on_response is not None:
                on_response(future)

        future = connection.send(request, version, timeout_seconds, responded)
        if metrics is not None:
            sent_at = metrics.request_sent(connection.bytes_sent - sent_before)
        return future

    def hold_writes(self) -> None:
        """Keep requests back until `write_held`; see `BrokerConnection.hold_writes`."""
        if self._connection is not None:
            self._connection.hold_writes()

    def write_held(self) -> None:
        """Write the requests that were kept back."""
        if self._connection is not None:
            self._connection.write_held()

    def close(self) -> None:
        """Close the connection and give up an attempt to connect; callers of `ready` get an error."""
        self._is_closed = True
        self._closed.set()
        for task in (self._connecting, self._renewing):
            if task is not None:
                task.cancel()
        if self._connection is not None:
            self._connection.close()

    async def wait_closed(self) -> None:
        """Wait until the attempt to connect, or to log in again, that `close` gave up has ended."""
        tasks = [task for task in (self._connecting, self._renewing) if task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def close_if_idle(self, idle_seconds: float) -> None:
        """Close the connection when nothing is in flight and it was not used for `idle_seconds`."""
        connection = self._connection
        if connection is None or connection.in_flight_count or self._renewing is not None:
            return
        if asyncio.get_running_loop().time() - connection.last_used < idle_seconds:
            return
        # Not a failure: no back-off before the next attempt.
        self._connection = None
        connection.close()
        if self.metrics is not None:
            self.metrics.connection_closed()

    def _maybe_renew_login(self) -> None:
        """Begin to log in again if the session ends soon."""
        connection = self._connection
        if connection is None or connection.renew_at is None or self._renewing is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= connection.renew_at:
            self._renewing = loop.create_task(
                self._renew_login(connection), name=f"log in again at {self.peer}"
            )

    async def _renew_login(self, connection: BrokerConnection) -> None:
        try:
            await connection.renew_login(self._config.request_timeout_ms / 1000)
            self._pace_renewals(connection)
        except ClientError as error:
            # Nothing is in flight. The next request opens another connection, and gets its error.
            connection.close(error)
        except BaseException:
            connection.close()
            raise
        finally:
            self._renewing = None

    def _pace_renewals(self, connection: BrokerConnection) -> None:
        """Put the next renewal off if the broker offers one very short session after the other."""
        if connection.renew_at is None:
            return
        now = asyncio.get_running_loop().time()
        if connection.renew_at - now >= _SHORT_SESSION_SECONDS:
            self._renewals.reset()
        else:
            connection.renew_at = max(connection.renew_at, now + self._renewals.seconds())

    async def _sleep(self, seconds: float) -> None:
        """Sleep until the time is up or the connection is closed for good."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()

    async def _wait_connected(self) -> None:
        # Not awaited itself: a caller that gives up must not cancel the attempt of the others.
        connecting = self._connect()
        await asyncio.wait((connecting,))
        if not connecting.cancelled() and (failure := connecting.exception()) is not None:
            # Several callers may raise this object; each starts with a traceback of its own.
            raise failure.with_traceback(None)

    def _count_response(self, connection: BrokerConnection, sent_at: float) -> None:
        if self.metrics is None:
            return
        # Responses that arrive together are counted with the first: their sum is right.
        received = connection.bytes_received - self._counted_bytes
        self._counted_bytes = connection.bytes_received
        self.metrics.response_received(max(received, 0), sent_at)

    def _connect(self) -> "asyncio.Task[BrokerConnection]":
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(
                self._open(), name=f"connect to {self.peer}"
            )
            self._connecting.add_done_callback(self._on_connected)
        return self._connecting

    async def _open(self) -> BrokerConnection:
        config = self._config
        return await BrokerConnection.open(
            *self.address,
            client_id=config.client_id,
            timeout_seconds=self._setup_timeout.seconds(self._failures + 1),
            send_buffer_bytes=config.send_buffer_bytes,
            receive_buffer_bytes=config.receive_buffer_bytes,
            tls=config.tls,
            login=config.login,
            on_closed=self._on_closed,
            on_read=self._on_read,
            # A listener that does not speak TLS is asked once, not with every attempt.
            finds_tls=self._asks_for_tls,
            network=self._runtime.network,
        )

    def _on_connected(self, task: "asyncio.Task[BrokerConnection]") -> None:
        self._connecting = None
        if task.cancelled():
            return
        failure = task.exception() or task.result().failure
        if failure is not None:
            self._failed(failure)
        elif self._is_closed:
            task.result().close()
        else:
            if self._failures:
                logger.info("Connected to broker %s after %d failures.", self.peer, self._failures)
            self._not_before = 0.0
            self._connection = task.result()
            self._counted_bytes = self._connection.bytes_received
            if self.metrics is not None:
                self.metrics.connection_created()

    def _on_closed(self, connection: BrokerConnection) -> None:
        if self._connection is connection:
            self._connection = None
            if self.metrics is not None:
                self.metrics.connection_closed()
            self._failed(connection.failure)

    def _failed(self, failure: BaseException | None) -> None:
        if self._is_closed:
            return
        self._failures += 1
        self._asks_for_tls = isinstance(failure, TlsError)
        if self._failures == 1:
            logger.info("No connection to broker %s: %s; retrying with back-off.", self.peer, failure)
        self._not_before = asyncio.get_running_loop().time() + self._backoff.seconds(self._failures)
        self._on_failure()

    def _heed_throttle(self, response: Message) -> None:
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            until = asyncio.get_running_loop().time() + throttle_ms / 1000
            self._not_before = max(self._not_before, until)
