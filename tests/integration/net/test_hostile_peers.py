"""A real server on loopback against peers that misbehave: each is contained, and the server serves on."""

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import random
import resource
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from kalda.common.log_limiter import LIMIT_BURST
from kalda.net.connection import REQUESTS_OUTSTANDING_MAX, Connection
from kalda.net.reply import Ticket
from kalda.net.server import Server, ServerConfig
from kalda.net.socket_connection import SocketConnection
from kalda.runtime.system.filesystem import OsFile

Handler = Callable[[Connection, memoryview], None]


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def echo(connection: Connection, frame: memoryview) -> None:
    connection.send(framed(bytes(frame)))


@contextlib.asynccontextmanager
async def serving(handler: Handler = echo, **limits: Any) -> AsyncIterator[tuple[Server, int]]:
    server = Server(ServerConfig(socket_listen_backlog_size=2000, **limits), handler)
    port = await server.listen("PLAINTEXT", "127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.close(drain_seconds=0.1)


async def open_stream(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, payload: bytes) -> bytes:
    writer.write(framed(payload))
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def is_served(port: int) -> bool:
    reader, writer = await open_stream(port)
    try:
        return await asyncio.wait_for(ask(reader, writer, b"ping"), 60) == b"ping"
    finally:
        writer.close()


async def is_closed_by_server(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(60):
            while await reader.read(1 << 20):
                pass
    except ConnectionResetError:
        pass
    return True


def sweep_later(server: Server, seconds: float) -> None:
    """Close what is idle `seconds` from now: a busy machine makes real ones longer than short limits."""
    server.sweep(asyncio.get_running_loop().time() + seconds)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("the condition did not come true in 5 s")


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(struct.pack(">i", 1001) + b"x" * 2000, id="over socket.request.max.bytes"),
        pytest.param(struct.pack(">i", -1), id="negative size"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", id="TLS"),
        pytest.param(b"\xff" * 5000, id="junk"),
    ],
)
async def test_impossible_size_closes_that_connection_alone(bad: bytes) -> None:
    async with serving(socket_request_max_bytes=1000) as (_server, port):
        other_reader, other_writer = await open_stream(port)
        reader, writer = await open_stream(port)
        assert b"good" == await ask(reader, writer, b"good")
        writer.write(bad)
        assert await is_closed_by_server(reader)
        assert b"still here" == await ask(other_reader, other_writer, b"still here")
        assert await is_served(port)
        writer.close()
        other_writer.close()


async def test_flood_of_junk_leaves_few_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody points a scanner at the port; the disk must not fill up with what we think of it."""
    caplog.set_level(logging.INFO)
    async with serving(socket_request_max_bytes=1000) as (server, port):
        rng = random.Random(7)
        for _ in range(150):
            reader, writer = await open_stream(port)
            writer.write(b"\x7f" + rng.randbytes(rng.randrange(3, 300)))
            assert await is_closed_by_server(reader)
            writer.close()
        assert len(caplog.records) <= LIMIT_BURST
        assert 150 == server.statistics().closed
        assert await is_served(port)


async def test_resets_at_any_point_are_survived(caplog: pytest.LogCaptureFixture) -> None:
    """The peer vanishes between the bytes of a request, or while its answer is on the way."""
    caplog.set_level(logging.INFO)
    rng = random.Random(3)
    stream = framed(b"a" * 10) + framed(b"b" * 60_000) + framed(b"c" * 400_000)
    async with serving() as (server, port):
        for _ in range(60):
            _reader, writer = await open_stream(port)
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.write(stream[: rng.randrange(len(stream))])
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            writer.transport.abort()
        await until(lambda: server.statistics().connections == 0)
        assert await is_served(port)
    assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_peer_that_never_reads_is_bounded_and_closed_when_idle() -> None:
    """Its answers stay in bounds, its further requests stay in the kernel, and in the end it is closed."""
    handled = 0

    def big_answers(connection: Connection, frame: memoryview) -> None:
        nonlocal handled
        if bytes(frame) == b"ping":
            connection.send(framed(b"ping"))
            return
        handled += 1
        connection.send(framed(bytes(200_000)))

    async with serving(big_answers, connections_max_idle_ms=600_000) as (server, port):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sent = 0
        request = framed(b"x" * 100) * 100
        for _ in range(50):
            with contextlib.suppress(BlockingIOError):
                sent += sock.send(request)
            await asyncio.sleep(0)
        connection = next(iter(server._connections.values()))
        await until(lambda: bool(connection._out))
        held = sum(len(chunk) for chunk in connection._out if isinstance(chunk, (bytes, memoryview)))
        assert held < 500_000
        assert handled < sent / 104, "requests were handled though nobody reads the answers"
        assert await is_served(port)
        await until(lambda: server.statistics().connections == 1)
        sweep_later(server, 601)
        assert 1 == server.statistics().expired
        await until(lambda: server.statistics().connections == 0)
        sock.close()


async def test_peer_that_stalls_in_the_middle_of_a_frame_is_closed_when_idle() -> None:
    async with serving(connections_max_idle_ms=600_000) as (server, port):
        reader, writer = await open_stream(port)
        writer.write(struct.pack(">i", 90_000_000) + b"x" * 9996)
        await until(lambda: server.statistics().bytes_in == 10_000)
        connection = next(iter(server._connections.values()))
        assert isinstance(connection, SocketConnection)
        assert connection._large is not None
        assert len(connection._large) <= 20_000
        sweep_later(server, 599)
        assert 0 == server.statistics().expired
        sweep_later(server, 660)
        assert await is_closed_by_server(reader)
        assert 1 == server.statistics().expired
        writer.close()


async def test_connection_that_waits_for_the_broker_is_not_idle() -> None:
    """A member that waits for its group to rebalance may wait longer than the idle limit."""
    tickets: list[Ticket] = []

    def wait(connection: Connection, frame: memoryview) -> None:
        tickets.append(connection.open_reply())

    async with serving(wait, connections_max_idle_ms=600_000) as (server, port):
        reader, writer = await open_stream(port)
        writer.write(framed(b"join"))
        await until(lambda: bool(tickets))
        sweep_later(server, 3 * 600)
        connection = next(iter(server._connections.values()))
        connection.reply(tickets[0], framed(b"joined"))
        assert framed(b"joined") == await reader.readexactly(10)
        sweep_later(server, 660)
        assert await is_closed_by_server(reader)
        writer.close()


async def test_a_peer_that_went_with_all_its_requests_unanswered_is_closed_when_idle() -> None:
    """Reading is paused there, so the event loop does not say that the peer is gone."""
    tickets: list[Ticket] = []

    def wait(connection: Connection, frame: memoryview) -> None:
        tickets.append(connection.open_reply())

    async with serving(wait, connections_max_idle_ms=600_000) as (server, port):
        _, writer = await open_stream(port)
        writer.write(framed(b"wait") * REQUESTS_OUTSTANDING_MAX)
        await until(lambda: len(tickets) == REQUESTS_OUTSTANDING_MAX)
        connection = next(iter(server._connections.values()))
        writer.transport.abort()
        await until(lambda: connection.is_reading_paused)
        sweep_later(server, 660)
        await until(lambda: server.statistics().connections == 0)
        assert 1 == server.statistics().expired


def test_out_of_descriptors_rests_and_goes_on() -> None:
    """EMFILE leaves the listener readable: without a rest the loop would spin.

    In a process of its own: descriptors that a thread or the garbage collector closes would be used.
    """
    program = [sys.executable, "-m", "tests.integration.net.out_of_descriptors"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert 0 == done.returncode, done.stderr
    seen = json.loads(done.stdout)
    # The limit leaves four descriptors; the twelve clients are accepted in the end.
    assert (4, 12, True) == (seen["held"], seen["accepted"], seen["served"])
    assert 1 <= len(seen["lines"]) <= 10


async def test_max_connections_makes_new_ones_wait() -> None:
    """Kafka's rule: accepting stops until a connection closes."""
    async with serving(max_connections=2) as (_server, port):
        first, second, third = [await open_stream(port) for _ in range(3)]
        assert b"1" == await ask(*first, b"1")
        assert b"2" == await ask(*second, b"2")
        waiting = asyncio.ensure_future(ask(*third, b"3"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        first[1].close()
        assert b"3" == await asyncio.wait_for(waiting, 30)
        second[1].close()
        third[1].close()


async def test_max_connections_may_be_raised_while_full() -> None:
    """Else the broker would go on refusing until somebody happens to leave."""
    async with serving(max_connections=1) as (server, port):
        first, second = [await open_stream(port) for _ in range(2)]
        assert b"1" == await ask(*first, b"1")
        waiting = asyncio.ensure_future(ask(*second, b"2"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        server.reconfigure(ServerConfig(max_connections=2))
        assert b"2" == await asyncio.wait_for(waiting, 30)
        first[1].close()
        second[1].close()


async def test_limits_that_change_before_the_start_do_not_begin_it() -> None:
    server = Server(ServerConfig(), echo)
    port = await server.listen("PLAINTEXT", "127.0.0.1", 0, accept=False)
    server.reconfigure(ServerConfig(max_connections=5))
    _, writer = await open_stream(port)
    await asyncio.sleep(0.05)
    assert 0 == server.statistics().accepted
    writer.close()
    await server.close()


async def test_max_connections_per_ip_closes_what_is_above() -> None:
    overrides = {"127.0.0.2": 5}
    async with serving(max_connections_per_ip=1, max_connections_per_ip_overrides=overrides) as (
        server,
        port,
    ):
        first = await open_stream(port)
        assert b"1" == await ask(*first, b"1")
        reader, writer = await open_stream(port)
        assert await is_closed_by_server(reader)
        writer.close()
        other = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        assert b"other address" == await ask(*other, b"other address")
        other[1].close()
        first[1].close()
        await until(lambda: server.statistics().connections == 0)
        assert await is_served(port)
        assert 1 == server.statistics().rejected


@pytest.mark.usefixtures("many_descriptors")
async def test_thousand_idle_connections_take_little_memory() -> None:
    """A burst of 1,000 is accepted whole; each costs less than 4 KB while it does nothing."""
    async with serving() as (server, port):
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(1000)]
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            await until(lambda: server.statistics().connections == 1000)
            clients[0].sendall(framed(b"x"))
            await until(lambda: server.statistics().bytes_in == 5)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (after - before) / 1000 < 4096
        assert await is_served(port)
        for client in clients:
            client.close()
        await until(lambda: server.statistics().connections == 0)


async def test_client_that_is_set_to_tls_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """It retries without end: one line for its address and interval is enough, and it says what to do."""
    async with serving() as (server, port):
        for _ in range(5):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection("127.0.0.1", port, ssl=ssl.create_default_context())
        await until(lambda: server.statistics().connections == 0)
        reader, writer = await open_stream(port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n")
        assert await is_closed_by_server(reader)
        writer.close()
        assert await is_served(port)
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert 2 == len(lines)
    assert "sent a TLS ClientHello to the listener PLAINTEXT" in lines[0]
    assert "security.protocol=PLAINTEXT" in lines[0]
    assert "sent an HTTP request to the listener PLAINTEXT" in lines[1]
    assert "metrics.port" in lines[1]


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux' /proc")
@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize(("sent_bytes", "held_kilobytes_max"), [(18, 16), (100_000, 140)])
async def test_stalled_frames_hold_what_arrived_and_give_it_back(
    sent_bytes: int, held_kilobytes_max: int
) -> None:
    """1,000 peers that announced 100 MB and sent 18 bytes held 128 MB, most of it for ever."""
    count = 200
    async with serving() as (server, port):
        assert await is_served(port)
        before = resident_bytes()
        clients = []
        expected = server.statistics().bytes_in
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", port))
            client.setblocking(False)
            announced = struct.pack(">i", 100_000_000) + bytes(sent_bytes - 4)
            await asyncio.get_running_loop().sock_sendall(client, announced)
            clients.append(client)
            expected += sent_bytes
            while server.statistics().bytes_in < expected:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert (resident_bytes() - before) // count < held_kilobytes_max * 1024
        # Every tenth stays, as other clients of a busy broker would: the memory must not depend on them.
        for client in clients[: -count // 10]:
            client.close()
        await until(lambda: server.statistics().connections <= count // 10 + 1)
        assert resident_bytes() - before < count // 4 * held_kilobytes_max * 1024
        for client in clients:
            client.close()
        await until(lambda: server.statistics().connections == 0)


async def test_large_and_small_frames_pipelined_come_back_in_order() -> None:
    rng = random.Random(11)
    payloads = [rng.randbytes(rng.choice([1, 50, 5_000, 250_000, 1_000_000])) for _ in range(60)]
    async with serving() as (_server, port):
        reader, writer = await open_stream(port)
        writer.write(b"".join(map(framed, payloads)))
        answers = []
        for _ in payloads:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            answers.append(await reader.readexactly(size))
        assert answers == payloads
        writer.close()


class Region:
    """A part of an open file."""

    def __init__(self, descriptor: int, position: int, size: int) -> None:
        self.file = OsFile(os.dup(descriptor))
        self.position = position
        self.size = size


async def test_file_regions_reach_a_slow_reader_whole() -> None:
    """More than any socket buffer holds, read in small bites, with other clients served meanwhile."""
    data = random.Random(5).randbytes(12_000_000)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()

        def regions(connection: Connection, frame: memoryview) -> None:
            if bytes(frame) == b"ping":
                connection.send(framed(b"ping"))
                return
            parts = [(1, 5_000_000), (5_000_001, 0), (5_000_001, 6_999_999)]
            size = sum(length for _, length in parts) + 2
            chunks: list[Any] = [struct.pack(">i", size)]
            for position, length in parts:
                chunks.append(Region(file.fileno(), position, length))
            chunks.append(b"ab")
            connection.send(chunks)

        async with serving(regions) as (_server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
            writer.write(framed(b"file") + framed(b"ping"))
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            received = bytearray()
            while len(received) < size:
                received += await reader.read(min(100_000, size - len(received)))
                if len(received) % 17 == 0:
                    assert await is_served(port)
            assert bytes(received) == data[1:] + b"ab"
            assert framed(b"ping") == await reader.readexactly(8)
            writer.close()


UNSENT = 0x894B
"""Linux's SIOCOUTQNSD: how many bytes of a connection were not sent yet."""


async def test_small_header_before_a_file_does_not_wait_for_more() -> None:
    """MSG_MORE on the last bytes would hold an answer back for 200 ms."""
    with tempfile.TemporaryFile() as file:
        held: list[int] = []

        def note(connection: Connection) -> None:
            assert isinstance(connection, SocketConnection)
            held.append(struct.unpack("i", fcntl.ioctl(connection._descriptor, UNSENT, bytes(4)))[0])

        def empty_region(connection: Connection, frame: memoryview) -> None:
            connection.send([framed(b"done"), Region(file.fileno(), 0, 0)])
            # What was sent goes out when the handler has returned.
            asyncio.get_running_loop().call_soon(note, connection)

        async with serving(empty_region) as (_server, port):
            reader, writer = await open_stream(port)
            for _ in range(5):
                assert b"done" == await ask(reader, writer, b"x")
            writer.close()
        assert [0] * 5 == held


async def test_shutdown_answers_what_is_owed_and_reads_no_more() -> None:
    tickets: list[tuple[Connection, Ticket]] = []

    def wait(connection: Connection, frame: memoryview) -> None:
        tickets.append((connection, connection.open_reply()))

    server = Server(ServerConfig(), wait)
    port = await server.listen("PLAINTEXT", "127.0.0.1", 0)
    reader, writer = await open_stream(port)
    writer.write(framed(b"produce"))
    await until(lambda: len(tickets) == 1)
    closing = asyncio.ensure_future(server.close(drain_seconds=60))
    await asyncio.sleep(0.02)
    writer.write(framed(b"too late"))
    await asyncio.sleep(0.02)
    assert not closing.done()
    tickets[0][0].reply(tickets[0][1], framed(b"done"))
    await asyncio.wait_for(closing, 30)
    assert framed(b"done") == await reader.readexactly(8)
    assert 1 == len(tickets)
    with pytest.raises(ConnectionRefusedError):
        await open_stream(port)
    writer.close()


async def test_shutdown_does_not_wait_for_ever() -> None:
    tickets: list[Ticket] = []
    server = Server(ServerConfig(), lambda connection, _: tickets.append(connection.open_reply()))
    port = await server.listen("PLAINTEXT", "127.0.0.1", 0)
    reader, writer = await open_stream(port)
    writer.write(framed(b"never answered"))
    await until(lambda: server.statistics().bytes_in > 0)
    await asyncio.wait_for(server.close(drain_seconds=0.05), 60)
    assert await is_closed_by_server(reader)
    writer.close()


async def test_connections_wait_until_the_broker_can_serve() -> None:
    """A broker needs its port to register itself, and must not meet a client before it is done."""
    server = Server(ServerConfig(), echo)
    port = await server.listen("PLAINTEXT", "127.0.0.1", 0, accept=False)
    waiting = asyncio.ensure_future(is_served(port))
    await asyncio.sleep(0.05)
    assert 0 == server.statistics().accepted
    server.start_accepting()
    server.start_accepting()
    assert await waiting
    await server.close()


async def test_another_frame_handler_serves_open_connections_too() -> None:
    """What holds requests while a broker starts must not be in the way of every later one."""
    first: list[bytes] = []

    def begin(connection: Connection, frame: memoryview) -> None:
        first.append(bytes(frame))
        echo(connection, frame)

    async with serving(begin) as (server, port):
        reader, writer = await open_stream(port)
        assert b"a" == await ask(reader, writer, b"a")
        server.set_frame_handler(echo)
        assert b"b" == await ask(reader, writer, b"b")
        assert [b"a"] == first
        writer.close()


async def test_address_in_use_names_the_listener() -> None:
    async with serving() as (_, port):
        second = Server(ServerConfig(), echo)
        with pytest.raises(OSError, match=f"listener INTERNAL cannot use 127.0.0.1:{port}"):
            await second.listen("INTERNAL", "127.0.0.1", port)
        await second.close()
