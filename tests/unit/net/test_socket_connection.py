"""A connection on a fake socket: frames, order of replies, partial sends, bounds."""

import errno
import random
from mmap import mmap

import pytest

from kalda.net import connection as connection_module
from kalda.net import framed_connection, socket_connection
from kalda.net.connection import Connection
from kalda.net.foreign_protocols import ForeignProtocol
from kalda.net.receive_buffers import SPARE_BUFFERS_MAX, ReceiveBuffers
from kalda.net.reply import NO_REPLY, Chunk, PieceSource, Ticket
from kalda.net.socket_connection import READ_BYTES_MAX, SocketConnection
from tests.unit.net.fakes import FakeLoop, Harness, Region, framed


def echo(connection: Connection, frame: memoryview) -> None:
    connection.send(framed(bytes(frame)))


class Collector:
    """A frame handler that opens a ticket for each frame and lets the test answer."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.tickets: list[Ticket] = []

    def __call__(self, connection: Connection, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self.tickets.append(connection.open_reply())


class Pieces(PieceSource):
    """Pieces of which the first `ready` are there; `make_ready` brings one more."""

    def __init__(self, pieces: list[bytes], ready: int) -> None:
        super().__init__()
        self.size = sum(map(len, pieces))
        self.pieces = pieces
        self.ready = ready

    @property
    def is_done(self) -> bool:
        return not self.pieces

    def take(self) -> bytes | None:
        if not self.ready:
            return None
        self.ready -= 1
        return self.pieces.pop(0)

    def make_ready(self) -> None:
        self.ready += 1
        self._signal()


@pytest.fixture(autouse=True)
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not end a turn early."""
    monkeypatch.setattr(FakeLoop, "time", lambda _: 100.0)


@pytest.fixture(params=[0, 100, READ_BYTES_MAX])
def files(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> tuple[Harness, list[list[Chunk] | bytes]]:
    """A connection whose handler sends the replies of a list, with the files faked."""
    replies: list[list[Chunk] | bytes] = []
    harness = Harness(lambda connection, _: connection.send(replies.pop(0)))
    monkeypatch.setattr("kalda.net.socket_connection.READ_BYTES_MAX", request.param)
    return harness, replies


def held_bytes(connection: SocketConnection) -> int:
    """The memory of a frame that has not arrived whole."""
    held = connection._stash if connection._large is None else connection._large
    return 0 if held is None else len(held)


class TestFrames:
    def test_pipelined_frames_are_answered_in_one_send(self) -> None:
        harness = Harness(echo)
        harness.receive(framed(b"one") + framed(b"two") + framed(b""))
        assert framed(b"one") + framed(b"two") + framed(b"") == harness.take_sent()
        assert 1 == len(harness.socket.sends)

    @pytest.mark.parametrize("seed", range(20))
    def test_frames_survive_any_cut_of_the_stream(self, seed: int) -> None:
        """TCP cuts where it likes: through sizes, through small frames and through large ones."""
        rng = random.Random(seed)
        frames = [rng.randbytes(rng.choice([0, 1, 3, 90, 40_000, 300_000])) for _ in range(12)]
        stream = b"".join(map(framed, frames))
        cuts = sorted(rng.randrange(len(stream)) for _ in range(rng.randrange(60)))
        pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]
        collector = Collector()
        harness = Harness(collector)
        harness.receive(*pieces)
        assert frames == collector.frames
        assert len(stream) == harness.owner.bytes_in

    def test_byte_by_byte_is_fine(self) -> None:
        harness = Harness(echo)
        harness.receive(*(bytes([byte]) for byte in framed(b"slow") * 2))
        assert framed(b"slow") * 2 == harness.take_sent()

    def test_frame_is_writable(self) -> None:
        """The log patches base offsets in place, in the buffer that was received into."""

        def patch(connection: Connection, frame: memoryview) -> None:
            frame[:1] = b"X"
            connection.send(bytes(frame))

        harness = Harness(patch)
        harness.receive(framed(b"small"))
        harness.receive(framed(b"l" * 400_000))
        assert b"Xmall" + b"X" + b"l" * 399_999 == harness.take_sent()

    @pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
    def test_size_out_of_bounds_closes_after_earlier_replies(self, size: int) -> None:
        harness = Harness(echo, frame_bytes_max=1000)
        harness.receive(framed(b"good") + size.to_bytes(4, "big", signed=True) + b"never looked at")
        assert framed(b"good") == harness.take_sent()
        assert harness.socket.is_closed
        assert "socket.request.max.bytes" in harness.owner.closed[0]

    @pytest.mark.parametrize("frame_bytes_max", [100_000_000, 2_147_483_647])
    @pytest.mark.parametrize(
        ("start", "protocol"),
        [
            (bytes.fromhex("16030102000100"), ForeignProtocol.TLS),
            (bytes.fromhex("16030300"), ForeignProtocol.TLS),
            (b"GET /metrics HTTP/1.1\r\n", ForeignProtocol.HTTP),
            (b"POST / HTTP/1.1\r\n", ForeignProtocol.HTTP),
            (b"PRI * HTTP/2.0\r\n", ForeignProtocol.HTTP),
        ],
    )
    def test_peer_of_another_protocol_is_named(
        self, start: bytes, protocol: ForeignProtocol, frame_bytes_max: int
    ) -> None:
        """A size of 369 MB says nothing to the owner of a client that is set to TLS."""
        harness = Harness(echo, frame_bytes_max)
        harness.receive(start)
        assert [protocol] == harness.owner.foreign
        assert harness.socket.is_closed
        assert harness.owner.closed == [f"the peer sent {protocol.value}"]

    def test_large_frame_is_not_taken_for_tls(self) -> None:
        """A Produce request of 369 MB begins with the four bytes of a TLS record."""
        harness = Harness(echo, 2_147_483_647)
        harness.receive(bytes.fromhex("1603010200000009"))
        assert [] == harness.owner.foreign
        assert not harness.socket.is_closed

    def test_frame_of_exactly_the_limit_is_taken(self) -> None:
        harness = Harness(echo, frame_bytes_max=1000)
        harness.receive(framed(b"x" * 1000))
        assert framed(b"x" * 1000) == harness.take_sent()

    def test_announced_size_alone_takes_no_memory(self) -> None:
        """A peer that announces 100 MB and stalls holds at most twice what it sent."""
        harness = Harness(echo, frame_bytes_max=100_000_000)
        connection = harness.connection
        harness.receive((100_000_000).to_bytes(4, "big") + b"x" * 14)
        assert 18 == held_bytes(connection)
        sent = 18
        for count in (4000, 1000, 30_000, 200_000, 300_000, 1_000_000):
            harness.receive(b"x" * count)
            sent += count
            assert sent <= held_bytes(connection) <= 2 * sent

    def test_buffer_of_a_large_frame_is_used_again(self) -> None:
        """Zeroing a megabyte for every batch would cost a tenth of the produce path."""
        harness = Harness(echo)
        harness.receive(framed(b"x" * 1_000_000))
        spares = list(harness.owner.buffers._spares)
        assert 1 == len(spares)
        harness.receive(framed(b"y" * 999_000))
        assert harness.owner.buffers._spares[0] is spares[0]
        assert framed(b"x" * 1_000_000) + framed(b"y" * 999_000) == harness.take_sent()

    def test_spare_buffers_are_bounded(self) -> None:
        buffers = ReceiveBuffers()
        for size in (100_000, 1_000_000) * 10:
            buffers.give_back(mmap(-1, size))
        buffers.give_back(mmap(-1, 50_000_000))
        assert SPARE_BUFFERS_MAX == len(buffers._spares)
        assert all(len(spare) == 1_000_000 for spare in buffers._spares), "the large ones are worth keeping"

    def test_buffer_grows_where_mappings_cannot(self) -> None:
        """macOS has no mremap."""

        class FixedMapping(mmap):
            def resize(self, newsize: int) -> None:
                raise SystemError("mmap: resizing not available--no mremap()")

        full = FixedMapping(-1, 8192)
        full[:] = b"x" * 8192
        grown = ReceiveBuffers().grow(full, 1_000_000)
        assert 16_384 == len(grown)
        assert b"x" * 8192 + b"\0" == grown[:8193]

    def test_lease_takes_the_spare_that_fits_best(self) -> None:
        buffers = ReceiveBuffers()
        for size in (2_000_000, 200_000, 1_000_000):
            buffers.give_back(mmap(-1, size))
        assert 200_000 == len(buffers.lease(150_000, memoryview(b"")))
        assert 1_000_000 == len(buffers.lease(150_000, memoryview(b"")))


class TestOrderOfReplies:
    def test_replies_leave_in_the_order_of_the_requests(self) -> None:
        collector = Collector()
        harness = Harness(collector)
        harness.receive(framed(b"a") + framed(b"b") + framed(b"c"))
        harness.connection.reply(collector.tickets[2], b"C")
        harness.connection.reply(collector.tickets[1], b"B")
        assert b"" == harness.take_sent()
        harness.connection.reply(collector.tickets[0], b"A")
        assert b"ABC" == harness.take_sent()
        assert 1 == len(harness.socket.sends)
        assert harness.connection.is_quiet

    def test_a_request_that_holds_the_others_is_answered_before_they_are_handled(self) -> None:
        """What is received with it waits, and what comes later is not read."""
        frames: list[bytes] = []
        tickets: list[Ticket] = []

        def handle(connection: Connection, frame: memoryview) -> None:
            frames.append(bytes(frame))
            tickets.append(connection.open_reply())
            if frame[0] == ord("h"):
                connection.hold_frames()

        harness = Harness(handle)
        harness.receive(framed(b"a") + framed(b"hold") + framed(b"b"))
        harness.receive(framed(b"c"))
        assert [b"a", b"hold"] == frames
        harness.connection.reply(tickets[0], b"A")
        harness.loop.run_soon()
        assert [b"a", b"hold"] == frames
        harness.connection.reply(tickets[1], b"H")
        harness.loop.run_soon()
        harness.receive()
        assert [b"a", b"hold", b"b", b"c"] == frames
        assert b"AH" == harness.take_sent()

    def test_a_peer_that_leaves_while_its_request_holds_the_others_is_noticed(self) -> None:
        """Its request may be long work, which ends with the connection."""
        abandoned: list[bool] = []

        def handle(connection: Connection, frame: memoryview) -> None:
            connection.open_reply().on_abandoned = lambda: abandoned.append(True)
            connection.hold_frames()

        harness = Harness(handle)
        harness.receive(framed(b"hold"))
        harness.receive(b"")
        assert [True] == abandoned
        assert ["the peer closed the connection"] == harness.owner.closed

    @pytest.mark.parametrize("seed", range(10))
    def test_any_order_of_completion_gives_the_order_of_arrival(self, seed: int) -> None:
        rng = random.Random(seed)
        collector = Collector()
        harness = Harness(collector)
        expected = b""
        waiting: list[tuple[int, bytes]] = []
        for number in range(60):
            harness.receive(framed(b"request"))
            reply = b"" if rng.random() < 0.2 else b"<%d>" % number
            expected += reply
            waiting.append((number, reply))
            while waiting and rng.random() < 0.5:
                index, answer = waiting.pop(rng.randrange(len(waiting)))
                harness.connection.reply(collector.tickets[index], answer or NO_REPLY)
        for index, answer in waiting:
            harness.connection.reply(collector.tickets[index], answer or NO_REPLY)
        assert expected == harness.take_sent()

    def test_immediate_answer_waits_for_an_earlier_delayed_one(self) -> None:
        tickets: list[Ticket] = []

        def handle(connection: Connection, frame: memoryview) -> None:
            if bytes(frame) == b"wait":
                tickets.append(connection.open_reply())
            else:
                connection.send(b"now")

        harness = Harness(handle)
        harness.receive(framed(b"wait") + framed(b"now"))
        assert b"" == harness.take_sent()
        harness.connection.reply(tickets[0], b"late ")
        assert b"late now" == harness.take_sent()

    def test_reply_to_a_closed_connection_is_dropped(self) -> None:
        """A fetch waits 500 ms; its consumer may be gone by then."""
        collector = Collector()
        harness = Harness(collector)
        harness.receive(framed(b"a"), ConnectionResetError(errno.ECONNRESET, "reset"))
        assert harness.socket.is_closed
        harness.connection.reply(collector.tickets[0], b"A")
        assert b"" == harness.take_sent()

    def test_close_abandons_what_waits_but_not_what_is_answered(self) -> None:
        collector = Collector()
        harness = Harness(collector)
        harness.receive(framed(b"a") + framed(b"b"))
        abandoned: list[str] = []
        collector.tickets[0].on_abandoned = lambda: abandoned.append("a")
        collector.tickets[1].on_abandoned = lambda: abandoned.append("b")
        harness.connection.reply(collector.tickets[1], b"B")
        harness.connection.close("test")
        harness.connection.close("again")
        assert ["a"] == abandoned
        assert ["test"] == harness.owner.closed


class TestMute:
    def test_muted_connection_sends_its_reply_and_handles_nothing_more(self) -> None:
        handled = []

        def handle(connection: Connection, frame: memoryview) -> None:
            handled.append(bytes(frame))
            connection.send(framed(bytes(frame)))
            if bytes(frame) == b"one":
                connection.mute(3.0)

        harness = Harness(handle)
        harness.receive(framed(b"one") + framed(b"two"))
        harness.receive(framed(b"three"))
        assert [b"one"] == handled
        assert framed(b"one") == harness.take_sent()
        assert harness.loop.reader is None
        (timer,) = harness.loop.later
        assert 3.0 == timer.seconds
        timer.call()
        harness.receive()
        assert [b"one", b"two", b"three"] == handled
        assert framed(b"two") + framed(b"three") == harness.take_sent()

    def test_answers_to_earlier_requests_leave_a_muted_connection(self) -> None:
        collector = Collector()
        harness = Harness(collector)
        harness.receive(framed(b"one"), framed(b"two"))
        harness.connection.mute(1.0)
        harness.connection.reply(collector.tickets[1], b"B")
        harness.connection.reply(collector.tickets[0], b"A")
        harness.receive(framed(b"three"))
        assert b"AB" == harness.take_sent()
        assert [b"one", b"two"] == collector.frames
        harness.loop.later[0].call()
        harness.receive()
        assert [b"one", b"two", b"three"] == collector.frames

    def test_longer_of_two_times_counts(self) -> None:
        harness = Harness(echo)
        harness.connection.mute(2.0)
        harness.connection.mute(1.0)
        harness.connection.mute(5.0)
        assert [(2.0, True), (5.0, False)] == [
            (timer.seconds, timer.is_cancelled) for timer in harness.loop.later
        ]

    def test_closed_connection_is_not_muted_and_its_timer_ends(self) -> None:
        harness = Harness(echo)
        harness.connection.mute(2.0)
        harness.connection.close("enough")
        harness.connection.mute(2.0)
        assert [True] == [timer.is_cancelled for timer in harness.loop.later]

    def test_draining_connection_stays_silent_after_its_time(self) -> None:
        harness = Harness(echo)
        harness.connection.mute(2.0)
        harness.connection.drain()
        harness.loop.later[0].call()
        harness.receive(framed(b"late"))
        assert b"" == harness.take_sent()


class TestPartialSends:
    @pytest.mark.parametrize("room", [0, 1, 5, 99, 100, 101])
    def test_rest_of_a_reply_leaves_when_there_is_room(self, room: int) -> None:
        harness = Harness(lambda connection, _: connection.send(b"0123456789" * 10))
        harness.socket.room = room
        harness.receive(framed(b"a"))
        for _ in range(110):
            harness.make_room(1)
        assert b"0123456789" * 10 == harness.take_sent()
        assert harness.loop.writer is None
        assert 100 == harness.owner.bytes_out

    @pytest.mark.parametrize("step", [1, 7, 64, 1000, 100_000])
    def test_memory_and_file_regions_interleave_whatever_the_room(
        self, files: tuple[Harness, list[list[Chunk] | bytes]], step: int
    ) -> None:
        """A fetch response: header, records of one partition from its file, header, records of the next."""
        harness, replies = files
        chunks: list[Chunk] = [
            b"header",
            Region(b"f" * 300, position=1000),
            b"",
            bytearray(b"between"),
            memoryview(b"and more"),
            Region(b"", position=5),
            Region(b"g" * 100),
            b"tail",
        ]
        replies += [list(chunks), b"second"]
        expected = b"header" + b"f" * 300 + b"betweenand more" + b"g" * 100 + b"tail"
        harness.socket.room = step
        harness.receive(framed(b"a") + framed(b"b"))
        for _ in range(600):
            harness.make_room(step)
        assert expected + b"second" == harness.take_sent()
        assert len(expected) + 6 == harness.owner.bytes_out

    @pytest.mark.parametrize("step", [1, 7, 1000])
    @pytest.mark.parametrize("ready", [0, 1, 3])
    def test_bytes_that_are_made_while_they_are_sent_come_in_order(
        self, files: tuple[Harness, list[list[Chunk] | bytes]], step: int, ready: int
    ) -> None:
        """The loop is not called for a socket with room while a piece is not ready."""
        harness, replies = files
        first, second = Pieces([b"abc", b"defgh", b"i"], ready), Pieces([b"xyz"], ready)
        region = Region(b"f" * 20)
        replies += [[b"header", first, second, b"between", region, b"tail"], b"next"]
        harness.socket.room = step
        harness.receive(framed(b"a") + framed(b"b"))
        for _ in range(100):
            harness.make_room(step)
            if step == 1000 and not ready:
                assert harness.loop.writer is None or first.is_done
            first.make_ready()
            second.make_ready()
        expected = b"headerabcdefghixyzbetween" + b"f" * 20 + b"tailnext"
        assert expected == harness.take_sent()
        assert len(expected) == harness.owner.bytes_out

    def test_a_small_file_region_leaves_in_one_send_with_what_is_around_it(
        self, files: tuple[Harness, list[list[Chunk] | bytes]]
    ) -> None:
        harness, replies = files
        small = socket_connection.READ_BYTES_MAX >= 20
        replies.append([b"header", Region(b"f" * 20, position=7), b"tail"])
        harness.receive(framed(b"a"))
        assert b"header" + b"f" * 20 + b"tail" == harness.take_sent()
        assert (
            ([], [30]) == (harness.socket.file_sends, harness.socket.sends)
            if small
            else [20] == harness.socket.file_sends
        )

    def test_piece_for_a_closed_connection_is_dropped(self) -> None:
        pieces = Pieces([b"abc"], 0)
        harness = Harness(lambda connection, _: connection.send([b"header", pieces]))
        harness.receive(framed(b"a"))
        harness.connection.close("the test ends it")
        pieces.make_ready()
        assert b"header" == harness.take_sent()

    def test_large_file_region_leaves_in_turns(
        self, files: tuple[Harness, list[list[Chunk] | bytes]]
    ) -> None:
        """One consumer of 50 MB must not keep the loop from the others."""
        harness, replies = files
        size = 3 * socket_connection.SEND_TURN_BYTES_MAX
        replies.append([b"header", Region(bytes(size))])
        harness.receive(framed(b"a"))
        assert socket_connection.SEND_TURN_BYTES_MAX == sum(harness.socket.file_sends)
        assert harness.loop.writer is not None
        harness.make_room(1)
        assert 6 + size == len(harness.take_sent())

    def test_a_reply_that_fills_its_turn_needs_no_other(
        self, files: tuple[Harness, list[list[Chunk] | bytes]]
    ) -> None:
        harness, replies = files
        replies.append([b"header", Region(bytes(socket_connection.SEND_TURN_BYTES_MAX))])
        harness.receive(framed(b"a"))
        assert 6 + socket_connection.SEND_TURN_BYTES_MAX == len(harness.take_sent())
        assert harness.loop.writer is None

    def test_many_file_regions_leave_in_turns(self, files: tuple[Harness, list[list[Chunk] | bytes]]) -> None:
        """So do those of a consumer of thousands of partitions, whether small ones are read or not."""
        harness, replies = files
        turn, count = socket_connection.SEND_TURN_BYTES_MAX, 1200
        regions = [Region(bytes(READ_BYTES_MAX)) for _ in range(count)]
        replies.append([b"header", *regions])
        harness.receive(framed(b"a"))
        sent = len(harness.take_sent())
        assert turn <= sent < turn + connection_module.COALESCE_BYTES_MAX + READ_BYTES_MAX
        assert harness.loop.writer is not None
        harness.make_room(1)
        harness.make_room(1)
        assert 6 + count * READ_BYTES_MAX == sent + len(harness.take_sent())

    def test_file_that_ends_early_closes_the_connection(
        self, files: tuple[Harness, list[list[Chunk] | bytes]]
    ) -> None:
        """The size went out already: the peer would take the next reply for records."""
        harness, replies = files
        region = Region(b"short")
        region.size = 10
        replies.append([b"header", region])
        harness.receive(framed(b"a"))
        assert harness.socket.is_closed
        assert "5 bytes before" in harness.owner.closed[0]

    def test_broken_pipe_closes_quietly(self) -> None:
        harness = Harness(echo)

        def broken(data: bytes | memoryview, flags: int = 0) -> int:
            raise BrokenPipeError(errno.EPIPE, "broken pipe")

        harness.socket.send = broken  # type: ignore[method-assign]  # the fake peer is gone
        harness.receive(framed(b"a") + framed(b"b"))
        assert harness.socket.is_closed
        assert 1 == len(harness.owner.closed)


class TestBounds:
    def test_no_frame_is_handled_while_output_is_pending(self) -> None:
        """Every bound on memory rests on this: a peer that does not read is not served."""
        handled: list[bytes] = []

        def handle(connection: Connection, frame: memoryview) -> None:
            handled.append(bytes(frame))
            connection.send(b"r" * 70_000)

        harness = Harness(handle)
        harness.socket.room = 10
        requests = [b"%d" % number for number in range(20)]
        harness.receive(b"".join(map(framed, requests[:10])), b"".join(map(framed, requests[10:])))
        assert [b"0"] == handled
        assert harness.connection.is_reading_paused
        harness.make_room(70_000)
        assert [b"0", b"1"] == handled
        harness.make_room(1 << 30)
        harness.receive()
        assert handled == requests
        assert b"r" * 70_000 * 20 == harness.take_sent()
        assert not harness.connection.is_reading_paused

    def test_many_small_replies_are_flushed_before_they_pile_up(self) -> None:
        harness = Harness(lambda connection, _: connection.send(b"r" * 1000))
        harness.socket.room = 0
        harness.receive(framed(b"a") * 5000)
        held = sum(len(chunk) for chunk in harness.connection._out if isinstance(chunk, bytes))
        assert held <= connection_module.COALESCE_BYTES_MAX + 1000

    def test_outstanding_requests_are_bounded(self) -> None:
        collector = Collector()
        harness = Harness(collector)
        limit = connection_module.REQUESTS_OUTSTANDING_MAX
        harness.receive(framed(b"a") * (limit + 30), framed(b"b") * 5, framed(b"c"))
        assert limit == len(collector.frames)
        assert harness.loop.reader is None
        harness.connection.reply(collector.tickets[0], b"A")
        assert limit == len(collector.frames), "the next request is not handled inside somebody's reply"
        harness.loop.run_soon()
        assert limit + 1 == len(collector.frames)
        for ticket in collector.tickets[1:40]:
            harness.connection.reply(ticket, b"A")
        harness.loop.run_soon()
        harness.receive()
        assert limit + 36 == len(collector.frames)

    def test_connection_with_many_requests_leaves_turns_to_others(self) -> None:
        handled: list[bytes] = []
        harness = Harness(lambda connection, frame: handled.append(bytes(frame)))
        requests = [b"%d" % number for number in range(150)]
        harness.socket.incoming.append(b"".join(map(framed, requests)))
        assert harness.loop.reader is not None
        harness.loop.reader()
        assert framed_connection.FRAMES_PER_TURN_MAX == len(handled)
        harness.loop.run_soon()
        assert 2 * framed_connection.FRAMES_PER_TURN_MAX == len(handled)
        harness.receive(framed(b"last"))
        assert [*requests, b"last"] == handled

    def test_turn_of_costly_requests_ends_by_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ten clients with 64 requests of a millisecond each made another one wait for 540 ms."""
        now = 100.0
        monkeypatch.setattr(FakeLoop, "time", lambda _: now)
        handled: list[bytes] = []

        def handle(connection: Connection, frame: memoryview) -> None:
            nonlocal now
            now += connection_module.TURN_S * 0.6
            handled.append(bytes(frame))

        harness = Harness(handle)
        requests = [b"%d" % number for number in range(10)]
        harness.socket.incoming.append(b"".join(map(framed, requests)))
        assert harness.loop.reader is not None
        harness.loop.reader()
        assert 3 == len(handled)
        harness.loop.run_soon()
        assert 6 == len(handled)
        harness.receive(framed(b"last"))
        assert [*requests, b"last"] == handled

    def test_busy_connection_gets_one_turn_per_turn_of_the_loop(self) -> None:
        """More requests arrive while a turn is planned: they must not make it two, then three."""
        handled: list[bytes] = []
        harness = Harness(lambda connection, frame: handled.append(bytes(frame)))
        limit = framed_connection.FRAMES_PER_TURN_MAX
        for turn in range(1, 6):
            harness.socket.incoming.append(framed(b"x") * limit * 6)
            assert harness.loop.reader is not None
            planned, harness.loop.soon = harness.loop.soon, []
            for callback in planned:
                callback()
            harness.loop.reader()
            assert turn * limit == len(handled)
            assert 1 == len(harness.loop.soon)
        harness.receive()
        assert 5 * 6 * limit == len(handled)

    def test_replies_held_back_are_bounded(self) -> None:
        """Large answers behind a fetch that waits must not pile up."""
        held = connection_module.HELD_BYTES_MAX // 4

        def handle(connection: Connection, frame: memoryview) -> None:
            handled.append(bytes(frame))
            if bytes(frame) == b"wait":
                tickets.append(connection.open_reply())
            else:
                connection.send(b"r" * held)

        handled: list[bytes] = []
        tickets: list[Ticket] = []
        harness = Harness(handle)
        harness.receive(framed(b"wait") + framed(b"big") * 20)
        assert [b"wait"] + [b"big"] * 4 == handled
        harness.connection.reply(tickets[0], b"A")
        harness.loop.run_soon()
        assert 21 == len(handled)
        assert b"A" + b"r" * held * 20 == harness.take_sent()

    def test_handler_that_raises_ends_its_own_connection_only(self, caplog: pytest.LogCaptureFixture) -> None:
        def handle(connection: Connection, frame: memoryview) -> None:
            raise RuntimeError("on purpose")

        harness = Harness(handle)
        harness.receive(framed(b"a"))
        assert harness.socket.is_closed
        assert "on purpose" in caplog.text

    def test_handler_may_close_the_connection(self) -> None:
        def handle(connection: Connection, frame: memoryview) -> None:
            connection.send(b"last words")
            connection.close("refused")
            connection.send(b"never sent")

        harness = Harness(handle)
        harness.receive(framed(b"a") + framed(b"b"))
        assert ["refused"] == harness.owner.closed
        assert b"last words" == harness.take_sent()

    def test_drain_answers_what_is_owed_and_reads_no_more(self) -> None:
        collector = Collector()
        harness = Harness(collector)
        harness.receive(framed(b"a"))
        harness.connection.drain()
        assert 1 == harness.connection.outstanding_count
        harness.connection.reply(collector.tickets[0], b"A")
        harness.loop.run_soon()
        assert b"A" == harness.take_sent()
        assert harness.connection.is_quiet
        harness.receive(framed(b"b"))
        assert 1 == len(collector.frames)

    def test_a_replaced_handler_goes_and_that_of_a_login_stays(self) -> None:
        served, logging_in = Collector(), Collector()
        harness = Harness(served)
        later = Collector()
        harness.connection.replace_handler(logging_in, later)
        harness.receive(framed(b"a"))
        harness.connection.replace_handler(served, later)
        harness.receive(framed(b"b"))
        assert ([b"a"], [b"b"]) == (served.frames, later.frames)
