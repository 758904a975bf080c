"""The only module that imports kazoo: wraps a kazoo client with its thread, and creates its requests.

A `Link` serves one session, or the rest of one; `EnsembleClient` creates the next link. By default kazoo runs
watch callbacks and completions on two threads, where a later response may overtake a watch event. The handler
of this module has no such threads: everything goes to one inbox in the order of its arrival.

`Any` in signatures stands for kazoo's objects, because kazoo has no types.
"""

import logging
import math
import secrets
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    ZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol import serialization as wire
from kazoo.protocol.connection import ConnectionDropped
from kazoo.protocol.states import Callback, KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from kalda.common.error_text import error_text
from kalda.security.tls.contexts import client_context
from kalda.security.zookeeper.client_security import PLAINTEXT, ClientSecurity, Login
from kalda.security.zookeeper.digest_md5 import DigestMd5Client, DigestMd5Error
from kalda.zk.client.kazoo.calls import Call, Inbox
from kalda.zk.client.port import Create, Delete, EventType, Operation, SessionKey, SetData, Stat
from kalda.zk.client.znode_access import Acl, ZnodeAccess
from kalda.zk.client.zookeeper_errors import BadArgumentsError, ConnectionLossError

Connect: TypeAlias = Callable[[tuple[str, int], float], socket.socket]
"""Opens a TCP connection to an address within a time-out in seconds; raises OSError."""

_RECONNECT_DELAY_SECONDS: Final = 0.05

RECONNECT_DELAY_MAX_SECONDS: Final = 1.0
"""The longest pause between connection attempts; it doubles up to this. So the client reconnects to a
restarted server within a second."""

_END_SESSION_SECONDS_MAX: Final = 5.0
"""How long `end_session` may take: it is optional, because the time-out ends the session too."""

_WATCHED: Final = "watched"
"""The marker that kazoo holds for a watched path; the callbacks are in `ClientWatches`."""

_EVENTS: Final[Mapping[str, EventType]] = {
    "CREATED": EventType.CREATED,
    "DELETED": EventType.DELETED,
    "CHANGED": EventType.DATA_CHANGED,
    "CHILD": EventType.CHILDREN_CHANGED,
}

_ACLS: Final[Mapping[ZnodeAccess, Sequence[Any]]] = {
    ZnodeAccess.OPEN: OPEN_ACL_UNSAFE,
    ZnodeAccess.READABLE: [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE],
    ZnodeAccess.PRIVATE: CREATOR_ALL_ACL,
}

_CNONCE_BYTES: Final = 24

logger: Final = logging.getLogger(__name__)


class LinkOwner(Protocol):
    """The receiver of a link's events; every method is called on the event loop."""

    def on_connected(self, link: "Link", session_id: int) -> None:
        """Handle a new session, or the reconnect of a session."""
        ...

    def on_suspended(self, link: "Link") -> None:
        """Handle a lost connection."""
        ...

    def on_expired(self, link: "Link") -> None:
        """Handle the expiry of the session; the link opens no other."""
        ...

    def on_ended(self, link: "Link", failure: BaseException | None, is_clean: bool) -> None:
        """Handle the end of the link's thread; `is_clean`: the server confirmed the session's end."""
        ...

    def on_event(self, link: "Link", event_type: EventType, path: str) -> None:
        """Handle a watch event."""
        ...

    def on_answer(self, link: "Link", call: Call, raw: Any, failure: Exception | None) -> None:
        """Handle the response to a call."""
        ...


def get_data(path: str, is_watched: bool) -> Any:
    """Return a request for a znode's data and stat."""
    return wire.GetData(path, _WATCHED if is_watched else None)


def exists(path: str, is_watched: bool) -> Any:
    """Return a request for a znode's stat."""
    return wire.Exists(path, _WATCHED if is_watched else None)


def get_children(path: str, is_watched: bool) -> Any:
    """Return a request for the names of a znode's children and its stat."""
    return wire.GetChildren2(path, _WATCHED if is_watched else None)


def write(operation: Operation, path: str, access: ZnodeAccess) -> Any:
    """Return the request of an operation on the server's `path`; `access` is to what it creates."""
    if isinstance(operation, Create):
        flags = (1 if operation.ephemeral else 0) | (2 if operation.sequential else 0)
        return wire.Create(path, operation.data, _ACLS[access], flags)
    if isinstance(operation, SetData):
        return wire.SetData(path, operation.data, operation.version)
    if isinstance(operation, Delete):
        return wire.Delete(path, operation.version)
    return wire.CheckVersion(path, operation.version)


def set_access(path: str, access: ZnodeAccess) -> Any:
    """Return a request that replaces a znode's access list."""
    return wire.SetACL(path, _ACLS[access], -1)


def get_access(path: str) -> Any:
    """Return a request for a znode's access list and stat."""
    return wire.GetACL(path)


def acl_of(raw: Sequence[Any]) -> tuple[Acl, ...]:
    """Translate an access list."""
    return tuple(Acl(entry.perms, entry.id.scheme, entry.id.id) for entry in raw)


def transaction(requests: Sequence[Any]) -> Any:
    """Return one request for several writes; the response has a result or an exception for each."""
    return wire.Transaction(requests)


def stat_of(raw: Any) -> Stat:
    """Translate a stat. Three of kazoo's names differ, but the order is the protocol's."""
    return Stat(*raw)


def code_of(failure: Exception) -> int | None:
    """Return an error's ZooKeeper code; 0 if it was rolled back with its transaction; None without a code."""
    if isinstance(failure, ConnectionClosedError):
        # kazoo derives it from session expiry, but no server has ended the session.
        return ConnectionLossError.code
    return failure.code if isinstance(failure, ZookeeperError) else None


class Connector:
    """The addresses of the servers, and how to connect to them.

    Raises:
        BadArgumentsError: `servers` is no list of addresses.
        TlsSettingsError: a store cannot be read.
    """

    def __init__(
        self,
        servers: str,
        session_timeout_ms: int,
        connect: Connect,
        security: ClientSecurity = PLAINTEXT,
    ) -> None:
        try:
            hosts, _ = collect_hosts(servers)
        except ValueError as error:
            raise BadArgumentsError(
                f"`zookeeper.connect`={servers!r} is not host:port[,host:port…][/chroot]: {error}"
            ) from None
        self.servers: Final = servers
        self.session_timeout_seconds: Final = session_timeout_ms / 1000
        # A host that does not respond must leave time for the others within the session time-out.
        self._timeout_seconds = self.session_timeout_seconds / len(hosts)
        self._connect = connect
        self._tls_context = None if security.tls is None else client_context(security.tls)
        self.login: Final = security.login

    def connect(self, address: tuple[str, int], host_name: str | None) -> socket.socket:
        """Open a connection, with TLS if it is set; the server's certificate must be for `host_name`."""
        connection = self._connect(address, self._timeout_seconds)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls_context is None:
                return connection
            # The time-out of the connection holds for the handshake too.
            return self._tls_context.wrap_socket(connection, server_hostname=host_name or address[0])
        except BaseException:
            connection.close()
            raise


def end_session(connector: Connector, key: SessionKey) -> None:
    """Resume a session and close it, as its owner would have; blocks for some seconds at most."""
    client = KazooClient(
        hosts=connector.servers,
        timeout=connector.session_timeout_seconds,
        client_id=(key.session_id, key.password),
        handler=_ThreadingHandler(connector),
        logger=_KazooLogger(logger, {}),
    )
    if connector.login is not None:
        _use_login(client, connector.login, lambda: None)
    try:
        # If the session is over, the server opens a new one, which is closed instead.
        client.start(_END_SESSION_SECONDS_MAX)
    except (KazooTimeoutError, KazooException, OSError) as error:
        logger.info("session %#x is left to expire: %s", key.session_id, error or "no response")
    finally:
        client.stop()
        client.close()


class Link:
    """One kazoo client with its thread: one session, or the rest of one."""

    def __init__(
        self,
        owner: LinkOwner,
        inbox: Inbox,
        connector: Connector,
        client_id: tuple[int, bytes] | None,
        last_zxid: int,
    ) -> None:
        self._owner = owner
        self._inbox = inbox
        self._connector = connector
        self._is_over = False
        self._is_clean = False
        self._is_stopping = False
        self._previous = KazooState.LOST
        self._socket: socket.socket | None = None
        self._logger = _KazooLogger(logger, {})
        self.client_id = client_id
        self._client = KazooClient(
            hosts=connector.servers,
            timeout=connector.session_timeout_seconds,
            client_id=client_id,
            handler=_Handler(self),
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=_RECONNECT_DELAY_SECONDS,
                max_delay=RECONNECT_DELAY_MAX_SECONDS,
                sleep_func=_Handler.sleep_func,
            ),
            logger=self._logger,
        )
        self._client.last_zxid = last_zxid
        self.login_failure: str | None = None
        """Why the servers refused the login, if one did."""
        if connector.login is not None:
            _use_login(self._client, connector.login, self._report_connected, self._report_refused)
        self._client.add_listener(self._on_kazoo_state)

    @property
    def last_zxid(self) -> int:
        """The newest zxid seen; the client refuses a server that is behind it."""
        zxid: int = self._client.last_zxid
        return zxid

    @property
    def last_failure(self) -> str:
        """kazoo's last warning about the connection."""
        return self._logger.last_warning

    def start(self) -> None:
        """Start connecting; returns at once."""
        self._client.start_async()

    def send(self, call: Call) -> None:
        """Send a call; its response, or the failure to send it, comes through the inbox."""
        call.link = self
        # Every operation of kazoo's public interface ends here. Calling it directly avoids its wrappers,
        # which would complete a `create` in another order than the responses.
        self._client._call(call.request, call)

    def answer(self, call: Call, raw: object, failure: Exception | None) -> None:
        """Post a response; on kazoo's thread."""
        if isinstance(failure, ConnectionLoss) and self._client.client_state == KeeperState.CONNECTING:
            # kazoo fails outstanding requests before it reports the lost connection. The owner must get that
            # report first, or a caller that retries at once would fail again instead of waiting.
            self._inbox.post(self._owner.on_suspended, self)
        self._inbox.post(self._owner.on_answer, self, call, raw, failure)

    def close(self) -> None:
        """Close the session; the owner gets `on_ended` when it is closed."""
        if not self._is_stopping:
            self._is_stopping = True
            threading.Thread(target=self._stop, name="zookeeper-close", daemon=True).start()

    def drop(self) -> None:
        """Close the connection; kazoo opens a new one for the same session."""
        connection = self._socket
        if connection is not None:
            try:
                # Not the method of a socket with TLS: kazoo's thread would then read plaintext from it.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
            except OSError as error:
                logger.debug("the connection to ZooKeeper was gone already: %s", error)

    def end(self) -> None:
        """Close the connection and open no other."""
        self._is_over = True
        self.drop()

    def abandon(self) -> None:
        """Release the thread and its sockets without closing the session, which is left to expire."""
        self.end()
        self.close()

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except KazooException as error:
            logger.warning("the thread of a ZooKeeper session does not end: %s", error_text(error))

    def _on_kazoo_state(self, state: str) -> None:
        # Runs on kazoo's thread, in order with the responses and events before and after the change.
        kazoo_state = self._client.client_state
        if state == KazooState.CONNECTED:
            self.client_id = self._client.client_id
            if self._connector.login is None:
                self._report_connected()
        elif state == KazooState.SUSPENDED:
            self._inbox.post(self._owner.on_suspended, self)
        elif kazoo_state == KeeperState.EXPIRED_SESSION:
            # kazoo would open a new session by itself, and send requests of the old session in it.
            self._is_over = True
            self._inbox.post(self._owner.on_expired, self)
        else:
            # CLOSED directly after CONNECTED: the server has confirmed it.
            self._is_clean = kazoo_state == KeeperState.CLOSED and self._previous == KazooState.CONNECTED
        self._previous = state

    def dispatch(self, event_type: str, path: str) -> None:
        """Post a watch event; on kazoo's thread."""
        known = _EVENTS.get(event_type)
        # kazoo reports a lost connection to all watches; the port's callbacks get changes only.
        if known is not None:
            self._inbox.post(self._owner.on_event, self, known, path)

    def _report_connected(self) -> None:
        assert self.client_id is not None, "a session has an id"
        self._inbox.post(self._owner.on_connected, self, self.client_id[0])

    def _report_refused(self, reason: str) -> None:
        self.login_failure = reason

    def connect_socket(self, address: tuple[str, int], host_name: str | None = None) -> socket.socket:
        """Open a connection; on kazoo's thread."""
        self._refuse_if_over()
        connection = self._connector.connect(address, host_name)
        self._socket = connection
        # Checked again: `end` may have run meanwhile without a connection to close.
        if self._is_over:
            connection.close()
        self._refuse_if_over()
        return connection

    def _refuse_if_over(self) -> None:
        if self._is_over:
            raise ConnectionAbortedError("the session is over")

    def run(self, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
        """Run kazoo's thread, and post its end."""
        failure = None
        try:
            function(*arguments)
        except Exception as error:
            failure = error
        self._inbox.post(self._owner.on_ended, self, failure, self._is_clean)


class _Handler:
    """kazoo's `IHandler` without worker threads: it passes everything to the link in one order."""

    name = "kalda"
    timeout_exception = KazooTimeoutError
    sleep_func = staticmethod(time.sleep)
    running = True

    def __init__(self, link: Link) -> None:
        self._link = link

    def start(self) -> None:
        """Nothing runs here."""

    def stop(self) -> None:
        """Nothing runs here."""

    def spawn(self, function: Callable[..., object], *arguments: object) -> threading.Thread:
        """Start the one thread that kazoo has with this handler."""
        thread = threading.Thread(
            target=self._link.run, args=(function, arguments), name="zookeeper", daemon=True
        )
        thread.start()
        return thread

    def dispatch_callback(self, callback: Callback) -> None:
        """Pass a watch event to the link."""
        (event,) = callback.args
        self._link.dispatch(event.type, event.path)

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, **_: object
    ) -> socket.socket:
        """Open a connection."""
        return self._link.connect_socket(address, hostname)

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """Create the pair over which a request wakes kazoo's thread."""
        return socket.socketpair()

    def select(
        self,
        readers: Sequence[Any],
        writers: Sequence[Any],
        _: Sequence[Any] = (),
        timeout: float | None = None,
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait for sockets; one whose TLS has decrypted more than was read is ready.

        kazoo waits some five times for each request. Its own function makes and closes an epoll for each of
        these waits, which took as long as everything else in a request.
        """
        ready = [each for each in readers if isinstance(each, ssl.SSLSocket) and each.pending()]
        if ready:
            return ready, [], []
        poller = select.poll()
        for each in readers:
            poller.register(each, select.POLLIN)
        for each in writers:
            poller.register(each, select.POLLOUT | (select.POLLIN if each in readers else 0))
        # Rounded up: poll counts milliseconds.
        found = dict(poller.poll(None if timeout is None else max(0, math.ceil(timeout * 1000))))
        # Errors and hang-ups are found by reading or writing.
        return (
            [each for each in readers if found.get(each.fileno(), 0) & ~select.POLLOUT],
            [each for each in writers if found.get(each.fileno(), 0) & ~select.POLLIN],
            [],
        )

    def event_object(self) -> threading.Event:
        """Create an event."""
        return threading.Event()

    def lock_object(self) -> threading.Lock:
        """Create a lock."""
        return threading.Lock()

    def rlock_object(self) -> Any:
        """Create a reentrant lock."""
        return threading.RLock()


class _ThreadingHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's own handler, which connects as the connector does."""

    def __init__(self, connector: Connector) -> None:
        super().__init__()
        self._connector = connector

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, **_: object
    ) -> socket.socket:
        """Open a connection."""
        return self._connector.connect(address, hostname)


def _use_login(
    client: Any,
    login: Login,
    on_success: Callable[[], None],
    on_refusal: Callable[[str], None] = lambda reason: None,
) -> None:
    """Have a kazoo client log in on each connection, before it sends any request.

    kazoo's own login needs a package without maintainers, and reports success before the servers confirm it.
    """

    def log_in(host: str, timeout: float) -> None:
        try:
            _log_in(client._connection, login, timeout)
        except (DigestMd5Error, ConnectionDropped) as error:
            on_refusal(f"the SASL login of {login.user} at {host} failed: {error}")
            raise AuthFailedError(error_text(error)) from error
        on_success()

    client._connection.sasl_options = {}
    client._connection._authenticate_with_sasl = log_in


def _log_in(connection: Any, login: Login, timeout: float) -> None:
    exchange = DigestMd5Client(login.user, login.password, secrets.token_urlsafe(_CNONCE_BYTES))
    token: bytes | None = b""
    xid = 0
    while token is not None:
        xid += 1
        connection._submit(wire.SASL(token), timeout, xid)
        header, buffer, offset = connection._read_header(timeout)
        if header.err:
            raise DigestMd5Error(f"the server refused it (code {header.err})")
        challenge, _ = wire.SASL.deserialize(buffer, offset)
        token = exchange.evaluate(challenge or b"")


class _KazooLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs kazoo's lines at DEBUG level, because kazoo warns about every connection attempt."""

    last_warning = "no connection was tried yet"

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line at DEBUG level, and keep the last warning for our own messages."""
        if level >= logging.WARNING:
            self.last_warning = str(msg) % args if args else str(msg)
        if self.logger.isEnabledFor(logging.DEBUG):
            super().log(min(level, logging.DEBUG), msg, *args, **kwargs)

    def warn(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a warning; kazoo uses this deprecated name."""
        self.warning(msg, *args, **kwargs)
