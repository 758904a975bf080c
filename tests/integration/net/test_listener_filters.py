"""Filters of a listener with real sockets: for new and open connections, not for other listeners."""

import asyncio
import struct

from kalda.net.connection import Connection
from kalda.net.filtered_connection import FilteringConnection
from kalda.net.frame_filters import Answer, FrameFilter, RequestAction, ResponseAction
from kalda.net.server import Server, ServerConfig
from kalda.protocol.headers import RequestHeader, request_header

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def echo(connection: Connection, frame: memoryview) -> None:
    connection.send(struct.pack(">i", len(frame)) + bytes(frame))


class Answering:
    def on_request(
        self, connection: Connection, header: RequestHeader, body: int, frame: memoryview
    ) -> RequestAction:
        return Answer(b"\0\0\0\1F")

    def on_response(self, *_: object) -> ResponseAction | None:
        raise AssertionError("it left no note")


async def ask(stream: Stream) -> bytes:
    reader, writer = stream
    request = request_header(RequestHeader(3, 0, 7, None), 1)
    writer.write(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", await asyncio.wait_for(reader.readexactly(4), 30))
    answer = await reader.readexactly(size)
    return b"passed" if answer == request else answer


async def test_filters_of_a_listener_come_and_go_while_it_is_open() -> None:
    server = Server(ServerConfig(), echo)
    filters: list[FrameFilter] = [Answering()]
    plain = await server.listen("PLAIN", "127.0.0.1", 0)
    filtered = await server.listen("FILTERED", "127.0.0.1", 0, filters=filters)
    streams = [await asyncio.open_connection("127.0.0.1", port) for port in (plain, filtered)]
    try:
        assert [b"passed", b"F"] == [await ask(stream) for stream in streams]
        assert tuple(filters) == server.filters_of("FILTERED")
        assert [False, True] == [isinstance(each, FilteringConnection) for each in server.connections]
        server.set_filters("PLAIN", filters)
        server.set_filters("FILTERED", ())
        assert [b"F", b"passed"] == [await ask(stream) for stream in streams]
        streams.append(await asyncio.open_connection("127.0.0.1", filtered))
        assert b"passed" == await ask(streams[-1])
        assert not isinstance(list(server.connections)[-1], FilteringConnection)
    finally:
        for _, writer in streams:
            writer.close()
        await server.close(drain_seconds=0.1)
