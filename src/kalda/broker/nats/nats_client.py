"""Drives the connection of one NATS client: its bytes become operations, and its login takes time."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from kalda.broker.nats.mapped_subjects import MappedSubjects
from kalda.common.overriding import override
from kalda.nats.exchange import Exchange
from kalda.nats.parser import BEFORE_LOGIN, OF_CLIENTS, NatsProtocolError, Parser
from kalda.nats.session import Access, Login, Session, SessionLimits
from kalda.net.byte_connection import ByteSession
from kalda.net.connection import TURN_S, Connection

logger: Final = logging.getLogger(__name__)

WORK_PER_LOOK: Final = 64
"""Operations and steps of the exchange between two looks at the clock: a turn ends after `TURN_S`, so that
others, which are also Kafka's clients, get theirs. One message goes to all its subscribers in one turn."""

PENDING_CHECK_PARTS: Final = 16
"""Waiting bytes are counted after each of so many parts of the limit: a count looks at every piece."""


class ClientOwner(Protocol):
    """The port by which a client reaches the server of its listener."""

    def begin_login(self, client: "NatsClient", login: Login) -> None:
        """Check a login, and call `NatsClient.login_checked` later."""
        ...

    def client_gone(self, client: "NatsClient") -> None:
        """Note that the subscriptions of a client have ended."""
        ...

    def slow_consumer(self, client: "NatsClient") -> None:
        """Count a client that reads too slowly; it is disconnected."""
        ...


class NatsClient(ByteSession):
    """The client of one connection; an `Output` for its session."""

    def __init__(
        self,
        owner: ClientOwner,
        connection: Connection,
        exchange: Exchange,
        access: Access | None,
        limits: SessionLimits,
        *,
        payload_bytes_max: int,
        pending_bytes_max: int,
        mapped: MappedSubjects | None,
    ) -> None:
        self._owner: Final = owner
        self.connection: Final = connection
        self._loop: Final = asyncio.get_running_loop()
        self._now: Final[Callable[[], float]] = self._loop.time
        self._exchange: Final = exchange
        self.session: Final = Session(exchange, self, access, limits, self._now())
        self.session.store = self._mapped = mapped
        verbs = BEFORE_LOGIN if limits.needs_login else OF_CLIENTS
        self._parser: Final = Parser(verbs, payload_bytes_max)
        self._pending_bytes_max: Final = pending_bytes_max
        self._check_bytes: Final = pending_bytes_max // PENDING_CHECK_PARTS
        self._batch: Final[list[bytes]] = []
        """What leaves together when the loop's turn ends."""
        self._uncounted_bytes = 0
        """Bytes sent since the waiting ones were counted."""
        self._flushes_soon = False
        self._is_waiting = False
        """Whether the next operation waits: for the check of a login, or for this client's next turn."""
        self._has_ended = False

    # Called by the connection.

    @override
    def on_bytes(self, data: memoryview) -> None:
        if self._has_ended:
            return
        self._parser.receive(data)
        if not self._is_waiting:
            self._handle()
            self._flush()

    @override
    def on_closed(self) -> None:
        self.session.closed()
        self._owner.client_gone(self)
        # The session refers to this object, and the garbage collector comes late.
        self._parser.clear()
        self._batch.clear()

    # Called by the server.

    def login_checked(self, *, is_right: bool) -> None:
        """Continue with the client after its login."""
        if self.connection.is_closed:
            return
        if not is_right:
            self.session.refused()
            return
        self._parser.verbs = OF_CLIENTS
        self.session.logged_in()
        self._go_on()

    # Called by the session.

    def send(self, data: bytes) -> None:
        """Send bytes after all earlier ones; a client that leaves too many unread is disconnected."""
        if self._exchange.has_run:
            self._exchange.end_run()
        self._batch.append(data)
        self._uncounted_bytes += len(data)
        if self._uncounted_bytes > self._check_bytes:
            self._flush()
            self._check_pending()
        elif not self._flushes_soon:
            self._flushes_soon = True
            self._loop.call_soon(self._flush_planned)

    def queued_bytes(self) -> int:
        """Return how many bytes wait for the client."""
        return self.connection.queued_bytes() + sum(map(len, self._batch))

    def close(self, reason: str) -> None:
        """End the connection when all was sent."""
        self._has_ended = True
        self._flush()
        self.connection.finish(reason, logging.INFO)

    # Internals.

    def _handle(self) -> None:
        """Handle received operations for one turn."""
        parser, session, connection = self._parser, self.session, self.connection
        exchange, mapped = self._exchange, self._mapped
        now = self._now()
        deadline = now + TURN_S
        look_at = exchange.work + WORK_PER_LOOK
        count = 0
        exchange.is_driven = True
        try:
            while not self._has_ended and not connection.is_closed:
                operation = parser.next()
                if operation is None:
                    return
                login = session.handle(operation, now)
                if login is not None:
                    self._wait()
                    self._owner.begin_login(self, login)
                    return
                if exchange.has_slices:
                    self._wait()
                    self._loop.call_soon(self._deliver_slice, exchange.take_slices())
                    return
                if mapped is not None and mapped.waits(operation, self._go_on_later):
                    self._wait()
                    return
                count += 1
                if count + exchange.work >= look_at:
                    if self._now() >= deadline:
                        self._wait()
                        self._loop.call_soon(self._go_on)
                        return
                    look_at = count + exchange.work + WORK_PER_LOOK
        except NatsProtocolError as error:
            session.fail(str(error))
        finally:
            exchange.end_run()
            exchange.is_driven = False

    def _deliver_slice(self, rest: Iterator[None]) -> None:
        """Deliver the next slice of a message with very many subscribers; the client's next message waits."""
        try:
            next(rest)
        except StopIteration:
            self._go_on()
        except Exception:
            logger.exception("delivering a message from %s failed; it is closed", self.connection.peer)
            self.connection.close("internal error", logging.DEBUG)
        else:
            self._loop.call_soon(self._deliver_slice, rest)

    def _wait(self) -> None:
        self._is_waiting = True
        self.connection.hold()

    def _go_on_later(self) -> None:
        self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_waiting = False
        try:
            self._handle()
        except Exception:
            logger.exception("handling an operation from %s failed; it is closed", self.connection.peer)
            self.connection.close("internal error", logging.DEBUG)
        self._flush()
        if not self._is_waiting:
            self.connection.release()

    def _flush_planned(self) -> None:
        self._flushes_soon = False
        self._flush()

    def _flush(self) -> None:
        if self._batch:
            self.connection.push(b"".join(self._batch) if len(self._batch) > 1 else self._batch[0])
            self._batch.clear()

    def _check_pending(self) -> None:
        self._uncounted_bytes = 0
        if not self.connection.is_closed and self.connection.queued_bytes() > self._pending_bytes_max:
            self._has_ended = True
            self._owner.slow_consumer(self)
