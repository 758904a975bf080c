"""Implements the server's side of a connection: keeps replies in order, and reading within the limits.

`Connection` is what frame handlers and sessions see: the client, the replies to it, the limits, and the end.
It owns the socket. `kalda.net.framed_connection` splits what arrives into frames; subclasses of it receive
and send: `SocketConnection` as it is, `TlsConnection` encrypted.

Requests of Kafka are handled in order of arrival and may finish in any order; replies leave in the order of
the requests:

    frames   A (a fetch that waits)   B (answered at once)   C (acks=0: no answer)
    tickets  [A]                      [A, B*]                [A, B*]
    A is answered: the peer gets A, then B.

A session that keeps an order of its own sends by `push` instead, at any time.

While output is pending (the peer does not read), no further frame is handled. Every limit on the memory of a
connection depends on this.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from kalda.common import invariants
from kalda.common.log_limiter import LogLimiter
from kalda.net.foreign_protocols import ForeignProtocol, recognise
from kalda.net.receive_buffers import SHARED_BUFFER_BYTES, ReceiveBuffers
from kalda.net.reply import Chunk, PieceSource, Ticket
from kalda.runtime.error_text import error_text
from kalda.runtime.network import Stream, readers_of
from kalda.security.principal import ANONYMOUS

FrameHandler: TypeAlias = "Callable[[Connection, memoryview], None]"
"""Called with each frame, without its size prefix. The view is writable and valid during the call only."""

UNKNOWN_SOFTWARE: Final = ("unknown", "unknown")
"""The software of clients that do not say what they are, in Kafka's words."""

REQUESTS_OUTSTANDING_MAX: Final = 100
"""Requests of one connection that wait for their answers. Kafka's broker takes one at a time; clients keep at
most 5 in flight for an ordered producer. Above it reading pauses, so a peer cannot fill the purgatory."""

TURN_S: Final = 0.002
"""Time after which a turn ends with the request at hand, for requests that cost more than the small ones: 64
Metadata requests for 500 partitions would take 50 ms."""

HELD_BYTES_MAX: Final = 1024 * 1024
"""Finished replies that wait behind an unfinished one. Above it reading pauses; one reply may overshoot."""

COALESCE_BYTES_MAX: Final = 64 * 1024
"""Replies to frames of one receive leave together up to this size: beyond, a larger send saves nothing."""

UNREAD_BYTES_MAX: Final = 128 * 1024 * 1024
"""Pushed bytes, views aside, above which a peer that does not read is disconnected: events cannot be refused.
Responses to outstanding requests stay below this, except lists of very many znodes."""

FINISH_SECONDS_MAX: Final = 5.0
"""How long a peer may take to read the last replies of a connection that ends."""


class ConnectionOwner(Protocol):
    """The port by which a connection reaches the server that accepted it."""

    buffers: ReceiveBuffers
    limiter: LogLimiter
    """Logs the lines that a peer can cause."""
    frame_bytes_max: int
    bytes_in: int
    bytes_out: int
    turn_ended: Callable[[], None] | None
    """Called, if it is set, when the requests that came together were handled and their responses written."""

    def peer_speaks(self, connection: "Connection", protocol: ForeignProtocol) -> None:
        """Log that a peer sent another protocol than Kafka's."""
        ...

    def connection_closed(self, connection: "Connection", reason: str, level: int) -> None:
        """Forget a connection that has just closed, and log why."""
        ...


class Session(Protocol):
    """Implements a protocol other than Kafka's on a connection."""

    def on_frame(self, connection: "Connection", frame: memoryview) -> None:
        """Handle a frame, as a `FrameHandler` does."""
        ...

    def on_unsized(self, size: int, start: memoryview) -> bool:
        """Take bytes, at least four, that begin with `size`, which is no size within the limit.

        Return whether they are complete; what the peer sends afterwards is not handled. False has them come
        again when there are more.
        """
        ...

    def on_closed(self) -> None:
        """Note that the connection has closed; nothing is called afterwards."""
        ...


class Connection:
    """Base of plaintext and encrypted connections, without receiving and sending."""

    __slots__ = (
        "__weakref__",
        "_blocked",
        "_closed",
        "_corked",
        "_descriptor",
        "_draining",
        "_ending",
        "_flushes_soon",
        "_handle",
        "_held_bytes",
        "_is_held",
        "_loop",
        "_mute_timer",
        "_muted_until",
        "_now",
        "_out",
        "_out_bytes",
        "_outstanding",
        "_owner",
        "_paused",
        "_readers",
        "_resumes_soon",
        "_sent_of_first",
        "_shared",
        "_stash",
        "_stops_turn",
        "_stream",
        "client_id",
        "client_id_bytes",
        "decisions",
        "due",
        "frame_bytes_max",
        "id",
        "last_active",
        "listener",
        "on_close",
        "peer",
        "peer_address",
        "peer_port",
        "principal",
        "received_at",
        "session",
        "software",
        "writable_names",
    )

    def __init__(
        self,
        owner: ConnectionOwner,
        handle: FrameHandler,
        connection_id: int,
        listener: str,
        peer: tuple[str, int],
        stream: Stream,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.id: Final = connection_id
        self.listener: Final = listener
        self.peer_address: Final = peer[0]
        self.peer_port: Final = peer[1]
        self.peer: Final = f"{peer[0]}:{peer[1]}"
        # The client id that came with the last request, decoded once: clients send the same one every time.
        self.client_id_bytes: bytes | None = None
        self.client_id: str | None = None
        self.frame_bytes_max = owner.frame_bytes_max
        """The largest frame that is taken."""
        self.principal = ANONYMOUS
        """The identity of the client, once it is known."""
        self.due: float | None = None
        """Monotonic seconds until which the client has to authenticate, or to open its session; None if it
        need not, or has."""
        self.session: Session | None = None
        """What handles the frames and all else that arrives; None in Kafka's protocol."""
        self.on_close: Callable[[], None] | None = None
        """Called once when the connection has closed; set by a request that leaves something behind."""
        self.software = UNKNOWN_SOFTWARE
        """The name and version of the client's software, once it has said it (KIP-511)."""
        self.decisions: Any = None
        """What an authorizer remembers of this client."""
        self.writable_names: Collection[bytes] = ()
        """The topics that `decisions` let the client write to."""
        self._now: Final = loop.time
        self.received_at = self.last_active = self._now()
        """Seconds of the loop: when the frame at hand could be read, and when bytes last moved either way."""
        self._owner = owner
        self._handle = handle
        self._stream: Final = stream
        self._descriptor: Final = stream.fileno()
        self._loop: Final = loop
        self._readers: Final = readers_of(loop)
        self._shared: Final = owner.buffers.shared
        self._outstanding: list[Ticket] = []
        self._held_bytes = 0
        self._is_held = False
        # Replies on their way: all of them memory or file regions that the peer gets in this order.
        self._out: list[Chunk] = []
        self._out_bytes = 0
        # Bytes of the first file region or source of `_out` that are gone; such a chunk stays in place.
        self._sent_of_first = 0
        # Replies of the frame at hand wait for the end of the receive, to leave together.
        self._corked = False
        # The transport could not send all of `_out` and will call back; no other code sends meanwhile.
        self._blocked = False
        self._paused = False
        # `_resume` is scheduled. No other code may handle the stash meanwhile, nor schedule it again: a busy
        # connection would get one more turn in each turn of the event loop.
        self._resumes_soon = False
        # What was pushed leaves when the loop's turn ends.
        self._flushes_soon = False
        self._draining = False
        # Why the connection closes when the peer has taken all of `_out`, and the level of the line about it.
        self._ending: tuple[str, int] | None = None
        self._closed = False
        # Unmutes the connection of a client that has to wait because of a quota.
        self._mute_timer: asyncio.TimerHandle | None = None
        self._muted_until = 0.0
        # Closed or muted: the frame at hand is the last of this turn.
        self._stops_turn = False
        # Received and not yet handled: less than a frame, or whole frames that a bound holds back.
        self._stash: bytes | None = None
        self._start_reading()

    @property
    def is_closed(self) -> bool:
        """Whether the connection is gone; replies to it are dropped."""
        return self._closed

    @property
    def is_quiet(self) -> bool:
        """Whether every request was answered and every reply was sent."""
        return not self._outstanding and not self._has_unsent()

    @property
    def is_waiting_for_broker(self) -> bool:
        """Whether the peer waits for the broker: a request is unanswered, and no reply waits to be sent."""
        return bool(self._outstanding) and not self._out

    @property
    def is_reading_paused(self) -> bool:
        """Whether a limit stops reading from the peer."""
        return self._paused

    @property
    def is_held_back(self) -> bool:
        """Whether the server does not read from the peer although the peer reads its replies."""
        return self._paused and not self._has_unsent()

    @property
    def outstanding_count(self) -> int:
        """How many requests wait for their answers."""
        return len(self._outstanding)

    def queued_bytes(self) -> int:
        """Return how many bytes of replies the peer has not taken, memory of others (views) aside."""
        return sum(len(chunk) for chunk in self._out if isinstance(chunk, (bytes, bytearray)))

    def send(self, reply: bytes | Sequence[Chunk]) -> None:
        """Answer the request at hand; only from within the frame handler, and without a ticket.

        `reply` is the complete frame, size prefix included. If earlier requests are unanswered it waits.
        """
        if self._closed:
            return
        if self._outstanding:
            self._hold(Ticket(), reply)
        elif type(reply) is bytes:
            self._out.append(reply)
            self._out_bytes += len(reply)
        else:
            self._queue(reply)

    def open_reply(self) -> Ticket:
        """Reserve the place of the reply to the request at hand; only from within the frame handler."""
        ticket = Ticket()
        if not self._closed:
            self._outstanding.append(ticket)
        return ticket

    def reply(self, ticket: Ticket, reply: bytes | Sequence[Chunk]) -> None:
        """Answer the request that `ticket` stands for: now, or once all earlier ones are answered.

        `reply` is the complete frame, size prefix included, or `NO_REPLY`. On a closed connection it does
        nothing: the peer is gone.
        """
        if self._closed:
            return
        outstanding = self._outstanding
        assert ticket.reply is None, "a ticket is answered once"
        if outstanding[0] is not ticket:
            ticket.reply = reply
            self._held_bytes += memory_bytes(reply)
            return
        ticket.reply = reply
        self.last_active = self._now()
        self._queue(reply)
        ready = 1
        while ready < len(outstanding):
            held = outstanding[ready].reply
            if held is None:
                break
            self._held_bytes -= memory_bytes(held)
            self._queue(held)
            ready += 1
        del outstanding[:ready]
        if not outstanding:
            self._is_held = False
        if invariants.enabled:
            self.check_invariants()
        if not self._corked:
            self._flush()
            if self._paused or self._stash is not None:
                # Not here: the caller may be in the middle of another connection's request.
                self._plan_resume()

    def push(self, data: bytes | memoryview) -> None:
        """Send something at any time, behind what was sent before; it leaves when the loop's turn ends."""
        if self._closed:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._corked and not self._flushes_soon:
            self._flushes_soon = True
            self._loop.call_soon(self._flush_planned)

    def hold_frames(self) -> None:
        """Handle no further frame until the request at hand is answered; only from within the frame handler.

        It is for a request that goes on later and must do so before the next one. Kafka's broker does this
        for all requests.
        """
        self._is_held = True

    def hold(self) -> None:
        """Handle no further frame until `release`."""
        self._is_held = self._stops_turn = True
        if not self._closed and not self._paused:
            self._pause()

    def release(self) -> None:
        """Handle further frames after `hold`, from the loop's next turn on."""
        if self._is_held and not self._closed:
            self._is_held = False
            self._stops_turn = self._mute_timer is not None
            self._plan_resume()

    def mute(self, seconds: float) -> None:
        """Handle no further frame for some time, from now on; answers to earlier ones still leave.

        The longer of two times counts.
        """
        if self._closed:
            return
        when = self._now() + seconds
        if self._mute_timer is not None:
            if self._muted_until >= when:
                return
            self._mute_timer.cancel()
        self._muted_until = when
        self._mute_timer = self._loop.call_later(seconds, self._unmute)
        self._stops_turn = True
        if not self._paused:
            self._pause()

    def handle_with(self, handle: FrameHandler) -> None:
        """Pass further frames to another handler, as when a client has logged in."""
        self._handle = handle

    def replace_handler(self, before: FrameHandler, handle: FrameHandler) -> None:
        """Pass further frames to another handler if they go to `before`."""
        if self._handle == before:
            self._handle = handle

    def begin(self, session: Session) -> None:
        """Pass everything that arrives to a session."""
        self.session = session
        self._handle = session.on_frame

    def keep(self, frame: memoryview) -> bytearray:
        """Return a copy of the frame at hand for `handle_kept`; only from within the frame handler.

        Frames that are kept must be handled in their order.
        """
        return bytearray(frame)

    def handle_kept(self, frame: memoryview) -> None:
        """Handle a frame that the frame handler kept aside; its reply is sent at once."""
        self._corked = True
        try:
            self._handle(self, frame)
        except Exception as error:
            self._handler_failed(error)
            return
        self._corked = False
        self._flush()

    def close(self, reason: str, level: int = logging.INFO) -> None:
        """End the connection at once; unanswered requests are abandoned. Closing twice is harmless.

        Answers to earlier requests of the same receive are still sent, as far as the peer takes them.
        """
        if self._closed:
            return
        self._flush()
        if self.is_closed:
            # Sending found the peer gone.
            return
        self._closed = self._stops_turn = True
        if self._mute_timer is not None:
            self._mute_timer.cancel()
            self._mute_timer = None
        self._disconnect()
        self._out.clear()
        self._stash = None
        abandoned, self._outstanding = self._outstanding, []
        self._owner.connection_closed(self, reason, level)
        if invariants.enabled:
            self.check_invariants()
        session, self.session = self.session, None
        if session is not None:
            # The session refers to the connection, and the garbage collector comes late.
            self._handle = drop_frame
            session.on_closed()
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()
        for ticket in abandoned:
            if ticket.reply is None and ticket.on_abandoned is not None:
                ticket.on_abandoned()

    def finish(self, reason: str, level: int = logging.INFO) -> None:
        """Handle no further frame, and close when the peer has taken all replies or `FINISH_SECONDS_MAX` are
        over."""
        if self._closed or self._ending is not None:
            return
        self._flush()
        if self.is_quiet:
            self.close(reason, level)
        if self.is_closed:
            return
        self._ending = (reason, level)
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        self._muted_until = math.inf
        self._mute_timer = self._loop.call_later(FINISH_SECONDS_MAX, partial(self.close, reason, level))
        self._stops_turn = True
        if not self._paused:
            self._pause()

    def close_foreign(self, start: memoryview) -> bool:
        """Close the connection, and log why, if it begins with another protocol; return whether it does."""
        protocol = recognise(start)
        if protocol is not None:
            self._owner.peer_speaks(self, protocol)
            self.close(f"the peer sent {protocol.value}", logging.DEBUG)
        return protocol is not None

    def drain(self) -> None:
        """Handle no further request; requests that were handled are still answered."""
        self._draining = True
        if not self._closed and not self._paused:
            self._pause()

    def check_invariants(self) -> None:
        """Assert the order of replies and the limits on what the connection holds."""
        outstanding = self._outstanding
        if self._closed:
            held = (len(outstanding), len(self._out), self._stash)
            assert held == (0, 0, None), f"{self.peer}: a closed connection holds {held}"
            return
        assert not outstanding or outstanding[0].reply is None, f"{self.peer}: the first reply is due"
        count = len(outstanding)
        assert count <= REQUESTS_OUTSTANDING_MAX, f"{self.peer}: {count} requests are unanswered"
        held_bytes = 0
        for each in outstanding:
            if each.reply is not None:
                held_bytes += memory_bytes(each.reply)
        assert held_bytes == self._held_bytes, f"{self.peer}: {self._held_bytes} instead of {held_bytes}"
        assert not self._blocked or self._has_unsent(), f"{self.peer}: nothing to send, and blocked"
        stashed = 0 if self._stash is None else len(self._stash)
        assert stashed <= SHARED_BUFFER_BYTES, f"{self.peer}: {stashed} bytes do not fit the shared buffer"

    # What a subclass provides.

    def _has_unsent(self) -> bool:
        """Return whether the peer has not taken all that was sent."""
        return bool(self._out)

    def _on_readable(self) -> None:
        """Receive, and handle what came; called by the event loop."""
        raise NotImplementedError

    def _received(self, data: memoryview, end: int) -> None:
        """Handle what ``data[:end]`` holds, and set the rest aside in `_stash`."""
        raise NotImplementedError

    def _transmit(self) -> None:
        """Send as much of `_out` as the peer takes; if `_blocked`, a callback will send the rest."""
        raise NotImplementedError

    def _handler_failed(self, error: Exception) -> None:
        self._owner.limiter.log(
            logging.ERROR,
            "handling a request from %s failed; its connection is closed",
            self.peer,
            source=self.peer_address,
            exc_info=error,
        )
        self.close("internal error", logging.DEBUG)

    # Bounds.

    def _may_handle(self) -> bool:
        return (
            not self._out
            and not self._is_held
            and self._mute_timer is None
            and len(self._outstanding) < REQUESTS_OUTSTANDING_MAX
            and self._held_bytes < HELD_BYTES_MAX
            and not self._draining
            and not self._closed
        )

    def _may_handle_flushed(self) -> bool:
        """Whether frames may be handled once that is sent which waits for the end of the loop's turn."""
        if not self._flushes_soon:
            return False
        self._flush()
        return self._may_handle()

    def _start_reading(self) -> None:
        self._readers.add_reader(self._descriptor, self._on_readable)

    def _pause(self) -> None:
        self._paused = True
        self._readers.remove_reader(self._descriptor)

    def _unmute(self) -> None:
        self._mute_timer = None
        self._stops_turn = self._closed or self._is_held
        self._resume()

    def _plan_resume(self) -> None:
        if not self._resumes_soon:
            self._resumes_soon = True
            self._loop.call_soon(self._resume_planned)

    def _resume_planned(self) -> None:
        self._resumes_soon = False
        self._resume()

    def _resume(self) -> None:
        """Handle the frames that a limit held back, then read again; called when a limit may no longer apply.

        Only ever called from the event loop, so that no request is handled in the middle of another.
        """
        if not self._may_handle():
            if self._ending is not None and self.is_quiet:
                self.close(*self._ending)
            return
        self.last_active = self._now()
        stash = self._stash
        if stash is not None:
            self._stash = None
            try:
                self._received(memoryview(bytearray(stash)), len(stash))
            except Exception as error:
                self._handler_failed(error)
            if not self._may_handle():
                return
        if self._paused:
            self._paused = False
            self._start_reading()

    # Sending.

    def _hold(self, ticket: Ticket, reply: bytes | Sequence[Chunk]) -> None:
        ticket.reply = reply
        self._held_bytes += memory_bytes(reply)
        self._outstanding.append(ticket)

    def _queue(self, reply: bytes | Sequence[Chunk]) -> None:
        if isinstance(reply, bytes):
            self._out.append(reply)
            self._out_bytes += len(reply)
        else:
            self._out.extend(reply)
            self._out_bytes += COALESCE_BYTES_MAX

    def _flush(self) -> None:
        if self._out and not self._blocked:
            self._transmit()

    def _flush_planned(self) -> None:
        self._flushes_soon = False
        self._flush()
        # Not each time: a peer that leaves much unread leaves many pieces.
        if self._out and self._out_bytes > UNREAD_BYTES_MAX // 16:
            self._out_bytes = 0
            unread = self.queued_bytes()
            if unread > UNREAD_BYTES_MAX:
                self.close(f"it leaves {unread} bytes unread", logging.WARNING)
        self._resume_if_waiting()

    def _on_writable(self) -> None:
        self._transmit()
        self.last_active = self._now()
        self._resume_if_waiting()

    def _resume_if_waiting(self) -> None:
        if not self._resumes_soon and (self._paused or self._stash is not None):
            self._resume()

    def _wait_until_writable(self) -> None:
        if not self._blocked and not self._closed:
            self._blocked = True
            self._loop.add_writer(self._descriptor, self._on_writable)

    def _wait_for(self, source: PieceSource) -> None:
        """Send no more until `source` has its next piece; a writable socket changes nothing about that."""

        def resume() -> None:
            if not self._closed:
                self._blocked = False
                self._on_writable()

        if self._blocked:
            self._loop.remove_writer(self._descriptor)
        self._blocked = True
        source.when_ready(resume)

    # Closing.

    def _disconnect(self) -> None:
        self._readers.remove_reader(self._descriptor)
        if self._blocked:
            self._loop.remove_writer(self._descriptor)
        self._stream.close()

    def _lost(self, error: Exception) -> None:
        # Nothing more can be sent, so `close` must not try.
        self._out.clear()
        reason = error_text(error) if isinstance(error, OSError) else str(error)
        self.close(f"the connection broke: {reason}", logging.DEBUG)

    def _file_ended(self, left: int) -> None:
        # The frame's size was sent and cannot be corrected, so the connection must end.
        self._out.clear()
        self.close(f"a file ended {left} bytes before the reply did", logging.ERROR)


def drop_frame(connection: Connection, frame: memoryview) -> None:
    """Handle the frame of a connection without handler: do nothing."""


def memory_bytes(reply: bytes | Sequence[Chunk]) -> int:
    """Return the memory that a reply takes; regions of files and what is made later are not counted."""
    if isinstance(reply, bytes):
        return len(reply)
    return sum(len(chunk) for chunk in reply if isinstance(chunk, (bytes, bytearray, memoryview)))
