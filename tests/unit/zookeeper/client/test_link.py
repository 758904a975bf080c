"""How a link keeps a session connected: against a scripted server at the other end of a socket pair."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from kalda.net.client.stream import StreamSocket
from kalda.security.tls.client import TlsClient
from kalda.security.zookeeper.client_security import ClientSecurity, Login
from kalda.zookeeper.client.calls import Call
from kalda.zookeeper.client.link import Link
from kalda.zookeeper.client.servers import Servers
from kalda.zookeeper.errors import BadArgumentsError
from kalda.zookeeper.port import EventType
from kalda.zookeeper.protocol import client_requests as encode
from kalda.zookeeper.protocol import responses
from kalda.zookeeper.protocol.framing import FrameReader
from kalda.zookeeper.protocol.jute import Reader
from kalda.zookeeper.protocol.op_codes import OpCode
from kalda.zookeeper.protocol.requests import ConnectRequest, read_connect_request, read_header
from tests.virtual_time import run_virtual

WAIT_SECONDS = 30.0
LONG_MS = 60_000
SHORT_MS = 60
"""A session time-out that passes within the test: heartbeats come every 20 ms."""


class Owner:
    """Notes what a link tells it, and wakes who waits for more."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._more = asyncio.Event()

    async def until(self, *words: str) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while self.told[: len(words)] != list(words):
                assert len(self.told) < len(words), self.told
                self._more.clear()
                await self._more.wait()

    def _note(self, word: str) -> None:
        self.told.append(word)
        self._more.set()

    def on_connected(self, link: Link) -> None:
        self._note(f"connected {link.session.session_id}")

    def on_suspended(self, link: Link) -> None:
        self._note("suspended")

    def on_login_refused(self, link: Link, reason: str) -> None:
        self._note(reason)

    def on_expired(self, link: Link) -> None:
        self._note("expired")

    def on_closed(self, link: Link, *, is_clean: bool) -> None:
        self._note(f"closed {is_clean}")

    def on_event(self, link: Link, event_type: EventType, path: str) -> None:
        self._note(f"event {path}")

    def on_answer(self, link: Link, call: Call, code: int, reader: Reader) -> None:
        self._note(f"answer {call.path} {code}")


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._frames = FrameReader(2**30)

    async def frame(self) -> bytes:
        async with asyncio.timeout(WAIT_SECONDS):
            while (frame := self._frames.next_frame()) is None:
                data = await asyncio.get_running_loop().sock_recv(self.socket, 65_536)
                assert data, "the client closed the connection"
                self._frames.feed(data)
            return frame

    async def request(self, op_code: OpCode) -> int:
        """Return the id of the next request, which has this operation; heartbeats are left out."""
        while True:
            xid, found = read_header(await self.frame())
            if found == op_code:
                return xid
            assert OpCode.PING == found

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def welcome(self, timeout_ms: int = LONG_MS, session_id: int = 7) -> ConnectRequest:
        asked = read_connect_request(await self.frame())
        await self.send(responses.connect_response(timeout_ms, session_id, b"p" * 16, with_read_only=True))
        return asked


@dataclass
class Bench:
    """A link whose connections are socket pairs."""

    peers: asyncio.Queue[Peer] = field(default_factory=asyncio.Queue)
    owner: Owner = field(default_factory=Owner)
    opened: list[socket.socket] = field(default_factory=list)
    refused: int = 0
    """Connections that will be refused."""

    async def connect(
        self, host: str, port: int, tls: TlsClient | None, *, timeout_seconds: float
    ) -> StreamSocket:
        if self.refused:
            self.refused -= 1
            raise ConnectionRefusedError(111, "refused")
        own, other = socket.socketpair()
        own.setblocking(False)
        other.setblocking(False)
        self.opened.append(other)
        self.peers.put_nowait(Peer(other))
        return own

    async def peer(self) -> Peer:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.peers.get()

    @contextlib.asynccontextmanager
    async def link(
        self, session_timeout_ms: int = LONG_MS, login: Login | None = None
    ) -> AsyncIterator[Link]:
        servers = Servers("a:1,b:2", session_timeout_ms, self.connect, ClientSecurity(login=login))
        link = Link(self.owner, servers)
        link.start()
        try:
            yield link
        finally:
            link.abandon()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    yield bench
    for each in bench.opened:
        each.close()


def call(path: str, bytes_count: int = 0) -> Call:
    request = encode.set_data(path, bytes(bytes_count), -1)
    return Call(request, path, lambda reader: reader)


async def test_the_session_goes_on_over_the_next_connection(bench: Bench) -> None:
    bench.refused = 3
    async with bench.link():
        first = await bench.peer()
        await first.welcome()
        first.socket.close()
        second = await bench.peer()
        asked = await second.welcome()
        await bench.owner.until("connected 7", "suspended", "connected 7")
        assert (7, b"p" * 16) == (asked.session_id, asked.password)


async def test_what_a_server_says_before_it_is_gone_comes_first(bench: Bench) -> None:
    async with bench.link() as link:
        peer = await bench.peer()
        await peer.welcome()
        await bench.owner.until("connected 7")
        link.send(call("/a"))
        xid = await peer.request(OpCode.SET_DATA)
        await peer.send(responses.event(EventType.DELETED, "/b") + responses.reply(xid, 3, -101))
        peer.socket.close()
        await bench.owner.until("connected 7", "event /b", "answer /a -101", "suspended")


async def test_requests_wait_for_a_server_that_does_not_read(bench: Bench) -> None:
    """More than the kernel takes at once, in order."""
    async with bench.link() as link:
        peer = await bench.peer()
        await peer.welcome()
        await bench.owner.until("connected 7")
        for number in range(20):
            link.send(call(f"/{number}", 400_000))
        for number in range(20):
            xid = await peer.request(OpCode.SET_DATA)
            await peer.send(responses.reply(xid, number))
        await bench.owner.until("connected 7", *(f"answer /{number} 0" for number in range(20)))


async def test_a_server_that_is_asked_and_silent_is_left(bench: Bench) -> None:
    async with bench.link() as link:
        peer = await bench.peer()
        # No answer to the heartbeat, which the client sends unless the machine pauses for longer.
        await peer.welcome(SHORT_MS)
        await (await bench.peer()).welcome()
        await bench.owner.until("connected 7", "suspended", "connected 7")
        assert "the server said nothing for" in link.last_failure


def test_a_server_that_answers_heartbeats_is_kept() -> None:
    """In virtual time, in which a pause of the machine is no silence of the server."""

    async def main() -> None:
        bench = Bench()
        async with bench.link():
            peer = await bench.peer()
            await peer.welcome(SHORT_MS)
            for _ in range(20):
                await peer.send(responses.reply(await peer.request(OpCode.PING), 1))
            assert ["connected 7"] == bench.owner.told
        for each in bench.opened:
            each.close()

    run_virtual(main())


def test_a_server_that_breaks_off_each_session_is_asked_with_pauses() -> None:
    """It got 18 connections a second, and the broker's log a hundred lines."""

    async def main() -> None:
        bench = Bench()
        loop = asyncio.get_running_loop()
        before = loop.time()
        async with bench.link():
            for _ in range(20):
                peer = await bench.peer()
                await peer.welcome()
                peer.socket.close()
            assert loop.time() - before > 3.0

    run_virtual(main())


async def test_an_answer_that_the_session_has_expired_is_verified(bench: Bench) -> None:
    """The controller resigned and waited for the session's next state, which did not come."""
    async with bench.link() as link:
        peer = await bench.peer()
        await peer.welcome()
        await bench.owner.until("connected 7")
        link.send(call("/a"))
        await peer.send(responses.reply(await peer.request(OpCode.SET_DATA), 3, -112))
        asked = await (await bench.peer()).welcome()
        assert 7 == asked.session_id
        await bench.owner.until("connected 7", "answer /a -112", "suspended", "connected 7")


async def test_a_session_that_is_over_ends_the_link(bench: Bench) -> None:
    async with bench.link():
        await (await bench.peer()).welcome(0, 0)
        await bench.owner.until("expired")
        assert bench.peers.empty()


async def test_close_waits_for_what_was_sent_and_for_the_confirmation(bench: Bench) -> None:
    async with bench.link() as link:
        peer = await bench.peer()
        await peer.welcome()
        await bench.owner.until("connected 7")
        link.send(call("/a"))
        link.close()
        for op_code in (OpCode.SET_DATA, OpCode.CLOSE_SESSION):
            await peer.send(responses.reply(await peer.request(op_code), 1))
        await bench.owner.until("connected 7", "answer /a 0", "closed True")


@pytest.mark.parametrize("is_open", [True, False])
async def test_close_without_a_confirmation_is_not_clean(bench: Bench, is_open: bool) -> None:
    async with bench.link() as link:
        peer = await bench.peer()
        if is_open:
            await peer.welcome()
            await bench.owner.until("connected 7")
        link.close()
        peer.socket.close()
        await bench.owner.until(*(["connected 7"] if is_open else []), "closed False")


async def test_a_refused_login_is_told_and_the_next_server_is_tried(bench: Bench) -> None:
    async with bench.link(login=Login(user="bob", password="secret")):
        peer = await bench.peer()
        await peer.welcome()
        await peer.send(responses.reply(await peer.request(OpCode.SASL), 1, -115))
        await bench.peer()
        (told,) = bench.owner.told
        assert "the SASL login of bob at " in told
        assert "code -115" in told


async def test_an_abandoned_link_tells_nothing_more(bench: Bench) -> None:
    async with bench.link() as link:
        peer = await bench.peer()
        await peer.welcome()
        await bench.owner.until("connected 7")
        link.abandon()
        with pytest.raises(AssertionError, match="closed the connection"):
            await peer.frame()
        assert ["connected 7"] == bench.owner.told


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1, b", [("a", 1), ("b", 2181)]),
        ("[::1]:5,[fe80::1%eth0]", [("::1", 5), ("fe80::1%eth0", 2181)]),
    ],
)
def test_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert addresses == sorted(Servers(text, 1_000).in_any_order(), key=addresses.index)


@pytest.mark.parametrize("text", ["", "a:1,", "a:0", "a:65536", "a:b", "::1:5", "a b:1", "[::1]x"])
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(BadArgumentsError, match=r"zookeeper\.connect"):
        Servers(text, 1_000)


async def test_a_server_that_floods_a_connection_does_not_hold_the_loop(bench: Bench) -> None:
    """The stream says after each read that it holds more, as one over TLS does."""

    class Flood:
        reads = 0
        has_input = True

        def __init__(self, sock: StreamSocket) -> None:
            self.socket = sock
            self.fileno, self.send, self.close = sock.fileno, sock.send, sock.close
            self.sendmsg = sock.sendmsg

        def recv_into(self, buffer: memoryview) -> int:
            Flood.reads += 1
            return self.socket.recv_into(buffer[:1])

    flood = responses.reply(encode.PING_XID, 1) * 1000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kalda.net.client.stream_connection.TlsStream", Flood)
        connect = bench.connect

        async def flooded(*arguments: object, **options: object) -> object:
            return Flood(await connect(*arguments, **options))  # type: ignore[arg-type]  # passed on

        patch.setattr(bench, "connect", flooded)
        async with bench.link():
            peer = await bench.peer()
            await peer.welcome()
            await bench.owner.until("connected 7")
            await peer.send(flood)
            before = Flood.reads
            await asyncio.sleep(0)
            assert 8 >= Flood.reads - before
