"""The embedded engine: a ZooKeeper server on this process's event loop, and its client without a wire.

A read returns without suspending if no earlier request of the session waits. The session never loses its
connection. It ends when it is closed, or when `expire` ends it in a test; `reconnect` opens the next one.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from kalda.common.turns import Turns, between
from kalda.runtime.background import BackgroundExecutor
from kalda.runtime.clock import Clock
from kalda.runtime.filesystem import FileSystem
from kalda.runtime.random import Random
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.zookeeper.acl import Acl
from kalda.zookeeper.call_group import CallGroup
from kalda.zookeeper.errors import (
    ConnectionLossError,
    NoNodeError,
    SessionExpiredError,
    StorageError,
    ZooKeeperError,
)
from kalda.zookeeper.path_validation import check_operation, check_path, check_transaction
from kalda.zookeeper.port import (
    ANY_VERSION,
    ZOOKEEPER_NAME,
    ZOOKEEPER_OPERATIONS_MAX,
    Create,
    Delete,
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
from kalda.zookeeper.server.config import ZooKeeperConfig
from kalda.zookeeper.server.container_manager import ContainerManager
from kalda.zookeeper.server.data_tree import DataTree
from kalda.zookeeper.server.processor_requests import Multi, Read, Request, SetAcl, Write
from kalda.zookeeper.server.watches import WatchTable
from kalda.zookeeper.server.zookeeper_server import IN_PROCESS_TIMEOUT_MS, ZooKeeperServer

T = TypeVar("T")

_OPERATIONS_PER_TURN: Final = 1000
"""Operations that a call prepares before other work of the event loop; each takes some 10 us."""


class EmbeddedServer:
    """A ZooKeeper server on the running event loop, for the brokers of this process.

    >>> server = EmbeddedServer(directory, filesystem=OsFileSystem(), executor=executor, clock=clock)
    >>> server.start()
    >>> client = await server.connect()
    """

    def __init__(
        self,
        directory: str,
        *,
        filesystem: FileSystem,
        executor: BackgroundExecutor,
        clock: Clock,
        random: Random = SYSTEM_RANDOM,
        sync: bool = True,
        config: ZooKeeperConfig | None = None,
        own_acl: Callable[[str], tuple[Acl, ...]] | None = None,
    ) -> None:
        """`own_acl` gives the access lists of what this process creates; else they are open."""
        config = config or ZooKeeperConfig()
        self.server: Final = ZooKeeperServer(
            directory,
            filesystem=filesystem,
            executor=executor,
            clock=clock,
            random=random,
            schedule=lambda callback: asyncio.get_running_loop().call_soon(callback),
            sync=sync and config.sync,
            snapshot_changes=config.snapshot_changes,
            snapshots_retained=config.snapshots_retained,
            data_bytes_max=config.frame_bytes_max,
            acl_schemes=config.authentication.schemes,
            own_acl=own_acl,
            tick_ms=config.tick_ms,
            container_manager=ContainerManager(
                check_interval_ms=config.container_check_ms,
                deletes_per_minute_max=config.container_deletes_per_minute_max,
            ),
        )
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Recover the directory's content; see `ZooKeeperServer.start` for the errors."""
        self.server.start()
        if len(self.server.sessions):
            # Clients of an earlier process held these sessions; they must expire even without a listener.
            self._tick()

    def add_broken_listener(self, listener: Callable[[BaseException], None]) -> None:
        """Register a callback for a fault that stops the server for good; its process should exit."""
        self.server.add_broken_listener(listener)

    async def connect(self) -> "EmbeddedClient":
        """Open a session.

        Raises:
            StorageError: it could not be made durable.
        """
        zookeeper = EmbeddedClient(self.server)
        await zookeeper.reconnect()
        return zookeeper

    async def close(self) -> None:
        """Finish outstanding requests and unlock the directory.

        Raises:
            OSError: the end of the log could not be cleared; the next recovery does it.
        """
        if self._timer is not None:
            self._timer.cancel()
        closed: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.server.close(closed.set_result)
        error = await closed
        if error is not None:
            raise error

    def _tick(self) -> None:
        # Rearmed first, so that an exception below, which the loop reports, does not stop the timer.
        self._timer = asyncio.get_running_loop().call_later(self.server.tick_seconds, self._tick)
        self.server.pass_time()


class _SessionWatch:
    """A callback as a watcher; equal for the same session and callback, so that it fires once."""

    __slots__ = ("_callback", "_session_id")

    def __init__(self, session_id: int, callback: WatchCallback) -> None:
        self._session_id = session_id
        self._callback = callback

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _SessionWatch)
            and self._session_id == other._session_id
            and self._callback == other._callback
        )

    def __hash__(self) -> int:
        return hash(self._callback)

    @property
    def session_id(self) -> int:
        return self._session_id

    def process(self, event: WatchEvent) -> None:
        self._callback(event)


class EmbeddedClient:
    """One session of the embedded engine; implements `ZooKeeperClient`, which documents the methods."""

    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._session_id = 0
        self._state = SessionState.CLOSED
        self._ending_as = SessionState.EXPIRED
        self._listeners: list[StateListener] = []

    @property
    def session_id(self) -> int:
        """The session's id."""
        return self._session_id

    @property
    def session_key(self) -> SessionKey | None:
        """Always None: recovery ends the sessions of a process that is gone."""
        return None

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

    async def reconnect(self) -> None:
        """Open a new session after the end of the last one, without that session's watches.

        Raises:
            StorageError: the session could not be made durable.
        """
        assert self._state in (SessionState.CLOSED, SessionState.EXPIRED), f"the session is {self._state}"
        calls = CallGroup(1)
        self._session_id = self._server.open_session(
            IN_PROCESS_TIMEOUT_MS, self._on_ended, partial(calls.complete, 0)
        )
        (outcome,) = await calls.wait()
        if isinstance(outcome, ZooKeeperError):
            raise outcome
        self._change_state(SessionState.CONNECTED)

    async def expire(self) -> None:
        """End the session as if its time-out had passed, as for a partitioned client."""
        await self._end(SessionState.EXPIRED)

    async def end_session(self, key: SessionKey) -> None:
        """Do nothing: a session with a key came over the wire, and its time-out ends it."""

    async def close(self) -> None:
        """End the session."""
        if self._state is SessionState.CONNECTED:
            await self._end(SessionState.CLOSED)

    async def get(self, path: str, watch: WatchCallback | None = None) -> tuple[bytes, Stat]:
        """Read a znode."""

        def read(tree: DataTree, watches: WatchTable) -> tuple[bytes, Stat]:
            found = _get(tree, path)
            if found is None:
                raise NoNodeError(f"{path} does not exist", path)
            if watch is not None:
                watches.add_data(path, self._watcher(watch))
            return found

        check_path(path)
        return await self._read(read)

    async def exists(self, path: str, watch: WatchCallback | None = None) -> Stat | None:
        """Return whether a znode exists."""

        def read(tree: DataTree, watches: WatchTable) -> Stat | None:
            if watch is not None:
                watches.add_data(path, self._watcher(watch))
            return tree.stat(path)

        check_path(path)
        return await self._read(read)

    async def children(self, path: str, watch: WatchCallback | None = None) -> list[str]:
        """List a znode's children."""

        def read(tree: DataTree, watches: WatchTable) -> list[str]:
            if path not in tree.nodes:
                raise NoNodeError(f"{path} does not exist", path)
            if watch is not None:
                watches.add_children(path, self._watcher(watch))
            return sorted(tree.children(path))

        check_path(path)
        return await self._read(read)

    async def get_many(
        self, paths: Sequence[str], watch: WatchCallback | None = None
    ) -> list[tuple[bytes, Stat] | None]:
        """Read many znodes."""

        def read(tree: DataTree, watches: WatchTable) -> list[tuple[bytes, Stat] | None]:
            found = [_get(tree, path) for path in paths]
            if watch is not None:
                watcher = self._watcher(watch)
                for path, entry in zip(paths, found, strict=True):
                    if entry is not None:
                        watches.add_data(path, watcher)
            return found

        return await self._read(read)

    async def create(
        self, path: str, data: bytes = b"", ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a znode."""
        result = await self._write(Create(path, data, ephemeral, sequential))
        assert isinstance(result, str), f"the result of a create is a path, not {result!r}"
        return result

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Replace a znode's data."""
        result = await self._write(SetData(path, data, version))
        assert isinstance(result, Stat), f"the result of a set is a stat, not {result!r}"
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a znode."""
        await self._write(Delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Do all or nothing."""
        (outcome,) = await self.multi_many([operations])
        if isinstance(outcome, ZooKeeperError):
            raise outcome
        return outcome

    async def multi_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | ZooKeeperError]:
        """Do many transactions, in one group commit."""
        # The client validates paths, as ZooKeeper's clients do, because the server checks them late.
        bad: list[ZooKeeperError | None] = []
        for index, operations in enumerate(transactions):
            await between(index)
            bad.append(check_transaction(operations))
        outcomes = iter(
            await self._submit(
                [
                    Multi(operations)
                    for operations, error in zip(transactions, bad, strict=True)
                    if error is None
                ]
            )
        )
        checked: list[list[OperationResult] | ZooKeeperError] = []
        for error in bad:
            outcome = next(outcomes) if error is None else error
            if isinstance(outcome, SessionExpiredError):
                raise outcome
            assert isinstance(outcome, list | ZooKeeperError), f"{outcome!r} is no outcome of a multi"
            checked.append(outcome)
        return checked

    async def access_list(self, path: str) -> tuple[tuple[Acl, ...], Stat]:
        """Return a znode's access list and metadata."""

        def read(tree: DataTree, watches: WatchTable) -> tuple[tuple[Acl, ...], Stat]:
            acl, stat = tree.acl(path), tree.stat(path)
            if acl is None or stat is None:
                raise NoNodeError(f"{path} does not exist", path)
            return acl, stat

        return await self._read(read)

    async def set_access(self, path: str) -> None:
        """Give an existing znode the access list that this process would create it with."""
        (outcome,) = await self._submit([SetAcl(path, self._server.own_acl(path))])
        if isinstance(outcome, ZooKeeperError):
            raise outcome

    def _watcher(self, callback: WatchCallback) -> _SessionWatch:
        return _SessionWatch(self._session_id, callback)

    async def _read(self, read: Callable[[DataTree, WatchTable], T]) -> T:
        (outcome,) = await self._submit([Read(read)])
        if isinstance(outcome, ZooKeeperError):
            raise outcome
        return outcome  # type: ignore[return-value]  # the outcome of a Read is what its function returned

    async def _write(self, operation: Operation) -> OperationResult:
        check_operation(operation)
        (outcome,) = await self._submit([operation])
        if isinstance(outcome, ZooKeeperError):
            raise outcome
        assert isinstance(outcome, list), f"{outcome!r} is no outcome of a write"
        result: OperationResult = outcome[0]
        return result

    async def _submit(self, operations: Sequence[Write | Read]) -> list[object]:
        if self._state is not SessionState.CONNECTED:
            raise SessionExpiredError(f"session {self._session_id:#x} is {self._state.value}")
        calls = CallGroup(len(operations))
        waiting = 0
        for index, operation in enumerate(operations):
            if waiting >= _OPERATIONS_PER_TURN:
                waiting = 0
                await Turns.of_brokers().wait()
            waiting += len(operation.operations) if isinstance(operation, Multi) else 1
            self._server.submit(Request(self._session_id, operation, partial(calls.complete, index)))
        return await calls.wait()

    async def _end(self, state: SessionState) -> None:
        calls = CallGroup(1)
        self._ending_as = state
        self._server.close_session(self._session_id, partial(calls.complete, 0))
        (outcome,) = await calls.wait()
        if isinstance(outcome, StorageError | ConnectionLossError):
            raise outcome

    def _on_ended(self) -> None:
        self._server.watches.remove_session(self._session_id)
        self._change_state(self._ending_as)

    def _change_state(self, state: SessionState) -> None:
        self._state = state
        for listener in list(self._listeners):
            listener(state)


def _get(tree: DataTree, path: str) -> tuple[bytes, Stat] | None:
    node = tree.nodes.get(path)
    if node is None:
        return None
    stat = tree.stat(path)
    assert stat is not None, f"{path} has a node but no stat"
    return node.data or b"", stat
