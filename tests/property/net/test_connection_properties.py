"""Laws of a connection under any interleaving of arrivals, completions and room at the peer's side."""

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from kalda.net.connection import (
    COALESCE_BYTES_MAX,
    HELD_BYTES_MAX,
    REQUESTS_OUTSTANDING_MAX,
    Connection,
)
from kalda.net.reply import NO_REPLY, Chunk, Ticket
from kalda.net.socket_connection import READ_BYTES_MAX
from tests.unit.net.fakes import Harness, Region, framed

REPLY_BYTES_MAX = 3_000

REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["now", "later", "file now", "file later", "none now", "none later"]),
        st.integers(1, REPLY_BYTES_MAX),
        st.sampled_from([0, 5, 500, 40_000]),
    ),
    max_size=150,
)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.sampled_from([1, 3, 50, 2_000, 90_000])),
        st.tuples(st.just("complete"), st.integers(0, 200)),
        st.tuples(st.just("room"), st.sampled_from([0, 1, 100, 5_000, 100_000])),
    ),
    max_size=60,
)


class Peer:
    """A connection, the requests that are to arrive on it, and the replies that are to be given."""

    def __init__(self, requests: list[tuple[str, int, int]]) -> None:
        self.requests = requests
        self.handled = 0
        self.pending: list[tuple[Ticket, bytes | list[Chunk]]] = []
        self.harness = Harness(self.handle)
        self.harness.socket.room = 0
        self.replies = [self.reply_of(index) for index in range(len(requests))]
        self.stream = b"".join(framed(bytes(padding)) for _, _, padding in requests)
        self.position = 0

    def reply_of(self, index: int) -> bytes:
        kind, size, _ = self.requests[index]
        return b"" if kind.startswith("none") else (b"%d:" % index * size)[:size]

    def handle(self, connection: Connection, frame: memoryview) -> None:
        index = self.handled
        self.handled += 1
        kind, _, padding = self.requests[index]
        assert padding == len(frame)
        reply = self.replies[index]
        shaped: bytes | list[Chunk] = reply
        if kind.startswith("file"):
            shaped = [reply[:7], Region(reply[7:])]
        elif kind.startswith("none"):
            shaped = list(NO_REPLY)
        if kind.endswith("later"):
            self.pending.append((connection.open_reply(), shaped))
        elif not kind.startswith("none"):
            connection.send(shaped)

    def perform(self, action: str, argument: int) -> None:
        if action == "arrive":
            piece = self.stream[self.position : self.position + argument]
            self.position += len(piece)
            self.harness.receive(*([piece] if piece else []))
        elif action == "room":
            self.harness.make_room(argument)
        elif self.pending:
            self.harness.connection.reply(*self.pending.pop(argument % len(self.pending)))
            self.harness.loop.run_soon()

    def check_bounds(self) -> None:
        connection = self.harness.connection
        assert connection.outstanding_count <= REQUESTS_OUTSTANDING_MAX
        assert connection._held_bytes <= HELD_BYTES_MAX + REPLY_BYTES_MAX
        queued = sum(len(chunk) for chunk in connection._out if isinstance(chunk, (bytes, memoryview)))
        most = COALESCE_BYTES_MAX + HELD_BYTES_MAX + REQUESTS_OUTSTANDING_MAX * REPLY_BYTES_MAX
        assert queued <= most, "what is queued is what may coalesce, was held, or was owed"


@given(requests=REQUESTS, actions=ACTIONS, read_bytes_max=st.sampled_from([0, 20, READ_BYTES_MAX]))
def test_peer_gets_every_reply_in_order_and_bounds_hold(
    requests: list[tuple[str, int, int]], actions: list[tuple[str, int]], read_bytes_max: int
) -> None:
    """Whatever the order of events: no reply is lost, doubled, torn or out of its place."""
    peer = Peer(requests)
    with (
        mock.patch("kalda.net.socket_connection.READ_BYTES_MAX", read_bytes_max),
    ):
        for action, argument in actions:
            peer.perform(action, argument)
            peer.check_bounds()
        for _ in range(len(requests) + 3):
            peer.perform("arrive", len(peer.stream))
            peer.perform("room", 10_000_000)
            while peer.pending:
                peer.perform("complete", 0)
    assert len(requests) == peer.handled
    assert peer.harness.take_sent() == b"".join(peer.replies)
    assert peer.harness.connection.is_quiet
    assert [] == peer.harness.owner.closed
