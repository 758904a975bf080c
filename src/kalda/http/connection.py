"""Limits what one client's connection costs, for which uvicorn has no limits.

A peer that sends a head byte by byte, or without end, would hold a connection for ever; one that sends a body
byte by byte would also hold the memory of what it has sent. Trailers, extensions of chunks and empty lines
count as a head does: they are bytes that no application gets. Requests that arrive behind one that is not
answered yet are not parsed before they are served: uvicorn keeps some 3 KiB for each parsed one, and a read
brings thousands.

The application can close a connection at once by the extension ``kalda.abort`` of its scope: an orderly close
waits until the peer has read what is buffered, which a peer that reads nothing never does.
"""

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from kalda.common.overriding import override

HEAD_BYTES_MAX: Final = 128 * 1024
"""Request line and headers. Event ids of topics with thousands of partitions are the longest ones known."""
HEAD_SECONDS_MAX: Final = 20.0

BODY_PERIOD_SECONDS: Final = 20.0
BODY_PERIOD_BYTES_MIN: Final = 10_000
"""What a peer has to send of a body in each period while the server reads: 500 bytes per second, as Apache's
HTTP server asks for."""

PIECE_BYTES: Final = 4096
"""What is parsed at once; two hundred requests may be in it."""

_PIECES_PER_TURN: Final = 8

_END_OF_REFUSAL: Final = b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large" + _END_OF_REFUSAL
_TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout" + _END_OF_REFUSAL


class _Flow(FlowControl):
    """Reads nothing while the connection has bytes that are not parsed, whatever uvicorn asks for."""

    is_held = False
    has_paused = False
    """Whether reading has paused since this was last set."""

    @override
    def pause_reading(self) -> None:
        self.has_paused = True
        super().pause_reading()

    @override
    def resume_reading(self) -> None:
        if not self.is_held:
            super().resume_reading()


class HttpConnection(HttpToolsProtocol):
    """One connection of a client."""

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self.flow = self._flow = _Flow(transport)
        self._unparsed = bytearray()
        self._parses_soon = False
        self._is_upgraded = False
        self._overhead_bytes = 0
        """Bytes that have arrived since the last part of a body, or since the last request."""
        self._is_in_head = True
        self._head_timer: asyncio.TimerHandle | None = self._start_head_timer()
        self._is_in_body = False
        self._body_bytes = 0
        """Bytes of the body that have arrived since the period began."""
        self._has_waited = False
        """Whether the peer waited for the server when the period began."""
        self._body_timer: asyncio.TimerHandle | None = None

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_body_timer()
        # The protocol and its requests refer to each other, and the garbage collector comes late.
        self._unparsed.clear()
        self.pipeline.clear()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        self._unparsed += data
        if not self._parses_soon:
            self._parse()

    @override
    def handle_websocket_upgrade(self) -> None:
        self._is_upgraded = True
        super().handle_websocket_upgrade()

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._overhead_bytes = True, 0
        if self._head_timer is None:
            self._head_timer = self._start_head_timer()
        cast(dict[str, Any], self.scope)["extensions"] = {"kalda.abort": self.transport.abort}

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:
            # Else it is a trailer.
            super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        self._is_in_head, self._overhead_bytes = False, 0
        self._is_in_body = True
        self._stop_head_timer()
        super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        self._overhead_bytes = 0
        self._body_bytes += len(body)
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._stop_body_timer()
        super().on_message_complete()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._unparsed:
            self._parse_soon()

    # Parsing.

    def _parse(self) -> None:
        """Parse what has arrived, for one turn, or up to a request that waits for the one before it."""
        self._parses_soon = False
        unparsed, flow = self._unparsed, self._flow
        for _ in range(_PIECES_PER_TURN):
            if self.pipeline or not unparsed or self._is_ended:
                break
            piece = bytes(unparsed[:PIECE_BYTES])
            del unparsed[:PIECE_BYTES]
            self._overhead_bytes += len(piece)
            super().data_received(piece)
            if self._overhead_bytes > HEAD_BYTES_MAX and not self._is_ended:
                self._refuse(_TOO_LARGE)
        if self._is_ended:
            unparsed.clear()
        flow.is_held = bool(unparsed)
        if flow.is_held:
            flow.pause_reading()
            if not self.pipeline:
                self._parse_soon()
        elif not self.pipeline and not self._has_much_to_read:
            flow.resume_reading()
        self._time_head()
        if self._is_in_body and self._body_timer is None and not self._is_ended:
            # Most bodies are complete with the read that begins them, and need no timer.
            self._start_body_period()

    def _parse_soon(self) -> None:
        if not self._parses_soon:
            self._parses_soon = True
            asyncio.get_running_loop().call_soon(self._parse)

    @property
    def _is_ended(self) -> bool:
        return self._is_upgraded or self.transport.is_closing()

    @property
    def _has_much_to_read(self) -> bool:
        """Whether the application has much of a body before it, and asks for more itself."""
        cycle = cast(RequestResponseCycle | None, self.cycle)
        return cycle is not None and not cycle.response_complete and len(cycle.body) > HIGH_WATER_LIMIT

    def _refuse(self, response: bytes) -> None:
        """Close the connection, with a response unless another one has begun."""
        cycle = cast(RequestResponseCycle | None, self.cycle)
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(response)
        self.transport.close()

    # The time of heads.

    def _time_head(self) -> None:
        """Let the time of a head run only while the rest of it is the peer's to send."""
        if self._is_in_head and self._unparsed:
            self._stop_head_timer()
        elif self._is_in_head and self._head_timer is None and not self._is_ended:
            self._head_timer = self._start_head_timer()

    def _start_head_timer(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(HEAD_SECONDS_MAX, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    # The time of bodies.

    def _start_body_period(self) -> None:
        self._body_bytes = 0
        self._has_waited = self._is_waiting
        self._flow.has_paused = False
        self._body_timer = asyncio.get_running_loop().call_later(BODY_PERIOD_SECONDS, self._end_body_period)

    @property
    def _is_waiting(self) -> bool:
        """Whether the peer waits for the server."""
        return bool(self._unparsed) or self.flow.read_paused or self.cycle.waiting_for_100_continue

    def _end_body_period(self) -> None:
        has_waited = self._has_waited or self._flow.has_paused or self._is_waiting
        if self._body_bytes < BODY_PERIOD_BYTES_MIN and not has_waited:
            self._refuse(_TOO_SLOW)
        else:
            self._start_body_period()

    def _stop_body_timer(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None
