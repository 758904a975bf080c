"""Implements connections whose requests and responses pass a chain of filters (`kalda.net.frame_filters`).

A connection becomes a filtered one by `set_filters`: its class changes to one with the same slots, and
`FilteredFrames` takes the place of its frame handler. So connections of a listener without filters have
nothing to look up, and filters can be set while a connection is open.

What a delay keeps is bounded: the connection handles no further request while one waits, nor while the
responses that wait have `HELD_BYTES_MAX` in all.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, TypeAlias, assert_never

from kalda.common.api_keys import ApiKey
from kalda.common.overriding import override
from kalda.net.connection import HELD_BYTES_MAX, Connection, FrameHandler, memory_bytes
from kalda.net.frame_filters import (
    Answer,
    Close,
    DelayRequest,
    DelayResponse,
    Drop,
    FrameFilter,
    Ignore,
    Pass,
    ReplaceRequest,
    ReplaceResponse,
    Reply,
    RequestAction,
    ResponseAction,
    Truncate,
    start_of,
)
from kalda.net.reply import NO_REPLY, Chunk, Ticket
from kalda.net.socket_connection import SocketConnection
from kalda.net.tls_connection import TlsConnection
from kalda.protocol.headers import RequestHeader, read_request_header
from kalda.protocol.protocol_errors import ProtocolError

_Filters: TypeAlias = tuple[FrameFilter, ...]


class Exchange:
    """A request that passes the filters, until its response has passed them."""

    __slots__ = ("filters", "header", "is_taken", "notes", "ticket")

    def __init__(self, header: RequestHeader, filters: _Filters) -> None:
        self.header = header
        """As the next filter sees it."""
        self.filters: Final = filters
        self.notes: Final[list[tuple[FrameFilter, RequestHeader, object]]] = []
        """The filters that see the response, with the header that each of them saw and its note."""
        self.ticket: FilteredTicket | None = None
        """Its place in the order of responses, where it is not answered at once."""
        self.is_taken = False
        """Whether the handler has answered, or will."""


class FilteredTicket(Ticket):
    """The place of a response that passes filters."""

    __slots__ = ("exchange",)

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self.exchange: Final = exchange


class LastReply(list[Chunk]):
    """A reply behind which nothing is sent."""


class FilteredFrames:
    """The state of a filtered connection; it is the connection's frame handler."""

    __slots__ = (
        "current",
        "delayed_bytes",
        "filters",
        "handle",
        "has_raw_tokens",
        "is_cut",
        "kept",
        "timers",
    )

    def __init__(self, handle: FrameHandler, filters: _Filters) -> None:
        self.handle = handle
        """Handles what passes the filters."""
        self.filters = filters
        self.current: Exchange | None = None
        """The request that the handler has at hand."""
        self.kept: Final[deque[Exchange]] = deque()
        """Requests whose frames the handler kept aside, in their order."""
        self.timers: Final[set[asyncio.TimerHandle]] = set()
        self.delayed_bytes = 0
        """The memory of responses that wait."""
        self.has_raw_tokens = False
        """Whether the client began a login whose messages have no header."""
        self.is_cut = False
        """Whether the peer has got the last reply."""

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        """Pass a frame to the filters, then to the handler."""
        assert isinstance(connection, FilteringConnection), f"{connection.peer} has no filters"
        connection.filter_frame(self, frame)


class FilteringConnection(Connection):
    """Base of filtered plaintext and TLS connections."""

    __slots__ = ()

    @property
    def _frames(self) -> FilteredFrames:
        frames = self._handle
        assert isinstance(frames, FilteredFrames), f"{self.peer} has no filters"
        return frames

    # Requests.

    def filter_frame(self, frames: FilteredFrames, frame: memoryview) -> None:
        """Pass a request to the filters and to the handler."""
        if frames.has_raw_tokens and self.due is not None:
            frames.handle(self, frame)
            return
        try:
            header, body = read_request_header(frame)
        except ProtocolError:
            frames.handle(self, frame)
            return
        self._pass_request(Exchange(header, frames.filters), frame, body, 0)

    def _pass_request(self, exchange: Exchange, frame: memoryview, body: int, index: int) -> None:
        """Pass a request to the filters from an index on, and to the handler."""
        if index == len(exchange.filters):
            self._serve(exchange, frame)
            return
        action = exchange.filters[index].on_request(self, exchange.header, body, frame)
        self._act(exchange, frame, body, index, action)

    def _act(
        self, exchange: Exchange, frame: memoryview, body: int, index: int, action: RequestAction
    ) -> None:
        """Apply the decision of the filter at an index."""
        match action:
            case Pass(note):
                self._add_note(exchange, index, note)
                self._pass_request(exchange, frame, body, index + 1)
            case ReplaceRequest(other, note):
                self._add_note(exchange, index, note)
                frame = memoryview(bytearray(other))
                exchange.header, body = read_request_header(frame)
                self._pass_request(exchange, frame, body, index + 1)
            case Answer(reply):
                self._pass_response(exchange, reply, len(exchange.notes))
            case Ignore():
                self._finish_exchange(exchange, NO_REPLY)
            case Close(reason):
                self._close_in(exchange, reason)
            case DelayRequest(seconds, then):
                if exchange.ticket is None:
                    self._open_ticket(exchange)
                # Later requests would overtake it.
                self.hold_frames()
                self._after(seconds, partial(self._go_on, exchange, bytearray(frame), body, index, then))
            case _:
                assert_never(action)

    def _add_note(self, exchange: Exchange, index: int, note: object) -> None:
        if note is not None:
            exchange.notes.append((exchange.filters[index], exchange.header, note))

    def _serve(self, exchange: Exchange, frame: memoryview) -> None:
        """Have the handler take a request."""
        frames = self._frames
        header = exchange.header
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            frames.has_raw_tokens = header.api_version == 0
        frames.current = exchange
        try:
            frames.handle(self, frame)
        finally:
            frames.current = None
        if not exchange.is_taken:
            # A request without a response, such as Produce with acks=0.
            self._finish_exchange(exchange, NO_REPLY)

    def _go_on(
        self, exchange: Exchange, frame: bytearray, body: int, index: int, action: RequestAction
    ) -> None:
        """Continue with a request that has waited."""
        self._is_held = False
        self._corked = True
        try:
            self._act(exchange, memoryview(frame), body, index, action)
        except Exception as error:
            self._handler_failed(error)
        if self._closed:
            return
        self._corked = False
        self._flush()
        if self._owner.turn_ended is not None:
            self._owner.turn_ended()
        self._plan_resume()

    @override
    def keep(self, frame: memoryview) -> bytearray:
        frames = self._frames
        if frames.current is not None:
            frames.current.is_taken = True
            frames.kept.append(frames.current)
        return bytearray(frame)

    @override
    def handle_kept(self, frame: memoryview) -> None:
        frames = self._frames
        if not frames.kept:
            # It was kept before the connection had filters.
            super().handle_kept(frame)
            return
        self._corked = True
        try:
            exchange = frames.kept.popleft()
            exchange.is_taken = False
            self._serve(exchange, frame)
        except Exception as error:
            self._handler_failed(error)
        if not self._closed:
            self._corked = False
            self._flush()

    @override
    def handle_with(self, handle: FrameHandler) -> None:
        self._frames.handle = handle

    @override
    def replace_handler(self, before: FrameHandler, handle: FrameHandler) -> None:
        frames = self._frames
        if frames.handle == before:
            frames.handle = handle

    # Responses.

    @override
    def send(self, reply: Reply) -> None:
        frames = self._frames
        exchange = frames.current
        if exchange is None:
            super().send(reply)
        elif not self._closed:
            exchange.is_taken = True
            self._pass_response(exchange, reply, len(exchange.notes))

    @override
    def open_reply(self) -> Ticket:
        exchange = self._frames.current
        if exchange is None:
            return super().open_reply()
        exchange.is_taken = True
        return exchange.ticket or self._open_ticket(exchange)

    def _open_ticket(self, exchange: Exchange) -> "FilteredTicket":
        ticket = exchange.ticket = FilteredTicket(exchange)
        if not self._closed:
            self._outstanding.append(ticket)
        return ticket

    @override
    def reply(self, ticket: Ticket, reply: Reply) -> None:
        if self._closed or not isinstance(ticket, FilteredTicket):
            super().reply(ticket, reply)
            return
        # The request's work is done: what follows cannot be abandoned.
        ticket.on_abandoned = None
        exchange = ticket.exchange
        if not reply:
            self._finish_exchange(exchange, NO_REPLY)
            return
        try:
            self._pass_response(exchange, reply, len(exchange.notes))
        except Exception as error:
            self._handler_failed(error)

    def _pass_response(self, exchange: Exchange, reply: Reply, count: int) -> None:
        """Pass a response to the first `count` filters that left a note, the innermost first, and send it."""
        while count:
            count -= 1
            each, header, note = exchange.notes[count]
            action = each.on_response(self, header, reply, note)
            if action is None:
                continue
            if not isinstance(action, ReplaceResponse):
                self._act_on_response(exchange, reply, count, action)
                return
            reply = action.reply
        self._finish_exchange(exchange, reply)

    def _act_on_response(
        self, exchange: Exchange, reply: Reply, count: int, action: ResponseAction | None
    ) -> None:
        """Apply a filter's decision; `count` filters have not seen the response."""
        match action:
            case None:
                self._pass_response(exchange, reply, count)
            case ReplaceResponse(other):
                self._pass_response(exchange, other, count)
            case Drop():
                self._finish_exchange(exchange, NO_REPLY)
            case Close(reason):
                self._close_in(exchange, reason)
            case Truncate(size):
                self._finish_exchange(exchange, LastReply(start_of(reply, size)))
            case DelayResponse(seconds, then):
                if exchange.ticket is None:
                    self._open_ticket(exchange)
                size = memory_bytes(reply)
                self._frames.delayed_bytes += size
                self._after(seconds, partial(self._send_delayed, exchange, reply, count, then, size))
            case _:
                assert_never(action)

    def _send_delayed(
        self, exchange: Exchange, reply: Reply, count: int, action: ResponseAction | None, size: int
    ) -> None:
        """Continue with a response that has waited."""
        self._frames.delayed_bytes -= size
        try:
            self._act_on_response(exchange, reply, count, action)
        except Exception as error:
            self._handler_failed(error)

    def _finish_exchange(self, exchange: Exchange, reply: Reply) -> None:
        """Send a response that has passed the filters."""
        if self._closed:
            return
        ticket = exchange.ticket
        if ticket is not None:
            super().reply(ticket, reply)
        elif reply is not NO_REPLY:
            if self._outstanding:
                self._hold(Ticket(), reply)
            else:
                self._queue(reply)

    @override
    def _queue(self, reply: Reply) -> None:
        frames = self._frames
        if frames.is_cut:
            return
        super()._queue(reply)
        if isinstance(reply, LastReply):
            frames.is_cut = True
            self._loop.call_soon(partial(self.finish, "its last response was truncated by a filter"))

    def _after(self, seconds: float, call: "partial[None]") -> None:
        """Do something later, unless the connection closes before."""
        frames = self._frames

        def fire() -> None:
            frames.timers.discard(timer)
            if not self._closed:
                call()

        timer = self._loop.call_later(seconds, fire)
        frames.timers.add(timer)

    # Bounds and the end.

    @property
    @override
    def is_quiet(self) -> bool:
        return not self._has_unsent() if self._frames.is_cut else super().is_quiet

    @override
    def _may_handle(self) -> bool:
        frames = self._frames
        return not frames.is_cut and frames.delayed_bytes < HELD_BYTES_MAX and super()._may_handle()

    def _close_in(self, exchange: Exchange, reason: str) -> None:
        """Close the connection for a filter; earlier responses are sent."""
        if exchange.ticket is not None:
            exchange.ticket.on_abandoned = None
        self.close(f"a filter closed it: {reason}", logging.DEBUG)

    @override
    def close(self, reason: str, level: int = logging.INFO) -> None:
        super().close(reason, level)
        if self._closed:
            frames = self._frames
            for timer in frames.timers:
                timer.cancel()
            frames.timers.clear()
            frames.kept.clear()


class FilteredSocketConnection(FilteringConnection, SocketConnection):
    """A plaintext connection with filters."""

    __slots__ = ()


class FilteredTlsConnection(FilteringConnection, TlsConnection):
    """A TLS connection with filters."""

    __slots__ = ()


def set_filters(connection: Connection, filters: Sequence[FrameFilter]) -> None:
    """Have the further requests of a connection pass a chain of filters, the outermost first.

    Requests that are not answered yet keep the chain that they passed.
    """
    chain = tuple(filters)
    if isinstance(connection, FilteringConnection):
        connection._frames.filters = chain
    elif chain and not connection.is_closed:
        connection._handle = FilteredFrames(connection._handle, chain)
        is_tls = isinstance(connection, TlsConnection)
        connection.__class__ = FilteredTlsConnection if is_tls else FilteredSocketConnection
