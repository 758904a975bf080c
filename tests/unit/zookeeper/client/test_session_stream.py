"""One connection of a session, byte by byte, against the codecs of the server."""

import pytest

from kalda.security.zookeeper.digest_md5 import DigestMd5Client, DigestMd5Server
from kalda.zookeeper.client.calls import Call
from kalda.zookeeper.client.session_stream import (
    FRAME_BYTES_MAX,
    LoginRefusedError,
    Session,
    SessionOverError,
    SessionStream,
)
from kalda.zookeeper.port import EventType
from kalda.zookeeper.protocol import client_requests as encode
from kalda.zookeeper.protocol import responses
from kalda.zookeeper.protocol.framing import FrameReader
from kalda.zookeeper.protocol.jute import INT, JuteError, Reader
from kalda.zookeeper.protocol.op_codes import OpCode
from kalda.zookeeper.protocol.requests import SaslRequest, read_connect_request, read_header, read_record

PASSWORD = b"p" * 16


class Owner:
    """Notes what a stream tells it."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def on_open(self, timeout_ms: int) -> None:
        self.told.append(("open", timeout_ms))

    def on_answer(self, call: Call, code: int, reader: Reader) -> None:
        self.told.append((call.path, code, reader.remaining))

    def on_event(self, event_type: EventType, path: str) -> None:
        self.told.append((event_type, path))

    def on_closed(self) -> None:
        self.told.append("closed")


def frames_of(data: bytes) -> list[bytes]:
    reader = FrameReader(FRAME_BYTES_MAX)
    reader.feed(data)
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(frame)
    return frames


def welcome(timeout_ms: int = 4_000, session_id: int = 7) -> bytes:
    return responses.connect_response(timeout_ms, session_id, PASSWORD, with_read_only=True)


def call(path: str) -> Call:
    return Call(encode.exists(path, watch=True), path, lambda reader: reader)


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def session() -> Session:
    return Session(10_000)


@pytest.fixture
def stream(owner: Owner, session: Session) -> SessionStream:
    """A connection on which a session is open."""
    stream = SessionStream(owner, session, None)
    stream.connect()
    assert b"" == stream.receive(welcome())
    owner.told.clear()
    return stream


def test_a_new_session_takes_what_the_server_grants(owner: Owner, session: Session) -> None:
    stream = SessionStream(owner, session, None)
    (asked,) = frames_of(stream.connect())
    assert (0, 0, 10_000, 0, bytes(16), False) == read_connect_request(asked)
    for byte in welcome():
        stream.receive(bytes([byte]))
    assert [("open", 4_000)] == owner.told
    assert (7, PASSWORD, 4_000) == (session.session_id, session.password, session.timeout_ms)


def test_the_next_connection_resumes_the_session(
    stream: SessionStream, session: Session, owner: Owner
) -> None:
    stream.request(call("/a"))
    stream.receive(responses.reply(1, 99))
    (asked,) = frames_of(SessionStream(owner, session, None).connect())
    assert (0, 99, 4_000, 7, PASSWORD, False) == read_connect_request(asked)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_session_that_is_over_is_told(owner: Owner, session: Session, timeout_ms: int) -> None:
    stream = SessionStream(owner, session, None)
    with pytest.raises(SessionOverError):
        stream.receive(welcome(timeout_ms, 0))
    assert [] == owner.told


def test_answers_events_and_heartbeats_come_in_order(stream: SessionStream, owner: Owner) -> None:
    sent = stream.request(call("/a")) + stream.ping() + stream.request(call("/b")) + stream.end()
    headers = [read_header(frame) for frame in frames_of(sent)]
    assert [
        (1, OpCode.EXISTS),
        (encode.PING_XID, OpCode.PING),
        (2, OpCode.EXISTS),
        (3, OpCode.CLOSE_SESSION),
    ] == headers
    stream.receive(
        responses.event(EventType.DELETED, "/a")
        + responses.reply(1, 5, -101)
        + responses.reply(encode.PING_XID, 5)
        + responses.event(EventType.NONE, "")
        + responses.reply(2, 6, 0, bytes(80))
        + responses.reply(3, 7)
    )
    assert [(EventType.DELETED, "/a"), ("/a", -101, 0), ("/b", 0, 80), "closed"] == owner.told


def test_a_response_out_of_order_ends_the_connection_and_leaves_no_trace(
    stream: SessionStream, session: Session, owner: Owner
) -> None:
    """Its zxid would keep every server from taking the session back."""
    stream.request(call("/a"))
    with pytest.raises(JuteError):
        stream.receive(responses.reply(2, 2**62))
    assert [] == owner.told
    assert 0 == session.last_zxid


@pytest.mark.parametrize(
    "junk", [INT.pack(-1), INT.pack(FRAME_BYTES_MAX + 1), INT.pack(3) + b"abc", responses.reply(1, 1)]
)
def test_what_is_not_the_protocol_is_refused(stream: SessionStream, junk: bytes) -> None:
    with pytest.raises(JuteError):
        stream.receive(junk)


def test_request_ids_begin_again_before_they_overflow(stream: SessionStream) -> None:
    stream._xid = 2**31 - 2
    xids = [read_header(frames_of(stream.request(call("/a")))[0])[0] for _ in range(2)]
    assert [2**31 - 1, 1] == xids


def test_a_login_comes_before_the_session_is_open(owner: Owner, session: Session) -> None:
    server = DigestMd5Server({"bob": "secret"}.get, "nonce")
    stream = SessionStream(owner, session, DigestMd5Client("bob", "secret", "cnonce"))
    answer = stream.receive(welcome())
    for _ in range(2):
        assert [] == owner.told
        (frame,) = frames_of(answer)
        xid, op_code = read_header(frame)
        token = read_record(OpCode(op_code), frame)
        assert isinstance(token, SaslRequest)
        answer = stream.receive(
            responses.reply(xid, 1, 0, responses.token_body(server.evaluate(token.token)))
        )
    assert b"" == answer
    assert [("open", 4_000)] == owner.told


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (responses.reply(1, 1, -115), "code -115"),
        (responses.reply(1, 1, 0, responses.token_body(b"realm")), "directive"),
    ],
)
def test_a_login_that_is_refused_has_a_reason(
    owner: Owner, session: Session, answer: bytes, reason: str
) -> None:
    stream = SessionStream(owner, session, DigestMd5Client("bob", "secret", "cnonce"))
    stream.receive(welcome())
    with pytest.raises(LoginRefusedError, match=reason):
        stream.receive(answer)
    assert [] == owner.told
