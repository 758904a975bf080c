"""Limits of connections with real sockets: of the broker, of listeners, and rates of all kinds (KIP-612)."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from kalda.net.connection import Connection
from kalda.net.server import Server, ServerConfig
from kalda.runtime.network import StreamListener
from kalda.security.quota.connection_rates import ConnectionRates
from kalda.security.quota.rate import Window

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def echo(connection: Connection, frame: memoryview) -> None:
    connection.send(struct.pack(">i", len(frame)) + bytes(frame))


class Client:
    """Connections to a server of two listeners, CLIENTS and BROKERS."""

    def __init__(self, server: Server, ports: dict[str, int]) -> None:
        self.server = server
        self.ports = ports
        self.streams: list[Stream] = []

    async def connect(self, listener: str = "CLIENTS", source: str = "127.0.0.1") -> Stream:
        stream = await asyncio.open_connection("127.0.0.1", self.ports[listener], local_addr=(source, 0))
        self.streams.append(stream)
        return stream

    async def is_served(self, stream: Stream, seconds: float = 60.0) -> bool:
        """Whether the connection is answered in time; False also if it is closed."""
        reader, writer = stream
        writer.write(struct.pack(">i", 1) + b"x")
        try:
            return b"\0\0\0\1x" == await asyncio.wait_for(reader.readexactly(5), seconds)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            return False


@contextlib.asynccontextmanager
async def serving(config: ServerConfig) -> AsyncIterator[Client]:
    server = Server(replace(config, inter_broker_listener_name="BROKERS"), echo)
    ports = {name: await server.listen(name, "127.0.0.1", 0) for name in ("CLIENTS", "BROKERS")}
    client = Client(server, ports)
    try:
        yield client
    finally:
        for _, writer in client.streams:
            writer.close()
        server.check_invariants()
        await server.close(drain_seconds=0.1)


async def test_a_listener_has_its_own_limit_and_another_goes_on() -> None:
    async with serving(ServerConfig(listener_max_connections={"CLIENTS": 1})) as client:
        first = await client.connect()
        assert await client.is_served(first)
        second = await client.connect()
        assert not await client.is_served(second, 0.1)
        assert await client.is_served(await client.connect("BROKERS"))
        first[1].close()
        reader, _ = second
        assert b"\0\0\0\1x" == await asyncio.wait_for(reader.readexactly(5), 60)


async def test_brokers_connect_at_the_limit_and_the_least_recently_used_client_goes() -> None:
    async with serving(ServerConfig(max_connections=2)) as client:
        first, second = await client.connect(), await client.connect()
        for stream in (first, second, first):
            assert await client.is_served(stream)
        broker = await client.connect("BROKERS")
        assert await client.is_served(broker)
        assert not await client.is_served(second)
        assert await client.is_served(first)
        waiting = await client.connect()
        assert not await client.is_served(waiting, 0.1)
        assert 2 == client.server.statistics().connections


async def test_a_broker_is_not_closed_for_another() -> None:
    config = ServerConfig(max_connections=1, listener_max_connections={"BROKERS": 3})
    async with serving(config) as client:
        brokers = [await client.connect("BROKERS") for _ in range(3)]
        assert [True] * 3 == [await client.is_served(each) for each in brokers]


async def test_a_lower_limit_closes_what_is_above_it() -> None:
    async with serving(ServerConfig()) as client:
        streams = [await client.connect() for _ in range(150)]
        for stream in streams:
            assert await client.is_served(stream)
        client.server.reconfigure(ServerConfig(max_connections=10))
        assert [False] * 140 + [True] * 10 == [await client.is_served(each) for each in streams]


async def served_in(client: Client, seconds: float, listener: str = "CLIENTS") -> int:
    """Keep many connections waiting to be accepted, and count those that are."""
    before = client.server.statistics().accepted
    for _ in range(45):
        await client.connect(listener)
    await asyncio.sleep(seconds)
    return client.server.statistics().accepted - before


async def test_accepting_pauses_above_a_rate_without_spinning(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ServerConfig(max_connection_creation_rate=10, quota_window=Window(1))
    async with serving(config) as client:
        turns = 0
        accept = client.server._on_acceptable

        def counted(listener: StreamListener) -> None:
            nonlocal turns
            turns += 1
            accept(listener)

        monkeypatch.setattr(client.server, "_on_acceptable", counted)
        loop = asyncio.get_running_loop()
        began = loop.time()
        served = await served_in(client, 2.0)
        # What a window of one sample holds at once, and then the rate.
        assert 10 <= served <= 10 + 10 * (loop.time() - began) + 1
        assert turns <= served + 1
        client.server.reconfigure(ServerConfig())
        assert await client.is_served(client.streams[-1])


async def test_a_listener_has_its_own_rate_and_brokers_do_not_wait_for_the_brokers_rate() -> None:
    rates = {"CLIENTS": 5, "BROKERS": 1000}
    config = ServerConfig(
        max_connection_creation_rate=5, listener_max_connection_creation_rate=rates, quota_window=Window(1)
    )
    async with serving(config) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        served = await served_in(client, 0.3)
        assert served <= 5 + 5 * (loop.time() - began) + 1
        assert 45 <= await served_in(client, 0.3, "BROKERS")


async def test_an_address_above_its_rate_is_closed_after_a_delay_and_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refuse = ConnectionRates.refuse_seconds
    # Time that passes between the connections would allow more of them.
    monkeypatch.setattr(
        ConnectionRates, "refuse_seconds", lambda rates, listener, ip, _: refuse(rates, listener, ip, 0.0)
    )
    async with serving(ServerConfig(quota_window=Window(1))) as client:
        client.server.rates.set_ip_rate("127.0.0.2", 2)
        served = [await client.is_served(await client.connect(source="127.0.0.2")) for _ in range(2)]
        assert [True, True] == served
        assert not await client.is_served(await client.connect(source="127.0.0.2"))
        assert await client.is_served(await client.connect())
        assert 1 == client.server.statistics().rejected
        client.server.rates.set_ip_rate("127.0.0.2", None)
        assert await client.is_served(await client.connect(source="127.0.0.2"))


async def test_refused_connections_that_wait_are_closed_with_the_server() -> None:
    async with serving(ServerConfig(quota_window=Window(1, 600.0))) as client:
        client.server.rates.set_ip_rate(None, 0)
        reader, _ = await client.connect()
        async with asyncio.timeout(60):
            while not client.server.statistics().rejected:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not reader.at_eof()
        await client.server.close(drain_seconds=0.1)
        # Long before its wait for a refused connection is over.
        assert b"" == await asyncio.wait_for(reader.read(1), 60)


async def test_refused_connections_above_a_number_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kalda.net.socket_server.REFUSED_MAX", 3)
    async with serving(ServerConfig()) as client:
        client.server.rates.set_ip_rate(None, 0)
        streams = [await client.connect() for _ in range(6)]
        assert [False] * 6 == [await client.is_served(each) for each in streams]
        assert 6 == client.server.statistics().rejected


async def test_a_mapped_address_is_the_address() -> None:
    server = Server(ServerConfig(max_connections_per_ip_overrides={"127.0.0.1": 0}), echo)
    port = await server.listen("CLIENTS", "::", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    assert b"" == await asyncio.wait_for(reader.read(1), 60)
    writer.close()
    await server.close(drain_seconds=0.1)
