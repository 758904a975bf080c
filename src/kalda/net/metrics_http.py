"""Serves a broker's metrics for Prometheus, and its health, over HTTP on ``metrics.port``.

``/metrics`` returns the metrics, in OpenMetrics where the scraper prefers it and compressed where it accepts
gzip. ``/healthz`` returns 200 while the broker's event loop runs. ``/readyz`` returns 200 while the broker
can serve clients, else 503 with the reason. A login, where one is set, is asked of ``/metrics`` alone.

It implements just enough HTTP/1.1 for a scraper: one request per connection, a bounded head, no body, a time
limit, few connections at a time. It shares the broker's event loop, which a scrape never holds for longer
than `SLICE_SECONDS` and one piece of text.
"""

import asyncio
import base64
import hmac
import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Final

from kalda.common.metrics import Metrics
from kalda.net.metrics_text import OPENMETRICS_TYPE, TEXT_TYPE, exposition
from kalda.runtime.error_text import error_text
from kalda.runtime.system.bound_socket import bound_socket

logger: Final = logging.getLogger(__name__)

HEAD_BYTES_MAX: Final = 8 * 1024
"""Prometheus sends some 300 bytes; 8 KiB is what common servers take."""

REQUEST_SECONDS_MAX: Final = 5.0
"""For the whole exchange; a scraper's own time-out is 10 seconds by default."""

CONNECTIONS_MAX: Final = 16
"""Connections at once, so that they cannot take the broker's descriptors. One more than this closes the one
that has been silent for longest, so that idle connections do not keep a health check out."""

SLICE_SECONDS: Final = 0.001
"""How long a scrape is rendered before the loop may do something else; a piece more may be added."""

GZIP_LEVEL: Final = 1
"""The text shrinks to a twentieth at any level; a higher one costs up to five times the time."""

_GZIP_WINDOW_BITS: Final = 31
CHUNK_BYTES: Final = 128 * 1024
"""How much is handed to the socket at once."""

_PLAIN_TEXT: Final = "text/plain; charset=utf-8"
_OPENMETRICS_VERSIONS: Final = ("", "0.0.1", "1.0.0")


class MetricsServer:
    """The HTTP endpoint of one registry.

    `unready_reason` returns why the broker cannot serve clients, or None if it can. With `login`, a name and
    a password with a colon between them, only clients that send them get the metrics.
    """

    def __init__(
        self,
        metrics: Metrics,
        unready_reason: Callable[[], str | None] = lambda: None,
        *,
        login: str | None = None,
    ) -> None:
        self._metrics: Final = metrics
        self._unready_reason: Final = unready_reason
        self._login: Final = None if login is None else login.encode()
        self._server: asyncio.Server | None = None
        self._silent: Final[dict[asyncio.StreamWriter, None]] = {}
        """Connections whose request has not arrived, the oldest first."""
        self._answering_count = 0
        self._rendering: Final = asyncio.Lock()
        """One scrape is rendered at a time, or several would hold the loop for a slice each."""

    async def listen(self, host: str, port: int) -> int:
        """Begin to serve; return the port, which is the system's choice if `port` is 0.

        Raises:
            OSError: the address cannot be bound.
        """
        self._server = await asyncio.start_server(
            self._serve, sock=bound_socket(host, port), limit=HEAD_BYTES_MAX
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop serving and wait until the port is free."""
        self.close_nowait()
        if self._server is not None:
            await self._server.wait_closed()

    def close_nowait(self) -> None:
        """Stop accepting scrapes; one that is under way may still end."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._make_place():
            writer.close()
            return
        self._silent[writer] = None
        try:
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                await self._exchange(reader, writer)
                # Returns when the peer has taken the rest.
                writer.close()
                await writer.wait_closed()
        except (asyncio.IncompleteReadError, TimeoutError, OSError) as error:
            logger.debug("a metrics request was not finished: %s", error_text(error))
        finally:
            # Closing alone keeps the descriptor for as long as a peer that never reads keeps its end.
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await self._read_head(reader, writer)
        except asyncio.LimitOverrunError:
            writer.write(_response("431 Request Header Fields Too Large"))
            return
        self._answering_count += 1
        try:
            for part in await self._answer(head):
                writer.write(part)
                await writer.drain()
                # Draining returns at once while the system takes everything; others get their turn.
                await asyncio.sleep(0)
        finally:
            self._answering_count -= 1

    def _make_place(self) -> bool:
        """Return whether another connection may be served; close the one that has been silent for longest
        where there are `CONNECTIONS_MAX` already."""
        if len(self._silent) + self._answering_count < CONNECTIONS_MAX:
            return True
        oldest = next(iter(self._silent), None)
        if oldest is None:
            return False
        del self._silent[oldest]
        oldest.transport.abort()
        return True

    async def _read_head(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        try:
            return await reader.readuntil(b"\r\n\r\n")
        finally:
            self._silent.pop(writer, None)

    async def _answer(self, head: bytes) -> Sequence[bytes | bytearray]:
        """Return an answer in parts, which are sent one by one so that megabytes are not copied at once."""
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return [_response("400 Bad Request")]
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return [_response("405 Method Not Allowed", extra="Allow: GET, HEAD\r\n")]
        path = target.split("?", 1)[0]
        with_body = method == "GET"
        if path == "/healthz":
            return [_response("200 OK", b"ok\n", with_body=with_body)]
        if path == "/readyz":
            reason = self._unready_reason()
            if reason is None:
                return [_response("200 OK", b"ok\n", with_body=with_body)]
            return [_response("503 Service Unavailable", f"{reason}\n".encode(), with_body=with_body)]
        if path != "/metrics":
            return [_response("404 Not Found", b"this port has /metrics, /healthz and /readyz\n")]
        headers = _headers(lines[1:])
        if self._login is not None and not _has_login(headers.get("authorization", ""), self._login):
            return [_response("401 Unauthorized", extra='WWW-Authenticate: Basic realm="metrics"\r\n')]
        try:
            return await self._scrape(headers, with_body=with_body)
        except Exception:
            logger.exception("metrics could not be rendered")
            return [_response("500 Internal Server Error")]

    async def _scrape(self, headers: Mapping[str, str], *, with_body: bool) -> Sequence[bytes | bytearray]:
        is_openmetrics = prefers_openmetrics(headers.get("accept", ""))
        is_compressed = accepts_gzip(headers.get("accept-encoding", ""))
        compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW_BITS) if is_compressed else None
        chunks = [bytearray()]
        async with self._rendering:
            slice_end = monotonic() + SLICE_SECONDS
            for piece in exposition(self._metrics, is_openmetrics=is_openmetrics):
                if piece:
                    chunks[-1] += piece if compressor is None else compressor.compress(piece)
                    if len(chunks[-1]) >= CHUNK_BYTES:
                        chunks.append(bytearray())
                if monotonic() >= slice_end:
                    await asyncio.sleep(0)
                    slice_end = monotonic() + SLICE_SECONDS
        extra = "Vary: Accept, Accept-Encoding\r\n"
        if compressor is not None:
            chunks[-1] += compressor.flush()
            extra += "Content-Encoding: gzip\r\n"
        content_type = OPENMETRICS_TYPE if is_openmetrics else TEXT_TYPE
        head = _head("200 OK", sum(map(len, chunks)), content_type, extra)
        return [head, *chunks] if with_body else [head]


def prefers_openmetrics(accept: str) -> bool:
    """Return whether an Accept header ranks OpenMetrics at least as high as the text format.

    >>> prefers_openmetrics("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2")
    True
    """
    openmetrics = text = 0.0
    for media_range, parameters, quality in _weighted(accept):
        if media_range == "application/openmetrics-text":
            if parameters.get("version", "") in _OPENMETRICS_VERSIONS:
                openmetrics = max(openmetrics, quality)
        elif media_range == "text/plain":
            text = max(text, quality)
    return openmetrics > 0 and openmetrics >= text


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether an Accept-Encoding header allows gzip.

    >>> accepts_gzip("deflate, gzip;q=0.5"), accepts_gzip("gzip;q=0"), accepts_gzip("")
    (True, False, False)
    """
    return any(coding in ("gzip", "*") and quality > 0 for coding, _, quality in _weighted(accept_encoding))


def _weighted(header: str) -> list[tuple[str, dict[str, str], float]]:
    """Split a header into its elements, each with its parameters and its weight (RFC 9110, 12.4.2)."""
    found = []
    for element in header.lower().split(","):
        name, *rest = (part.strip() for part in element.split(";"))
        parameters = {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in rest)}
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 0.0
        found.append((name, parameters, quality))
    return found


def _has_login(authorization: str, login: bytes) -> bool:
    """Return whether an Authorization header has this name and password (RFC 7617)."""
    scheme, _, text = authorization.partition(" ")
    try:
        sent = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        return False
    return scheme.lower() == "basic" and hmac.compare_digest(sent, login)


def _headers(lines: list[str]) -> dict[str, str]:
    """Return the header fields by lower-case name; repeated ones are joined."""
    headers: dict[str, str] = {}
    for line in lines:
        name, separator, value = line.partition(":")
        if separator:
            name = name.strip().lower()
            headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    return headers


def _response(status: str, body: bytes = b"", *, extra: str = "", with_body: bool = True) -> bytes:
    return _head(status, len(body), _PLAIN_TEXT, extra) + (body if with_body else b"")


def _head(status: str, body_bytes: int, content_type: str, extra: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {body_bytes}\r\n"
        f"{extra}Connection: close\r\n\r\n"
    )
    return head.encode("ascii")
