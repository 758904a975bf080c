"""What an authenticator takes before, during and after a login, and what it closes the connection for."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest

from kalda.broker.security.sasl_authenticator import SaslAuthenticator
from kalda.protocol import framing
from kalda.security.principal import USER, KafkaPrincipal
from tests.login_parsers import LoginRules, plain_server, scram_server
from tests.unit.net.fakes import Harness

ALICE = KafkaPrincipal(USER, "alice")


def request(key: int, version: int, body: bytes = b"") -> bytes:
    return framing.frame([struct.pack(">hhih", key, version, 7, -1), body])


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return request(17, version, struct.pack(">h", len(mechanism)) + mechanism.encode())


def token(data: bytes) -> bytes:
    return request(36, 0, struct.pack(">i", len(data)) + data)


LOGIN = handshake() + token(b"\0alice\0secret")
METADATA = request(3, 0, bytes(4))
VERSIONS = request(18, 0)


class Peer:
    """A connection whose client has to log in."""

    def __init__(self, max_reauth_ms: int = 0) -> None:
        self.rules = LoginRules(
            max_reauth_ms=max_reauth_ms, servers={"PLAIN": plain_server, "SCRAM-SHA-256": scram_server}
        )
        self.harness = Harness(SaslAuthenticator(self.rules).on_frame, self.rules.frame_bytes_max)
        self.connection = self.harness.connection
        self.connection.frame_bytes_max = self.rules.login_bytes_max

    def send(self, *data: bytes) -> None:
        """Let the bytes arrive, within an event loop that does not turn."""

        async def arrive() -> None:
            self.harness.receive(*data)

        asyncio.run(arrive())

    @property
    def served(self) -> list[int]:
        """The keys of the requests that reached the dispatcher."""
        return [int.from_bytes(frame[:2], "big") for frame in self.rules.served]


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(LoginRules, "monotonic", lambda _: clock())
    return clock


def test_requests_before_the_login_close_the_connection() -> None:
    for key in (*range(17), *range(19, 95), 10_001, -1):
        peer = Peer()
        peer.send(request(key, 0, bytes(8)))
        assert peer.connection.is_closed
        assert not peer.served
        assert [f"request {key} before the login is complete"] == peer.rules.logins


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(VERSIONS + VERSIONS, id="versions twice"),
        pytest.param(handshake() + VERSIONS, id="versions behind the handshake"),
        pytest.param(handshake() + handshake(), id="handshake twice"),
        pytest.param(handshake() + METADATA, id="request instead of a token"),
        pytest.param(token(b"\0alice\0secret"), id="token without a handshake"),
        pytest.param(framing.frame([b""]), id="empty frame"),
        pytest.param(handshake() + framing.frame([b""]), id="empty frame behind the handshake"),
        pytest.param(struct.pack(">i", 10_001), id="above sasl.server.max.receive.size"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="2 GB"),
        pytest.param(struct.pack(">i", -1), id="negative size"),
    ],
)
def test_what_is_out_of_order_or_too_large_closes_the_connection(data: bytes) -> None:
    peer = Peer()
    peer.send(data)
    assert peer.connection.is_closed
    assert set(peer.served) <= {18}
    assert peer.connection.principal != ALICE


def test_versions_may_be_asked_for_again_in_a_version_that_is_served() -> None:
    peer = Peer()
    peer.send(request(18, 99, b"\0"), VERSIONS, LOGIN, METADATA)
    assert [18, 18, 3] == peer.served
    assert ALICE == peer.connection.principal


def test_a_refused_login_is_answered_late_and_what_follows_is_dropped() -> None:
    peer = Peer()
    answers: list[Callable[[], None]] = []

    async def arrive() -> None:
        loop: Any = asyncio.get_running_loop()
        loop.call_later = lambda delay, call: answers.append(call) if delay == 0.1 else None
        peer.harness.receive(handshake())
        peer.harness.take_sent()
        peer.harness.receive(token(b"\0alice\0wrong"), LOGIN, METADATA)
        assert b"" == peer.harness.take_sent()

    asyncio.run(arrive())
    [answer] = answers
    answer()
    assert struct.pack(">ih", 7, 58) == peer.harness.take_sent()[4:10]
    assert peer.connection.is_closed
    assert not peer.served
    assert ["Authentication failed: Invalid username or password"] == peer.rules.logins


def test_sessions_are_renewed_once_a_second_at_most(time: Time) -> None:
    """Like Kafka: an early login is an ordinary request, which the dispatcher answers with an error."""
    peer = Peer(max_reauth_ms=60_000)
    peer.send(LOGIN, LOGIN)
    assert [None, None] == peer.rules.logins
    time.now += 0.9
    peer.send(handshake())
    assert [17] == peer.served
    time.now += 0.2
    peer.send(LOGIN, METADATA)
    assert [None] * 3 == peer.rules.logins
    assert [17, 3] == peer.served


def test_another_login_is_as_bounded_as_the_first(time: Time) -> None:
    """A logged-in client may send 100 MB in a request, and a mechanism must not parse that."""
    peer = Peer(max_reauth_ms=60_000)
    peer.send(LOGIN)
    assert peer.rules.frame_bytes_max == peer.connection.frame_bytes_max
    peer.send(handshake())
    assert peer.rules.login_bytes_max == peer.connection.frame_bytes_max
    peer.send(token(b"\0alice\0secret"))
    assert peer.rules.frame_bytes_max == peer.connection.frame_bytes_max
    time.now += 2
    peer.send(handshake(), struct.pack(">i", 10_001))
    assert peer.connection.is_closed


@pytest.mark.parametrize(
    ("again", "reason"),
    [
        (handshake("SCRAM-SHA-256"), "wants SCRAM-SHA-256 now"),
        (handshake() + token(b"\0bob\0secret"), "Cannot change principals"),
        (handshake() + METADATA, "request 3 before the login is complete"),
    ],
    ids=["mechanism", "principal", "request instead of a token"],
)
def test_a_session_keeps_its_principal_and_mechanism(again: bytes, reason: str, time: Time) -> None:
    peer = Peer(max_reauth_ms=60_000)
    peer.send(LOGIN)
    peer.send(again, METADATA)
    assert ALICE == peer.connection.principal
    assert not peer.served
    assert reason in str(peer.rules.logins[1])


def test_a_session_that_has_ended_serves_nothing_but_another_login(time: Time) -> None:
    peer = Peer(max_reauth_ms=1_000)
    peer.send(LOGIN, METADATA)
    time.now += 1.1
    peer.send(LOGIN, METADATA)
    assert [3, 3] == peer.served
    time.now += 1.1
    peer.send(METADATA)
    assert peer.connection.is_closed
    assert [3, 3] == peer.served
