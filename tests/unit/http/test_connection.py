"""Connections whose peers send what costs much: requests behind each other, and bytes that are no body."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from kalda.http.connection import (
    BODY_PERIOD_BYTES_MIN,
    BODY_PERIOD_SECONDS,
    HEAD_BYTES_MAX,
    PIECE_BYTES,
    HttpConnection,
)
from tests.virtual_time import run_virtual

REQUEST = b"GET /%d HTTP/1.1\r\n\r\n"
UPLOAD = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
READ_BYTES = 256 * 1024
"""What asyncio reads at once."""


class Transport(asyncio.Transport):
    """Keeps what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_reading_paused = False
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed


class Application:
    """Answers with the path, once it may, or with the length of the body."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.headers: list[tuple[bytes, bytes]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        self.headers = scope["headers"]
        size, more = 0, scope["method"] == "POST"
        while more:
            message = await receive()
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
        await self.may_answer.wait()
        body = b"%d bytes" % size if size else scope["path"].encode()
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", b"%d" % len(body))],
            }
        )
        await send({"type": "http.response.body", "body": body})


def connected(application: Application) -> tuple[HttpConnection, Transport]:
    config = uvicorn.Config(application, lifespan="off", log_config=None)
    config.load()
    connection = HttpConnection(config, ServerState(), {})
    transport = Transport()
    connection.connection_made(transport)
    return connection, transport


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def send(connection: HttpConnection, transport: Transport, parts: Iterable[bytes]) -> int:
    """Send as a peer whose bytes are read while the server reads; return how many it took."""
    taken = 0
    for part in parts:
        for _ in range(500):
            if not transport.is_reading_paused:
                break
            await asyncio.sleep(0)
        if transport.is_reading_paused or transport.is_closed:
            break
        connection.data_received(part)
        taken += len(part)
    return taken


async def test_requests_behind_one_that_takes_long_are_neither_parsed_nor_read() -> None:
    """Each response let 256 KiB more become some 14,000 parsed requests, which took 40 MB."""
    application = Application()
    application.may_answer.clear()
    connection, transport = connected(application)
    many = b"".join(REQUEST % number for number in range(READ_BYTES // len(REQUEST)))
    taken = await send(connection, transport, [many] * 10)

    assert len(many) == taken
    assert len(connection.pipeline) < PIECE_BYTES // len(REQUEST % 0) + 1
    assert ["/0"] == application.paths


async def test_requests_that_come_together_are_answered_in_order() -> None:
    application = Application()
    connection, transport = connected(application)
    count = 3_000
    connection.data_received(b"".join(REQUEST % number for number in range(count)))
    await turns(10 * count)

    assert [f"/{number}" for number in range(count)] == application.paths
    assert count == transport.sent.count(b"HTTP/1.1 200 OK")
    assert not transport.is_reading_paused
    assert not transport.is_closed


async def test_large_bodies_are_read_whole_and_requests_follow_them() -> None:
    application = Application()
    connection, transport = connected(application)
    chunk = b"%x\r\n%b\r\n" % (READ_BYTES, bytes(READ_BYTES))
    parts = [UPLOAD, *[chunk] * 20, b"0\r\n\r\n", REQUEST % 1]
    assert sum(map(len, parts)) == await send(connection, transport, parts)
    await turns()

    assert b"%d bytes" % (20 * READ_BYTES) in transport.sent
    assert ["/", "/1"] == application.paths


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"GET / HTTP/1.1\r\nx: ", id="head"),
        pytest.param(UPLOAD + b"1\r\n{\r\n0\r\nx: ", id="trailer"),
        pytest.param(UPLOAD + b"1;x=", id="chunk extension"),
    ],
)
@pytest.mark.parametrize("line", [b"y" * 1024, b"y\r\nx: " * 256])
async def test_what_is_no_body_is_cut_off(start: bytes, line: bytes) -> None:
    """Trailers had no limit: one connection took 1.2 GB in 15 seconds."""
    application = Application()
    connection, transport = connected(application)
    taken = await send(connection, transport, [start, *[line] * 1_000])

    assert transport.is_closed
    assert taken < HEAD_BYTES_MAX + READ_BYTES
    assert transport.sent.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))


async def test_trailers_are_no_headers() -> None:
    application = Application()
    connection, transport = connected(application)
    connection.data_received(UPLOAD + b"1\r\n{\r\n")
    await turns()
    connection.data_received(b"0\r\nauthorization: Basic YTpi\r\n\r\n")
    await turns()

    assert b"1 bytes" in transport.sent
    assert [(b"transfer-encoding", b"chunked")] == application.headers


async def test_empty_lines_between_requests_are_bounded() -> None:
    application = Application()
    connection, transport = connected(application)
    await send(connection, transport, [REQUEST % 1])
    await turns()
    await send(connection, transport, [b"\r\n" * 1024] * 1_000)

    assert transport.is_closed


async def test_a_connection_that_is_gone_keeps_no_requests() -> None:
    application = Application()
    application.may_answer.clear()
    connection, _ = connected(application)
    connection.data_received(b"".join(REQUEST % number for number in range(3_000)))
    await turns()
    connection.connection_lost(None)
    application.may_answer.set()
    await turns()

    assert not connection.pipeline
    assert ["/0"] == application.paths


CHUNK = b"%x\r\n%b\r\n" % (BODY_PERIOD_BYTES_MIN // 10, bytes(BODY_PERIOD_BYTES_MIN // 10))


def test_a_body_that_trickles_is_refused() -> None:
    """A peer that sent a byte a minute held its connection, and what it had sent, for ever."""

    async def main() -> None:
        connection, transport = connected(Application())
        connection.data_received(UPLOAD + b"1\r\n{\r\n")
        await asyncio.sleep(BODY_PERIOD_SECONDS / 2)
        connection.data_received(b"1\r\n}\r\n")
        await asyncio.sleep(BODY_PERIOD_SECONDS / 2 - 1)
        assert not transport.is_closing()
        await asyncio.sleep(2)

        assert transport.sent.startswith(b"HTTP/1.1 408 ")
        assert transport.is_closed
        connection.connection_lost(None)

    run_virtual(main())


def test_a_body_may_take_long_as_long_as_it_grows() -> None:
    async def main() -> None:
        connection, transport = connected(Application())
        connection.data_received(UPLOAD)
        for _ in range(40):
            connection.data_received(CHUNK)
            await asyncio.sleep(BODY_PERIOD_SECONDS / 20)
        connection.data_received(b"0\r\n\r\n")
        await asyncio.sleep(1)

        assert b"%d bytes" % (4 * BODY_PERIOD_BYTES_MIN) in transport.sent
        assert not transport.is_closed
        assert connection._body_timer is None, "nothing is left to wait for"

    run_virtual(main())


def test_a_peer_need_not_send_what_the_server_does_not_read() -> None:
    """A body behind a request that takes long is not read meanwhile."""

    async def main() -> None:
        application = Application()
        application.may_answer.clear()
        connection, transport = connected(application)
        connection.data_received(REQUEST % 1 + UPLOAD + b"1\r\n{\r\n")
        # The period in which the server goes on does not count.
        await asyncio.sleep(3 * BODY_PERIOD_SECONDS - 1)
        assert not transport.is_closed
        application.may_answer.set()
        await asyncio.sleep(BODY_PERIOD_SECONDS - 2)
        connection.data_received(b"0\r\n\r\n")
        await asyncio.sleep(1)

        assert b"1 bytes" in transport.sent
        assert not transport.is_closed

    run_virtual(main())


def test_a_peer_may_wait_until_it_is_asked_for_the_body() -> None:
    """The application begins to read after a while; until then no ``100 Continue`` is sent."""

    async def main() -> None:
        application = Application()
        connection, transport = connected(application)
        may_read = asyncio.Event()

        async def late(scope: Scope, receive: Receive, send: Send) -> None:
            await may_read.wait()
            await application(scope, receive, send)

        connection.app = late
        connection.data_received(b"POST / HTTP/1.1\r\ncontent-length: 1\r\nexpect: 100-continue\r\n\r\n")
        await asyncio.sleep(3 * BODY_PERIOD_SECONDS - 1)
        may_read.set()
        await asyncio.sleep(BODY_PERIOD_SECONDS - 2)
        assert b"HTTP/1.1 100 Continue\r\n\r\n" == transport.sent
        connection.data_received(b"{")
        await asyncio.sleep(1)

        assert b"1 bytes" in transport.sent

    run_virtual(main())
