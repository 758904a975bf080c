"""Filters on a connection: what they do to requests and responses, in order, later, and out of order."""

from collections.abc import Callable
from typing import Any

import pytest

from kalda.common.api_keys import ApiKey
from kalda.net import filtered_connection
from kalda.net.connection import Connection
from kalda.net.filtered_connection import set_filters
from kalda.net.frame_filters import (
    Answer,
    Close,
    DelayRequest,
    DelayResponse,
    Drop,
    FrameFilter,
    Ignore,
    Pass,
    ReplaceRequest,
    ReplaceResponse,
    Reply,
    RequestAction,
    ResponseAction,
    Truncate,
)
from kalda.net.reply import NO_REPLY, Chunk, Ticket
from kalda.net.socket_connection import SocketConnection
from kalda.net.tls_connection import TlsConnection
from kalda.protocol.headers import RequestHeader, request_header
from tests.unit.net.fakes import FakeLoop, FakeSocket, Harness, Owner, Region, framed
from tests.unit.net.test_tls_connection import Observer
from tests.unit.security.test_tls_channel import Pair

METADATA = ApiKey.METADATA


def request(number: int, text: bytes = b"", key: ApiKey = METADATA, version: int = 0) -> bytes:
    """A request with a correlation id, whose body is a text."""
    return request_header(RequestHeader(key, version, number, "me"), 1) + text


def answer(number: int, text: bytes = b"") -> bytes:
    return framed(number.to_bytes(4, "big") + text)


class Scripted:
    """A filter that does with the request or response of a correlation id what a test wants."""

    def __init__(
        self,
        requests: dict[int, RequestAction] | None = None,
        responses: dict[int, ResponseAction] | None = None,
        note: object = "note",
    ) -> None:
        self.requests = requests or {}
        self.responses = responses or {}
        self.note = note
        self.seen: list[tuple[Any, ...]] = []

    def on_request(
        self, connection: Connection, header: RequestHeader, body: int, frame: memoryview
    ) -> RequestAction:
        self.seen.append((header.correlation_id, bytes(frame[body:])))
        return self.requests.get(header.correlation_id, Pass(self.note))

    def on_response(
        self, connection: Connection, header: RequestHeader, reply: Reply, note: object
    ) -> ResponseAction | None:
        text = reply if isinstance(reply, bytes) else b"".join(map(bytes, reply))  # type: ignore[arg-type]
        self.seen.append((header.correlation_id, text, note))
        return self.responses.get(header.correlation_id)


class Server:
    """A connection with filters, plaintext or TLS, whose handler answers now, later or not at all."""

    def __init__(self, *filters: FrameFilter, tls: bool = False) -> None:
        self.frames: list[bytes] = []
        self.tickets: dict[int, Ticket] = {}
        self.abandoned: list[int] = []
        self.later: set[int] = set()
        self.silent: set[int] = set()
        self.socket, self.loop, self.owner = FakeSocket(), FakeLoop(), Owner()
        self.connection: Connection
        start: Any = (self.owner, self.handle, 1, "L", ("192.0.2.7", 4711), self.socket, self.loop)
        self.client = None
        if tls:
            pair = Pair()
            self.client = pair.client
            more: Any = (pair.server, Observer())
            self.connection = TlsConnection(*start, *more)
            set_filters(self.connection, filters)
            while not self.client.handshake():
                self.deliver()
                self.client.receive(memoryview(self.take_raw()))
            self.deliver()
        else:
            self.connection = SocketConnection(*start)
            set_filters(self.connection, filters)

    def handle(self, connection: Connection, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        number = int.from_bytes(frame[4:8], "big")
        if number in self.silent:
            return
        if number in self.later:
            self.tickets[number] = ticket = connection.open_reply()
            ticket.on_abandoned = lambda: self.abandoned.append(number)
        else:
            connection.send(answer(number, b"ok"))

    def send(self, *requests: bytes) -> None:
        data = b"".join(map(framed, requests))
        if self.client is None:
            self.socket.incoming.append(data)
        else:
            self.client.write(data)
        self.deliver()

    def deliver(self) -> None:
        if self.client is not None and (sealed := self.client.take_output()):
            self.socket.incoming.append(sealed)
        while True:
            while self.socket.incoming and self.loop.reader is not None:
                self.loop.reader()
                self.loop.run_soon()
            if not self.loop.soon:
                return
            self.loop.run_soon()

    def fire(self) -> None:
        """Let the time of the delays pass."""
        timers, self.loop.later = self.loop.later, []
        for timer in timers:
            if not timer.is_cancelled:
                timer.call()
        self.deliver()

    def answer(self, number: int) -> None:
        self.connection.reply(self.tickets[number], answer(number, b"late"))
        self.deliver()

    def take_raw(self) -> bytes:
        sent = bytes(self.socket.sent)
        self.socket.sent.clear()
        return sent

    def take_sent(self) -> bytes:
        sent = self.take_raw()
        if self.client is None:
            return sent
        self.client.receive(memoryview(sent))
        buffer = bytearray(100_000)
        received = b""
        try:
            while count := self.client.read_into(memoryview(buffer)):
                received += buffer[:count]
        except EOFError:
            pass
        return received

    def numbers(self) -> list[int]:
        """The correlation ids of the requests that came to the handler."""
        return [int.from_bytes(frame[4:8], "big") for frame in self.frames]


Make = Callable[..., Server]


@pytest.fixture(params=["plaintext", "tls"])
def serve(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setattr(FakeLoop, "time", lambda _: 100.0)
    return lambda *filters: Server(*filters, tls=request.param == "tls")


def test_filters_see_requests_from_outside_and_responses_from_inside(serve: Make) -> None:
    order: list[str] = []

    class Named(Scripted):
        def __init__(self, name: str) -> None:
            super().__init__(note=name)

        def on_request(self, *args: Any) -> RequestAction:
            order.append(f"{self.note} request")
            return super().on_request(*args)

        def on_response(self, *args: Any) -> ResponseAction | None:
            order.append(f"{args[3]} response")
            return super().on_response(*args)

    server = serve(Named("outer"), Named("inner"))
    server.send(request(1))
    assert ["outer request", "inner request", "inner response", "outer response"] == order
    assert answer(1, b"ok") == server.take_sent()


def test_filter_sees_header_body_response_and_its_note(serve: Make) -> None:
    each = Scripted()
    server = serve(each)
    server.later = {1}
    server.send(request(1, b"one"), request(2, b"two"))
    assert [(1, b"one"), (2, b"two"), (2, answer(2, b"ok"), "note")] == each.seen
    server.answer(1)
    assert (1, answer(1, b"late"), "note") == each.seen[-1]
    assert answer(1, b"late") + answer(2, b"ok") == server.take_sent()


def test_filter_without_note_sees_no_response(serve: Make) -> None:
    each = Scripted(note=None)
    server = serve(each)
    server.send(request(1, b"one"))
    assert [(1, b"one")] == each.seen
    assert answer(1, b"ok") == server.take_sent()


def test_requests_and_responses_are_replaced(serve: Make) -> None:
    each = Scripted(
        {1: ReplaceRequest(request(1, b"other"), "mine")}, {1: ReplaceResponse(answer(1, b"another"))}
    )
    inner = Scripted()
    server = serve(each, inner)
    server.send(request(1, b"one"))
    assert [request(1, b"other")] == server.frames
    assert [(1, b"other"), (1, answer(1, b"ok"), "note")] == inner.seen
    assert answer(1, b"another") == server.take_sent()


def test_answer_of_a_filter_passes_the_filters_outside_of_it(serve: Make) -> None:
    outer = Scripted()
    each = Scripted({2: Answer(answer(2, b"mine"))})
    server = serve(outer, each)
    server.later = {1}
    server.send(request(1), request(2))
    assert [1] == server.numbers()
    assert (2, answer(2, b"mine"), "note") == outer.seen[-1]
    assert b"" == server.take_sent()
    server.answer(1)
    assert answer(1, b"late") + answer(2, b"mine") == server.take_sent()


def test_ignored_request_has_no_response(serve: Make) -> None:
    server = serve(Scripted({1: Ignore()}))
    server.send(request(1), request(2))
    assert answer(2, b"ok") == server.take_sent()
    assert server.connection.is_quiet


@pytest.mark.parametrize("at", ["request", "response"])
def test_filter_closes_the_connection(serve: Make, at: str) -> None:
    """Earlier answers leave; the request's effect has been made where the response is lost."""
    close = Close("test")
    server = serve(Scripted({2: close}) if at == "request" else Scripted({}, {2: close}))
    server.send(request(1), request(2), request(3))
    assert ([1] if at == "request" else [1, 2]) == server.numbers()
    assert answer(1, b"ok") == server.take_sent()
    assert ["a filter closed it: test"] == server.owner.closed
    assert server.socket.is_closed


def test_late_response_that_closes_does_not_abandon_its_own_request(serve: Make) -> None:
    server = serve(Scripted({}, {2: Close("test")}))
    server.later = {1, 2}
    server.send(request(1), request(2))
    server.answer(2)
    assert server.connection.is_closed
    assert [1] == server.abandoned


def test_delayed_request_keeps_its_place_and_holds_later_ones(serve: Make) -> None:
    server = serve(Scripted({2: DelayRequest(3, Pass("note"))}))
    server.later = {1}
    server.send(request(1), request(2), request(3))
    assert [1] == server.numbers()
    server.answer(1)
    assert answer(1, b"late") == server.take_sent()
    server.send(request(4))
    assert [1] == server.numbers()
    assert [3] == [timer.seconds for timer in server.loop.later]
    server.fire()
    assert [1, 2, 3, 4] == server.numbers()
    assert b"".join(answer(number, b"ok") for number in (2, 3, 4)) == server.take_sent()


def test_delayed_request_may_be_answered_later(serve: Make) -> None:
    each = Scripted({1: DelayRequest(3, Pass("note"))})
    server = serve(each)
    server.later = {1}
    server.send(request(1), request(2))
    server.fire()
    assert [1, 2] == server.numbers()
    assert b"" == server.take_sent()
    server.answer(1)
    assert answer(1, b"late") + answer(2, b"ok") == server.take_sent()
    assert (1, answer(1, b"late"), "note") == each.seen[-1]


def test_delayed_request_without_response_lets_others_pass(serve: Make) -> None:
    """Produce with acks=0 is never answered."""
    server = serve(Scripted({1: DelayRequest(3, Pass("note"))}))
    server.silent = {1}
    server.send(request(1), request(2))
    server.fire()
    assert answer(2, b"ok") == server.take_sent()
    assert server.connection.is_quiet


def test_delayed_request_of_a_closed_connection_is_forgotten(serve: Make) -> None:
    server = serve(Scripted({1: DelayRequest(3, Pass("note"))}))
    server.send(request(1))
    server.connection.close("test")
    assert all(timer.is_cancelled for timer in server.loop.later)
    server.fire()
    assert [] == server.frames


def test_delayed_response_keeps_the_order(serve: Make) -> None:
    server = serve(Scripted({}, {1: DelayResponse(3)}))
    server.send(request(1), request(2))
    assert [1, 2] == server.numbers()
    assert b"" == server.take_sent()
    server.fire()
    assert answer(1, b"ok") + answer(2, b"ok") == server.take_sent()


def test_delayed_responses_are_bounded(serve: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filtered_connection, "HELD_BYTES_MAX", 1)
    server = serve(Scripted({}, {1: DelayResponse(3)}))
    server.send(request(1))
    server.send(request(2))
    assert [1] == server.numbers()
    server.fire()
    assert [1, 2] == server.numbers()
    assert answer(1, b"ok") + answer(2, b"ok") == server.take_sent()


def test_dropped_response_lets_others_pass(serve: Make) -> None:
    server = serve(Scripted({}, {1: Drop()}))
    server.send(request(1), request(2))
    assert answer(2, b"ok") == server.take_sent()


def test_truncated_response_is_the_last(serve: Make) -> None:
    server = serve(Scripted({}, {2: Truncate(7)}))
    server.later = {1, 4}
    server.send(request(1), request(2), request(3), request(4))
    assert b"" == server.take_sent()
    server.answer(1)
    assert answer(1, b"late") + answer(2, b"ok")[:7] == server.take_sent()
    assert ["its last response was truncated by a filter"] == server.owner.closed


def test_truncated_response_at_once(serve: Make) -> None:
    server = serve(Scripted({}, {1: DelayResponse(1, Truncate(0)), 2: Truncate(5)}))
    server.send(request(2), request(3))
    assert answer(2, b"ok")[:5] == server.take_sent()
    assert server.connection.is_closed
    nothing = serve(Scripted({}, {1: Truncate(0)}))
    nothing.send(request(1))
    assert b"" == nothing.take_sent()
    assert nothing.connection.is_closed
    other = serve(Scripted({}, {1: DelayResponse(1, Truncate(0))}))
    other.send(request(1))
    other.fire()
    assert b"" == other.take_sent()
    assert other.connection.is_closed


def test_truncated_response_waits_until_the_peer_has_taken_it() -> None:
    server = Server(Scripted({}, {1: Truncate(6)}))
    server.socket.room = 2
    server.send(request(1), request(2))
    assert not server.connection.is_closed
    server.socket.room = 100
    assert server.loop.writer is not None
    server.loop.writer()
    server.deliver()
    assert answer(1, b"ok")[:6] == server.take_sent()
    assert server.connection.is_closed


def test_regions_of_files_are_truncated() -> None:
    chunks: list[Chunk] = [b"head", Region(b"0123456789", 5), Region(b"abc")]
    for size, expected in [(2, b"he"), (7, b"head012"), (14, b"head0123456789"), (16, b"head0123456789ab")]:
        harness = Harness(lambda connection, _: connection.send(chunks))

        class Cut(Scripted):
            size = 0

            def on_response(self, *_: Any) -> ResponseAction | None:
                return Truncate(self.size)

        cut = Cut()
        cut.size = size
        set_filters(harness.connection, [cut])
        harness.receive(framed(request(1)))
        assert expected == harness.take_sent()
        assert harness.connection.is_closed


def test_failing_filter_closes_the_connection(serve: Make, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Scripted):
        def on_response(self, *_: Any) -> ResponseAction | None:
            raise ValueError("bug")

    server = serve(Failing())
    server.later = {1}
    server.send(request(1))
    server.answer(1)
    assert ["internal error"] == server.owner.closed
    assert "handling a request from 192.0.2.7:4711 failed" in caplog.text


def test_no_response_passes_by_the_filters(serve: Make) -> None:
    each = Scripted()
    server = serve(each)
    server.later = {1}
    server.send(request(1))
    server.connection.reply(server.tickets[1], NO_REPLY)
    assert [(1, b"")] == each.seen
    assert server.connection.is_quiet


def test_frame_without_header_comes_to_the_handler() -> None:
    server = Server(Scripted())
    server.send(b"\0\3\0\1\0")
    assert [b"\0\3\0\1\0"] == server.frames


def test_messages_of_a_login_without_header_pass_by_the_filters() -> None:
    each = Scripted()
    server = Server(each)
    server.connection.due = 1.0
    server.send(request(1, key=ApiKey.SASL_HANDSHAKE))
    server.send(b"\0\3\0\1\0\0\0\7\xff\xff token")
    assert [1] == [each[0] for each in each.seen if len(each) == 2]
    server.connection.due = None
    server.send(request(2))
    assert [1, 2] == [each[0] for each in each.seen if len(each) == 2]


def test_filters_are_set_and_removed_on_an_open_connection(serve: Make) -> None:
    """A request that is not answered yet keeps the filters that it passed."""
    server = serve()
    server.later = {1, 2}
    server.send(request(1))
    each = Scripted({}, {number: ReplaceResponse(answer(number, b"mine")) for number in (1, 2, 3)})
    set_filters(server.connection, [each])
    server.send(request(2))
    set_filters(server.connection, [])
    server.send(request(3))
    server.answer(2)
    server.answer(1)
    assert answer(1, b"late") + answer(2, b"mine") + answer(3, b"ok") == server.take_sent()


def test_handler_is_replaced_behind_the_filters(serve: Make) -> None:
    """As when a client has logged in."""
    each = Scripted()
    server = serve(each)
    server.connection.replace_handler(
        server.handle, lambda connection, frame: connection.send(answer(1, b"2nd"))
    )
    server.send(request(1))
    server.connection.handle_with(lambda connection, frame: connection.send(answer(2, b"3rd")))
    server.send(request(2))
    assert answer(1, b"2nd") + answer(2, b"3rd") == server.take_sent()
    assert 4 == len(each.seen)


def test_kept_frames_pass_the_filters_once(serve: Make) -> None:
    """A broker that starts keeps requests until it has the cluster's metadata."""
    each = Scripted({1: DelayRequest(1, Pass("note"))})
    server = serve(each)
    kept: list[bytearray] = []
    server.connection.handle_with(lambda connection, frame: kept.append(connection.keep(frame)))
    server.send(request(1), request(2))
    server.fire()
    assert 2 == len(kept)
    assert b"" == server.take_sent()
    server.connection.handle_with(server.handle)
    for frame in kept:
        server.connection.handle_kept(memoryview(frame))
    assert answer(1, b"ok") + answer(2, b"ok") == server.take_sent()
    assert [1, 2, 1, 2] == [each[0] for each in each.seen]
