"""Broker-to-broker connections over loopback, to a server that answers what the test says."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.net.peer.dialer import TcpDialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.codec import encode
from kalda.protocol.headers import RequestHeader, read_request_header
from kalda.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

Answer = Callable[[RequestHeader, bytes], Awaitable[bytes | None]]
"""What follows the correlation id in the answer to a request, or None to hang up."""

SERVED = [
    ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=8),
    ApiVersion(api_key=ApiKey.FETCH, min_version=0, max_version=11),
    ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=3),
]


async def answer_metadata(header: RequestHeader, _: bytes) -> bytes:
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=5, host="h", port=1)], controller_id=5
    )
    return encode(response, header.api_version)


@asynccontextmanager
async def broker(
    answer: Answer = answer_metadata, *, api_versions_until: int = 3, shift: int = 0
) -> AsyncIterator[int]:
    """Serve one connection after another; yields the port."""

    served: list[asyncio.Task[object] | None] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.current_task())
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                header, position = read_request_header(frame)
                body: bytes | None
                if header.api_key != ApiKey.API_VERSIONS:
                    body = await answer(header, frame[position:])
                elif header.api_version > api_versions_until:
                    body = encode(
                        ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=SERVED), 0
                    )
                else:
                    body = encode(ApiVersionsResponse(api_keys=SERVED), header.api_version)
                if body is None:
                    return
                writer.write(struct.pack(">ii", 4 + len(body), header.correlation_id + shift) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            await hang_up_on(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 26)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.gather(*(task for task in served if task is not None))


async def hang_up_on(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def dial(port: int, timeout_seconds: float = 60) -> PeerConnection:
    return await TcpDialer().dial(
        "127.0.0.1",
        port,
        DialOptions(client_id="broker-1", timeout_seconds=timeout_seconds, receive_buffer_bytes=65536),
    )


async def test_a_request_goes_in_the_highest_version_that_both_know() -> None:
    seen: list[RequestHeader] = []

    async def answer(header: RequestHeader, body: bytes) -> bytes:
        seen.append(header)
        return await answer_metadata(header, body)

    async with broker(answer) as port:
        connection = await dial(port)
        for _ in range(3):
            response = await connection.request(MetadataRequest(topics=None), timeout_seconds=20)
            assert isinstance(response, MetadataResponse)
            assert 5 == response.controller_id
        connection.close()
    assert [(8, "broker-1")] * 3 == [(header.api_version, header.client_id) for header in seen]
    assert 3 == len({header.correlation_id for header in seen})


async def test_an_older_broker_is_asked_again_in_what_it_knows() -> None:
    """Kafka before 2.4 answers ApiVersions v3 in v0 with UNSUPPORTED_VERSION (KIP-511)."""
    async with broker(api_versions_until=2) as port:
        connection = await dial(port)
        assert 8 == connection.version_of(ApiKey.METADATA)
        connection.close()


async def test_a_large_body_goes_both_ways_unharmed() -> None:
    """Tens of megabytes: partial writes one way, a growing receive buffer the other."""
    body = bytes(range(256)) * 4096 * 20

    async def echo(_: RequestHeader, received: bytes) -> bytes:
        return received

    async with broker(echo) as port:
        connection = await dial(port)
        for size in (len(body), 5, 1 << 16, 0):
            chunks = [body[: size // 2], body[size // 2 : size]]
            answer = await connection.request_raw(ApiKey.FETCH, 11, chunks, timeout_seconds=60)
            assert bytes(answer) == body[:size]
            assert not answer.readonly
        connection.close()


async def test_an_api_that_the_peer_does_not_serve_is_an_error_that_names_both() -> None:
    async with broker() as port:
        connection = await dial(port)
        with pytest.raises(ConnectionError, match=rf"127\.0\.0\.1:{port} .*no version of CreateTopics"):
            connection.version_of(ApiKey.CREATE_TOPICS)
        connection.close()


async def test_a_peer_that_hangs_up_fails_the_request() -> None:
    async def hang_up(_header: RequestHeader, _body: bytes) -> None:
        return None

    async with broker(hang_up) as port:
        connection = await dial(port)
        with pytest.raises(ConnectionError, match=f"127.0.0.1:{port} lost: closed by the broker"):
            await connection.request(MetadataRequest(), timeout_seconds=20)
        assert connection.is_closed
        with pytest.raises(ConnectionError, match="closed by the broker"):
            await connection.request(MetadataRequest(), timeout_seconds=20)


async def test_a_peer_that_is_silent_fails_the_request_when_the_time_is_up() -> None:
    async def never(_header: RequestHeader, _body: bytes) -> bytes | None:
        await asyncio.sleep(0.3)
        return None

    async with broker(never) as port:
        connection = await dial(port)
        with pytest.raises(ConnectionError, match=f"{port} did not answer Metadata within 0.05 s"):
            await connection.request(MetadataRequest(), timeout_seconds=0.05)
        assert connection.is_closed


async def test_a_cancelled_request_closes_the_connection() -> None:
    """Its answer would otherwise be taken for the next one's."""
    asked = asyncio.Event()

    async def note(_header: RequestHeader, _body: bytes) -> bytes | None:
        asked.set()
        await asyncio.sleep(0.05)
        return None

    async with broker(note) as port:
        connection = await dial(port)
        task = asyncio.ensure_future(connection.request(MetadataRequest(), timeout_seconds=20))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert connection.is_closed


async def test_an_answer_to_another_request_is_refused() -> None:
    async with broker(shift=7) as port:
        with pytest.raises(ConnectionError, match=f"{port} lost: .* a bad response: response 7 came"):
            await dial(port)


async def test_nobody_listening_is_an_error_that_names_the_peer() -> None:
    async with broker() as port:
        pass
    with pytest.raises(ConnectionError, match=f"127.0.0.1:{port}"):
        await dial(port)


async def test_a_server_that_accepts_and_says_nothing_is_given_up() -> None:
    """As a stopped process does: the kernel accepts for it."""

    done = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await hang_up_on(writer)
        done.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ConnectionError, match=f"127.0.0.1:{port}"):
        await dial(port, timeout_seconds=0.05)
    await done.wait()
    server.close()
    await server.wait_closed()


async def test_a_name_that_nobody_knows_is_an_error_that_names_it() -> None:
    with pytest.raises(ConnectionError, match=r"no-such-host\.invalid:1"):
        await TcpDialer().dial("no-such-host.invalid", 1, DialOptions(client_id="b", timeout_seconds=20))
