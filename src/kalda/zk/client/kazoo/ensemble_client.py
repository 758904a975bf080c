"""The ensemble engine: a `ZooKeeperClient` for ZooKeeper servers over the wire, on top of kazoo.

kazoo's thread posts responses, watch events and connection changes to one inbox in the order of their
arrival, and the event loop makes all decisions. This order keeps the port's guarantees.

A link, with its kazoo client, must serve one session only. After an expiry the loop creates a new link, so a
call of one session never runs in the next: an ephemeral znode created there by mistake would stay although
the caller believes it is gone.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from kalda.common.backoff import jittered
from kalda.common.error_text import error_text
from kalda.security.zookeeper.client_security import PLAINTEXT, ClientSecurity
from kalda.zk.client.kazoo import link as kazoo_link
from kalda.zk.client.kazoo.calls import Call, Inbox, group_calls
from kalda.zk.client.kazoo.client_watches import ClientWatches
from kalda.zk.client.kazoo.link import Connect, Connector, Link, code_of, stat_of
from kalda.zk.client.kazoo.request_translation import Chroot, error_of, split_chroot
from kalda.zk.client.port import (
    ANY_VERSION,
    Create,
    Delete,
    EventType,
    Operation,
    OperationResult,
    SessionKey,
    SessionState,
    SetData,
    Stat,
    StateListener,
    WatchCallback,
    WatchEvent,
)
from kalda.zk.client.znode_access import Acl
from kalda.zk.client.zookeeper_errors import (
    AuthFailedError,
    BadArgumentsError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)

MAX_IN_FLIGHT: Final = 10
"""Kafka's default of `zookeeper.max.in.flight.requests`."""

_CLOSE_SECONDS_MAX: Final = 5.0
"""How long `close` waits for the server's confirmation; then the session is left to expire."""

_CLOSE_GRACE_SECONDS: Final = 2.0
"""How long `close` then waits for kazoo's thread, which holds no lock and ends by itself."""

_CHROOT_PAUSE_SECONDS: Final = 0.05
"""Pause between attempts to create the chroot; most of the time is spent waiting for a connection."""

_SUSPICION_SECONDS: Final = 0.25
"""Time between the first and the second check of an overdue response."""

_MAYBE_DONE: Final = " while the operation was outstanding: it may have taken effect"

_SESSION_MOVED: Final = -118

_ROLLED_BACK: Final = 0

logger: Final = logging.getLogger(__name__)


class EnsembleClient:
    """One session, and a new one when it expires; implements `ZooKeeperClient`.

    While the connection is lost, new calls wait for it, at most for the session time-out. Outstanding calls
    fail with `ConnectionLossError`, because their outcome is unknown. After an expiry, calls fail with
    `SessionExpiredError` until listeners get `CONNECTED`: then there is a new session, without watches and
    ephemeral znodes.

    >>> client = await EnsembleClient.connect(
    ...     "zk1:2181,zk2:2181/kafka", session_timeout_ms=18_000, connection_timeout_ms=18_000
    ... )
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int,
        max_in_flight: int,
        connect: Connect | None,
        security: ClientSecurity,
    ) -> None:
        servers, chroot = split_chroot(hosts, is_secure=security.restricts_access)
        self._hosts = hosts
        self._chroot = chroot
        self._session_timeout_ms = session_timeout_ms
        self._max_in_flight = max_in_flight
        self._loop = asyncio.get_running_loop()
        self._inbox = Inbox(self._loop, self._pump)
        self._connector = Connector(
            servers, session_timeout_ms, connect or socket.create_connection, security
        )
        self._link: Link
        self._session_id = 0
        self._state = SessionState.SUSPENDED
        self._listeners: list[StateListener] = []
        self._watches = ClientWatches()
        self._waiting: deque[Call] = deque()
        """Calls not sent to kazoo yet. Each has a caller that awaits it, so their number is bounded."""
        self._in_flight: dict[Call, None] = {}
        """Calls sent to kazoo without a response, in order; `max_in_flight` bounds kazoo's own queues."""
        self._timer: asyncio.TimerHandle | None = None
        """Runs while a call waits or is in flight; an idle session has no timer."""
        self._suspect: Call | None = None
        """The oldest call in flight that was found overdue at the last check."""
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
        creates_chroot: bool = True,
        connect: Connect | None = None,
        security: ClientSecurity = PLAINTEXT,
    ) -> "EnsembleClient":
        """Open a session with one of the servers, and create the chroot if it is missing.

        `hosts` is the value of `zookeeper.connect`: ``host:port,…[/chroot]``. Without `creates_chroot` a
        missing chroot stays missing. `connect` replaces the function that opens TCP connections, so that a
        test can cut them.

        Raises:
            BadArgumentsError: `hosts` is no list of addresses, or the chroot is no path.
            ConnectionLossError: no server opened the session in time; the message has the last failure.
            AuthFailedError: a server refused the login.
            TlsSettingsError: a store of `security` cannot be read.
        """
        zookeeper = cls(
            hosts,
            session_timeout_ms=session_timeout_ms,
            max_in_flight=max_in_flight,
            connect=connect,
            security=security,
        )
        try:
            await zookeeper._open_first(connection_timeout_ms, creates_chroot=creates_chroot)
        except BaseException:
            zookeeper.abandon()
            raise
        return zookeeper

    @property
    def session_id(self) -> int:
        """The session's id."""
        return self._session_id

    @property
    def session_key(self) -> SessionKey | None:
        """The credentials to end this session from a later process."""
        client_id = self._link.client_id
        return None if client_id is None else SessionKey(*client_id)

    @property
    def state(self) -> SessionState:
        """The session's state."""
        return self._state

    def add_state_listener(self, listener: StateListener) -> None:
        """Register a callback for changes of the state."""
        self._listeners.append(listener)

    # Reads.

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        """Read a znode."""
        call = self._get_call(path, watch)
        (outcome,) = await self._run([call])
        result: tuple[bytes, Stat] = _value(outcome)
        return result

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        """Return whether a znode is there."""

        def convert(raw: Any) -> Stat | None:
            stat = None if raw is None else stat_of(raw)
            if watch is not None:
                self._watches.add_data(path, stat, watch)
            return stat

        request = kazoo_link.exists(self._chroot.full(path), watch is not None)
        (outcome,) = await self._run([Call(request, path, convert)])
        result: Stat | None = _value(outcome)
        return result

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """List a znode's children."""

        def convert(raw: Any) -> list[str]:
            names, stat = raw
            if watch is not None:
                self._watches.add_children(path, stat_of(stat), watch)
            return sorted(names)

        request = kazoo_link.get_children(self._chroot.full(path), watch is not None)
        (outcome,) = await self._run([Call(request, path, convert)])
        result: list[str] = _value(outcome)
        return result

    async def get_many(
        self, paths: Sequence[str], watch: WatchCallback | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        """Read many znodes."""
        outcomes = await self._run([self._get_call(path, watch) for path in paths])
        return [None if isinstance(outcome, NoNodeError) else _value(outcome) for outcome in outcomes]

    # Writes.

    async def create(
        self, path: str, data: bytes = b"", ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a znode."""
        operation = Create(path, data, ephemeral, sequential)
        (outcome,) = await self._run([Call(self._chroot.request(operation), path, self._chroot.stripped)])
        result: str = _value(outcome)
        return result

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace a znode's data."""
        request = self._chroot.request(SetData(path, data, version))
        (outcome,) = await self._run([Call(request, path, stat_of)])
        result: Stat = _value(outcome)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a znode."""
        (outcome,) = await self._run([Call(self._chroot.request(Delete(path, version)), path, _nothing)])
        _value(outcome)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Do all or nothing."""
        (outcome,) = await self.multi_many([operations])
        result: list[OperationResult] = _value(outcome)
        return result

    async def multi_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | ZooKeeperError]:
        """Do many transactions, pipelined."""
        outcomes: list[Any] = [None] * len(transactions)
        calls: list[Call] = []
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

    async def access_list(self, path: str) -> tuple[tuple[Acl, ...], Stat]:
        """Return a znode's access list and metadata."""

        def convert(raw: Any) -> tuple[tuple[Acl, ...], Stat]:
            acl, stat = raw
            return kazoo_link.acl_of(acl), stat_of(stat)

        (outcome,) = await self._run([Call(kazoo_link.get_access(self._chroot.full(path)), path, convert)])
        result: tuple[tuple[Acl, ...], Stat] = _value(outcome)
        return result

    async def set_access(self, path: str) -> None:
        """Give an existing znode the access list that this client would create it with."""
        (outcome,) = await self._run([Call(self._chroot.set_access(path), path, _nothing)])
        _value(outcome)

    async def end_session(self, key: SessionKey) -> None:
        """End the session of a process that is gone."""
        await self._loop.run_in_executor(None, kazoo_link.end_session, self._connector, key)

    async def close(self) -> None:
        """End the session."""
        if self._closed is None:
            self._closed = self._loop.create_future()
            # Earlier calls take effect first; kazoo keeps the order.
            while self._waiting and self._state is SessionState.CONNECTED:
                self._send(self._waiting.popleft())
            self._link.close()
            seconds = min(self._session_timeout_ms / 1000, _CLOSE_SECONDS_MAX)
            cut = self._loop.call_later(seconds, self._link.end)
            give_up = self._loop.call_later(
                seconds + _CLOSE_GRACE_SECONDS, self.on_ended, self._link, None, False
            )
            try:
                await asyncio.shield(self._closed)
            finally:
                if self._closed.done():
                    cut.cancel()
                    give_up.cancel()
        await asyncio.shield(self._closed)

    def abandon(self) -> None:
        """Drop the session without closing it, as a crash would; it is left to expire."""
        if self._closed is None:
            self._closed = self._loop.create_future()
            self._closed.set_result(None)
            self._link.abandon()
            self._end_session(SessionState.CLOSED)

    # Calls, on the loop.

    async def _run(self, calls: Sequence[Call]) -> list[Any]:
        """Send calls in order, pipelined; return for each its result or its error."""
        if self._closed is not None or self._state in (SessionState.EXPIRED, SessionState.CLOSED):
            raise self._over()
        group = group_calls(calls)
        self._waiting.extend(calls)
        self._pump()
        return await group.wait()

    def _pump(self) -> None:
        """Send waiting calls up to the limit; runs after every call and every batch of responses."""
        if self._state is SessionState.CONNECTED:
            while self._waiting and len(self._in_flight) < self._max_in_flight:
                call = self._waiting.popleft()
                if not call.is_abandoned:
                    self._send(call)
        if self._timer is None and (self._waiting or self._in_flight):
            self._timer = self._loop.call_later(self._patience_seconds, self._on_timer)

    def _send(self, call: Call) -> None:
        self._in_flight[call] = None
        call.sent_at = self._loop.time()
        self._link.send(call)

    @property
    def _patience_seconds(self) -> float:
        # Connected: kazoo considers a server dead after two thirds of the session time-out without a response
        # to its ping, but sends no ping while requests flow. Suspended: after it the session is likely over.
        seconds = self._session_timeout_ms / 1000
        return seconds * 2 / 3 if self._state is SessionState.CONNECTED else seconds

    def _on_timer(self) -> None:
        self._timer = None
        if self._state is SessionState.CONNECTED:
            self._check_server()
        else:
            waiting, self._waiting = self._waiting, deque()
            for call in waiting:
                call.fail(self._unreachable(call.path))
        self._pump()

    def _check_server(self) -> None:
        """Close a connection whose oldest request has had no response for too long."""
        oldest = next(iter(self._in_flight), None)
        if oldest is None:
            return
        remaining = oldest.sent_at + self._patience_seconds - self._loop.time()
        if remaining <= 0:
            if self._suspect is oldest:
                logger.warning("ZooKeeper does not respond, reconnecting: %s", self._whereabouts())
                self._link.drop()
            # Checked twice: if this process was stopped, the response may wait in the socket.
            self._suspect = oldest
        self._timer = self._loop.call_later(max(remaining, _SUSPICION_SECONDS), self._on_timer)

    def on_answer(self, link: Link, call: Call, raw: object, failure: Exception | None) -> None:
        """Handle the response to a call."""
        if link is not self._link or call not in self._in_flight:
            # The call has already failed with the loss of the connection or the session.
            return
        del self._in_flight[call]
        if failure is not None:
            call.fail(self._translated(failure, call.path))
            return
        try:
            call.succeed(raw)
        except ZooKeeperError as error:
            call.fail(error)
        except Exception as error:
            # A malformed response must not leave the caller waiting.
            text = f"{call.path}: ZooKeeper's response is malformed: {error_text(error)}"
            call.fail(ZooKeeperError(text, call.path))

    # Requests.

    def _get_call(self, path: str, watch: WatchCallback | None) -> Call:
        def convert(raw: Any) -> tuple[bytes, Stat]:
            data, raw_stat = raw
            stat = stat_of(raw_stat)
            if watch is not None:
                self._watches.add_data(path, stat, watch)
            return data or b"", stat

        return Call(kazoo_link.get_data(self._chroot.full(path), watch is not None), path, convert)

    def _transaction_call(self, operations: Sequence[Operation]) -> Call:
        def convert(raw: Any) -> list[OperationResult]:
            for index, (result, operation) in enumerate(zip(raw, operations, strict=True)):
                # The operations before the failed one have the code "rolled back".
                if isinstance(result, Exception) and code_of(result) != _ROLLED_BACK:
                    error = self._translated(result, operation.path)
                    error.operation_index = index
                    raise error
            return [
                self._chroot.result(result, operation)
                for result, operation in zip(raw, operations, strict=True)
            ]

        path = operations[0].path if operations else "/"
        return Call(self._chroot.transaction(operations), path, convert)

    # The session, on the loop.

    async def _open_first(self, timeout_ms: int, *, creates_chroot: bool) -> None:
        deadline = self._loop.time() + timeout_ms / 1000
        self._open()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._connected.wait()
        except TimeoutError:
            raise ConnectionLossError(
                f"no ZooKeeper server of `zookeeper.connect`={self._hosts} took a session within "
                f"{timeout_ms} ms (`zookeeper.connection.timeout.ms`): {self._link.last_failure}"
            ) from None
        if self._link.login_failure is not None:
            raise AuthFailedError(f"`zookeeper.connect`={self._hosts}: {self._link.login_failure}")
        # A connection that breaks meanwhile costs one attempt, not the broker's start.
        while creates_chroot:
            try:
                await self._ensure_chroot()
                return
            except ConnectionLossError as error:
                if self._loop.time() >= deadline:
                    raise
                logger.info("the chroot of `zookeeper.connect`=%s is not created yet: %s", self._hosts, error)
            await asyncio.sleep(jittered(_CHROOT_PAUSE_SECONDS))

    async def _ensure_chroot(self) -> None:
        chroot, self._chroot = self._chroot, Chroot("", is_secure=self._chroot.is_secure)
        try:
            names = chroot.path.split("/")
            for end in range(2, len(names) + 1):
                path = "/".join(names[:end])
                if await self.exists(path) is None:
                    try:
                        await self.create(path)
                    except NodeExistsError:
                        continue
        finally:
            self._chroot = chroot

    def _open(self, client_id: tuple[int, bytes] | None = None, last_zxid: int = 0) -> None:
        self._link = Link(self, self._inbox, self._connector, client_id, last_zxid)
        self._link.start()

    def on_connected(self, link: Link, session_id: int) -> None:
        """Handle a new session, or the reconnect of a session."""
        if link is not self._link:
            return
        is_new = session_id != self._session_id
        self._session_id = session_id
        logger.info("ZooKeeper session %#x is %s: %s", session_id, "open" if is_new else "back", self._hosts)
        self._watch_again()
        self._connected.set()
        self._change_state(SessionState.CONNECTED)

    def on_suspended(self, link: Link) -> None:
        """Handle a lost connection."""
        if link is not self._link or self._state is not SessionState.CONNECTED:
            return
        logger.info("the connection to ZooKeeper is lost, %s", self._whereabouts())
        self._lose_connection()

    def _lose_connection(self) -> None:
        lost, self._in_flight = self._in_flight, {}
        for call in lost:
            call.fail(self._unreachable(call.path, _MAYBE_DONE))
        # Calls that set watches again are created again at the next connection.
        self._waiting = deque(call for call in self._waiting if call.group is not None)
        self._restart_timer()
        self._change_state(SessionState.SUSPENDED)

    def on_expired(self, link: Link) -> None:
        """Handle the expiry of the session, and open the next one."""
        if link is not self._link:
            return
        logger.warning("ZooKeeper session %#x has expired; opening a new one", self._session_id)
        link.abandon()
        self._end_session(SessionState.EXPIRED)
        if self._closed is None:
            self._open()

    def on_ended(self, link: Link, failure: BaseException | None, is_clean: bool) -> None:
        """Handle the end of kazoo's thread: `close` was called, or kazoo raised an exception."""
        if link is not self._link:
            return
        if self._closed is not None:
            if not is_clean and not self._closed.done():
                logger.warning(
                    "ZooKeeper did not confirm the end of session %#x; its ephemeral znodes stay until it "
                    "expires",
                    self._session_id,
                )
            if not self._closed.done():
                self._closed.set_result(None)
            self._link.abandon()
            self._end_session(SessionState.CLOSED)
            return
        if link.login_failure is not None:
            # Ends the wait of `connect`. Later the login is tried again: one server may be misconfigured.
            self._connected.set()
        reason = link.login_failure or ("no reason given" if failure is None else error_text(failure))
        logger.error("the connection to ZooKeeper failed, reconnecting: %s", reason)
        if self._state is SessionState.CONNECTED:
            self._lose_connection()
        self._loop.call_later(kazoo_link.RECONNECT_DELAY_MAX_SECONDS, self._reopen, link)

    def _reopen(self, link: Link) -> None:
        """Continue the session of a link whose thread has ended."""
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
        # The timer's interval depends on the state; `_pump` starts the timer again if it is needed.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _change_state(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        for listener in list(self._listeners):
            try:
                listener(state)
            except Exception:
                # A listener must not raise, but the others must be called and the session must continue.
                logger.exception("a listener failed when the session became %s", state.value)

    # Watches, on the loop.

    def on_event(self, link: Link, event_type: EventType, full_path: str) -> None:
        """Call the callbacks that watch the path."""
        if link is self._link:
            self._fire(WatchEvent(event_type, self._chroot.stripped(full_path)))

    def _fire(self, event: WatchEvent) -> None:
        for callback in self._watches.fire(event):
            try:
                callback(event)
            except Exception:
                # A callback must not raise, but its fault must not affect other watches.
                logger.exception("a watch callback failed on %s of %s", event.type.name, event.path)

    def _watch_again(self) -> None:
        """Set all watches on a new connection, and report missed changes before any later call completes."""
        calls = [
            Call(kazoo_link.exists(self._chroot.full(path), True), path, self._catch_up_data(path))
            for path in self._watches.data_paths()
        ]
        for path in self._watches.child_paths():
            request = kazoo_link.get_children(self._chroot.full(path), True)
            calls.append(Call(request, path, self._catch_up_children(path)))
            calls[-1].on_error = self._catch_up_deleted
        self._waiting.extendleft(reversed(calls))

    def _catch_up_data(self, path: str) -> Callable[[Any], None]:
        def catch_up(raw: Any) -> None:
            missed = self._watches.missed_on_data(path, None if raw is None else stat_of(raw))
            if missed is not None:
                self._fire(WatchEvent(missed, path))

        return catch_up

    def _catch_up_children(self, path: str) -> Callable[[Any], None]:
        def catch_up(raw: Any) -> None:
            missed = self._watches.missed_on_children(path, stat_of(raw[1]))
            if missed is not None:
                self._fire(WatchEvent(missed, path))

        return catch_up

    def _catch_up_deleted(self, error: ZooKeeperError) -> None:
        if isinstance(error, NoNodeError):
            assert error.path is not None
            self._fire(WatchEvent(EventType.DELETED, error.path))

    # Errors.

    def _translated(self, failure: Exception, path: str) -> ZooKeeperError:
        code = code_of(failure)
        if code == SessionExpiredError.code:
            return self._over()
        if code == ConnectionLossError.code or code == _SESSION_MOVED:
            return self._unreachable(path, _MAYBE_DONE)
        return error_of(failure, path)

    def _unreachable(self, path: str, when: str = "") -> ConnectionLossError:
        return ConnectionLossError(f"{path}: ZooKeeper ({self._hosts}) cannot be reached{when}", path)

    def _over(self) -> SessionExpiredError:
        how = "closed" if self._closed is not None else self._state.value
        return SessionExpiredError(f"session {self._session_id:#x} is {how}")

    def _whereabouts(self) -> str:
        return f"session {self._session_id:#x} at {self._hosts}: {self._link.last_failure}"


def _value(outcome: Any) -> Any:
    if isinstance(outcome, ZooKeeperError):
        raise outcome
    return outcome


def _nothing(_: object) -> None:
    return None
