"""The coordination port, filled by a client of a ZooKeeper server or ensemble: kazoo.

kazoo runs one thread per session, which owns the socket. Nothing of ours runs there: what it brings (answers,
watch events, changes of the connection) is put, in the order of its arrival, on one queue that the event loop
empties, with one wake-up for all that came together. That single queue is what keeps the port's promise of
order; kazoo's own handlers use two threads, where a watch event may be overtaken by the answers after it.

What else a maintainer must not break: a kazoo client serves one session. When that expires a new client is
made, after the loop has learned of it, so that an operation called in one session never runs in the next.

Only this module knows kazoo.
"""

import asyncio
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    KazooException,
    RolledBackError,
    ZookeeperError,
)
from kazoo.handlers import utils
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import Callback, KazooState, KeeperState, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from kalda.coordination import errors
from kalda.coordination.client_watches import ClientWatches
from kalda.coordination.errors import (
    BadArgumentsError,
    ConnectionLossError,
    CoordinationError,
    NoNodeError,
    SessionExpiredError,
)
from kalda.coordination.port import (
    ANY_VERSION,
    Create,
    Delete,
    EventType,
    Operation,
    OperationResult,
    SessionState,
    SetData,
    Stat,
    StateListener,
    WatchCallback,
    WatchEvent,
)
from kalda.coordination.znode_paths import check_path

MAX_IN_FLIGHT: Final = 10
"""Kafka's default of `zookeeper.max.in.flight.requests`."""

REQUEST_BYTES_MAX: Final = 1_048_575
"""ZooKeeper's default of `jute.maxbuffer`. A larger request makes a server drop the connection, which would
look like a loss of it and be tried again for ever; so it is refused here."""

Connect: TypeAlias = Callable[[tuple[str, int], float], socket.socket]
"""Opens a TCP connection to an address within so many seconds; raises OSError."""

_RECONNECT_DELAY_SECONDS: Final = 0.05
_RECONNECT_DELAY_MAX_SECONDS: Final = 1.0
"""Between attempts to connect, doubling up to this: a server that restarts is found again within a second."""

_CLOSE_SECONDS_MAX: Final = 5.0
"""How long `close` waits for the server to confirm; then the session is left to expire."""

_CLOSE_GRACE_SECONDS: Final = 2.0
"""How long it then waits for kazoo's thread, which holds no lock and ends by itself."""

_OPERATION_OVERHEAD_BYTES: Final = 64
"""More than an operation takes on the wire beyond its path and data: lengths, the ACL, headers."""

_VERSION_MAX: Final = 2**31 - 1

_log = logging.getLogger(__name__)


class KazooCoordination:
    """One session, and the next one when it expires; fills `kalda.coordination.port.Coordination`.

    While the connection is lost, calls wait for it, for at most the session time-out; what was under way
    fails with `ConnectionLossError`, because nobody knows whether it was done. After an expiry, calls fail
    with `SessionExpiredError` until listeners are told of `CONNECTED`: the new session is there, without watches
    and ephemeral znodes.

    >>> coordination = await KazooCoordination.connect(
    ...     "zk1:2181,zk2:2181/kafka", session_timeout_ms=18_000, connection_timeout_ms=18_000
    ... )
    """

    def __init__(
        self, hosts: str, *, session_timeout_ms: int, max_in_flight: int, connect: Connect | None
    ) -> None:
        servers, chroot = _split_chroot(hosts)
        self._hosts = hosts
        self._chroot = chroot
        self._session_timeout_ms = session_timeout_ms
        self._max_in_flight = max_in_flight
        self._loop = asyncio.get_running_loop()
        self._inbox = _Inbox(self._loop, self._pump)
        self._connector = _Connector(servers, session_timeout_ms, connect or socket.create_connection)
        self._link: _Link
        self._session_id = 0
        self._state = SessionState.SUSPENDED
        self._listeners: list[StateListener] = []
        self._watches = ClientWatches()
        self._waiting: deque[_Call] = deque()
        """Not given to kazoo yet. Each has a caller that awaits it, so their number is bounded."""
        self._in_flight: dict[_Call, None] = {}
        """Given to kazoo, unanswered, in order; at most `max_in_flight`, which bounds kazoo's own queues."""
        self._timer: asyncio.TimerHandle | None = None
        """Runs while something waits or is in flight; an idle session has none."""
        self._connected: asyncio.Event = asyncio.Event()
        self._closed: asyncio.Future[None] | None = None

    @classmethod
    async def connect(
        cls,
        hosts: str,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        max_in_flight: int = MAX_IN_FLIGHT,
        connect: Connect | None = None,
    ) -> "KazooCoordination":
        """Open a session with one of the servers, creating the chroot if it is not there.

        `hosts` is what `zookeeper.connect` says: ``host:port,…[/chroot]``. `connect` replaces the opening of
        TCP connections; whoever gives it can cut them, too.

        Raises:
            BadArgumentsError: `hosts` is no list of addresses, or the chroot no path.
            ConnectionLossError: no server took the session in time; the message has the last failure.
        """
        coordination = cls(
            hosts, session_timeout_ms=session_timeout_ms, max_in_flight=max_in_flight, connect=connect
        )
        try:
            await coordination._open_first(connection_timeout_ms)
        except BaseException:
            coordination._link.abandon()
            raise
        return coordination

    @property
    def session_id(self) -> int:
        """The session's id."""
        return self._session_id

    @property
    def state(self) -> SessionState:
        """How the session stands."""
        return self._state

    def add_state_listener(self, listener: StateListener) -> None:
        """Have `listener` called at each change."""
        self._listeners.append(listener)

    # Reads.

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        """Read a znode."""
        call = self._get_call(path, watch)
        (outcome,) = await self._run([call])
        result: tuple[bytes, Stat] = _value(outcome)
        return result

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        """Tell whether a znode is there."""

        def convert(raw: Any) -> Stat | None:
            stat = None if raw is None else _stat(raw)
            if watch is not None:
                self._watches.add_data(path, stat, watch)
            return stat

        request = wire.Exists(self._full(path), None if watch is None else _WATCHED)
        (outcome,) = await self._run([_Call(request, path, convert)])
        result: Stat | None = _value(outcome)
        return result

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """List a znode's children."""

        def convert(raw: Any) -> list[str]:
            names, stat = raw
            if watch is not None:
                self._watches.add_children(path, _stat(stat), watch)
            return sorted(names)

        request = wire.GetChildren2(self._full(path), None if watch is None else _WATCHED)
        (outcome,) = await self._run([_Call(request, path, convert)])
        result: list[str] = _value(outcome)
        return result

    async def get_many(
        self, paths: Sequence[str], watch: WatchCallback | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        """Read many znodes."""
        outcomes = await self._run([self._get_call(path, watch) for path in paths])
        return [None if isinstance(outcome, NoNodeError) else _value(outcome) for outcome in outcomes]

    async def watch_data(self, path: str, callback: WatchCallback) -> None:
        """Arm a data watch."""
        await self.exists(path, callback)

    async def watch_children(self, path: str, callback: WatchCallback) -> None:
        """Arm a child watch."""
        await self.children(path, callback)

    # Writes.

    async def create(
        self, path: str, data: bytes = b"", ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a znode."""
        operation = Create(path, data, ephemeral, sequential)
        (outcome,) = await self._run([_Call(self._request(operation), path, self._stripped)])
        result: str = _value(outcome)
        return result

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace a znode's data."""
        request = self._request(SetData(path, data, version))
        (outcome,) = await self._run([_Call(request, path, _stat)])
        result: Stat = _value(outcome)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a znode."""
        (outcome,) = await self._run([_Call(self._request(Delete(path, version)), path, _nothing)])
        _value(outcome)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Do all or nothing."""
        (outcome,) = await self.multi_many([operations])
        result: list[OperationResult] = _value(outcome)
        return result

    async def multi_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | CoordinationError]:
        """Do many transactions, pipelined."""
        outcomes: list[Any] = [None] * len(transactions)
        calls: list[_Call] = []
        indexes: list[int] = []
        for index, operations in enumerate(transactions):
            try:
                calls.append(self._transaction_call(operations))
                indexes.append(index)
            except BadArgumentsError as error:
                outcomes[index] = error
        for index, outcome in zip(indexes, await self._run(calls), strict=True):
            if isinstance(outcome, SessionExpiredError):
                raise outcome
            outcomes[index] = outcome
        return outcomes

    async def close(self) -> None:
        """End the session."""
        if self._closed is None:
            self._closed = self._loop.create_future()
            # What was called before takes effect before; kazoo keeps the order.
            while self._waiting and self._state is SessionState.CONNECTED:
                self._send(self._waiting.popleft())
            self._link.close()
            seconds = min(self._session_timeout_ms / 1000, _CLOSE_SECONDS_MAX)
            cut = self._loop.call_later(seconds, self._link.end)
            give_up = self._loop.call_later(
                seconds + _CLOSE_GRACE_SECONDS, self._on_ended, self._link, None, False
            )
            try:
                await asyncio.shield(self._closed)
            finally:
                if self._closed.done():
                    cut.cancel()
                    give_up.cancel()
        await asyncio.shield(self._closed)

    # Calls, on the loop.

    async def _run(self, calls: Sequence["_Call"]) -> list[Any]:
        """Have calls made, in order and pipelined; return for each its result or its error."""
        if self._closed is not None or self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            raise self._over()
        group = _Group(calls)
        self._waiting.extend(calls)
        self._pump()
        return await group.wait()

    def _pump(self) -> None:
        """Give kazoo what it may have; runs after every call and every batch of answers."""
        if self._state is SessionState.CONNECTED:
            while self._waiting and len(self._in_flight) < self._max_in_flight:
                call = self._waiting.popleft()
                if not call.is_abandoned:
                    self._send(call)
        if self._timer is None and (self._waiting or self._in_flight):
            self._timer = self._loop.call_later(self._patience_seconds, self._on_timer)

    def _send(self, call: "_Call") -> None:
        self._in_flight[call] = None
        call.sent_at = self._loop.time()
        self._link.send(call)

    @property
    def _patience_seconds(self) -> float:
        # Connected: kazoo takes a server for dead after two thirds of the session time-out without an answer
        # to its ping, but sends no ping while requests flow. Suspended: by now the session is likely over.
        seconds = self._session_timeout_ms / 1000
        return seconds * 2 / 3 if self._state is SessionState.CONNECTED else seconds

    def _on_timer(self) -> None:
        self._timer = None
        if self._state is SessionState.CONNECTED:
            oldest = next(iter(self._in_flight), None)
            if oldest is not None and self._loop.time() - oldest.sent_at >= self._patience_seconds:
                _log.warning("ZooKeeper does not answer, reconnecting: %s", self._whereabouts())
                self._link.drop()
        else:
            waiting, self._waiting = self._waiting, deque()
            for call in waiting:
                call.fail(self._unreachable(call.path))
        self._pump()

    def _on_answer(self, link: "_Link", call: "_Call", raw: object, failure: Exception | None) -> None:
        if link is not self._link or call not in self._in_flight:
            # Its caller was told that the connection or the session is lost.
            return
        del self._in_flight[call]
        if failure is not None:
            call.fail(self._translated(failure, call.path))
            return
        try:
            call.succeed(raw)
        except CoordinationError as error:
            call.fail(error)
        except Exception as error:
            # A server that answers nonsense must not leave its caller waiting.
            call.fail(
                CoordinationError(f"{call.path}: ZooKeeper's answer makes no sense: {error!r}", call.path)
            )

    # Requests.

    def _get_call(self, path: str, watch: WatchCallback | None) -> "_Call":
        def convert(raw: Any) -> tuple[bytes, Stat]:
            data, raw_stat = raw
            stat = _stat(raw_stat)
            if watch is not None:
                self._watches.add_data(path, stat, watch)
            return data or b"", stat

        return _Call(wire.GetData(self._full(path), None if watch is None else _WATCHED), path, convert)

    def _transaction_call(self, operations: Sequence[Operation]) -> "_Call":
        requests = []
        size = 0
        for index, operation in enumerate(operations):
            try:
                requests.append(self._request(operation))
                size += _size(operation, self._chroot)
                _check_size(size, operation.path)
            except BadArgumentsError as error:
                error.operation_index = index
                raise

        def convert(raw: Any) -> list[OperationResult]:
            for index, (result, operation) in enumerate(zip(raw, operations, strict=True)):
                # What stands before the failed operation is said to be rolled back.
                if isinstance(result, Exception) and not isinstance(result, RolledBackError):
                    error = self._translated(result, operation.path)
                    error.operation_index = index
                    raise error
            return [
                self._result(result, operation) for result, operation in zip(raw, operations, strict=True)
            ]

        path = operations[0].path if operations else "/"
        return _Call(wire.Transaction(requests), path, convert)

    def _result(self, raw: Any, operation: Operation) -> OperationResult:
        if isinstance(operation, Create):
            return self._stripped(raw)
        return _stat(raw) if isinstance(operation, SetData) else None

    def _request(self, operation: Operation) -> Any:
        """Translate an operation; what the server would refuse by dropping the connection is refused here."""
        if isinstance(operation, Create):
            # A sequential name may be nothing but its number: "/queue/" becomes "/queue/0000000000".
            check_path(operation.path + "0" if operation.sequential else operation.path)
            is_root = operation.path == "/" and not operation.sequential
            path = self._full("/") if is_root else self._chroot + operation.path
            _check_size(_size(operation, self._chroot), operation.path)
            flags = (1 if operation.ephemeral else 0) | (2 if operation.sequential else 0)
            return wire.Create(path, operation.data, OPEN_ACL_UNSAFE, flags)
        path = self._full(operation.path)
        if not ANY_VERSION <= operation.version <= _VERSION_MAX:
            raise BadArgumentsError(
                f"{operation.path}: version {operation.version} is not in [-1, {_VERSION_MAX}]",
                operation.path,
            )
        if isinstance(operation, SetData):
            _check_size(_size(operation, self._chroot), operation.path)
            return wire.SetData(path, operation.data, operation.version)
        if isinstance(operation, Delete):
            return wire.Delete(path, operation.version)
        return wire.CheckVersion(path, operation.version)

    def _full(self, path: str) -> str:
        check_path(path)
        if path == "/":
            return self._chroot or "/"
        return self._chroot + path

    def _stripped(self, path: str) -> str:
        return path[len(self._chroot) :] or "/"

    # The session, on the loop.

    async def _open_first(self, timeout_ms: int) -> None:
        self._open()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._connected.wait()
        except TimeoutError:
            raise ConnectionLossError(
                f"no ZooKeeper server of `zookeeper.connect`={self._hosts} took a session within "
                f"{timeout_ms} ms (`zookeeper.connection.timeout.ms`): {self._link.last_failure}"
            ) from None
        await self._ensure_chroot()

    async def _ensure_chroot(self) -> None:
        chroot, self._chroot = self._chroot, ""
        try:
            names = chroot.split("/")
            for end in range(2, len(names) + 1):
                path = "/".join(names[:end])
                if await self.exists(path) is None:
                    try:
                        await self.create(path)
                    except errors.NodeExistsError:
                        continue
        finally:
            self._chroot = chroot

    def _open(self, client_id: tuple[int, bytes] | None = None, last_zxid: int = 0) -> None:
        self._link = _Link(self, self._inbox, self._connector, client_id, last_zxid)
        self._link.start()

    def _on_connected(self, link: "_Link", session_id: int) -> None:
        if link is not self._link:
            return
        is_new = session_id != self._session_id
        self._session_id = session_id
        _log.info("ZooKeeper session %#x is %s: %s", session_id, "open" if is_new else "back", self._hosts)
        self._watch_again()
        self._connected.set()
        self._change_state(SessionState.CONNECTED)

    def _on_suspended(self, link: "_Link") -> None:
        if link is not self._link or self._state is not SessionState.CONNECTED:
            return
        _log.info("ZooKeeper is out of reach, %s", self._whereabouts())
        self._lose_connection()

    def _lose_connection(self) -> None:
        lost, self._in_flight = self._in_flight, {}
        for call in lost:
            call.fail(self._unreachable(call.path, _MAYBE_DONE))
        # Whatever arms watches again is made anew at the next connection.
        self._waiting = deque(call for call in self._waiting if call.group is not None)
        self._restart_timer()
        self._change_state(SessionState.SUSPENDED)

    def _on_expired(self, link: "_Link") -> None:
        if link is not self._link:
            return
        _log.warning("ZooKeeper session %#x has expired; opening a new one", self._session_id)
        link.abandon()
        self._end_session(SessionState.EXPIRED)
        if self._closed is None:
            self._open()

    def _on_ended(self, link: "_Link", failure: BaseException | None, is_clean: bool) -> None:
        """Take note that kazoo's thread is gone: because of `close`, or because of what it cannot bear."""
        if link is not self._link:
            return
        if self._closed is not None:
            if not is_clean:
                _log.warning(
                    "ZooKeeper did not confirm the end of session %#x; its ephemeral znodes stay until it "
                    "expires",
                    self._session_id,
                )
            if not self._closed.done():
                self._closed.set_result(None)
            self._link.abandon()
            self._end_session(SessionState.CLOSED)
            return
        _log.error("the connection to ZooKeeper failed, it is made anew: %r", failure)
        if self._state is SessionState.CONNECTED:
            self._lose_connection()
        self._loop.call_later(_RECONNECT_DELAY_MAX_SECONDS, self._reopen, link)

    def _reopen(self, link: "_Link") -> None:
        """Go on with the session of a link whose thread is gone."""
        if link is self._link and self._closed is None:
            link.abandon()
            self._open(link.client_id, link.last_zxid)

    def _end_session(self, state: SessionState) -> None:
        self._watches.clear()
        calls = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for call in calls:
            call.fail(self._over())
        self._restart_timer()
        self._change_state(state)

    def _restart_timer(self) -> None:
        # The state decides how long is too long, and `_pump` starts the timer again if there is need.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _change_state(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        for listener in list(self._listeners):
            listener(state)

    # Watches, on the loop.

    def _on_event(self, link: "_Link", event_type: EventType, full_path: str) -> None:
        if link is self._link:
            self._fire(WatchEvent(event_type, self._stripped(full_path)))

    def _fire(self, event: WatchEvent) -> None:
        for callback in self._watches.fire(event):
            callback(event)

    def _watch_again(self) -> None:
        """Arm all watches at a new connection, and tell of what changed meanwhile, before any later call."""
        calls = [
            _Call(wire.Exists(self._full(path), _WATCHED), path, self._catch_up_data(path))
            for path in self._watches.data_paths()
        ]
        for path in self._watches.child_paths():
            request = wire.GetChildren2(self._full(path), _WATCHED)
            calls.append(_Call(request, path, self._catch_up_children(path)))
            calls[-1].on_error = self._catch_up_deleted
        self._waiting.extendleft(reversed(calls))

    def _catch_up_data(self, path: str) -> Callable[[Any], None]:
        def catch_up(raw: Any) -> None:
            missed = self._watches.missed_on_data(path, None if raw is None else _stat(raw))
            if missed is not None:
                self._fire(WatchEvent(missed, path))

        return catch_up

    def _catch_up_children(self, path: str) -> Callable[[Any], None]:
        def catch_up(raw: Any) -> None:
            missed = self._watches.missed_on_children(path, _stat(raw[1]))
            if missed is not None:
                self._fire(WatchEvent(missed, path))

        return catch_up

    def _catch_up_deleted(self, error: CoordinationError) -> None:
        if isinstance(error, NoNodeError):
            assert error.path is not None
            self._fire(WatchEvent(EventType.DELETED, error.path))

    # Errors.

    def _translated(self, failure: Exception, path: str) -> CoordinationError:
        if isinstance(failure, ConnectionClosedError):
            return self._unreachable(path)
        code = failure.code if isinstance(failure, ZookeeperError) else None
        if code == SessionExpiredError.code:
            return self._over()
        if code == ConnectionLossError.code or code == _SESSION_MOVED:
            return self._unreachable(path, _MAYBE_DONE)
        known = _ERRORS.get(code)
        if known is not None:
            error_class, text = known
            return error_class(text % path, path)
        return CoordinationError(f"{path}: ZooKeeper answered {type(failure).__name__} (code {code})", path)

    def _unreachable(self, path: str, when: str = "") -> ConnectionLossError:
        return ConnectionLossError(f"{path}: ZooKeeper ({self._hosts}) cannot be reached{when}", path)

    def _over(self) -> SessionExpiredError:
        how = "closed" if self._closed is not None else self._state.value
        return SessionExpiredError(f"session {self._session_id:#x} is {how}")

    def _whereabouts(self) -> str:
        return f"session {self._session_id:#x} at {self._hosts}: {self._link.last_failure}"


# What `Any` stands for below comes from kazoo, which has no types.


class _Call:
    """One request, and who waits for its answer.

    kazoo takes it for an async result: from its thread it calls `set` or `set_exception`, sometimes twice.
    """

    __slots__ = ("convert", "group", "index", "link", "on_error", "path", "request", "sent_at")

    def __init__(self, request: Any, path: str, convert: Callable[[Any], object]) -> None:
        self.request = request
        self.path = path
        self.convert = convert
        self.group: _Group | None = None
        """None for a call that nobody awaits: one that arms a watch again."""
        self.index = 0
        self.link: _Link
        self.sent_at = 0.0
        self.on_error: Callable[[CoordinationError], None] | None = None

    @property
    def is_abandoned(self) -> bool:
        """Whether whoever waited was cancelled."""
        return self.group is not None and self.group.is_abandoned

    def succeed(self, raw: object) -> None:
        """Take the answer; on the loop."""
        result = self.convert(raw)
        if self.group is not None:
            self.group.complete(self.index, result)

    def fail(self, error: CoordinationError) -> None:
        """Take an error; on the loop."""
        if self.group is not None:
            self.group.complete(self.index, error)
        elif self.on_error is not None:
            self.on_error(error)

    # Called by kazoo.

    def set(self, value: object = None) -> None:
        self.link.answer(self, value, None)

    def set_exception(self, exception: Exception) -> None:
        self.link.answer(self, None, exception)


class _Group:
    """Calls that are awaited together: one future for all of them."""

    __slots__ = ("_future", "_missing", "_outcomes")

    def __init__(self, calls: Sequence[_Call]) -> None:
        self._outcomes: list[Any] = [None] * len(calls)
        self._missing = len(calls)
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for index, call in enumerate(calls):
            call.group = self
            call.index = index

    @property
    def is_abandoned(self) -> bool:
        """Whether the wait was cancelled."""
        return self._future.cancelled()

    def complete(self, index: int, outcome: object) -> None:
        """Take a result or an error."""
        self._outcomes[index] = outcome
        self._missing -= 1
        if not self._missing and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> list[Any]:
        """Return what all have come to."""
        if self._missing:
            await self._future
        return self._outcomes


class _Inbox:
    """What kazoo's threads have for the loop, in the order of its arrival."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_emptied: Callable[[], None]) -> None:
        self._loop = loop
        self._on_emptied = on_emptied
        self._items: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_woken = False

    def post(self, function: Callable[..., None], *arguments: object) -> None:
        """Have `function` called on the loop; from any thread."""
        self._items.append((function, arguments))
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._empty)
            except RuntimeError:
                # The loop is closed: nobody is left to be told.
                _log.debug("the event loop ended before its ZooKeeper session")

    def _empty(self) -> None:
        # Cleared first: what is added from now on wakes the loop again, at worst for nothing.
        self._is_woken = False
        items = self._items
        while items:
            function, arguments = items.popleft()
            try:
                function(*arguments)
            except Exception:
                # Most likely a watch's callback or a listener; what stands behind it must go on.
                _log.exception("taking what ZooKeeper said failed")
        self._on_emptied()


class _Connector:
    """How to reach the servers."""

    def __init__(self, servers: str, session_timeout_ms: int, connect: Connect) -> None:
        self.servers: Final = servers
        self.session_timeout_seconds: Final = session_timeout_ms / 1000
        # One host that does not answer must leave time for the others within the session.
        self._timeout_seconds = self.session_timeout_seconds / (servers.count(",") + 1)
        self._connect = connect

    def connect(self, address: tuple[str, int]) -> socket.socket:
        """Open a connection."""
        connection = self._connect(address, self._timeout_seconds)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


class _Link:
    """One kazoo client with its thread: one session, or the rest of one."""

    def __init__(
        self,
        owner: KazooCoordination,
        inbox: _Inbox,
        connector: _Connector,
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
        self._logger = _KazooLogger(_log, {})
        self.client_id = client_id
        try:
            self._client = KazooClient(
                hosts=connector.servers,
                timeout=connector.session_timeout_seconds,
                client_id=client_id,
                handler=_Handler(self),
                connection_retry=KazooRetry(
                    max_tries=-1,
                    delay=_RECONNECT_DELAY_SECONDS,
                    max_delay=_RECONNECT_DELAY_MAX_SECONDS,
                    sleep_func=_Handler.sleep_func,
                ),
                logger=self._logger,
            )
        except ValueError as error:
            raise BadArgumentsError(f"`zookeeper.connect`={connector.servers}: {error}") from None
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

    def send(self, call: _Call) -> None:
        """Have a call made; its answer comes through the inbox, also if it cannot be made."""
        call.link = self
        # Every operation of kazoo's public interface ends here. Going there directly saves its wrappers,
        # which would complete a `create` in another order than it was answered.
        self._client._call(call.request, call)

    def answer(self, call: _Call, raw: object, failure: Exception | None) -> None:
        """Take an answer, from kazoo's thread."""
        self._inbox.post(self._owner._on_answer, self, call, raw, failure)

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
                _log.debug("the connection to ZooKeeper was gone already: %s", error)

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
            _log.warning("the thread of a ZooKeeper session does not end: %r", error)

    def _on_kazoo_state(self, state: str) -> None:
        # From kazoo's thread, between the answers and events before and after the change.
        kazoo_state = self._client.client_state
        if state == KazooState.CONNECTED:
            self.client_id = self._client.client_id
            self._inbox.post(self._owner._on_connected, self, self.client_id[0])
        elif state == KazooState.SUSPENDED:
            self._inbox.post(self._owner._on_suspended, self)
        elif kazoo_state == KeeperState.EXPIRED_SESSION:
            # kazoo would open a new session by itself, and run in it what was meant for the old one.
            self._is_over = True
            self._inbox.post(self._owner._on_expired, self)
        else:
            # CLOSED straight from CONNECTED: the server has confirmed it.
            self._is_clean = kazoo_state == KeeperState.CLOSED and self._previous == KazooState.CONNECTED
        self._previous = state

    def dispatch(self, event_type: str, path: str) -> None:
        """Take a watch event, from kazoo's thread."""
        known = _EVENTS.get(event_type)
        # kazoo tells all watches of a lost connection; the port's callbacks hear of changes only.
        if known is not None:
            self._inbox.post(self._owner._on_event, self, known, path)

    def connect_socket(self, address: tuple[str, int]) -> socket.socket:
        """Open a connection, from kazoo's thread."""
        self._refuse_if_over()
        connection = self._connector.connect(address)
        self._socket = connection
        # Again: `end` may have come between, and found no connection to cut.
        self._refuse_if_over()
        return connection

    def _refuse_if_over(self) -> None:
        if self._is_over:
            self.drop()
            raise ConnectionAbortedError("the session is over")

    def run(self, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
        """Be kazoo's thread."""
        failure = None
        try:
            function(*arguments)
        except Exception as error:
            failure = error
        self._inbox.post(self._owner._on_ended, self, failure, self._is_clean)


class _Handler:
    """kazoo's `IHandler`: all that comes goes to the link, in one order. No worker threads."""

    name = "kalda"
    timeout_exception = KazooTimeoutError
    sleep_func = staticmethod(time.sleep)
    running = True

    def __init__(self, link: _Link) -> None:
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


def _split_chroot(hosts: str) -> tuple[str, str]:
    servers, slash, chroot = hosts.partition("/")
    chroot = chroot.rstrip("/")
    if not servers.strip():
        raise BadArgumentsError(
            f"`zookeeper.connect`={hosts!r} names no server; host:port,…[/chroot] is wanted"
        )
    if not chroot:
        return servers, ""
    check_path(slash + chroot)
    return servers, slash + chroot


def _value(outcome: Any) -> Any:
    if isinstance(outcome, CoordinationError):
        raise outcome
    return outcome


def _nothing(_: object) -> None:
    return None


def _stat(raw: ZnodeStat) -> Stat:
    # kazoo's names differ for three fields; the order is the protocol's.
    return Stat(*raw)


def _size(operation: Operation, chroot: str) -> int:
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return _OPERATION_OVERHEAD_BYTES + len((chroot + operation.path).encode()) + len(data or b"")


def _check_size(size: int, path: str) -> None:
    if size > REQUEST_BYTES_MAX:
        raise BadArgumentsError(
            f"{path}: a request of {size} bytes is larger than the {REQUEST_BYTES_MAX} bytes that ZooKeeper "
            "takes (its `jute.maxbuffer`); split it",
            path,
        )


_WATCHED: Final = "watched"
"""What kazoo holds for a path with watches; who is to be told is in `ClientWatches`."""

_MAYBE_DONE: Final = " while the operation was under way: it may have been done"

_SESSION_MOVED: Final = -118

_EVENTS: Final[Mapping[str, EventType]] = {
    "CREATED": EventType.CREATED,
    "DELETED": EventType.DELETED,
    "CHANGED": EventType.DATA_CHANGED,
    "CHILD": EventType.CHILDREN_CHANGED,
}

_ERRORS: Final[Mapping[int | None, tuple[type[CoordinationError], str]]] = {
    errors.StorageError.code: (errors.StorageError, "%s: the server could not do it; its log says why"),
    errors.BadArgumentsError.code: (BadArgumentsError, "%s: the server does not take the path or the data"),
    errors.NoNodeError.code: (NoNodeError, "%s or its parent does not exist"),
    errors.BadVersionError.code: (errors.BadVersionError, "%s has another version than the expected one"),
    errors.NoChildrenForEphemeralsError.code: (
        errors.NoChildrenForEphemeralsError,
        "%s: its parent is ephemeral and takes no children",
    ),
    errors.NodeExistsError.code: (errors.NodeExistsError, "%s exists already"),
    errors.NotEmptyError.code: (errors.NotEmptyError, "%s has children"),
}
