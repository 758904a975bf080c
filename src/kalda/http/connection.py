"""Limits the heads of requests, which uvicorn reads without a limit of size or time.

A peer that sends its head byte by byte, or without end, would hold a connection for ever. The application
can close a connection at once by the extension ``kalda.abort`` of its scope: an orderly close waits until the
peer has read what is buffered, which a peer that reads nothing never does.
"""

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kalda.common.overriding import override

HEAD_BYTES_MAX: Final = 128 * 1024
"""Request line and headers. Event ids of topics with thousands of partitions are the longest ones known."""
HEAD_SECONDS_MAX: Final = 20.0

_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


class HttpConnection(HttpToolsProtocol):
    """One connection of a client."""

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._head_bytes = 0
        self._is_in_head = True
        self._head_timer: asyncio.TimerHandle | None = self._start_head_timer()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if self._is_in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_in_head and self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._head_bytes = True, 0
        if self._head_timer is None:
            self._head_timer = self._start_head_timer()
        cast(dict[str, Any], self.scope)["extensions"] = {"kalda.abort": self.transport.abort}

    @override
    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._stop_head_timer()
        super().on_headers_complete()

    def _start_head_timer(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(HEAD_SECONDS_MAX, self.transport.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
