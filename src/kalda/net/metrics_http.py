"""Serves a broker's metrics for Prometheus, and its health, over HTTP on ``metrics.port``.

``/metrics`` returns the metrics, in OpenMetrics where the scraper prefers it and compressed where it accepts
gzip. ``/healthz`` returns 200 while the broker's event loop runs. ``/readyz`` returns 200 while the broker
can serve clients, else 503 with the reason. A login, where one is set, is asked of ``/metrics`` alone.

It implements just enough HTTP/1.1 for a scraper: one request per connection, a bounded head, no body, a time
limit, few connections at a time. It shares its owner's event loop, which a scrape never holds for longer than
`SLICE_SECONDS` and one piece of text.
"""

import asyncio
import base64
import hmac
import logging
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from kalda.common.metrics import Metrics
from kalda.net.connection import Connection
from kalda.net.metrics_text import OPENMETRICS_TYPE, TEXT_TYPE, exposition
from kalda.net.reply import Ticket
from kalda.net.socket_server import ServerConfig, SocketServer
from kalda.runtime.network import Network
from kalda.runtime.system.network import SYSTEM_NETWORK
from kalda.security.quota.connection_rates import UNLIMITED

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
"""The size of an answer's parts."""

NO_FRAMES: Final = -1
"""The limit of frames: no size is within it, so all that arrives is the head of a request."""

_HEAD_END: Final = b"\r\n\r\n"

_PLAIN_TEXT: Final = "text/plain; charset=utf-8"
Answer: TypeAlias = Sequence[bytes | bytearray]
"""A response in parts."""

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
        network: Network = SYSTEM_NETWORK,
    ) -> None:
        self._metrics: Final = metrics
        self._unready_reason: Final = unready_reason
        self._login: Final = None if login is None else login.encode()
        self._sockets: Final = _Sockets(self, network)
        self._scrapes: Final[deque[tuple[_Exchange, _Scrape]]] = deque()
        """The first one is rendered, the others wait: several would hold the loop for a slice each."""

    async def listen(self, host: str, port: int) -> int:
        """Begin to serve; return the port, which is the system's choice if `port` is 0.

        Raises:
            OSError: the address cannot be bound.
        """
        return await self._sockets.listen("metrics", host, port)

    async def close(self) -> None:
        """Stop serving; a scrape that is under way may still end."""
        await self._sockets.close(REQUEST_SECONDS_MAX)

    def close_nowait(self) -> None:
        """Stop accepting scrapes; one that is under way may still end."""
        self._sockets.stop()

    def answer(self, exchange: "_Exchange", head: bytes) -> None:
        """Answer a request; called by its connection."""
        answer = self._answer(head)
        if not isinstance(answer, _Scrape):
            exchange.send(answer)
            return
        self._scrapes.append((exchange, answer))
        if len(self._scrapes) == 1:
            self._render()

    def _render(self) -> None:
        """Render for a slice of time, and plan the next."""
        exchange, scrape = self._scrapes[0]
        parts: Answer | None = ()
        try:
            if not exchange.connection.is_closed:
                parts = scrape.run(asyncio.get_running_loop().time)
        except Exception:
            logger.exception("metrics could not be rendered")
            parts = [_response("500 Internal Server Error")]
        if parts is not None:
            self._scrapes.popleft()
            exchange.send(parts)
        if self._scrapes:
            asyncio.get_running_loop().call_soon(self._render)

    def _answer(self, head: bytes) -> "Answer | _Scrape":
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
        return _Scrape(self._metrics, headers, with_body=with_body)


class _Sockets(SocketServer):
    """The sockets of the endpoint; each connection gets an `_Exchange`."""

    def __init__(self, endpoint: MetricsServer, network: Network) -> None:
        super().__init__(
            ServerConfig(socket_request_max_bytes=NO_FRAMES, connections_max_idle_ms=UNLIMITED),
            network=network,
        )
        self._endpoint: Final = endpoint

    def begin(self, connection: Connection) -> None:
        connection.begin(_Exchange(self._endpoint, connection))
        connection.due = connection.last_active + REQUEST_SECONDS_MAX

    def admits(self, address: str) -> bool:
        """Make a place, where there are `CONNECTIONS_MAX`, by closing the oldest silent connection."""
        if len(self.connections) < CONNECTIONS_MAX:
            return True
        for each in self.connections:
            if isinstance(each.session, _Exchange) and each.session.is_silent:
                each.close("another connection needs its place", logging.DEBUG)
                return True
        return False

    def sweep_seconds(self) -> float:
        return REQUEST_SECONDS_MAX / 10

    def end_overdue(self, connection: Connection) -> None:
        connection.close(f"the request took longer than {REQUEST_SECONDS_MAX} s", logging.DEBUG)


class _Exchange:
    """The request of one connection and its answer: a `Session`."""

    def __init__(self, endpoint: MetricsServer, connection: Connection) -> None:
        self.connection: Final = connection
        self.is_silent = True
        """Whether the request has not arrived."""
        self._endpoint: Final = endpoint
        self._ticket: Ticket

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        raise AssertionError(f"{connection.peer} sent a frame of {len(frame)} bytes where none is allowed")

    def on_unsized(self, size: int, start: memoryview) -> bool:
        """Answer a request whose head is complete."""
        head, separator, _ = bytes(start[: HEAD_BYTES_MAX + len(_HEAD_END)]).partition(_HEAD_END)
        if not separator and len(head) <= HEAD_BYTES_MAX:
            return False
        self.is_silent = False
        self._ticket = self.connection.open_reply()
        self.connection.hold()
        if separator:
            self._endpoint.answer(self, head)
        else:
            self.send([_response("431 Request Header Fields Too Large")])
        return True

    def on_closed(self) -> None:
        """Do nothing: a scrape that is rendered finds its connection closed."""

    def send(self, answer: "Answer") -> None:
        self.connection.reply(self._ticket, answer)
        self.connection.finish("its request was answered", logging.DEBUG)


class _Scrape:
    """The metrics for one request; they are rendered a while at a time."""

    def __init__(self, metrics: Metrics, headers: Mapping[str, str], *, with_body: bool) -> None:
        self._with_body: Final = with_body
        is_openmetrics = prefers_openmetrics(headers.get("accept", ""))
        self._content_type: Final = OPENMETRICS_TYPE if is_openmetrics else TEXT_TYPE
        is_compressed = accepts_gzip(headers.get("accept-encoding", ""))
        self._compressor: Final = (
            zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW_BITS) if is_compressed else None
        )
        self._pieces: Final = exposition(metrics, is_openmetrics=is_openmetrics)
        # In parts, so that megabytes are not copied at once.
        self._chunks: Final = [bytearray()]

    def run(self, now: Callable[[], float]) -> "Answer | None":
        """Render for `SLICE_SECONDS`; return the answer, or None if there is more to do.

        `now` returns seconds.
        """
        chunks, compressor = self._chunks, self._compressor
        slice_end = now() + SLICE_SECONDS
        for piece in self._pieces:
            if piece:
                chunks[-1] += piece if compressor is None else compressor.compress(piece)
                if len(chunks[-1]) >= CHUNK_BYTES:
                    chunks.append(bytearray())
            if now() >= slice_end:
                return None
        extra = "Vary: Accept, Accept-Encoding\r\n"
        if compressor is not None:
            chunks[-1] += compressor.flush()
            extra += "Content-Encoding: gzip\r\n"
        head = _head("200 OK", sum(map(len, chunks)), self._content_type, extra)
        return [head, *chunks] if self._with_body else [head]


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
