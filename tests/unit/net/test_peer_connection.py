"""A connection to another broker over a socket and a loop that do only what the test tells them to."""

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from kalda.common.api_keys import ApiKey
from kalda.net.client import broker_connection
from kalda.net.client.client_errors import AuthenticationError
from kalda.net.client.stream_connection import READ_BYTES_PER_TURN
from kalda.net.peer.dialer import TcpDialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.codec import encode
from kalda.protocol.messages.api_versions import ApiVersionsResponse
from kalda.protocol.messages.fetch import FetchRequest
from kalda.protocol.protocol_errors import MessageError
from kalda.security.sasl.mechanism import SaslClient
from tests.unit.net.fakes import FakeLoop, FakeSocket


@dataclass
class PeerTimer:
    time: float
    callback: Callable[[], None]
    is_cancelled: bool = False

    def when(self) -> float:
        return self.time

    def cancel(self) -> None:
        self.is_cancelled = True


class PeerLoop(FakeLoop):
    """A fake loop with real futures, and a clock that the test turns."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.timers: list[PeerTimer] = []

    @property
    def is_writing(self) -> bool:
        return self.writer is not None

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> PeerTimer:
        self.timers.append(PeerTimer(when, callback))
        return self.timers[-1]

    def turn_to(self, now: float) -> None:
        """Let timers fire in order until it is so late."""
        while due := [each for each in self.timers if each.time <= now and not each.is_cancelled]:
            timer = min(due, key=PeerTimer.when)
            self.timers.remove(timer)
            self.now = timer.time
            timer.callback()
        self.now = now


class PeerHarness:
    def __init__(self, frame_bytes_max: int = 1 << 20) -> None:
        self.sock = FakeSocket()
        self.loop = PeerLoop()
        self.connection = PeerConnection(
            self.sock,
            "host:1",
            "me",
            loop=cast("asyncio.AbstractEventLoop", self.loop),
            frame_bytes_max=frame_bytes_max,
        )

    async def ask(self, body: bytes = b"body", *, seconds: float = 5) -> "asyncio.Task[memoryview]":
        """Send a request; returns the task that awaits its answer."""
        request = self.connection.request_raw(ApiKey.FETCH, 11, body, timeout_seconds=seconds)
        task = asyncio.ensure_future(request)
        await asyncio.sleep(0)
        return task

    def receive(self, *pieces: bytes | OSError) -> None:
        self.sock.incoming += pieces
        while self.sock.incoming and self.loop.reader is not None:
            self.loop.reader()


def answer(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


async def test_answers_are_matched_whatever_the_pieces() -> None:
    harness = PeerHarness()
    for number, size in enumerate((1, 3, 1000)):
        task = await harness.ask()
        data = answer(number, b"x" * 2500)
        harness.receive(*(data[start : start + size] for start in range(0, len(data), size)))
        assert b"x" * 2500 == bytes(await task)
    assert [105.0] == [timer.when() for timer in harness.loop.timers]
    assert not harness.connection.is_closed


async def test_a_request_that_the_kernel_takes_by_halves_is_sent_whole() -> None:
    harness = PeerHarness()
    harness.sock.room = 7
    task = await harness.ask(b"long body")
    for room in (0, 4, 1000):
        assert harness.loop.writer is not None
        harness.sock.room = room
        harness.loop.writer()
    assert not harness.loop.is_writing
    assert harness.sock.sent.endswith(b"long body")
    assert len(harness.sock.sent) - 4 == struct.unpack_from(">i", harness.sock.sent)[0]
    harness.receive(answer(0, b"ok"))
    assert b"ok" == bytes(await task)


@pytest.mark.parametrize(
    ("incoming", "reason"),
    [
        (b"", "closed by the broker"),
        (ConnectionResetError("reset"), "reset"),
        (struct.pack(">i", -1), "a frame of -1 bytes"),
        (struct.pack(">i", 1 << 30), "a frame of 1073741824 bytes"),
        (answer(9, b""), "response 9 came where Fetch 0 was due"),
        (answer(0, b"ok") + b"x", "1 bytes follow a response of 6 bytes"),
        (struct.pack(">ih", 2, 1), "response header: truncated"),
    ],
)
async def test_what_ends_a_connection_fails_the_request_and_names_the_peer(
    incoming: bytes | OSError, reason: str
) -> None:
    harness = PeerHarness()
    task = await harness.ask()
    harness.receive(incoming)
    with pytest.raises(ConnectionError, match=f"connection to host:1 lost: .*{reason}"):
        await task
    assert harness.connection.is_closed
    assert harness.sock.is_closed
    assert (None, None) == (harness.loop.reader, harness.loop.writer)


async def test_a_failing_send_fails_the_request() -> None:
    harness = PeerHarness()

    def fail(data: bytes | memoryview, flags: int = 0) -> int:
        raise BrokenPipeError("broken")

    harness.sock.send = fail  # type: ignore[method-assign]  # this is what the test is about
    with pytest.raises(ConnectionError, match="host:1 lost: broken"):
        await (await harness.ask())
    assert harness.sock.is_closed


async def test_the_time_is_up_only_for_the_request_that_waits() -> None:
    harness = PeerHarness()
    task = await harness.ask()
    harness.receive(answer(0, b""))
    await task
    harness.loop.turn_to(103)
    task = await harness.ask()
    # The timer of the first request fires while the second one has time left.
    harness.loop.turn_to(107.9)
    assert not harness.connection.is_closed
    harness.loop.turn_to(108)
    with pytest.raises(ConnectionError, match="host:1 did not answer Fetch within 5 s"):
        await task


async def test_an_idle_connection_has_no_timer_and_outlives_the_last_request() -> None:
    harness = PeerHarness()
    task = await harness.ask()
    harness.receive(answer(0, b""))
    await task
    harness.loop.turn_to(1000)
    assert not harness.connection.is_closed
    assert [] == harness.loop.timers
    task = await harness.ask()
    harness.loop.turn_to(1005)
    with pytest.raises(ConnectionError, match="did not answer Fetch within 5 s"):
        await task


async def test_a_request_with_less_time_than_the_one_before_has_no_more() -> None:
    harness = PeerHarness()
    task = await harness.ask(seconds=30)
    harness.receive(answer(0, b""))
    await task
    task = await harness.ask(seconds=2)
    harness.loop.turn_to(102)
    with pytest.raises(ConnectionError, match="did not answer Fetch within 2 s"):
        await task
    assert [True] == [timer.is_cancelled for timer in harness.loop.timers]


async def test_closing_cancels_the_timer() -> None:
    harness = PeerHarness()
    task = await harness.ask()
    harness.connection.close()
    with pytest.raises(ConnectionError):
        await task
    assert [True] == [timer.is_cancelled for timer in harness.loop.timers]


async def test_cancelling_closes() -> None:
    harness = PeerHarness()
    task = await harness.ask()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert harness.sock.is_closed


async def test_closing_fails_the_request_in_flight_and_closing_twice_is_harmless() -> None:
    harness = PeerHarness()
    task = await harness.ask()
    harness.connection.close()
    harness.connection.close()
    with pytest.raises(ConnectionError, match="closed by this broker"):
        await task


async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    harness = PeerHarness()
    harness.receive(answer(0, b""))
    assert harness.connection.is_closed


async def test_an_answer_before_the_request_is_sent_ends_the_connection() -> None:
    harness = PeerHarness()
    harness.sock.room = 3
    task = await harness.ask()
    harness.receive(answer(0, b""))
    with pytest.raises(ConnectionError, match="before their request was sent"):
        await task


async def test_a_request_that_cannot_be_written_leaves_the_connection_as_it_is() -> None:
    harness = PeerHarness()
    with pytest.raises(MessageError):
        await harness.connection.request(FetchRequest(max_wait_ms=1 << 40), timeout_seconds=5, version=11)
    assert not harness.connection.is_closed
    task = await harness.ask()
    harness.receive(answer(0, b"ok"))
    assert b"ok" == bytes(await task)


async def test_a_large_answer_leaves_turns_to_others() -> None:
    harness = PeerHarness(frame_bytes_max=1 << 30)
    task = await harness.ask()
    body = bytes(READ_BYTES_PER_TURN * 3)
    harness.sock.incoming.append(answer(0, body))
    turns = 0
    while harness.sock.incoming:
        assert harness.loop.reader is not None
        harness.loop.reader()
        turns += 1
    assert turns >= 3
    assert len(body) == len(await task)


async def test_a_login_gets_the_host_without_the_brackets_of_an_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kerberos makes the name of the broker's service from it."""
    own, other = socket.socketpair()
    own.setblocking(False)
    body = encode(ApiVersionsResponse(api_keys=[]), 4)
    other.sendall(answer(0, body))
    hosts: list[str] = []

    async def connect(*_: object, **__: object) -> socket.socket:
        return own

    def login(host: str) -> SaslClient:
        hosts.append(host)
        raise AuthenticationError("no login in this test")

    monkeypatch.setattr(broker_connection, "connect_stream", connect)
    options = DialOptions(client_id="b", timeout_seconds=20, login=login)
    with other, pytest.raises(ConnectionError, match="no login in this test"):
        await TcpDialer().dial("::1", 9092, options)
    assert ["::1"] == hosts
    assert -1 == own.fileno()
