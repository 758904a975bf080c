"""What the outermost layer counts, and how it answers for WebSockets that are refused."""

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from kalda.common.metrics import Metrics
from kalda.http.boundary import Boundary
from kalda.http.errors import HttpError
from kalda.http.foreign_pages import ForeignPages
from kalda.http.settings import HttpSettings
from kalda.net.metrics_text import render
from tests.virtual_time import run_virtual

HTTP = {"type": "http", "method": "GET", "path": "/v1/x", "headers": [(b"host", b"localhost")]}
WEBSOCKET = {"type": "websocket", "path": "/v1/x", "headers": [(b"host", b"localhost")]}


def boundary(app: object, metrics: Metrics) -> Boundary:
    settings = HttpSettings.read({}, {"bootstrap.servers": "127.0.0.1:9092"})
    return Boundary(app, metrics, 1024, {}, ForeignPages(settings))  # type: ignore[arg-type]  # ASGI


async def received() -> Message:
    return {"type": "websocket.connect"}


def test_a_stream_is_counted_when_it_begins() -> None:
    """Its end may be hours away, and would count as latency."""
    metrics = Metrics()
    is_over = asyncio.Event()
    texts: list[str] = []

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await is_over.wait()
        await send({"type": "http.response.body", "body": b""})

    async def sent(message: Message) -> None:
        texts.append(render(metrics).decode())
        is_over.set()

    run_virtual(boundary(stream, metrics)(dict(HTTP), received, sent))

    counted = 'kalda_http_requests_total{method="GET",part="registry",status="200"} 1'
    assert [True, True] == [counted in text for text in texts]
    assert [True, True] == ["kalda_http_request_time_ms_count" in text for text in texts]


@pytest.mark.parametrize(
    ("extensions", "messages", "status"),
    [
        (
            {"websocket.http.response": {}},
            ["websocket.http.response.start", "websocket.http.response.body"],
            429,
        ),
        ({}, ["websocket.close"], 403),
    ],
)
def test_a_refused_websocket_has_the_status_of_its_error(
    extensions: dict[str, object], messages: list[str], status: int
) -> None:
    metrics = Metrics()
    sent: list[Message] = []

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        raise HttpError(429, "later")

    async def send(message: Message) -> None:
        sent.append(message)

    run_virtual(boundary(refuse, metrics)({**WEBSOCKET, "extensions": extensions}, received, send))

    assert messages == [each["type"] for each in sent]
    assert f'method="WEBSOCKET",part="registry",status="{status}"'.encode() in render(metrics)
