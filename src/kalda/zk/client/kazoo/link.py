"""The one module that knows kazoo: a kazoo client, its thread, and the requests it takes.

A kazoo client serves one session, or the rest of one; `kazoo_engine` makes the next. kazoo would run watch
callbacks and completions on two threads of its own, where a watch event may be overtaken by the answers after
it; with the handler below it has neither, and all that comes goes to one inbox in the order of its arrival.

`Any` in signatures stands for kazoo's own objects: it has no types.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, KazooException, ZookeeperError
from kazoo.handlers import utils
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.hosts import collect_hosts
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import Callback, KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from kalda.common.error_text import error_text
from kalda.zk.client.kazoo.calls import Call, Inbox
from kalda.zk.client.port import Create, Delete, EventType, Operation, SessionKey, SetData, Stat
from kalda.zk.client.zookeeper_errors import BadArgumentsError, ConnectionLossError

Connect: TypeAlias = Callable[[tuple[str, int], float], socket.socket]
"""Opens a TCP connection to an address within so many seconds; raises OSError."""

_RECONNECT_DELAY_SECONDS: Final = 0.05

RECONNECT_DELAY_MAX_SECONDS: Final = 1.0
"""Between attempts to connect, doubling up to this: a server that restarts is found again within a second."""

_END_SESSION_SECONDS_MAX: Final = 5.0
"""How long taking over a former session may take: ending it is a courtesy, its time-out does the same."""

_WATCHED: Final = "watched"
"""What kazoo holds for a path with watches; who is to be told is in `ClientWatches`."""

_EVENTS: Final[Mapping[str, EventType]] = {
    "CREATED": EventType.CREATED,
    "DELETED": EventType.DELETED,
    "CHANGED": EventType.DATA_CHANGED,
    "CHILD": EventType.CHILDREN_CHANGED,
}

logger: Final = logging.getLogger(__name__)


class LinkOwner(Protocol):
    """Who is told, on the event loop, of what a link brings."""

    def on_connected(self, link: "Link", session_id: int) -> None:
        """Take note that a session is open, or reached again."""
        ...

    def on_suspended(self, link: "Link") -> None:
        """Take note that the connection is lost."""
        ...

    def on_expired(self, link: "Link") -> None:
        """Take note that the session is over; the link opens no other."""
        ...

    def on_ended(self, link: "Link", failure: BaseException | None, is_clean: bool) -> None:
        """Take note that the link's thread is gone; `is_clean`: the server confirmed the session's end."""
        ...

    def on_event(self, link: "Link", event_type: EventType, path: str) -> None:
        """Take a watch event."""
        ...

    def on_answer(self, link: "Link", call: Call, raw: Any, failure: Exception | None) -> None:
        """Take the answer to a call."""
        ...


def get_data(path: str, is_watched: bool) -> Any:
    """Make a request for a znode's data and stat."""
    return wire.GetData(path, _WATCHED if is_watched else None)


def exists(path: str, is_watched: bool) -> Any:
    """Make a request for a znode's stat."""
    return wire.Exists(path, _WATCHED if is_watched else None)


def get_children(path: str, is_watched: bool) -> Any:
    """Make a request for the names of a znode's children and its stat."""
    return wire.GetChildren2(path, _WATCHED if is_watched else None)


def write(operation: Operation, path: str) -> Any:
    """Make a request for an operation on the znode that the server knows as `path`."""
    if isinstance(operation, Create):
        flags = (1 if operation.ephemeral else 0) | (2 if operation.sequential else 0)
        return wire.Create(path, operation.data, OPEN_ACL_UNSAFE, flags)
    if isinstance(operation, SetData):
        return wire.SetData(path, operation.data, operation.version)
    if isinstance(operation, Delete):
        return wire.Delete(path, operation.version)
    return wire.CheckVersion(path, operation.version)


def transaction(requests: Sequence[Any]) -> Any:
    """Make one request of writes; its answer has for each a result or an exception, see `code_of`."""
    return wire.Transaction(requests)


def stat_of(raw: Any) -> Stat:
    """Translate a stat. kazoo's names differ for three fields; the order is the protocol's."""
    return Stat(*raw)


def code_of(failure: Exception) -> int | None:
    """Return ZooKeeper's code of an error; 0: rolled back with its transaction; None: it has none."""
    if isinstance(failure, ConnectionClosedError):
        # To kazoo a kind of session expiry; yet nobody has said that the session is over.
        return ConnectionLossError.code
    return failure.code if isinstance(failure, ZookeeperError) else None


class Connector:
    """How to reach the servers.

    Raises:
        BadArgumentsError: they are no list of addresses.
    """

    def __init__(self, servers: str, session_timeout_ms: int, connect: Connect) -> None:
        try:
            hosts, _ = collect_hosts(servers)
        except ValueError as error:
            raise BadArgumentsError(
                f"`zookeeper.connect`={servers!r} is not host:port[,host:port…][/chroot]: {error}"
            ) from None
        self.servers: Final = servers
        self.session_timeout_seconds: Final = session_timeout_ms / 1000
        # One host that does not answer must leave time for the others within the session.
        self._timeout_seconds = self.session_timeout_seconds / len(hosts)
        self._connect = connect

    def connect(self, address: tuple[str, int]) -> socket.socket:
        """Open a connection."""
        connection = self._connect(address, self._timeout_seconds)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def end_session(connector: Connector, key: SessionKey) -> None:
    """Take a session over and close it, as its owner would have; blocks for some seconds at most."""
    client = KazooClient(
        hosts=connector.servers,
        timeout=connector.session_timeout_seconds,
        client_id=(key.session_id, key.password),
        logger=_KazooLogger(logger, {}),
    )
    try:
        # One that is over is answered with a new session, which is closed in its place.
        client.start(_END_SESSION_SECONDS_MAX)
    except (KazooTimeoutError, KazooException, OSError) as error:
        logger.info("session %#x is left to expire: %s", key.session_id, error or "no answer")
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
        self._client.add_listener(self._on_kazoo_state)

    @property
    def last_zxid(self) -> int:
        """The last transaction of which the server told; a server that is behind it is not taken."""
        zxid: int = self._client.last_zxid
        return zxid

    @property
    def last_failure(self) -> str:
        """Why the connection is not there, as kazoo put it."""
        return self._logger.last_warning

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._client.start_async()

    def send(self, call: Call) -> None:
        """Have a call made; its answer comes through the inbox, also if it cannot be made."""
        call.link = self
        # Every operation of kazoo's public interface ends here. Going there directly saves its wrappers,
        # which would complete a `create` in another order than it was answered.
        self._client._call(call.request, call)

    def answer(self, call: Call, raw: object, failure: Exception | None) -> None:
        """Take an answer, from kazoo's thread."""
        if isinstance(failure, ConnectionLoss) and self._client.client_state == KeeperState.CONNECTING:
            # kazoo fails what was under way before it tells that the connection is lost. The owner must hear
            # of that first: who calls again at once would fail again, instead of waiting for a connection.
            self._inbox.post(self._owner.on_suspended, self)
        self._inbox.post(self._owner.on_answer, self, call, raw, failure)

    def close(self) -> None:
        """End the session in order; the owner is told when it is done."""
        if not self._is_stopping:
            self._is_stopping = True
            threading.Thread(target=self._stop, name="zookeeper-close", daemon=True).start()

    def drop(self) -> None:
        """Cut the connection; kazoo makes a new one for the same session."""
        connection = self._socket
        if connection is not None:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                logger.debug("the connection to ZooKeeper was gone already: %s", error)

    def end(self) -> None:
        """Cut the connection and allow no other."""
        self._is_over = True
        self.drop()

    def abandon(self) -> None:
        """Let go of thread and files without a word to the server; the session expires, if it has not."""
        self.end()
        self.close()

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except KazooException as error:
            logger.warning("the thread of a ZooKeeper session does not end: %s", error_text(error))

    def _on_kazoo_state(self, state: str) -> None:
        # From kazoo's thread, between the answers and events before and after the change.
        kazoo_state = self._client.client_state
        if state == KazooState.CONNECTED:
            self.client_id = self._client.client_id
            self._inbox.post(self._owner.on_connected, self, self.client_id[0])
        elif state == KazooState.SUSPENDED:
            self._inbox.post(self._owner.on_suspended, self)
        elif kazoo_state == KeeperState.EXPIRED_SESSION:
            # kazoo would open a new session by itself, and run in it what was meant for the old one.
            self._is_over = True
            self._inbox.post(self._owner.on_expired, self)
        else:
            # CLOSED straight from CONNECTED: the server has confirmed it.
            self._is_clean = kazoo_state == KeeperState.CLOSED and self._previous == KazooState.CONNECTED
        self._previous = state

    def dispatch(self, event_type: str, path: str) -> None:
        """Take a watch event, from kazoo's thread."""
        known = _EVENTS.get(event_type)
        # kazoo tells all watches of a lost connection; the port's callbacks hear of changes only.
        if known is not None:
            self._inbox.post(self._owner.on_event, self, known, path)

    def connect_socket(self, address: tuple[str, int]) -> socket.socket:
        """Open a connection, from kazoo's thread."""
        self._refuse_if_over()
        connection = self._connector.connect(address)
        self._socket = connection
        # Again: `end` may have come between, and found no connection to cut. kazoo never hears of this one.
        if self._is_over:
            connection.close()
        self._refuse_if_over()
        return connection

    def _refuse_if_over(self) -> None:
        if self._is_over:
            raise ConnectionAbortedError("the session is over")

    def run(self, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
        """Be kazoo's thread."""
        failure = None
        try:
            function(*arguments)
        except Exception as error:
            failure = error
        self._inbox.post(self._owner.on_ended, self, failure, self._is_clean)


class _Handler:
    """kazoo's `IHandler`: all that comes goes to the link, in one order. No worker threads."""

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
        """Pass a watch event on."""
        (event,) = callback.args
        self._link.dispatch(event.type, event.path)

    def create_connection(self, address: tuple[str, int], **_: object) -> socket.socket:
        """Open a connection."""
        return self._link.connect_socket(address)

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """Make the pair over which a request wakes kazoo's thread."""
        return socket.socketpair()

    def select(self, *arguments: Any, **options: Any) -> Any:
        """Wait for sockets."""
        return utils.selector_select(*arguments, **options)

    def event_object(self) -> threading.Event:
        """Make an event."""
        return threading.Event()

    def lock_object(self) -> threading.Lock:
        """Make a lock."""
        return threading.Lock()

    def rlock_object(self) -> Any:
        """Make a lock that its holder may take again."""
        return threading.RLock()


class _KazooLogger(logging.LoggerAdapter[logging.Logger]):
    """kazoo's lines, for whoever asks for debugging: it warns of every attempt to connect."""

    last_warning = "no connection was tried yet"

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Pass a line on as debugging output, and keep the last warning for our own lines."""
        if level >= logging.WARNING:
            self.last_warning = str(msg) % args if args else str(msg)
        if self.logger.isEnabledFor(logging.DEBUG):
            super().log(min(level, logging.DEBUG), msg, *args, **kwargs)

    def warn(self, msg: object, *args: object, **kwargs: Any) -> None:
        """Take a warning under the name that Python deprecates."""
        self.warning(msg, *args, **kwargs)
