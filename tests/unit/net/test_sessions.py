"""Connections with a session of another protocol than Kafka's: what it sends, holds, ends, cannot split."""

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from kalda.net import connection as connection_module
from kalda.net import framed_connection
from kalda.net.connection import FINISH_SECONDS_MAX, Connection
from kalda.net.foreign_protocols import ForeignProtocol
from kalda.net.tls_connection import TlsConnection
from tests.unit.net.fakes import FakeLoop, FakeSocket, Harness, Owner, framed
from tests.unit.security.test_tls_channel import Pair

LINE_BYTES_MAX = 100


class Lines:
    """Answers frames by `on_request`; what has no size within the limit is a command, which ends its line."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.frames: list[bytes] = []
        self.lines: list[bytes] = []
        self.closed = 0
        self.on_request: Callable[[bytes], None] = lambda frame: connection.push(framed(frame))

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self.on_request(self.frames[-1])

    def on_unsized(self, size: int, start: memoryview) -> bool:
        assert not 0 <= size <= self.connection.frame_bytes_max
        line, separator, _ = bytes(start).partition(b"\n")
        if not separator:
            return False
        self.lines.append(line)
        self.connection.push(b"answer")
        self.connection.finish("a command was answered")
        return True

    def on_closed(self) -> None:
        self.closed += 1


def begun(frame_bytes_max: int = 1000) -> tuple[Harness, Lines]:
    harness = Harness(lambda connection, frame: None, frame_bytes_max)
    session = Lines(harness.connection)
    harness.connection.begin(session)
    return harness, session


@pytest.fixture(autouse=True)
def with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not end a turn early."""
    monkeypatch.setattr(framed_connection, "TURN_S", 1000.0)


class TestUnsizedInput:
    @pytest.mark.parametrize("limit", [-1, 0, 1000])
    @pytest.mark.parametrize("step", [1, 3, 100])
    def test_a_command_is_taken_once_it_is_complete(self, limit: int, step: int) -> None:
        """Without a size within the limit, as for HTTP, everything is one."""
        harness, session = begun(limit)
        sent = b"ruok now\n"
        harness.receive(*(sent[at : at + step] for at in range(0, len(sent), step)))
        assert [b"ruok now"] == session.lines
        assert b"answer" == harness.take_sent()
        assert ["a command was answered"] == harness.owner.closed
        assert 1 == session.closed

    def test_frames_before_it_are_answered_first_and_nothing_after_it_is_handled(self) -> None:
        harness, session = begun()
        harness.receive(framed(b"a") + framed(b"b") + b"stop\n" + framed(b"late"))
        assert framed(b"a") + framed(b"b") + b"answer" == harness.take_sent()
        assert ([b"a", b"b"], [b"stop"]) == (session.frames, session.lines)
        assert harness.socket.is_closed

    def test_another_protocol_is_named_to_the_server(self) -> None:
        harness, session = begun()
        assert not session.connection.close_foreign(memoryview(b"ruok"))
        assert session.connection.close_foreign(memoryview(b"GET / HTTP/1.1"))
        assert [ForeignProtocol.HTTP] == harness.owner.foreign
        assert 1 == session.closed


class TestPush:
    def test_what_is_pushed_within_a_turn_leaves_in_one_send(self) -> None:
        harness, _ = begun()
        harness.receive(framed(b"a") + framed(b"b") + framed(b"c"))
        assert framed(b"a") + framed(b"b") + framed(b"c") == harness.take_sent()
        assert 1 == len(harness.socket.sends)

    def test_what_is_pushed_later_leaves_when_the_turn_of_the_loop_ends(self) -> None:
        harness, session = begun()
        for part in (b"one", b"two", memoryview(b"three")):
            session.connection.push(part)
        assert b"" == harness.take_sent()
        harness.loop.run_soon()
        assert (b"onetwothree", 1) == (harness.take_sent(), len(harness.socket.sends))

    def test_a_request_that_comes_before_the_end_of_the_turn_is_handled_at_once(self) -> None:
        """It must not cost a pause of reading, which is two calls of the system."""
        harness, session = begun()
        session.connection.push(b"event")
        harness.socket.incoming.append(framed(b"a"))
        assert harness.loop.reader is not None
        harness.loop.reader()
        assert b"event" + framed(b"a") == harness.take_sent()

    def test_nothing_is_handled_while_the_peer_does_not_read(self) -> None:
        harness, session = begun()
        harness.socket.room = 2
        session.connection.push(b"event")
        harness.loop.run_soon()
        harness.receive(framed(b"a"))
        assert ([], False) == (session.frames, session.connection.is_held_back)
        harness.make_room(1000)
        harness.receive()
        assert b"event" + framed(b"a") == harness.take_sent()

    def test_a_peer_that_leaves_too_much_unread_is_disconnected(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Views count for nothing: they share what the process holds anyway."""
        monkeypatch.setattr(connection_module, "UNREAD_BYTES_MAX", 1600)
        harness, session = begun()
        harness.socket.room = 0
        view = memoryview(bytes(10_000))
        for _ in range(16):
            session.connection.push(view)
            session.connection.push(bytes(100))
            harness.loop.run_soon()
        assert (1600, []) == (session.connection.queued_bytes(), harness.owner.closed)
        for _ in range(2):
            session.connection.push(bytes(100))
            harness.loop.run_soon()
        assert ["it leaves 1800 bytes unread"] == harness.owner.closed


class TestHold:
    @pytest.mark.parametrize("count", [1, 2, 200])
    def test_held_frames_are_handled_after_the_release(self, count: int) -> None:
        harness, session = begun()
        session.on_request = lambda frame: session.connection.hold()
        harness.receive(b"".join(framed(b"%d" % number) for number in range(count)))
        for number in range(count):
            assert [b"%d" % each for each in range(number + 1)] == session.frames
            assert session.connection.is_held_back
            session.connection.release()
            harness.receive()
        assert harness.loop.reader is not None

    def test_a_release_without_a_hold_changes_nothing(self) -> None:
        harness, session = begun()
        session.connection.release()
        assert [] == harness.loop.soon
        assert not session.connection.is_held_back


class TestFinish:
    def test_the_rest_is_sent_before_the_end(self) -> None:
        harness, session = begun()
        harness.socket.room = 3
        session.connection.push(b"farewell")
        session.connection.finish("the end")
        harness.receive(framed(b"late"))
        assert ([], [], False) == (harness.owner.closed, session.frames, harness.socket.is_closed)
        harness.make_room(100)
        assert (b"farewell", ["the end"]) == (harness.take_sent(), harness.owner.closed)
        assert harness.loop.later[-1].is_cancelled

    def test_a_peer_that_never_reads_has_a_time(self) -> None:
        harness, session = begun()
        harness.socket.room = 0
        session.connection.push(b"farewell")
        session.connection.finish("the end")
        session.connection.mute(1000)
        (timer,) = harness.loop.later
        assert FINISH_SECONDS_MAX == timer.seconds
        timer.call()
        assert ["the end"] == harness.owner.closed
        assert harness.socket.is_closed

    def test_a_closed_connection_needs_no_garbage_collector(self) -> None:
        """It and its session refer to each other."""
        harness, session = begun()
        session.connection.close("the end")
        gone = weakref.ref(session)
        gc.disable()
        try:
            del harness, session
            assert gone() is None
        finally:
            gc.enable()


class Observer:
    tls_hint = "set tls"

    def __init__(self) -> None:
        self.failures: list[str] = []

    def handshake_completed(self, connection: Connection, certificate: bytes | None) -> str | None:
        raise AssertionError("there is no handshake")

    def authentication_failed(self, connection: Connection, reason: str) -> None:
        self.failures.append(reason)


class TestOptionalTls:
    def new(self, *, is_optional: bool) -> tuple[FakeSocket, FakeLoop, TlsConnection, Observer]:
        sock, loop, observer = FakeSocket(), FakeLoop(), Observer()
        fakes: Any = (sock, loop, Pair().server, observer)

        def echo(connection: Connection, frame: memoryview) -> None:
            connection.send(framed(bytes(frame)))

        peer = ("192.0.2.7", 4711)
        connection = TlsConnection(Owner(), echo, 1, "BOTH", peer, *fakes, is_optional=is_optional)
        return sock, loop, connection, observer

    @pytest.mark.parametrize("seed", range(5))
    def test_plaintext_goes_through_as_it_is(self, seed: int) -> None:
        rng = random.Random(seed)
        sock, loop, connection, _ = self.new(is_optional=True)
        stream = b"".join(framed(rng.randbytes(rng.choice([0, 5, 500, 300_000]))) for _ in range(8))
        cuts = sorted(rng.randrange(len(stream)) for _ in range(20))
        sock.incoming += [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]
        while sock.incoming or loop.soon:
            if sock.incoming and loop.reader is not None:
                loop.reader()
            loop.run_soon()
        assert stream == sock.sent
        connection.close("the end")
        assert stream == sock.sent

    def test_a_port_for_tls_alone_refuses_it_at_the_first_byte(self) -> None:
        sock, loop, _, observer = self.new(is_optional=False)
        sock.incoming.append(b"\0")
        assert loop.reader is not None
        loop.reader()
        assert ["the peer sent plaintext to the TLS port; set tls"] == observer.failures
        assert (True, []) == (sock.is_closed, sock.sends)
