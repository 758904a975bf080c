"""Decodes the bytes of one connection of a session: responses, events and the handshake. Sans-IO.

A connection begins with the connect request, which opens a session or resumes one. With a login, the tokens
of SASL follow, and then requests. A server answers the requests of a connection in order, with watch events
and answers to heartbeats between.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from kalda.security.zookeeper.digest_md5 import DigestMd5Client, DigestMd5Error
from kalda.zookeeper.client.calls import Call
from kalda.zookeeper.port import EventType
from kalda.zookeeper.protocol import client_requests as encode
from kalda.zookeeper.protocol import client_responses as decode
from kalda.zookeeper.protocol.client_requests import Request
from kalda.zookeeper.protocol.framing import FrameReader
from kalda.zookeeper.protocol.jute import JuteError, Reader
from kalda.zookeeper.protocol.op_codes import NOTIFICATION_XID, OK, OpCode

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest response that is accepted. ZooKeeper bounds requests to 1 MB, but not the list of a znode's
children."""

_XID_MAX: Final = 2**31 - 1

_EVENTS: Final[Mapping[int, EventType]] = {kind: kind for kind in EventType if kind is not EventType.NONE}

_END: Final = Request(OpCode.CLOSE_SESSION)


@dataclass(slots=True)
class Session:
    """A session that a client carries from one connection to the next; id 0 is a session to be opened."""

    timeout_ms: int
    session_id: int = 0
    password: bytes = field(default=b"", repr=False)
    last_zxid: int = 0
    """The newest transaction in a response."""


class StreamOwner(Protocol):
    """The receiver of what a server says."""

    def on_open(self, timeout_ms: int) -> None:
        """Handle the beginning: the session is open or back, and the login, if any, is complete."""
        ...

    def on_answer(self, call: Call, code: int, reader: Reader) -> None:
        """Handle the response to a call; `code` is the error's, or 0."""
        ...

    def on_event(self, event_type: EventType, path: str) -> None:
        """Handle a watch event."""
        ...

    def on_closed(self) -> None:
        """Handle the server's confirmation that the session is closed."""
        ...


class SessionOverError(Exception):
    """The server does not know the session any more."""


class LoginRefusedError(Exception):
    """The SASL login failed; the message has the reason."""


class _Phase(Enum):
    CONNECTING = "the connect response is awaited"
    LOGGING_IN = "a token of the server is awaited"
    OPEN = "responses and events"


class SessionStream:
    """One connection. Each method returns the bytes to send."""

    __slots__ = ("_frames", "_login", "_owner", "_pending", "_phase", "_session", "_xid")

    def __init__(self, owner: StreamOwner, session: Session, login: DigestMd5Client | None) -> None:
        self._owner: Final = owner
        self._session: Final = session
        self._login: Final = login
        self._frames: Final = FrameReader(FRAME_BYTES_MAX)
        self._phase = _Phase.CONNECTING
        self._xid = 0
        self._pending: Final[deque[tuple[int, Call | None]]] = deque()
        """Request ids without a response, in order; None is the end of the session."""

    def connect(self) -> bytes:
        """Begin."""
        session = self._session
        return encode.connect(session.last_zxid, session.timeout_ms, session.session_id, session.password)

    def request(self, call: Call) -> bytes:
        """Send a call."""
        xid = self._next_xid()
        self._pending.append((xid, call))
        return encode.framed(xid, call.request)

    def ping(self) -> bytes:
        """Send a heartbeat."""
        return encode.framed(encode.PING_XID, Request(OpCode.PING))

    def end(self) -> bytes:
        """Close the session; the owner gets `on_closed`."""
        xid = self._next_xid()
        self._pending.append((xid, None))
        return encode.framed(xid, _END)

    def receive(self, data: bytes) -> bytes:
        """Handle received bytes.

        Raises:
            JuteError: the server does not speak the protocol.
            SessionOverError, LoginRefusedError: the connection cannot be used.
        """
        self._frames.feed(data)
        out = b""
        while (frame := self._frames.next_frame()) is not None:
            if self._phase is _Phase.OPEN:
                self._on_reply(frame)
            elif self._phase is _Phase.CONNECTING:
                out += self._on_connected(frame)
            else:
                out += self._on_token(frame)
        return out

    def _on_connected(self, frame: bytes) -> bytes:
        response = decode.read_connect(frame)
        if response.timeout_ms <= 0:
            raise SessionOverError
        session = self._session
        session.session_id, session.password = response.session_id, response.password
        session.timeout_ms = response.timeout_ms
        if self._login is None:
            return self._open()
        self._phase = _Phase.LOGGING_IN
        return encode.framed(self._next_xid(), encode.sasl(b""))

    def _on_token(self, frame: bytes) -> bytes:
        assert self._login is not None, "no token is awaited without a login"
        header, reader = decode.read_reply(frame)
        if header.xid != self._xid:
            raise JuteError(f"a response to request {header.xid} during the login, request {self._xid}")
        if header.error != OK:
            raise LoginRefusedError(f"the server refused it (code {header.error})")
        try:
            token = self._login.evaluate(decode.read_token(reader))
        except DigestMd5Error as error:
            raise LoginRefusedError(str(error)) from None
        if token is None:
            return self._open()
        return encode.framed(self._next_xid(), encode.sasl(token))

    def _open(self) -> bytes:
        self._phase = _Phase.OPEN
        self._owner.on_open(self._session.timeout_ms)
        return b""

    def _on_reply(self, frame: bytes) -> None:
        header, reader = decode.read_reply(frame)
        if header.xid == NOTIFICATION_XID:
            kind, path = decode.read_event(reader)
            if kind in _EVENTS:
                self._owner.on_event(_EVENTS[kind], path)
            return
        if header.xid == encode.PING_XID:
            return
        if not self._pending or self._pending[0][0] != header.xid:
            raise JuteError(f"a response to request {header.xid}, which is not the next one")
        _, call = self._pending.popleft()
        # Only that of a response that fits: no server would take a client back that knows too much.
        self._session.last_zxid = max(self._session.last_zxid, header.zxid)
        if call is None:
            self._owner.on_closed()
        else:
            self._owner.on_answer(call, header.error, reader)

    def _next_xid(self) -> int:
        self._xid = self._xid % _XID_MAX + 1
        return self._xid
