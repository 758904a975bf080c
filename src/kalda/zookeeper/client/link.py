"""Keeps one session connected: to one server, and when that connection breaks, to the next.

A `Link` serves one session only. When the session is over the link ends, and its owner makes a new one, so
that a call of one session never runs in the next.
"""

import asyncio
import logging
from typing import Final, Protocol

from kalda.common.backoff import ExponentialBackoff
from kalda.net.client.client_errors import TlsError
from kalda.net.client.stream import StreamSocket
from kalda.net.client.stream_connection import StreamConnection
from kalda.runtime.error_text import error_text
from kalda.runtime.network import address_text
from kalda.zookeeper.client.calls import Call
from kalda.zookeeper.client.servers import Servers
from kalda.zookeeper.client.session_stream import (
    LoginRefusedError,
    Session,
    SessionOverError,
    SessionStream,
)
from kalda.zookeeper.errors import SessionExpiredError
from kalda.zookeeper.port import EventType
from kalda.zookeeper.protocol.jute import JuteError, Reader

_RECONNECT_MS: Final = 50
RECONNECT_MAX_MS: Final = 1_000
"""The longest pause between rounds over the servers: one that is back is found within a second."""

_STABLE_SECONDS: Final = 1.0
"""A connection that ends sooner counts as a failure: its server takes sessions and then breaks them off."""

_READ_BYTES: Final = 64 * 1024

_SUSPICION_SECONDS: Final = 0.25
"""Time between the first and the second look at a server that is silent for too long."""

logger: Final = logging.getLogger(__name__)


class LinkOwner(Protocol):
    """The receiver of a link's events, in the order in which the server sent them."""

    def on_connected(self, link: "Link") -> None:
        """Handle a new session, or the reconnect of a session."""
        ...

    def on_suspended(self, link: "Link") -> None:
        """Handle a lost connection: calls without an answer get none."""
        ...

    def on_login_refused(self, link: "Link", reason: str) -> None:
        """Handle a refused login; the link goes on with the next server."""
        ...

    def on_expired(self, link: "Link") -> None:
        """Handle the expiry of the session; the link has ended."""
        ...

    def on_closed(self, link: "Link", *, is_clean: bool) -> None:
        """Handle the end after `close`; `is_clean`: the server confirmed the session's end."""
        ...

    def on_event(self, link: "Link", event_type: EventType, path: str) -> None:
        """Handle a watch event."""
        ...

    def on_answer(self, link: "Link", call: Call, code: int, reader: Reader) -> None:
        """Handle the response to a call."""
        ...


class Link:
    """One session, over one connection after the other."""

    def __init__(self, owner: LinkOwner, servers: Servers) -> None:
        self._owner: Final = owner
        self._servers: Final = servers
        self._loop: Final = asyncio.get_running_loop()
        self.session: Final = Session(servers.session_timeout_ms)
        self.last_failure = "no connection was tried yet"
        """Why the last connection could not be opened, or broke."""
        self._task: asyncio.Task[None] | None = None
        self._connection: _Connection | None = None
        self._is_closing = False
        self._is_over = False

    def start(self, pause_s: float = 0.0) -> None:
        """Start connecting after a pause; returns at once."""
        self._task = self._loop.create_task(self._run(pause_s), name="keep a ZooKeeper session connected")

    def send(self, call: Call) -> None:
        """Send a call; the owner does so while the session is connected only."""
        assert self._connection is not None, "calls are sent while the session is connected"
        self._connection.send(call)

    def close(self) -> None:
        """Close the session; the owner gets `on_closed`."""
        self._is_closing = True
        if self._connection is None or not self._connection.is_open:
            self._loop.call_soon(self._finish, False)
        else:
            self._connection.end_session()

    def drop(self) -> None:
        """Close the connection, as if it had broken; the session goes on with a new one."""
        if self._connection is not None:
            self._connection.fail(ConnectionAbortedError("the connection was dropped"))

    def abandon(self) -> None:
        """Close the connection, make no other, and leave the session to expire. The owner is not called."""
        self._is_over = True
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        if self._connection is not None:
            self._connection.close()

    # Connecting.

    async def _run(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        backoff = ExponentialBackoff(_RECONNECT_MS, RECONNECT_MAX_MS, self._servers.random.uniform)
        failures = 0
        while True:
            for host, port in self._servers.in_any_order():
                started = self._loop.time()
                if await self._serve(host, port) and self._loop.time() - started >= _STABLE_SECONDS:
                    failures = 0
                if self._is_over:
                    return
            failures += 1
            await asyncio.sleep(backoff.seconds(failures))

    async def _serve(self, host: str, port: int) -> bool:
        """Use a server until the connection ends; return whether it had opened the session."""
        address = address_text(host, port)
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(self._servers.timeout_seconds):
                stream = await self._servers.connect(host, port)
                connection = self._connection = _Connection(self, stream)
                await connection.opened
            await connection.ended
        except SessionOverError:
            self._note(address, "it says that the session is over")
            self._expire()
        except LoginRefusedError as error:
            reason = f"the SASL login of {self._servers.user} at {address} failed: {error}"
            self._note(address, reason)
            self._owner.on_login_refused(self, reason)
        except TimeoutError:
            self._note(address, "no answer in time")
        except (OSError, TlsError, JuteError) as error:
            self._note(address, error_text(error))
        finally:
            self._connection = None
            if connection is not None:
                connection.close()
        return connection is not None and self._lose(connection)

    def _note(self, address: str, reason: str) -> None:
        self.last_failure = f"{address}: {reason}"
        logger.debug("the connection to ZooKeeper at %s", self.last_failure)

    def _lose(self, connection: "_Connection") -> bool:
        """Report to the owner that an open connection is gone; return whether it had been open."""
        if not connection.was_open:
            return False
        if self._is_closing:
            self._finish(connection.is_session_closed)
        elif not self._is_over:
            self._owner.on_suspended(self)
        return True

    def _expire(self) -> None:
        if not self._is_over:
            self._is_over = True
            if self._is_closing:
                self._owner.on_closed(self, is_clean=True)
            else:
                self._owner.on_expired(self)

    def _finish(self, is_clean: bool) -> None:
        if not self._is_over:
            self.abandon()
            self._owner.on_closed(self, is_clean=is_clean)

    # The events of a connection.

    def on_open(self) -> None:
        """The session is open, or back."""
        if not self._is_over:
            self._owner.on_connected(self)

    def on_event(self, event_type: EventType, path: str) -> None:
        """Pass a watch event on."""
        if not self._is_over:
            self._owner.on_event(self, event_type, path)

    def on_answer(self, call: Call, code: int, reader: Reader) -> None:
        """Pass a response on."""
        if not self._is_over:
            self._owner.on_answer(self, call, code, reader)

    def new_stream(self, connection: "_Connection") -> SessionStream:
        """Return the protocol of a new connection."""
        return SessionStream(connection, self.session, self._servers.new_login())


class _Connection(StreamConnection):
    """One connection: moves bytes between the protocol and a stream, and sends heartbeats.

    `opened` and `ended` are futures: the second gets the reason as its exception.
    """

    def __init__(self, link: Link, stream: StreamSocket) -> None:
        buffer = self._buffer = memoryview(bytearray(_READ_BYTES))
        super().__init__(stream, asyncio.get_running_loop(), lambda: buffer)
        self._link: Final = link
        self._protocol: Final = link.new_stream(self)
        self.opened: Final[asyncio.Future[None]] = self._loop.create_future()
        self.ended: Final[asyncio.Future[None]] = self._loop.create_future()
        self.was_open = False
        self.is_session_closed = False
        self._out: list[bytes] = []
        """What this turn of the loop sends."""
        self._silence_max = 0.0
        self._received_at = self._sent_at = self._loop.time()
        self._is_suspect = False
        self._timer: asyncio.TimerHandle | None = None
        self._send(self._protocol.connect())

    @property
    def is_open(self) -> bool:
        """Whether calls can be sent."""
        return self.was_open and not self.is_closed and not self.ended.done()

    def send(self, call: Call) -> None:
        """Send a call; several of one turn of the loop are sent together."""
        self._send(self._protocol.request(call))

    def end_session(self) -> None:
        """Close the session."""
        self._send(self._protocol.end())

    def fail(self, error: Exception) -> None:
        """End the connection for a reason."""
        waiting = self.ended if self.was_open else self.opened
        if not waiting.done():
            waiting.set_exception(error)
        self.close()

    def close(self) -> None:
        """Close the stream."""
        if self.is_closed:
            return
        self._close_stream()
        if self._timer is not None:
            self._timer.cancel()
        for future in (self.opened, self.ended):
            # A future with an exception that nobody awaits any more must not be logged.
            if not future.done():
                future.cancel()
            elif not future.cancelled():
                future.exception()

    # The protocol's owner.

    def on_open(self, timeout_ms: int) -> None:
        """Handle the beginning of the session's service."""
        self.was_open = True
        # As Java's client: a server that is silent for two thirds of the session time-out is left, so that a
        # third is there to find another one; a heartbeat asks it after one third.
        self._silence_max = timeout_ms / 1000 * 2 / 3
        self._check_silence()
        if not self.opened.done():
            self.opened.set_result(None)
        self._link.on_open()

    def on_answer(self, call: Call, code: int, reader: Reader) -> None:
        """Pass a response on."""
        self._link.on_answer(call, code, reader)
        if code == SessionExpiredError.code:
            # A new connection shows whether it has. The controller waits for that.
            self.fail(ConnectionAbortedError("the server says that the session has expired"))

    def on_event(self, event_type: EventType, path: str) -> None:
        """Pass a watch event on."""
        self._link.on_event(event_type, path)

    def on_closed(self) -> None:
        """Handle the confirmed end of the session."""
        self.is_session_closed = True
        self.fail(ConnectionAbortedError("the session is closed"))

    # The stream.

    def _received(self, count: int) -> None:
        self._received_at = self._loop.time()
        try:
            if answer := self._protocol.receive(bytes(self._buffer[:count])):
                self._send(answer)
        except (JuteError, SessionOverError, LoginRefusedError) as error:
            self.fail(error)
        except Exception as error:
            # A fault of the owner must not leave the session without a connection.
            logger.exception("handling a response of ZooKeeper failed")
            self.fail(ConnectionAbortedError(f"its response could not be handled: {error_text(error)}"))

    def _lost(self, error: OSError | None) -> None:
        self.fail(ConnectionAbortedError("the server closed the connection") if error is None else error)

    def _send(self, data: bytes) -> None:
        if not self._out and not self.is_closed:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if not self.is_closed:
            self._sent_at = self._loop.time()
            self._write(out, sum(map(len, out)))

    def _check_silence(self) -> None:
        now = self._loop.time()
        remaining = self._received_at + self._silence_max - now
        if remaining <= 0:
            # Looked at twice: if this process was stopped, the response may wait in the socket.
            if self._is_suspect:
                self.fail(
                    ConnectionAbortedError(f"the server said nothing for {now - self._received_at:.1f} s")
                )
                return
            self._is_suspect = True
            self._timer = self._loop.call_later(_SUSPICION_SECONDS, self._check_silence)
            return
        self._is_suspect = False
        idle = self._sent_at + self._silence_max / 2 - now
        if idle <= 0:
            self._send(self._protocol.ping())
            self._sent_at = now
            idle = self._silence_max / 2
        self._timer = self._loop.call_later(min(remaining, idle), self._check_silence)
