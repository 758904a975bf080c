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


class Uploads:
    """Requests whose bodies come in parts, and an application that keeps them."""

    def __init__(self) -> None:
        self.boundary = boundary(self._read, Metrics())
        self.statuses: list[int] = []
        self.is_over = asyncio.Event()
        self.waiting = 0

    async def _read(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive())["more_body"]:
            body += message["body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def post(self, size: int, *headers: tuple[bytes, bytes]) -> None:
        """Send a body of a size without its end, which comes when all is over."""
        left = size

        async def receive() -> Message:
            nonlocal left
            if not left:
                self.waiting += 1
                await self.is_over.wait()
                return {"type": "http.request", "body": b"", "more_body": False}
            part = min(left, 100)
            left -= part
            return {"type": "http.request", "body": bytes(part), "more_body": True}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.statuses.append(message["status"])

        scope = {**HTTP, "method": "POST", "headers": [(b"host", b"localhost"), *headers]}
        await self.boundary(scope, receive, send)


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"1000")]])
def test_the_bodies_of_all_requests_are_bounded(
    headers: list[tuple[bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 slow uploads of 8 MB took 900 MB."""
    monkeypatch.setattr("kalda.http.boundary.BODIES_BYTES_MAX", 16_000)
    monkeypatch.setattr("kalda.http.boundary._UNCOUNTED_BYTES_MAX", 10)
    uploads = Uploads()

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(100):
                tasks.create_task(uploads.post(1000, *headers))
            await asyncio.sleep(1)
            assert {503} == set(uploads.statuses)
            assert 8 <= uploads.waiting <= 16
            tasks.create_task(uploads.post(100, *headers))
            await asyncio.sleep(1)
            refused = len(uploads.statuses)
            uploads.is_over.set()
        assert [200] * (101 - refused) == uploads.statuses[refused:]
        await uploads.post(1000, *headers)
        assert 200 == uploads.statuses[-1]

    run_virtual(run())


def test_a_body_that_is_too_long_is_refused() -> None:
    uploads = Uploads()

    async def run() -> None:
        await uploads.post(2000, (b"transfer-encoding", b"chunked"))
        await uploads.post(2000, (b"content-length", b"2000"))

    run_virtual(run())
    assert [413, 413] == uploads.statuses
