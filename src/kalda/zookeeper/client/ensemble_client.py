"""The ensemble engine: a `ZooKeeperClient` for ZooKeeper servers over the wire.

A link hands on responses, watch events and changes of the connection in the order in which they came. This
order keeps the port's guarantees.

A link must serve one session only. After an expiry the client creates a new link, so a call of one session
never runs in the next: an ephemeral znode created there by mistake would stay although the caller believes it
is gone.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from kalda.common.backoff import ExponentialBackoff, Pacer, jittered
from kalda.net.client.stream import connect_stream
from kalda.runtime.error_text import error_text
from kalda.runtime.random import Random
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.security.zookeeper.client_security import PLAINTEXT, ClientSecurity
from kalda.zookeeper.acl import Acl
from kalda.zookeeper.client.calls import Call, group_calls
from kalda.zookeeper.client.client_watches import ClientWatches
from kalda.zookeeper.client.link import Link
from kalda.zookeeper.client.request_translation import Chroot, error_of, split_chroot
from kalda.zookeeper.client.servers import Connect, Servers
from kalda.zookeeper.errors import (
    AuthFailedError,
    BadArgumentsError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)
from kalda.zookeeper.port import (
    ANY_VERSION,
    ZOOKEEPER_NAME,
    ZOOKEEPER_OPERATIONS_MAX,
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
from kalda.zookeeper.protocol import client_requests as encode
from kalda.zookeeper.protocol import client_responses as decode
from kalda.zookeeper.protocol.client_responses import MultiError
from kalda.zookeeper.protocol.jute import JuteError, Reader
from kalda.zookeeper.protocol.op_codes import OK

MAX_IN_FLIGHT: Final = 10
"""Kafka's default of `zookeeper.max.in.flight.requests`."""

_CLOSE_SECONDS_MAX: Final = 5.0
"""How long `close` waits for the server's confirmation; then the session is left to expire."""

_END_SESSION_SECONDS_MAX: Final = 5.0
"""How long `end_session` may take: it is optional, because the time-out ends the session too."""

_EXPIRIES_FREE: Final = 2
_EXPIRY_BACKOFF_MS: Final = (50, 1_000)
"""Sessions that end one after the other before their time-out may have passed: after the free ones, each next
one waits longer."""

_CHROOT_PAUSE_SECONDS: Final = 0.05
"""Pause between attempts to create the chroot; most of the time is spent waiting for a connection."""

_MAYBE_DONE: Final = " while the operation was outstanding: it may have taken effect"

_SESSION_MOVED: Final = -118

_ROLLED_BACK: Final = 0

logger: Final = logging.getLogger(__name__)


class EnsembleClient:
    """One session, and a new one when it expires; implements `ZooKeeperClient`.

    While the connection is lost, new calls wait for it, at most for the session time-out. Outstanding reads
    wait as well and are sent once more; other outstanding calls fail with `ConnectionLossError`, because
    their outcome is unknown. After an expiry, calls fail with
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
        connect: Connect,
        security: ClientSecurity,
        random: Random,
    ) -> None:
        servers, chroot = split_chroot(hosts, is_secure=security.restricts_access)
        self._hosts = hosts
        self._chroot = chroot
        self._session_timeout_ms = session_timeout_ms
        self._max_in_flight = max_in_flight
        self._loop = asyncio.get_running_loop()
        self._servers = Servers(servers, session_timeout_ms, connect, security, random)
        self._link: Link
        self._session_id = 0
        self._opened_at: float | None = None
        """When the session was opened; None before."""
        self._pacer = Pacer(ExponentialBackoff(*_EXPIRY_BACKOFF_MS, random.uniform), _EXPIRIES_FREE)
        self._state = SessionState.SUSPENDED
        self._listeners: list[StateListener] = []
        self._watches = ClientWatches()
        self._waiting: deque[Call] = deque()
        """Calls not sent yet. Each has a caller that awaits it, so their number is bounded."""
        self._in_flight: dict[Call, None] = {}
        """Calls sent without a response, in order."""
        self._timer: asyncio.TimerHandle | None = None
        """Runs while calls wait for a connection."""
        self._login_failure = ""
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
        connect: Connect = connect_stream,
        security: ClientSecurity = PLAINTEXT,
        random: Random = SYSTEM_RANDOM,
    ) -> Self:
        """Open a session with one of the servers, and create the chroot if it is missing.

        `hosts` is the value of `zookeeper.connect`: ``host:port,…[/chroot]``. Without `creates_chroot` a
        missing chroot stays missing. `connect` replaces the function that opens connections, so that a test
        can cut them.

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
            random=random,
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
        session = self._link.session
        return SessionKey(session.session_id, session.password) if session.session_id else None

    @property
    def state(self) -> SessionState:
        """The session's state."""
        return self._state

    @property
    def engine_name(self) -> str:
        """The name of the engine."""
        return ZOOKEEPER_NAME

    @property
    def operations_max(self) -> int:
        """How many operations a transaction may have."""
        return ZOOKEEPER_OPERATIONS_MAX

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
        """Return whether a znode exists."""

        def note(stat: Stat | None) -> Stat | None:
            if watch is not None:
                self._watches.add_data(path, stat, watch)
            return stat

        (outcome,) = await self._run([self._exists_call(path, note, watch=watch is not None)])
        result: Stat | None = _value(outcome)
        return result

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """List a znode's children."""

        def convert(reader: Reader) -> list[str]:
            names, stat = decode.read_children(reader)
            if watch is not None:
                self._watches.add_children(path, Stat(*stat), watch)
            return sorted(names)

        request = encode.get_children(self._chroot.full(path), watch=watch is not None)
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

        def convert(reader: Reader) -> str:
            return self._chroot.stripped(reader.text())

        (outcome,) = await self._run([Call(self._chroot.request(operation), path, convert)])
        result: str = _value(outcome)
        return result

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace a znode's data."""
        request = self._chroot.request(SetData(path, data, version))
        (outcome,) = await self._run([Call(request, path, _stat)])
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

        def convert(reader: Reader) -> tuple[tuple[Acl, ...], Stat]:
            acl, stat = decode.read_access_list(reader)
            return tuple(Acl(*entry) for entry in acl), Stat(*stat)

        (outcome,) = await self._run([Call(encode.get_acl(self._chroot.full(path)), path, convert)])
        result: tuple[tuple[Acl, ...], Stat] = _value(outcome)
        return result

    async def set_access(self, path: str, acl: Sequence[Acl] | None = None) -> None:
        """Give an existing znode this access list, or the one that this client would create it with."""
        (outcome,) = await self._run([Call(self._chroot.set_access(path, acl), path, _nothing)])
        _value(outcome)

    async def end_session(self, key: SessionKey) -> None:
        """End the session of a process that is gone."""
        ending = _Ending()
        link = Link(ending, self._servers)
        # If the session is over, the server says so.
        link.session.session_id, link.session.password = key.session_id, key.password
        link.start()
        try:
            async with asyncio.timeout(_END_SESSION_SECONDS_MAX):
                await ending.is_over.wait()
        except TimeoutError:
            logger.info("session %#x is left to expire: %s", key.session_id, link.last_failure)
        finally:
            link.abandon()

    async def close(self) -> None:
        """End the session."""
        if self._closed is None:
            self._closed = self._loop.create_future()
            # Earlier calls take effect first.
            while self._waiting and self._state is SessionState.CONNECTED:
                self._send(self._waiting.popleft())
            self._link.close()
            seconds = min(self._session_timeout_ms / 1000, _CLOSE_SECONDS_MAX)
            give_up = self._loop.call_later(seconds, self._on_close_overdue)
            try:
                await asyncio.shield(self._closed)
            finally:
                if self._closed.done():
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
        """Send waiting calls up to the limit; runs after every call and every response."""
        if self._state is SessionState.CONNECTED:
            while self._waiting and len(self._in_flight) < self._max_in_flight:
                call = self._waiting.popleft()
                if not call.is_abandoned:
                    self._send(call)
        elif self._waiting and self._timer is None:
            self._timer = self._loop.call_later(self._session_timeout_ms / 1000, self._on_timer)

    def _send(self, call: Call) -> None:
        self._in_flight[call] = None
        self._link.send(call)

    def _on_timer(self) -> None:
        """The session is likely over by now, but no server could be asked."""
        self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            call.fail(self._unreachable(call.path))

    def on_answer(self, link: Link, call: Call, code: int, reader: Reader) -> None:
        """Handle the response to a call."""
        if link is not self._link or call not in self._in_flight:
            # The call has already failed with the loss of the connection or the session.
            return
        del self._in_flight[call]
        self._complete(call, code, reader)
        self._pump()

    def _complete(self, call: Call, code: int, reader: Reader) -> None:
        absent = call.absent if code == NoNodeError.code else None
        if code != OK and absent is None:
            call.fail(self._translated(code, call.path))
            return
        try:
            result = call.convert(reader) if absent is None else absent()
        except ZooKeeperError as error:
            call.fail(error)
        except Exception as error:
            # Whatever a response holds, it must not leave the caller waiting.
            text = f"{call.path}: ZooKeeper's response is malformed: {error_text(error)}"
            call.fail(ZooKeeperError(text, call.path))
        else:
            call.succeed(result)

    # Requests.

    def _get_call(self, path: str, watch: WatchCallback | None) -> Call:
        def convert(reader: Reader) -> tuple[bytes, Stat]:
            data, fields = decode.read_data(reader)
            stat = Stat(*fields)
            if watch is not None:
                self._watches.add_data(path, stat, watch)
            return data, stat

        return Call(encode.get_data(self._chroot.full(path), watch=watch is not None), path, convert)

    def _exists_call(self, path: str, convert: Callable[[Stat | None], object], *, watch: bool) -> Call:
        request = encode.exists(self._chroot.full(path), watch=watch)
        call = Call(request, path, lambda reader: convert(_stat(reader)))
        call.absent = lambda: convert(None)
        return call

    def _transaction_call(self, operations: Sequence[Operation]) -> Call:
        def convert(reader: Reader) -> list[OperationResult]:
            results: list[OperationResult] = []
            for index, outcome in enumerate(decode.read_multi(reader)):
                if isinstance(outcome, MultiError):
                    # The operations before the failed one have the code "rolled back".
                    if outcome.code != _ROLLED_BACK:
                        error = self._translated(outcome.code, operations[index].path)
                        error.operation_index = index
                        raise error
                else:
                    results.append(self._chroot.result(outcome))
            if len(results) != len(operations):
                raise JuteError(f"{len(results)} results of {len(operations)} operations")
            return results

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
        if self._login_failure:
            raise AuthFailedError(f"`zookeeper.connect`={self._hosts}: {self._login_failure}")
        # A connection that breaks meanwhile costs one attempt, not the broker's start.
        while creates_chroot:
            try:
                await self._ensure_chroot()
                return
            except ConnectionLossError as error:
                if self._loop.time() >= deadline:
                    raise
                logger.info("the chroot of `zookeeper.connect`=%s is not created yet: %s", self._hosts, error)
            await asyncio.sleep(jittered(_CHROOT_PAUSE_SECONDS, self._servers.random))

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

    def _open(self, pause_s: float = 0.0) -> None:
        self._link = Link(self, self._servers)
        self._link.start(pause_s)

    def on_connected(self, link: Link) -> None:
        """Handle a new session, or the reconnect of a session."""
        if link is not self._link:
            return
        session_id = link.session.session_id
        is_new = session_id != self._session_id
        self._session_id = session_id
        if is_new:
            self._opened_at = self._loop.time()
        logger.info("ZooKeeper session %#x is %s: %s", session_id, "open" if is_new else "back", self._hosts)
        self._stop_timer()
        self._watch_again()
        self._connected.set()
        self._change_state(SessionState.CONNECTED)
        self._pump()

    def on_suspended(self, link: Link) -> None:
        """Handle a lost connection."""
        if link is not self._link or self._state is not SessionState.CONNECTED:
            return
        logger.info(
            "the connection to ZooKeeper is lost, session %#x: %s", self._session_id, link.last_failure
        )
        self._lose_connection()

    def on_login_refused(self, link: Link, reason: str) -> None:
        """Handle a refused login. It ends the wait of `connect`; later another server may take the login."""
        if link is self._link:
            logger.error("the connection to ZooKeeper failed, reconnecting: %s", reason)
            self._login_failure = reason
            self._connected.set()

    def _lose_connection(self) -> None:
        lost, self._in_flight = self._in_flight, {}
        again: list[Call] = []
        for call in lost:
            if call.may_be_sent_again:
                call.was_lost = True
                again.append(call)
            else:
                call.fail(self._unreachable(call.path, _MAYBE_DONE))
        # Calls that set watches again are created again at the next connection.
        self._waiting = deque([*again, *(call for call in self._waiting if call.group is not None)])
        self._change_state(SessionState.SUSPENDED)
        self._pump()

    def on_expired(self, link: Link) -> None:
        """Handle the expiry of the session, and open the next one."""
        if link is not self._link:
            return
        logger.warning("ZooKeeper session %#x has expired; opening a new one", self._session_id)
        link.abandon()
        self._end_session(SessionState.EXPIRED)
        opened_at, self._opened_at = self._opened_at, None
        if opened_at is not None and self._loop.time() - opened_at >= self._session_timeout_ms / 1000:
            self._pacer.reset()
        if self._closed is None:
            self._open(self._pacer.seconds())
            self._link.last_failure = link.last_failure

    def on_closed(self, link: Link, *, is_clean: bool) -> None:
        """Handle the end of the session that `close` asked for."""
        assert self._closed is not None, "only `close` closes a link"
        if link is not self._link or self._closed.done():
            return
        if not is_clean:
            logger.warning(
                "ZooKeeper did not confirm the end of session %#x; its ephemeral znodes stay until it "
                "expires",
                self._session_id,
            )
        self._closed.set_result(None)
        self._end_session(SessionState.CLOSED)

    def _on_close_overdue(self) -> None:
        self._link.abandon()
        self.on_closed(self._link, is_clean=False)

    def _end_session(self, state: SessionState) -> None:
        self._watches.clear()
        calls = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for call in calls:
            call.fail(self._over())
        self._stop_timer()
        self._change_state(state)

    def _stop_timer(self) -> None:
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
            self._exists_call(path, self._catch_up_data(path), watch=True)
            for path in self._watches.data_paths()
        ]
        for path in self._watches.child_paths():
            request = encode.get_children(self._chroot.full(path), watch=True)
            calls.append(Call(request, path, self._catch_up_children(path)))
            calls[-1].on_error = self._catch_up_deleted
        self._waiting.extendleft(reversed(calls))

    def _catch_up_data(self, path: str) -> Callable[[Stat | None], None]:
        def catch_up(stat: Stat | None) -> None:
            missed = self._watches.missed_on_data(path, stat)
            if missed is not None:
                self._fire(WatchEvent(missed, path))

        return catch_up

    def _catch_up_children(self, path: str) -> Callable[[Reader], None]:
        def catch_up(reader: Reader) -> None:
            _, fields = decode.read_children(reader)
            missed = self._watches.missed_on_children(path, Stat(*fields))
            if missed is not None:
                self._fire(WatchEvent(missed, path))

        return catch_up

    def _catch_up_deleted(self, error: ZooKeeperError) -> None:
        if isinstance(error, NoNodeError):
            assert error.path is not None
            self._fire(WatchEvent(EventType.DELETED, error.path))

    # Errors.

    def _translated(self, code: int, path: str) -> ZooKeeperError:
        if code == SessionExpiredError.code:
            return self._over()
        if code in (ConnectionLossError.code, _SESSION_MOVED):
            return self._unreachable(path, _MAYBE_DONE)
        return error_of(code, path)

    def _unreachable(self, path: str, when: str = "") -> ConnectionLossError:
        return ConnectionLossError(f"{path}: ZooKeeper ({self._hosts}) cannot be reached{when}", path)

    def _over(self) -> SessionExpiredError:
        how = "closed" if self._closed is not None else self._state.value
        return SessionExpiredError(f"session {self._session_id:#x} is {how}")


class _Ending:
    """The owner of a link that takes a session over and closes it."""

    def __init__(self) -> None:
        self.is_over: Final = asyncio.Event()

    def on_connected(self, link: Link) -> None:
        """Close the session."""
        link.close()

    def on_suspended(self, link: Link) -> None:
        """Do nothing: the session continues."""

    def on_login_refused(self, link: Link, reason: str) -> None:
        """Give up."""
        logger.info("session %#x is left to expire: %s", link.session.session_id, reason)
        self.is_over.set()

    def on_expired(self, link: Link) -> None:
        """The session was over already."""
        self.is_over.set()

    def on_closed(self, link: Link, *, is_clean: bool) -> None:
        """It is over, or will be."""
        self.is_over.set()

    def on_event(self, link: Link, event_type: EventType, path: str) -> None:
        """The session has no watches."""

    def on_answer(self, link: Link, call: Call, code: int, reader: Reader) -> None:
        """The session has no calls."""


def _value(outcome: Any) -> Any:
    if isinstance(outcome, ZooKeeperError):
        raise outcome
    return outcome


def _stat(reader: Reader) -> Stat:
    return Stat(*decode.read_stat(reader))


def _nothing(_: Reader) -> None:
    return None
