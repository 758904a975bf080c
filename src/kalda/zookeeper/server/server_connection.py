"""One client connection of the ZooKeeper server: reads requests, writes responses and watch events in order.

The connection consists of callbacks of an asyncio transport and has no task. The responses of one loop turn
leave in one write. Everything for the client must go through `_send` in the order in which it happened, so
that a watch event precedes every response that shows the change.

Bounds: the server stops reading from a connection whose client does not read its responses, and from one with
outstanding requests while the server's limit is reached. It disconnects a client that lets watch events pile
up, because events cannot be refused.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from kalda.net.foreign_protocols import recognise
from kalda.zookeeper.errors import AuthFailedError, NoAuthError, SessionExpiredError, ZooKeeperError
from kalda.zookeeper.port import EventType, WatchEvent
from kalda.zookeeper.protocol import responses
from kalda.zookeeper.protocol.framing import FrameError, FrameReader
from kalda.zookeeper.protocol.jute import JuteError
from kalda.zookeeper.protocol.op_codes import AUTH_FAILED, AUTHENTICATION_REQUIRED, OK, OpCode
from kalda.zookeeper.protocol.requests import (
    AuthRequest,
    RequestRecord,
    SaslRequest,
    read_connect_request,
    read_header,
    read_record,
)
from kalda.zookeeper.server.acl import READ, Identity, check_permission
from kalda.zookeeper.server.authentication import SaslLogin
from kalda.zookeeper.server.connection_registry import ConnectionRegistry, ConnectionState
from kalda.zookeeper.server.four_letter_words import answer, is_four_letter_word
from kalda.zookeeper.server.processor_requests import Multi, Read, Request, Write
from kalda.zookeeper.server.session_tracker import negotiate_timeout
from kalda.zookeeper.server.traffic import Traffic
from kalda.zookeeper.server.txns import OPEN_ACL
from kalda.zookeeper.server.wire_errors import MarshallingError, UnimplementedError
from kalda.zookeeper.server.wire_operations import Body, Plan, failed_multi_body, plan, refuse

FRAMES_PER_TURN_MAX: Final = 256
"""Requests served for one connection before the others get their turn: a few milliseconds."""

OUT_BYTES_HIGH: Final = 256 * 1024
"""Unsent bytes above which a connection is not read from."""

OUT_BYTES_MAX: Final = 128 * 1024 * 1024
"""Unsent bytes, views of the tree's data aside, above which a client is disconnected. Responses to
outstanding requests stay below this, except lists of very many children; so only a client that never reads
reaches it."""

OUTSTANDING_MAX: Final = 256
"""Outstanding requests of one connection. More would not enlarge the log's group commits, but the responses
of reads behind a write become ready all at once and take memory."""

IDENTITIES_MAX: Final = 64
"""Identities that one connection may have: each of them is compared with every access list."""

CLOSE_SECONDS_MAX: Final = 5.0
"""How long a client may take to read the last responses of a connection that is being closed."""

_LAST_OPERATIONS: Final = {
    OpCode.CREATE: "CREA",
    OpCode.CREATE2: "CREA",
    OpCode.CREATE_CONTAINER: "CREA",
    OpCode.CREATE_TTL: "CREA",
    OpCode.DELETE: "DELE",
    OpCode.EXISTS: "EXIS",
    OpCode.GET_DATA: "GETD",
    OpCode.SET_DATA: "SETD",
    OpCode.GET_ACL: "GETA",
    OpCode.SET_ACL: "SETA",
    OpCode.GET_CHILDREN: "GETC",
    OpCode.GET_CHILDREN2: "GETC",
    OpCode.SYNC: "SYNC",
    OpCode.CHECK: "CHEC",
    OpCode.MULTI: "MULT",
    OpCode.MULTI_READ: "MLTR",
    OpCode.RECONFIG: "RECO",
    OpCode.CHECK_WATCHES: "CHKW",
    OpCode.REMOVE_WATCHES: "REMW",
    OpCode.SASL: "SASL",
    OpCode.SET_WATCHES: "SETW",
    OpCode.SET_WATCHES2: "STW2",
    OpCode.ADD_WATCH: "ADDW",
    OpCode.GET_EPHEMERALS: "GETE",
    OpCode.GET_ALL_CHILDREN_NUMBER: "GETACN",
    OpCode.WHO_AM_I: "HOMI",
}
"""The names that the four-letter command ``cons`` prints for a connection's last operation."""

_NO_PASSWORD: Final = bytes(16)
_PING: Final = int(OpCode.PING)
_AUTHENTICATING: Final = frozenset((int(OpCode.AUTH), int(OpCode.SASL)))
"""Operations of clients that have not authenticated yet."""


class ServerConnection(asyncio.Protocol):
    """One client connection. It implements `WireClient` and `RegisteredConnection`."""

    def __init__(self, registry: ConnectionRegistry) -> None:
        self._registry: Final = registry
        self._server: Final = registry.server
        self._frames: Final = FrameReader(registry.config.frame_bytes_max)
        self._transport: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop
        self.state = ConnectionState.NEW
        self.peer: tuple[str, int] = ("", 0)
        self.opened_at = 0.0
        self.established_ms = 0
        self.session_id = 0
        """The session, or 0 while there is none."""
        self.timeout_ms = 0
        self.identities: tuple[Identity, ...] = ()
        self._authentication: Final = registry.config.authentication
        self._is_admitted = self._authentication.admits(())
        self._sasl: SaslLogin | None = None
        self.outstanding = 0
        """Requests in the processor chain."""
        self.traffic: Final = Traffic()
        self._with_read_only = True
        self._received_at = 0.0
        self._reading = True
        self._is_stopped = False
        self._turn_planned = False
        self._in_turn = False
        self._out: list[bytes | memoryview] = []
        """Unsent bytes; a memoryview shares data that the tree holds."""
        self._out_bytes = 0
        self._out_shared_bytes = 0
        """The part of `_out_bytes` that is in memoryviews."""
        self._flush_planned = False
        self._abort_timer: asyncio.TimerHandle | None = None
        """Ends a connection whose client does not take the last responses."""
        self._writable = True

    @property
    def is_gone(self) -> bool:
        """Whether the connection is closed, so that events would be lost."""
        return self.state is ConnectionState.CLOSED

    @property
    def held_bytes(self) -> int:
        """Memory of responses and events that the client has not read yet."""
        return self._out_bytes - self._out_shared_bytes + self._transport.get_write_buffer_size()

    @property
    def is_held_back(self) -> bool:
        """Whether the server has stopped reading although the client reads its responses."""
        return not self._reading and self._writable and self._out_bytes <= OUT_BYTES_HIGH

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection; close it if it is above a limit."""
        assert isinstance(transport, asyncio.Transport), f"{transport} is no stream"
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        transport.set_write_buffer_limits(high=OUT_BYTES_HIGH)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.peer = (str(peer[0]), int(peer[1]))
        self._add_identities((Identity("ip", self.peer[0]),))
        self.opened_at = time.monotonic()
        if not self._registry.admit(self):
            self.state = ConnectionState.CLOSED
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Serve the received requests."""
        if self.state is ConnectionState.CLOSED:
            return
        self._received_at = time.monotonic()
        self._frames.feed(data)
        if self.state is ConnectionState.OPEN:
            self._server.sessions.touch(self.session_id)
        if not self._turn_planned:
            self._serve()

    def pause_writing(self) -> None:
        """Queue responses: the client does not read."""
        self._writable = False

    def resume_writing(self) -> None:
        """Send queued responses and continue reading."""
        self._writable = True
        self._flush()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Remove the connection; its session lives until its time-out."""
        self._forget()
        if self._abort_timer is not None:
            self._abort_timer.cancel()

    # Called by the watches and the listener.

    def process(self, event: WatchEvent) -> None:
        """Send a watch event, unless the client may not read the znode.

        Setting a recursive watch on an ancestor needs no permission to read the znode, so it is checked here.
        """
        tree, path = self._server.tree, event.path
        if event.type is EventType.DELETED:
            acl = tree.deleted_acls.get(path, OPEN_ACL)
        else:
            node = tree.nodes.get(path)
            acl = node.acl if node is not None else OPEN_ACL
        if acl is not OPEN_ACL:
            try:
                check_permission(acl, READ, self.identities, path)
            except NoAuthError:
                return
        self._send(responses.event(event.type, path, tree.last_zxid))

    def send_missed_event(self, kind: EventType, path: str) -> None:
        """Send the event of a change that happened while the client was disconnected."""
        self._send(responses.event(kind, path))

    def close(self, reason: str, level: int = logging.DEBUG) -> None:
        """Send what is queued and close the connection; the session lives on."""
        if self.state is ConnectionState.CLOSED:
            return
        self._log(level, "connection from %s:%d is closed: %s", *self.peer, reason)
        if self._out:
            self._transport.writelines(self._out)
        self._forget()
        self._transport.close()
        self._abort_timer = self._loop.call_later(CLOSE_SECONDS_MAX, self._transport.abort)

    def abort(self, reason: str, level: int = logging.INFO) -> None:
        """Close the connection at once; the session lives on."""
        if self.state is not ConnectionState.CLOSED:
            self._log(level, "connection from %s:%d is aborted: %s", *self.peer, reason)
            self._forget()
            self._transport.abort()

    def stop(self) -> None:
        """Read no more requests; outstanding ones are still answered."""
        self._is_stopped = True
        self._pause()

    def check_invariants(self) -> None:
        """Assert that the connection keeps its bounds and its own counters."""
        queued, shared = self._out, [each for each in self._out if isinstance(each, memoryview)]
        counts = sum(map(len, queued)), sum(map(len, shared))
        assert counts == (self._out_bytes, self._out_shared_bytes), f"{counts} bytes are queued"
        assert 0 <= self.outstanding <= OUTSTANDING_MAX, f"{self.outstanding} requests are outstanding"
        assert len(self.identities) <= IDENTITIES_MAX + 2, f"{len(self.identities)} identities"

    # Reading.

    def _serve(self) -> None:
        """Serve received frames, as far as this turn and the bounds allow."""
        self._in_turn = True
        try:
            for _ in range(FRAMES_PER_TURN_MAX):
                if self._is_throttled():
                    self._pause()
                    break
                if not self._serve_next():
                    break
            else:
                # Other connections get their turn first.
                self._pause()
                self._plan_turn()
        except FrameError as error:
            self.abort(str(error), logging.WARNING)
        except JuteError as error:
            self.abort(f"it sent a malformed request: {error}", logging.WARNING)
        finally:
            self._in_turn = False
        if self._out:
            self._flush()

    def _is_throttled(self) -> bool:
        if self._is_stopped or not self._writable or self._out_bytes > OUT_BYTES_HIGH:
            return True
        return self.outstanding >= OUTSTANDING_MAX or (self.outstanding > 0 and self._registry.is_full)

    def _serve_next(self) -> bool:
        """Serve the next frame; return False if there is none or it must wait."""
        if self.state is ConnectionState.NEW:
            return self._begin()
        if self.state is not ConnectionState.OPEN:
            self._pause()
            return False
        frame = self._frames.next_frame()
        if frame is None:
            return False
        self._handle(frame)
        return True

    def _pause(self) -> None:
        if self._reading and self.state is not ConnectionState.CLOSED:
            self._reading = False
            self._transport.pause_reading()

    def _resume_if_due(self) -> None:
        if not self._reading and self.state is ConnectionState.OPEN and not self._is_throttled():
            self._plan_turn()

    def _plan_turn(self) -> None:
        if not self._turn_planned:
            self._turn_planned = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_planned = False
        if self.state is not ConnectionState.OPEN or self._is_throttled():
            return
        self._reading = True
        self._serve()
        # Not before: serving may have paused again, and most turns then need no system call.
        if self._reading and self.state is ConnectionState.OPEN:
            self._transport.resume_reading()

    def _begin(self) -> bool:
        """Serve a connection's first bytes; return False if more bytes are needed or it was closed."""
        word = self._frames.peek_word()
        if word is None:
            return False
        if is_four_letter_word(word):
            self._registry.traffic.received += 1
            self._send(answer(word.decode(), self._registry))
            self.close("a four-letter command was answered")
            return False
        protocol = recognise(word)
        if protocol is not None:
            self._registry.report_foreign(self, protocol)
            self.close(f"the client sent {protocol.value}")
            return False
        frame = self._frames.next_frame()
        if frame is None:
            return False
        self._count_received()
        self._connect(frame)
        return True

    # Sessions.

    def _connect(self, frame: bytes) -> None:
        request = read_connect_request(frame)
        last_zxid = self._server.tree.last_zxid
        if request.last_zxid_seen > last_zxid:
            # This server has lost its directory, or the client was connected to another server.
            self.abort(
                f"session {request.session_id:#x} has seen zxid {request.last_zxid_seen:#x}, newer than "
                f"{last_zxid:#x}, the newest of this server; the client must connect to another server"
            )
            return
        config = self._registry.config
        self._with_read_only = request.read_only is not None
        self.timeout_ms = negotiate_timeout(
            request.timeout_ms, config.session_timeout_ms_min, config.session_timeout_ms_max
        )
        self.state = ConnectionState.OPENING
        self._pause()
        if not request.session_id:
            self.session_id = self._server.open_session(self.timeout_ms, self._session_over, self._opened)
            return
        session_id = request.session_id
        if not self._server.passwords.is_right(session_id, request.password):
            self._log(
                logging.WARNING, "client %s:%d has a wrong password for session %#x", *self.peer, session_id
            )
            self._refuse_session()
        elif session_id not in self._server.sessions:
            self._refuse_session()
        else:
            self.session_id = session_id
            self._server.attach_session(session_id, self.timeout_ms, self._session_over, self._opened)

    def _opened(self, outcome: object) -> None:
        if self.state is ConnectionState.CLOSED:
            # The client disconnected meanwhile; unless it resumes the session, the session expires.
            self._registry.closed_while_opening(self)
        elif isinstance(outcome, SessionExpiredError):
            self._refuse_session()
        elif isinstance(outcome, ZooKeeperError):
            self.abort(f"its session could not be opened: {outcome}", logging.WARNING)
        else:
            self.state = ConnectionState.OPEN
            self.established_ms = self._registry.clock.time_ms()
            self._registry.session_opened(self)
            self._send(
                responses.connect_response(
                    self.timeout_ms,
                    self.session_id,
                    self._server.passwords.of(self.session_id),
                    with_read_only=self._with_read_only,
                )
            )
            self._count_answered("SESS", -1, self._received_at)
            self._resume_if_due()

    def _refuse_session(self) -> None:
        self.session_id = 0
        self._send(responses.connect_response(0, 0, _NO_PASSWORD, with_read_only=self._with_read_only))
        self.close("its session is over or unknown", logging.INFO)

    def _close_session(self, xid: int) -> None:
        self.state = ConnectionState.ENDING
        self._pause()
        self._server.close_session(self.session_id, partial(self._session_closed, xid, self._received_at))

    def _session_closed(self, xid: int, received_at: float, outcome: object) -> None:
        self._reply(xid, outcome.code if isinstance(outcome, ZooKeeperError) else OK)
        self._count_answered("CLOS", xid, received_at)
        self.close("the client closed its session")

    def _session_over(self) -> None:
        # Another connection may have resumed the session meanwhile.
        self._registry.session_ended(self.session_id)

    # Requests and responses.

    def _handle(self, frame: bytes) -> None:
        self._count_received()
        xid, number = read_header(frame)
        if not self._is_admitted and number not in _AUTHENTICATING:
            self._refuse(xid, AUTHENTICATION_REQUIRED, "it has not authenticated, which is required")
            return
        if number == _PING:
            # Answered ahead of writes that wait for the disk: a slow write must not cost the client its
            # server.
            self._reply(xid, OK)
            self._count_answered("PING", xid, self._received_at)
            return
        size = len(frame)
        try:
            op_code = OpCode(number)
            record = read_record(op_code, frame)
        except ValueError:
            unknown = UnimplementedError(f"operation {number} is not known")
            self._submit(xid, "NA", size, (refuse(unknown), None), closes=True)
        except JuteError as error:
            text = "request %d of %s:%d is no %s: %s"
            self._log(logging.WARNING, text, xid, *self.peer, op_code.name, error)
            self._submit(xid, "NA", size, (refuse(MarshallingError(str(error))), None))
        else:
            if op_code is OpCode.AUTH:
                self._authenticate(xid, record)
            elif op_code is OpCode.CLOSE_SESSION:
                self._close_session(xid)
            elif op_code is OpCode.SASL:
                self._log_in(xid, record)
            else:
                self._submit(xid, _LAST_OPERATIONS[op_code], size, plan(op_code, record, self))

    def certificate_verified(self, certificate: bytes | None) -> None:
        """Take the certificate, in DER, that the client has proved to own by TLS; None if it showed none."""
        if certificate is None:
            return
        try:
            self._add_identities(self._authentication.by_certificate(certificate))
        except AuthFailedError as error:
            self.abort(f"it could not be authenticated: {error}", logging.WARNING)

    def _authenticate(self, xid: int, record: RequestRecord) -> None:
        assert isinstance(record, AuthRequest), f"{record} authenticates nobody"
        try:
            identities = self._authentication.by_auth_packet(record.scheme, record.auth, self.peer[0])
        except AuthFailedError as error:
            self._refuse(xid, AUTH_FAILED, f"it could not be authenticated: {error}")
            return
        if len(self.identities) >= IDENTITIES_MAX:
            self.abort(f"it has shown {IDENTITIES_MAX} identities and goes on", logging.WARNING)
            return
        self._add_identities(identities)
        self._reply(xid, OK, zxid=0)
        self._count_answered("AUTH", xid, self._received_at)

    def _log_in(self, xid: int, record: RequestRecord) -> None:
        assert isinstance(record, SaslRequest), f"{record} is no step of a login"
        if not self._authentication.sasl_users:
            self._refuse(xid, AUTH_FAILED, "it wants to log in by SASL, and this server has no SASL users")
            return
        if self._sasl is None:
            self._sasl = SaslLogin(self._authentication, self._server.random)
        token: bytes | None = None
        try:
            token, identities = self._sasl.evaluate(record.token)
        except AuthFailedError as error:
            if not self._authentication.keeps_failed_sasl or not self._is_admitted:
                code = AUTH_FAILED if self._is_admitted else AUTHENTICATION_REQUIRED
                self._refuse(xid, code, f"its SASL login failed: {error}")
                return
            text = "the SASL login of %s:%d failed, and it is served without an identity: %s"
            self._log(logging.WARNING, text, *self.peer, error)
        else:
            self._add_identities(identities)
        self._reply(xid, OK, responses.token_body(token), zxid=0)
        self._count_answered("SASL", xid, self._received_at)

    def _add_identities(self, identities: tuple[Identity, ...]) -> None:
        self.identities += tuple(new for new in identities if new not in self.identities)
        self._is_admitted = self._authentication.admits(self.identities)

    def _refuse(self, xid: int, error: int, reason: str) -> None:
        self._reply(xid, error, zxid=0)
        self.close(reason, logging.WARNING)

    def _submit(self, xid: int, name: str, size: int, planned: Plan, *, closes: bool = False) -> None:
        operation, encode = planned
        self.outstanding += 1
        self._registry.request_began(size)
        on_done = partial(self._finished, xid, name, size, self._received_at, operation, encode, closes)
        self._server.submit(Request(self.session_id, operation, on_done, xid, self.identities))

    def _finished(
        self,
        xid: int,
        name: str,
        size: int,
        received_at: float,
        operation: Write | Read,
        encode: Callable[[object], Body] | None,
        closes: bool,
        outcome: object,
    ) -> None:
        self.outstanding -= 1
        self._registry.request_done(size)
        if self.state is ConnectionState.CLOSED:
            return
        if isinstance(outcome, ZooKeeperError):
            if isinstance(operation, Multi) and outcome.operation_index is not None:
                count, index = len(operation.operations), outcome.operation_index
                self._reply(xid, OK, failed_multi_body(count, index, outcome.code))
            else:
                self._reply(xid, outcome.code)
        else:
            body = outcome if encode is None else encode(outcome)
            if isinstance(body, bytes):
                self._reply(xid, OK, body)
            else:
                assert isinstance(body, tuple), f"{body!r} is no body"
                self._reply_in_pieces(xid, body)
        self._count_answered(name, xid, received_at)
        if closes:
            self.close(f"{name} is not served")
        elif not self._reading:
            self._resume_if_due()

    def _reply(self, xid: int, error: int, body: bytes = b"", zxid: int | None = None) -> None:
        self._send(responses.reply(xid, self._server.tree.last_zxid if zxid is None else zxid, error, body))

    def _reply_in_pieces(self, xid: int, body: tuple[bytes | memoryview, ...]) -> None:
        self._send(responses.reply_header(xid, self._server.tree.last_zxid, sum(map(len, body))))
        for piece in body:
            if isinstance(piece, memoryview):
                self._out_shared_bytes += len(piece)
            self._send(piece)

    def _send(self, data: bytes | memoryview) -> None:
        if self.state is ConnectionState.CLOSED:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if not self._in_turn and not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush_as_planned)
        if self._out_bytes - self._out_shared_bytes > OUT_BYTES_MAX:
            self.abort(f"it leaves {self._out_bytes} bytes unread", logging.WARNING)

    def _flush_as_planned(self) -> None:
        self._flush_planned = False
        self._flush()

    def _flush(self) -> None:
        """Write queued bytes to the transport, as many as it takes without queueing them."""
        out = self._out
        if self.state is ConnectionState.CLOSED or not self._writable:
            return
        if self._out_bytes <= OUT_BYTES_HIGH:
            if out:
                self._out = []
                self._out_bytes = self._out_shared_bytes = 0
                self._transport.writelines(out)
        else:
            taken = 0
            while taken < len(out) and self._writable:
                piece = out[taken]
                self._out_bytes -= len(piece)
                if isinstance(piece, memoryview):
                    self._out_shared_bytes -= len(piece)
                self._transport.write(piece)
                taken += 1
            del out[:taken]
        if not self._reading:
            self._resume_if_due()

    def _log(self, level: int, message: str, *args: object) -> None:
        self._registry.limiter.log(level, message, *args, source=self.peer[0])

    def _forget(self) -> None:
        if self.state is ConnectionState.CLOSED:
            return
        self.state = ConnectionState.CLOSED
        self._out.clear()
        self._out_bytes = self._out_shared_bytes = 0
        self._server.watches.remove(self)
        self._registry.forget(self)

    def _count_received(self) -> None:
        self.traffic.received += 1
        self._registry.traffic.received += 1

    def _count_answered(self, name: str, xid: int, received_at: float) -> None:
        latency_ms = (time.monotonic() - received_at) * 1000
        self._registry.traffic.add_answer(latency_ms)
        self.traffic.add_answer(latency_ms)
        self.traffic.note_last(name, xid, self._server.tree.last_zxid, received_at)
