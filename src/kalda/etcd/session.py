"""Keeps the session of an etcd client over one connection after the other.

One task keeps the session. Over each connection it runs three others: the stream of changes, the keep-alives
of the lease, and the requests. If one of them fails, the connection is given up and the next server's turn
comes. The session is over when its lease is.
"""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from kalda.common.backoff import ExponentialBackoff
from kalda.etcd import messages
from kalda.etcd.address import EtcdAddress
from kalda.etcd.batch import Call
from kalda.etcd.changes import Changes
from kalda.etcd.fence import Fence
from kalda.etcd.keys import Keys
from kalda.etcd.link import (
    CompactedError,
    EtcdLink,
    LeaseGoneError,
    LinkLostError,
    LoginRefusedError,
    OpenLink,
    RefusedError,
)
from kalda.etcd.messages import WatchResponse
from kalda.etcd.protobuf import ProtobufError
from kalda.etcd.requests import Requests
from kalda.runtime.error_text import error_text
from kalda.runtime.random import Random
from kalda.zookeeper.call_group import CallGroup
from kalda.zookeeper.errors import AuthFailedError, ConnectionLossError, SessionExpiredError
from kalda.zookeeper.port import SessionState, StateListener

_CLOSE_SECONDS_MAX: Final = 5.0
_END_SESSION_SECONDS_MAX: Final = 5.0
_RECONNECT_BACKOFF_MS: Final = (20, 1_000)
_REQUEST_SECONDS: Final = (1.0, 5.0)
"""Bounds for how long a request may take; it is a sixth of the session's time-out."""

logger: Final = logging.getLogger(__name__)


class Session:
    """The session of a client, and a new one when it expires."""

    def __init__(
        self, name: str, address: EtcdAddress, *, timeout_ms: int, open_link: OpenLink, random: Random
    ) -> None:
        """`name` is the address as it was given."""
        low, high = _REQUEST_SECONDS
        self._name: Final = name
        self._endpoints: Final = random.sample(address.endpoints, len(address.endpoints))
        self._open_link: Final = open_link
        self._timeout_ms: Final = timeout_ms
        self._request_seconds: Final = min(max(timeout_ms / 6000, low), high)
        self._backoff: Final = ExponentialBackoff(*_RECONNECT_BACKOFF_MS, random.uniform)
        self._loop: Final = asyncio.get_running_loop()
        self.keys: Final = Keys(address.prefix)
        self._fence: Final = Fence(self.keys)
        self.changes: Final = Changes(self.keys, self._fence, self._request_seconds)
        self.requests: Final = Requests(self.keys, self._fence, self.changes, self._unreachable)
        self.state = SessionState.SUSPENDED
        self._listeners: Final[list[StateListener]] = []
        self._ttl_seconds = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._opened: Final = asyncio.Event()
        self._login_failure = ""
        self._last_failure = "no answer"
        self._is_closing = False
        self._closed: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def id(self) -> int:
        """The session's id: that of its lease; 0 between two sessions."""
        return self._fence.lease

    def add_state_listener(self, listener: StateListener) -> None:
        """Register a callback for changes of the state."""
        self._listeners.append(listener)

    async def open(self, timeout_ms: int) -> None:
        """Open the session with one of the servers.

        Raises:
            ConnectionLossError: no server opened it in time; the message has the last failure.
            AuthFailedError: etcd refused the login.
        """
        self._task = asyncio.create_task(self._run(), name=f"etcd session at {self._name}")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._opened.wait()
            if self._login_failure:
                raise AuthFailedError(f"etcd://{self._name}: {self._login_failure}")
        except TimeoutError:
            await self._give_up()
            raise ConnectionLossError(
                f"no server of etcd://{self._name} took a session within {timeout_ms} ms "
                f"(`zookeeper.connection.timeout.ms`): {self._last_failure}"
            ) from None
        except BaseException:
            await self._give_up()
            raise

    async def submit(self, calls: Sequence[Call]) -> list[Any]:
        """Queue calls in order; return for each its result or its error."""
        if self._is_closing or self.state in (SessionState.EXPIRED, SessionState.CLOSED):
            raise self._over()
        group = CallGroup(len(calls))
        for index, call in enumerate(calls):
            call.group, call.index = group, index
        self.requests.add(calls)
        if self.state is not SessionState.CONNECTED:
            self._start_deadline()
        return await group.wait()

    async def end_other(self, session_id: int) -> None:
        """End the session of another process, in bounded time."""
        for endpoint in self._endpoints:
            connection = self._open_link(endpoint, self._request_seconds)
            try:
                async with asyncio.timeout(_END_SESSION_SECONDS_MAX):
                    await connection.log_in()
                    await connection.revoke(session_id)
                return
            except (LinkLostError, RefusedError, LoginRefusedError, TimeoutError) as error:
                logger.info("session %#x is left to expire: %s", session_id, error_text(error))
            finally:
                await connection.close()

    async def close(self) -> None:
        """End the session; earlier calls take effect first."""
        if self._task is None or self._closed.is_set():
            return
        self._is_closing = True
        self.requests.end()
        try:
            async with asyncio.timeout(min(self._timeout_ms / 1000, _CLOSE_SECONDS_MAX)):
                await self._closed.wait()
        except TimeoutError:
            logger.warning(
                "etcd did not confirm the end of session %#x; its ephemeral znodes stay until it expires",
                self.id,
            )
        await self._give_up()

    def abandon(self) -> None:
        """Drop the session without closing it, as a crash would; it is left to expire."""
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
        self._finish()

    async def _give_up(self) -> None:
        """Drop what is left of the session, and wait until its connection is closed."""
        task, self._task = self._task, None
        is_over = self._closed.is_set()
        self._is_closing = True
        self._finish()
        if task is not None:
            if not is_over:
                task.cancel()
            await asyncio.wait([task])

    def _finish(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._end(SessionState.CLOSED)

    # Connections.

    async def _run(self) -> None:
        """Keep the session over connections, until it is closed."""
        failures = turn = 0
        while not self._closed.is_set():
            endpoint = self._endpoints[turn % len(self._endpoints)]
            turn += 1
            was_connected = False
            connection = self._open_link(endpoint, self._request_seconds)
            try:
                await self._start(connection)
                was_connected = True
                failures = 0
                await self._serve(connection)
            except LeaseGoneError:
                if self._is_closing:
                    self._finish()
                else:
                    self._expire()
                    turn -= 1
            except LoginRefusedError as error:
                self._login_failure = str(error)
                logger.error("the connection to etcd failed, reconnecting: %s", self._login_failure)
                self._opened.set()
            except (LinkLostError, RefusedError, CompactedError, ProtobufError) as error:
                self.changes.is_compacted |= isinstance(error, CompactedError)
                self._last_failure = f"{endpoint}: {error_text(error)}"
                self._suspend()
            except Exception as error:
                # Whatever goes wrong with one connection, calls must not wait for ever.
                logger.exception("the connection to etcd at %s failed", endpoint)
                self._last_failure = f"{endpoint}: {error_text(error)}"
                self._suspend()
            finally:
                await connection.close()
            if not was_connected and not self._closed.is_set():
                failures += 1
                await asyncio.sleep(self._backoff.seconds(failures))

    async def _start(self, connection: EtcdLink) -> None:
        await connection.log_in()
        if self.id:
            await self.requests.settle(connection)
            logger.info("etcd session %#x is back: %s", self.id, connection.endpoint)
        else:
            await self._open(connection)

    async def _open(self, connection: EtcdLink) -> None:
        """Get a lease, and create the session's key and the root of the tree."""
        lease, self._ttl_seconds = await connection.grant(max(1, math.ceil(self._timeout_ms / 1000)))
        root = self.keys.znode("/")
        without_root = messages.txn(
            (messages.compare(messages.EQUAL, messages.CREATE, root, 0),), (messages.put_op(root, b""),)
        )
        fence = Fence(self.keys)
        fence.lease = lease
        response = await connection.txn(messages.txn((), (fence.put(), messages.txn_op(without_root))))
        self._fence.lease, self._fence.version = lease, 1
        self.changes.start(response.revision)
        logger.info("etcd session %#x is open: %s", lease, connection.endpoint)

    async def _serve(self, connection: EtcdLink) -> None:
        """Run the streams and the requests over one connection until one of them fails.

        Raises:
            LeaseGoneError, LinkLostError, CompactedError, RefusedError: what failed first.
        """
        stream = await self.changes.stream(connection)
        try:
            await self._run_all(connection, stream)
        finally:
            await stream.aclose()

    async def _run_all(self, connection: EtcdLink, stream: AsyncGenerator[WatchResponse]) -> None:
        interval = max(self._ttl_seconds / 6, 0.2)
        keep_alive = connection.keep_alive(self.id, interval, max(self._ttl_seconds / 3, 0.5))
        tasks = [
            asyncio.create_task(self.changes.report(stream), name="etcd changes"),
            asyncio.create_task(keep_alive, name="etcd keep-alives"),
        ]
        self._stop_deadline()
        self._change_state(SessionState.CONNECTED)
        self._opened.set()
        tasks.append(asyncio.create_task(self._send_requests(connection), name="etcd requests"))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        # An end of the session outweighs what followed from it.
        errors.sort(key=lambda each: not isinstance(each, LeaseGoneError))
        try:
            if errors:
                raise errors[0]
        finally:
            # Their tracebacks have this frame, which would keep them and the connection.
            del errors, outcomes, keep_alive
            tasks.clear()

    async def _send_requests(self, connection: EtcdLink) -> None:
        """Send requests, and end the session when it is closed."""
        await self.requests.run(connection)
        await connection.revoke(self.id)
        self._finish()

    # States.

    def _suspend(self) -> None:
        if self.state is SessionState.CONNECTED:
            logger.info("the connection to etcd is lost, session %#x: %s", self.id, self._last_failure)
            self._change_state(SessionState.SUSPENDED)
        if not self._closed.is_set():
            self._start_deadline()

    def _expire(self) -> None:
        logger.warning("etcd session %#x has expired; opening a new one", self.id)
        self._fence.lease = 0
        self._end(SessionState.EXPIRED)

    def _end(self, state: SessionState) -> None:
        self.changes.watches.clear()
        self.requests.fail_sent()
        waiting = self.requests.take_waiting()
        self._stop_deadline()
        for call in waiting:
            call.complete(self._over(state))
        self._change_state(state)

    def _change_state(self, state: SessionState) -> None:
        if state is self.state:
            return
        self.state = state
        for listener in list(self._listeners):
            try:
                listener(state)
            except Exception:
                # A listener must not raise, but the others must be called and the session must continue.
                logger.exception("a listener failed when the session became %s", state.value)

    def _start_deadline(self) -> None:
        if self._deadline is None and not self.requests.is_empty:
            self._deadline = self._loop.call_later(self._timeout_ms / 1000, self._on_deadline)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        """The session is likely over by now, but no server could be asked."""
        self._deadline = None
        self.requests.fail_sent()
        for call in self.requests.take_waiting():
            call.complete(self._unreachable(call.path, ""))

    # Errors.

    def _unreachable(self, path: str, when: str) -> ConnectionLossError:
        text = f"{path}: etcd ({self._name}) cannot be reached{when}: {self._last_failure}"
        return ConnectionLossError(text, path)

    def _over(self, state: SessionState | None = None) -> SessionExpiredError:
        how = "closed" if self._is_closing else (state or self.state).value
        return SessionExpiredError(f"session {self.id:#x} is {how}")
