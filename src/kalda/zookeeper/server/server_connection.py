"""One client connection of the ZooKeeper server: reads requests, writes responses and watch events in order.

It consists of callbacks of a `Connection`, which owns the socket, the frames and their limits, and has no
task. The responses of one loop turn leave in one write. Everything for the client must go through `_send` in
the order in which it happened, so that a watch event precedes every response that shows the change.

Bounds: the server stops reading from a connection whose client does not read its responses, and from one with
outstanding requests while the server's limit is reached. It disconnects a client that lets watch events pile
up, because events cannot be refused.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from kalda.common.overriding import override
from kalda.net.connection import Connection
from kalda.zookeeper.errors import AuthFailedError, NoAuthError, SessionExpiredError, ZooKeeperError
from kalda.zookeeper.port import EventType, WatchEvent
from kalda.zookeeper.protocol import responses
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
from kalda.zookeeper.server.connection_registry import (
    ConnectionRegistry,
    ConnectionState,
    RegisteredConnection,
)
from kalda.zookeeper.server.four_letter_words import answer, is_four_letter_word
from kalda.zookeeper.server.processor_requests import Multi, Read, Request, Write
from kalda.zookeeper.server.session_tracker import negotiate_timeout
from kalda.zookeeper.server.txns import OPEN_ACL
from kalda.zookeeper.server.wire_errors import MarshallingError, UnimplementedError
from kalda.zookeeper.server.wire_operations import Body, Plan, failed_multi_body, plan, refuse

OUTSTANDING_MAX: Final = 256
"""Outstanding requests of one connection. More would not enlarge the log's group commits, but the responses
of reads behind a write become ready all at once and take memory."""

WATCHES_PER_TURN: Final = 4_000
"""Watches of a closed connection that are removed in one turn of the loop, in some 12 ms."""

IDENTITY_CHARACTERS_MAX: Final = 1024
"""The longest identity. A connection keeps its identities, and every access list is compared with them."""

IDENTITIES_MAX: Final = 64
"""Identities that one connection may have: each of them is compared with every access list."""

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


class ServerConnection(RegisteredConnection):
    """One client connection: a `Session` and a `WireClient`."""

    def __init__(self, registry: ConnectionRegistry, link: Connection) -> None:
        super().__init__(link)
        self._registry: Final = registry
        self._server: Final = registry.server
        self.identities: tuple[Identity, ...] = ()
        self._authentication: Final = registry.config.authentication
        self._is_admitted = self._authentication.admits(())
        self._sasl: SaslLogin | None = None
        self._with_read_only = True
        self._received_at = 0.0
        self._is_held = False
        self._send: Final = link.push
        self._now: Final = asyncio.get_running_loop().time
        self._add_identities((Identity("ip", link.peer_address),))
        registry.add(self)

    @property
    def is_gone(self) -> bool:
        """Whether the connection is closed, so that events would be lost."""
        return self.state is ConnectionState.CLOSED

    # Called by the connection.

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Serve a request."""
        if connection.received_at != self._received_at:
            self._received_at = connection.received_at
            self._server.sessions.touch(self.session_id)
        self.traffic.received += 1
        self._registry.traffic.received += 1
        try:
            if self.state is ConnectionState.OPEN:
                self._handle(bytes(frame))
            else:
                self._connect(bytes(frame))
        except JuteError as error:
            self.abort(f"it sent a malformed request: {error}", logging.WARNING)
        if self.state is not ConnectionState.OPEN or (self.outstanding and self._is_throttled()):
            self._is_held = True
            connection.hold()

    def on_unsized(self, size: int, start: memoryview) -> bool:
        """Answer a four-letter command; close the connection after anything else."""
        word = bytes(start[:4])
        if self.state is ConnectionState.NEW and is_four_letter_word(word):
            self._registry.traffic.received += 1
            self._send(answer(word.decode(), self._registry))
            self.close("a four-letter command was answered")
        elif self.state is not ConnectionState.NEW or not self.link.close_foreign(start):
            limit = self._registry.config.frame_bytes_max
            self.abort(f"a frame of {size} bytes; `jute.maxbuffer` allows {limit}", logging.WARNING)
        return True

    def on_closed(self) -> None:
        """Remove the connection; its session lives until its time-out."""
        self._forget()

    # Called by the watches and the registry.

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

    @override
    def close(self, reason: str, level: int = logging.DEBUG) -> None:
        if self.state is ConnectionState.CLOSED:
            return
        self._forget()
        self.link.finish(reason, level)

    def abort(self, reason: str, level: int = logging.INFO) -> None:
        """Close the connection at once; the session lives on."""
        self._forget()
        self.link.close(reason, level)

    @override
    def check_invariants(self) -> None:
        assert 0 <= self.outstanding <= OUTSTANDING_MAX, f"{self.outstanding} requests are outstanding"
        assert len(self.identities) <= IDENTITIES_MAX + 2, f"{len(self.identities)} identities"

    def _is_throttled(self) -> bool:
        return self.outstanding > 0 and (self.outstanding >= OUTSTANDING_MAX or self._registry.is_full)

    def _resume_if_due(self) -> None:
        if self.state is ConnectionState.OPEN and not self._is_throttled():
            self._is_held = False
            self.link.release()

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
        self.link.due = None
        if not request.session_id:
            self.session_id = self._server.open_session(self.timeout_ms, self._session_over, self._opened)
            return
        session_id = request.session_id
        if not self._server.passwords.is_right(session_id, request.password):
            self._log(
                logging.WARNING, "client %s has a wrong password for session %#x", self.link.peer, session_id
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
            text = "request %d of %s is no %s: %s"
            self._log(logging.WARNING, text, xid, self.link.peer, op_code.name, error)
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

    def certificate_verified(self, certificate: bytes | None) -> str | None:
        """Take the certificate, in DER, that the client has proved to own by TLS; None if it showed none.

        Return why it is refused, or None.
        """
        if certificate is not None:
            try:
                self._add_identities(self._authentication.by_certificate(certificate))
            except AuthFailedError as error:
                return str(error)
        return None

    def _authenticate(self, xid: int, record: RequestRecord) -> None:
        assert isinstance(record, AuthRequest), f"{record} authenticates nobody"
        try:
            identities = self._authentication.by_auth_packet(
                record.scheme, record.auth, self.link.peer_address
            )
        except AuthFailedError as error:
            self._refuse(xid, AUTH_FAILED, f"it could not be authenticated: {error}")
            return
        if any(len(identity.id) > IDENTITY_CHARACTERS_MAX for identity in identities):
            reason = f"its identity has more than {IDENTITY_CHARACTERS_MAX} characters"
            self._refuse(xid, AUTH_FAILED, reason)
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
            text = "the SASL login of %s failed, and it is served without an identity: %s"
            self._log(logging.WARNING, text, self.link.peer, error)
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
        elif self._is_held:
            self._resume_if_due()

    def _reply(self, xid: int, error: int, body: bytes = b"", zxid: int | None = None) -> None:
        self._send(responses.reply(xid, self._server.tree.last_zxid if zxid is None else zxid, error, body))

    def _reply_in_pieces(self, xid: int, body: tuple[bytes | memoryview, ...]) -> None:
        self._send(responses.reply_header(xid, self._server.tree.last_zxid, sum(map(len, body))))
        for piece in body:
            self._send(piece)

    def _log(self, level: int, message: str, *args: object) -> None:
        self._registry.limiter.log(level, message, *args, source=self.link.peer_address)

    def _forget(self) -> None:
        if self.state is ConnectionState.CLOSED:
            return
        self.state = ConnectionState.CLOSED
        self._remove_watches()
        self._registry.forget(self)

    def _remove_watches(self) -> None:
        """Remove the watches in turns; until then their events end at the closed connection."""
        if not self._server.watches.remove(self, WATCHES_PER_TURN):
            asyncio.get_running_loop().call_soon(self._remove_watches)

    def _count_answered(self, name: str, xid: int, received_at: float) -> None:
        latency_ms = (self._now() - received_at) * 1000
        self._registry.traffic.add_answer(latency_ms)
        self.traffic.add_answer(latency_ms)
        self.traffic.note_last(name, xid, self._server.tree.last_zxid, received_at)
