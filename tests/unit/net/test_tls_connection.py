"""A connection with TLS whose requests are held notices its end, as a plaintext one does."""

from typing import Any

import pytest

from kalda.net.connection import Connection
from kalda.net.reply import Ticket
from kalda.net.tls_connection import TlsConnection
from tests.unit.net.fakes import FakeLoop, FakeSocket, Owner, framed
from tests.unit.security.test_tls_channel import Pair, read


class Observer:
    def handshake_completed(self, connection: Connection, certificate: bytes | None) -> str | None:
        return None

    def authentication_failed(self, connection: Connection, reason: str) -> None:
        raise AssertionError(reason)


class Peer:
    """A client behind a fake socket; the server holds further requests while one is unanswered."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.tickets: list[Ticket] = []
        self.abandoned: list[bytes] = []
        pair = Pair()
        self.channel = pair.client
        self.socket, self.loop, self.owner = FakeSocket(), FakeLoop(), Owner()
        fakes: Any = (self.socket, self.loop, pair.server, Observer())
        self.connection = TlsConnection(self.owner, self.handle, 1, "SSL", ("192.0.2.7", 4711), *fakes)
        while not self.channel.handshake():
            self.deliver()
            self.channel.receive(self.take_sent())
        self.deliver()

    def handle(self, connection: Connection, frame: memoryview) -> None:
        data = bytes(frame)
        self.frames.append(data)
        ticket = connection.open_reply()
        ticket.on_abandoned = lambda: self.abandoned.append(data)
        self.tickets.append(ticket)
        connection.hold_frames()

    def send(self, *requests: bytes) -> None:
        for request in requests:
            self.channel.write(framed(request))
        self.deliver()

    def deliver(self, *more: bytes) -> None:
        """Let what the client wrote arrive, and the loop call back while it would."""
        self.socket.incoming += [piece for piece in (self.channel.take_output(),) if piece]
        self.socket.incoming += more
        while self.socket.incoming and self.loop.reader is not None:
            self.loop.reader()
            self.loop.run_soon()

    def answer(self, number: int) -> None:
        self.connection.reply(self.tickets[number], framed(b"answer %d" % number))
        self.loop.run_soon()
        self.deliver()

    def take_sent(self) -> bytes:
        sent = bytes(self.socket.sent)
        self.socket.sent.clear()
        return sent


@pytest.mark.parametrize("says_goodbye", [True, False])
def test_a_peer_that_leaves_while_its_request_holds_the_others_is_noticed(says_goodbye: bool) -> None:
    """Its request may be long work, which ends with the connection. A library sends a notice first."""
    peer = Peer()
    peer.send(b"hold")
    if says_goodbye:
        peer.channel.close()
        peer.deliver()
    peer.deliver(b"")
    assert [b"hold"] == peer.abandoned
    assert ["the peer closed the connection"] == peer.owner.closed


def test_requests_that_arrive_meanwhile_are_handled_in_their_order() -> None:
    peer = Peer()
    peer.send(b"a")
    for request in (b"b", b"c", b"d"):
        peer.send(request)
    assert [b"a"] == peer.frames
    # One receive is kept; what came after it stays in the socket.
    assert 1 == len(peer.socket.incoming) - 1
    for number in range(4):
        peer.answer(number)
    assert [b"a", b"b", b"c", b"d"] == peer.frames
    peer.channel.receive(peer.take_sent())
    assert b"".join(framed(b"answer %d" % number) for number in range(4)) == read(peer.channel)
    peer.deliver(b"")
    assert ["the peer closed the connection"] == peer.owner.closed


def test_a_reply_that_the_peer_takes_in_parts_arrives_whole() -> None:
    """Its last piece is encrypted at once, and waits for the socket."""
    peer = Peer()
    answer = b"a" * 40_000
    peer.connection.handle_with(lambda connection, _: connection.send(framed(answer)))
    peer.socket.room = 10_000
    peer.send(b"ask")
    assert 0 == peer.socket.room
    peer.socket.room = 1 << 30
    assert peer.loop.writer is not None
    peer.loop.writer()
    peer.channel.receive(peer.take_sent())
    assert framed(answer) == read(peer.channel)
    assert peer.connection.is_quiet
    assert [] == peer.owner.closed
