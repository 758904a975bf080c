"""Limits of connections on a server with a listener for clients and one for brokers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kalda.net.connection import Connection
from kalda.net.server import Server, ServerConfig
from kalda.protocol.framing import SIZE

PATIENCE_SECONDS = 20


def echo(connection: Connection, frame: memoryview) -> None:
    connection.send(SIZE.pack(len(frame)) + bytes(frame))


@asynccontextmanager
async def server_with(config: ServerConfig) -> AsyncIterator[tuple[Server, int, int]]:
    """A server, the port of its clients, and the port of brokers."""
    server = Server(config, echo)
    clients = await server.listen("CLIENTS", "127.0.0.1", 0)
    brokers = await server.listen("BROKERS", "127.0.0.1", 0)
    try:
        yield server, clients, brokers
    finally:
        await server.close(0)


class Peer:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> "Peer":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def ask(self) -> None:
        self.writer.write(SIZE.pack(2) + b"hi")

    async def is_served(self) -> bool:
        """Whether an echo comes; False at the end of the connection."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            try:
                return b"hi" == (await self.reader.read(6))[4:]
            except ConnectionError:
                return False

    def close(self) -> None:
        self.writer.close()


def test_brokers_are_accepted_in_place_of_the_least_recently_used_client() -> None:
    async def run() -> None:
        config = ServerConfig(max_connections=2, inter_broker_listener_name="BROKERS")
        async with server_with(config) as (server, clients, brokers):
            old, busy = await Peer.connect(clients), await Peer.connect(clients)
            for peer in (old, busy, busy):
                peer.ask()
                assert await peer.is_served()
            waiting = await Peer.connect(clients)
            waiting.ask()
            broker = await Peer.connect(brokers)
            broker.ask()
            assert await broker.is_served()
            assert not await old.is_served()
            busy.ask()
            assert await busy.is_served()
            assert 2 == server.statistics().connections
            busy.close()
            assert await waiting.is_served()
            for peer in (old, waiting, broker):
                peer.close()

    asyncio.run(run())


def test_rate_of_the_broker_holds_back_clients_and_not_brokers() -> None:
    async def run() -> None:
        # A rate of 0 lets one connection in for each sample of 1 s; as in Kafka it is also that of listeners.
        config = ServerConfig(
            max_connection_creation_rate=0,
            listener_max_connection_creation_rate={"BROKERS": 1000},
            inter_broker_listener_name="BROKERS",
        )
        async with server_with(config) as (server, clients, brokers):
            peers = [await Peer.connect(clients) for _ in range(3)]
            for peer in peers:
                peer.ask()
            assert await peers[0].is_served()
            for _ in range(5):
                broker = await Peer.connect(brokers)
                broker.ask()
                assert await broker.is_served()
                broker.close()
            assert 6 == server.statistics().accepted
            server.reconfigure(ServerConfig(inter_broker_listener_name="BROKERS"))
            assert [True, True] == [await peer.is_served() for peer in peers[1:]]
            for peer in peers:
                peer.close()

    asyncio.run(run())


@pytest.mark.parametrize("held_max", [1000, 0])
def test_address_above_its_rate_is_closed_unserved(held_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kalda.net.server.REFUSED_MAX", held_max)

    async def run() -> None:
        async with server_with(ServerConfig()) as (server, clients, _):
            # The window has 11 samples, of which 10 count at first.
            server.rates.set_ip_rate("127.0.0.1", 1)
            peers = [await Peer.connect(clients) for _ in range(11)]
            for peer in peers:
                peer.ask()
            assert [True] * 10 + [False] == [await peer.is_served() for peer in peers]
            assert 1 == server.statistics().rejected
            for peer in peers:
                peer.close()

    asyncio.run(run())
