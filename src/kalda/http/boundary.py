"""The outermost layer of the application: no exception passes it, and no body is read beyond its limit.

The bodies of all requests together have a limit as well: peers that send slowly would have the server keep
each of theirs for as long as they like.

It is plain ASGI: Starlette's middleware classes cost a task and a queue for each request.
"""

import logging
from collections.abc import Mapping
from time import perf_counter
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kalda.clients.errors import ClientError
from kalda.common.metrics import Counter, Histogram, Metrics
from kalda.http.errors import HttpError, RenderError, http_error_of, json_error
from kalda.http.foreign_pages import ForeignPages

logger: Final = logging.getLogger(__name__)

_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"))
"""Others share one label, so that a client cannot make metrics without end."""

BODIES_BYTES_MAX: Final = 160 * 1024 * 1024
"""Of the bodies of all requests that are under way, if a request may have a sixteenth of it or less."""

_SHARE: Final = 8
"""A body takes so large a part of what is free, so that small ones are taken beside many large ones."""

_UNCOUNTED_BYTES_MAX: Final = 8 * 1024
"""Of a body that is too small to be counted."""


class Boundary:
    """Runs an application for each request, counts the request, and turns exceptions into responses.

    `renderers` has the form of errors by the first segment of the path; others are JSON.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        request_bytes_max: int,
        renderers: Mapping[str, RenderError],
        foreign_pages: ForeignPages,
    ) -> None:
        self._app: Final = app
        self._foreign_pages: Final = foreign_pages
        self._metrics: Final = metrics
        self._request_bytes_max: Final = request_bytes_max
        self._renderers: Final = renderers
        self._instruments: Final[dict[tuple[str, str, int], tuple[Counter, Histogram]]] = {}
        self._bodies_bytes = 0
        self._bodies_bytes_max: Final = max(BODIES_BYTES_MAX, 2 * _SHARE * request_bytes_max)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or WebSocket."""
        began = perf_counter()
        status = 0

        async def counted_send(message: Message) -> None:
            nonlocal status
            if status == 0:
                status = _status(message)
                if status:
                    # Not at the end, which a stream may have hours later.
                    self._count(scope, status, began)
            await send(message)

        is_http = scope["type"] == "http"
        taken = 0

        async def counted_receive() -> Message:
            nonlocal taken
            message = await receive()
            size = len(message.get("body", b""))
            taken += size
            self._bodies_bytes += size
            if taken > self._request_bytes_max:
                raise self._too_large(taken)
            if taken * _SHARE > self._bodies_bytes_max - (self._bodies_bytes - taken):
                raise HttpError(
                    503,
                    "too many large requests are under way; try again later",
                    headers={"Retry-After": "1"},
                )
            return message

        try:
            self._foreign_pages.check(scope)
            if is_http:
                is_small = self._is_small(scope)
                await self._app(scope, receive if is_small else counted_receive, counted_send)
            else:
                await self._app(scope, receive, counted_send)
        except ClientDisconnect:
            logger.debug("a client left before the end of its request")
        except Exception as error:
            http_error = self._error_of(scope, error)
            can_respond = is_http or "websocket.http.response" in scope.get("extensions", {})
            if status == 0 and can_respond:
                response = self._response(scope, http_error)
                await response(scope, receive, counted_send)
            elif not is_http:
                await _close_websocket(counted_send, http_error)
            # Else the head is sent. The server closes the connection of a response that does not end, which
            # shows the client that the body is not whole.
        finally:
            self._bodies_bytes -= taken
            if status == 0:
                self._count(scope, status, began)

    def _is_small(self, scope: Scope) -> bool:
        """Return whether the body of a request is known to be small.

        Raises:
            HttpError: its length is beyond the limit (413).
        """
        for name, value in scope["headers"]:
            # The server refuses a body that is longer than its length.
            if name == b"content-length" and value.isdigit():
                if int(value) > self._request_bytes_max:
                    raise self._too_large(int(value))
                return int(value) <= _UNCOUNTED_BYTES_MAX
        return False

    def _too_large(self, size: int) -> HttpError:
        return HttpError(
            413,
            f"the request has {size} bytes or more; `http.request.bytes.max` is {self._request_bytes_max}",
        )

    def _error_of(self, scope: Scope, error: Exception) -> HttpError:
        if isinstance(error, HttpError):
            return error
        if isinstance(error, ClientError):
            return http_error_of(error)
        if isinstance(error, HTTPException):
            return HttpError(error.status_code, error.detail, headers=error.headers)
        logger.error("%s %.500s failed", scope.get("method", "WebSocket"), scope["path"], exc_info=error)
        return HttpError(500, "the server failed; its log has the reason")

    def _response(self, scope: Scope, error: HttpError) -> Response:
        render = self._renderers.get(_segment(scope["path"]), json_error)
        try:
            return render(scope, error)
        except Exception:
            logger.exception("the error of %s could not be rendered", scope["path"])
            return json_error(scope, error)

    def _count(self, scope: Scope, status: int, began: float) -> None:
        segment = _segment(scope["path"])
        part = segment if segment in self._renderers else "registry"
        method = scope.get("method", "WEBSOCKET")
        if method not in _METHODS:
            method = "other"
        found = self._instruments.get((part, method, status))
        if found is None:
            requests = self._metrics.counter(
                "kalda_http_requests", "Requests served.", part=part, method=method, status=str(status)
            )
            latency = self._metrics.histogram(
                "kalda_http_request_time_ms",
                "Milliseconds from a request to the start of its response.",
                part=part,
            )
            found = self._instruments[part, method, status] = (requests, latency)
        found[0].value += 1
        found[1].observe((perf_counter() - began) * 1000)


def _status(message: Message) -> int:
    """Return the status that a message begins a response with; 0 if it begins none."""
    if message["type"] in ("http.response.start", "websocket.http.response.start"):
        return int(message["status"])
    return {"websocket.accept": 101, "websocket.close": 403}.get(message["type"], 0)


def _segment(path: str) -> str:
    return path[1:].partition("/")[0]


async def _close_websocket(send: Send, error: HttpError) -> None:
    # 1008 is a policy that was violated, 1011 a failure of the server (RFC 6455, 7.4.1).
    code = 1011 if error.status >= 500 else 1008
    try:
        await send({"type": "websocket.close", "code": code, "reason": error.message[:120]})
    except RuntimeError:
        logger.debug("a WebSocket was closed before its error could be sent")
