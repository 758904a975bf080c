"""A standalone ZooKeeper server without a wire: recovery, the processor chain, sessions, snapshots.

It is never a member of an ensemble. It locks its directory, which has ZooKeeper's layout:
``<directory>/version-2/log.*`` and ``snapshot.*``. Everything except the writes to disk runs on the event
loop's thread, and nothing blocks that thread after `start`. Clients reach it through `EmbeddedClient` in this
process, or through `ZooKeeperListener`.
"""

import logging
import os.path
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from kalda.common import invariants
from kalda.runtime.background import BackgroundExecutor
from kalda.runtime.clock import Clock
from kalda.runtime.filesystem import FileSystem
from kalda.runtime.random import Random
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.zookeeper.acl import Acl
from kalda.zookeeper.errors import ConnectionLossError, StorageError, ZooKeeperError
from kalda.zookeeper.server.acl import BUILT_IN_SCHEMES
from kalda.zookeeper.server.container_manager import ContainerManager
from kalda.zookeeper.server.data_directory_errors import DirectoryInUseError
from kalda.zookeeper.server.data_tree import DataTree, FrozenTree
from kalda.zookeeper.server.final_processor import FinalProcessor
from kalda.zookeeper.server.prep_processor import DATA_BYTES_MAX, PrepProcessor
from kalda.zookeeper.server.processor_requests import (
    CloseSession,
    CreateSession,
    DeleteContainer,
    Read,
    Request,
)
from kalda.zookeeper.server.session_passwords import SessionPasswords, load_passwords
from kalda.zookeeper.server.session_tracker import BUCKET_MS_MAX, SessionTracker
from kalda.zookeeper.server.snapshot import RETAINED, SnapshotStore
from kalda.zookeeper.server.sync_processor import SyncProcessor
from kalda.zookeeper.server.txn_log import RESERVE_BYTES, TxnLog
from kalda.zookeeper.server.txns import OPEN_ACL, CloseSessionTxn, MultiTxn, Txn
from kalda.zookeeper.server.watches import WatchTable

SNAPSHOT_CHANGES: Final = 10_000
"""Changes after which a snapshot is taken; at least as many as there are znodes. So recovery replays a
bounded log, and the cost of snapshots per change is bounded too."""

CLOSE_SNAPSHOT_CHANGES: Final = 1_000
"""Changes above which closing takes a snapshot: it saves the next start more time than it costs here."""

SESSION_SECRET_FILE: Final = "session-secret"

IN_PROCESS_TIMEOUT_MS: Final = 0
"""The time-out of a session that lives inside this process: recovery ends it at once."""

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """Counts of a server."""

    last_zxid: int
    znode_count: int
    session_count: int
    watch_count: int
    changes_since_snapshot: int


class ZooKeeperServer:
    """One server. Call `start`, then `submit`; call `close` when no session needs it any more."""

    def __init__(
        self,
        directory: str,
        *,
        filesystem: FileSystem,
        executor: BackgroundExecutor,
        clock: Clock,
        random: Random = SYSTEM_RANDOM,
        schedule: Callable[[Callable[[], None]], object],
        sync: bool = True,
        snapshot_changes: int = SNAPSHOT_CHANGES,
        snapshots_retained: int = RETAINED,
        log_reserve_bytes: int = RESERVE_BYTES,
        data_bytes_max: int = DATA_BYTES_MAX,
        tick_ms: int = BUCKET_MS_MAX,
        container_manager: ContainerManager | None = None,
        acl_schemes: frozenset[str] = BUILT_IN_SCHEMES,
        own_acl: Callable[[str], tuple[Acl, ...]] | None = None,
    ) -> None:
        """See `PrepProcessor` for `acl_schemes` and `own_acl`."""
        self._acl_schemes = acl_schemes
        self.own_acl: Final = own_acl or _open_to_everybody
        """The access list of a path that this process creates."""
        self._directory = directory
        self._filesystem = filesystem
        self._executor = executor
        self._clock = clock
        self.random: Final = random
        self._schedule = schedule
        self._snapshot_changes_min = snapshot_changes
        self._data_bytes_max = data_bytes_max
        data_directory = os.path.join(directory, "version-2")
        self._data_directory = data_directory
        self._txn_log = TxnLog(data_directory, filesystem, sync=sync, reserve_bytes=log_reserve_bytes)
        self._snapshots = SnapshotStore(data_directory, filesystem, retained=snapshots_retained)
        self._tree = DataTree()
        self._watches = WatchTable()
        self._changes_since_snapshot = 0
        self._is_snapshotting = False
        self._container_manager = container_manager or ContainerManager()
        self._next_session_id = 0
        self.passwords: SessionPasswords
        """The passwords of sessions, from `start` on."""
        self.sessions: Final = SessionTracker(tick_ms)
        """The sessions of clients on the wire; sessions inside this process never expire."""
        self._session_listeners: dict[int, Callable[[], None]] = {}
        self._broken_listeners: list[Callable[[BaseException], None]] = []
        self._prep: PrepProcessor
        self._sync: SyncProcessor

    def start(self) -> None:
        """Lock the directory and recover: load the newest readable snapshot, then replay the log after it.

        Sessions that lived inside the process that wrote the files are ended.

        Raises:
            DirectoryInUseError: another process has locked the directory.
            CorruptionError: acknowledged changes cannot be read back; the message names the file.
            OSError: the disk failed.
        """
        is_new = not self._filesystem.exists(self._data_directory)
        # A private file system closes a directory that exists, too.
        self._filesystem.make_directory(self._data_directory)
        if is_new:
            self._filesystem.sync_directory(self._directory)
        lock = self._filesystem.lock(os.path.join(self._directory, ".lock"))
        if isinstance(lock, int):
            raise DirectoryInUseError(
                f"{self._directory} is in use by process {lock}; stop it or give another directory"
            )
        self._lock = lock
        try:
            self._recover()
            newest = max(self._tree.sessions, default=0)
            secret_file = os.path.join(self._directory, SESSION_SECRET_FILE)
            self.passwords = load_passwords(self._filesystem, self.random, secret_file, newest)
        except BaseException:
            lock.release()
            raise

    def submit(self, request: Request) -> None:
        """Send a request through the processor chain."""
        self._prep.process(request)

    def open_session(
        self, timeout_ms: int, on_ended: Callable[[], None], on_done: Callable[[object], None]
    ) -> int:
        """Create a session and return its id; `on_done` is called when the session is durable.

        `on_ended` is called when the session ends for any reason.
        """
        session_id = self._next_session_id
        self._next_session_id += 1
        self._session_listeners[session_id] = on_ended

        def opened(outcome: object) -> None:
            if isinstance(outcome, ZooKeeperError):
                del self._session_listeners[session_id]
            elif timeout_ms != IN_PROCESS_TIMEOUT_MS:
                self.sessions.add(session_id, timeout_ms)
            on_done(outcome)

        self.submit(Request(session_id, CreateSession(timeout_ms), opened))
        return session_id

    def attach_session(
        self,
        session_id: int,
        timeout_ms: int,
        on_ended: Callable[[], None],
        on_done: Callable[[object], None],
    ) -> None:
        """Resume a session on another connection, if it is alive when all earlier requests are done.

        `on_done` gets None or a `SessionExpiredError`. `on_ended` replaces the earlier connection's callback.
        """

        def attached(outcome: object) -> None:
            if outcome is None:
                self._session_listeners[session_id] = on_ended
                self.sessions.add(session_id, timeout_ms)
            on_done(outcome)

        self.submit(Request(session_id, Read(lambda tree, watches: None), attached))

    def detach_session(self, session_id: int) -> None:
        """Drop the callback of a session whose connection is gone; the session may expire."""
        self._session_listeners.pop(session_id, None)

    def pass_time(self) -> None:
        """Expire sessions without heartbeats, and delete empty containers and znodes past their TTL.

        The caller does this every `tick_seconds`.
        """
        if invariants.enabled:
            self.check_invariants()
        for session_id, timeout_ms in self.sessions.advance(self._clock.monotonic() * 1000):
            logger.info("session %#x expires: no heartbeat for %d ms", session_id, timeout_ms)
            self.close_session(session_id, partial(self._on_expired, session_id, timeout_ms))
        reading_ms, wall_ms = self._clock.monotonic() * 1000, self._clock.time_ms()
        for path in self._container_manager.due(self._tree, reading_ms, wall_ms):
            # Refused if a child's creation is pending; the znode is a candidate again at the next check.
            self.submit(Request(0, DeleteContainer(path), _ignore))

    def close_session(self, session_id: int, on_done: Callable[[object], None]) -> None:
        """End a session that its owner closed or that expired, and delete its ephemeral znodes."""

        def ended(outcome: object) -> None:
            if isinstance(outcome, list):
                on_ended = self._session_listeners.pop(session_id, None)
                self.sessions.remove(session_id)
                if on_ended is not None:
                    on_ended()
            on_done(outcome)

        self.submit(Request(session_id, CloseSession(), ended))

    def add_broken_listener(self, listener: Callable[[BaseException], None]) -> None:
        """Register a callback for a fault that stops the server for good; its process should exit."""
        self._broken_listeners.append(listener)

    def snapshot(self, on_done: Callable[[BaseException | None], None] | None = None) -> None:
        """Write a snapshot in the background, and purge the files that it makes superfluous."""
        if invariants.enabled:
            self._tree.check_invariants()
        frozen = self._tree.freeze()
        self._changes_since_snapshot = 0
        self._is_snapshotting = True
        self._sync.roll()

        def save() -> None:
            self._snapshots.save(frozen)
            self._txn_log.purge(self._snapshots.purge())

        def saved(error: BaseException | None) -> None:
            self._is_snapshotting = False
            if error is not None:
                logger.error("the snapshot at zxid %#x was not written: %s", frozen.zxid, error)
            if on_done is not None:
                on_done(error)

        self._executor.submit(save, saved)

    @property
    def tick_seconds(self) -> float:
        """How often `pass_time` is due: once per half bucket of the session time-outs."""
        return self.sessions.bucket_ms / 2000

    @property
    def tree(self) -> DataTree:
        """The data tree; callers must not change it."""
        return self._tree

    @property
    def watches(self) -> WatchTable:
        """The watches of all sessions."""
        return self._watches

    @property
    def directory(self) -> str:
        """The directory of the snapshots and the log."""
        return self._data_directory

    def freeze(self) -> FrozenTree:
        """Return an immutable view of the tree, for snapshots, tools and tests."""
        return self._tree.freeze()

    def close(self, on_done: Callable[[BaseException | None], None]) -> None:
        """Finish outstanding requests, then close the files and unlock the directory."""

        def closed(error: BaseException | None) -> None:
            self._lock.release()
            on_done(error)

        def close_log(_: object) -> None:
            self._executor.submit(self._txn_log.close, closed)

        def snapshot(_: object) -> None:
            if self._changes_since_snapshot < CLOSE_SNAPSHOT_CHANGES or self._is_snapshotting:
                close_log(None)
            else:
                self.snapshot(close_log)

        # A read without a session completes after all earlier requests.
        self._sync.process(Request(0, Read(lambda tree, watches: None), snapshot))

    def statistics(self) -> ServerStatistics:
        """Return the server's current counts."""
        return ServerStatistics(
            self._tree.last_zxid,
            len(self._tree.nodes),
            len(self._tree.sessions),
            len(self._watches),
            self._changes_since_snapshot,
        )

    def check_invariants(self) -> None:
        """Assert that the tracked sessions are sessions of the tree."""
        lost = [session_id for session_id in self.sessions if session_id not in self._tree.sessions]
        assert not lost, f"sessions {lost} are tracked, but not in the tree"

    def _recover(self) -> None:
        tree = self._snapshots.load_newest()
        for txn in self._txn_log.recover(tree.last_zxid):
            tree.apply(txn)
            self._changes_since_snapshot += _change_count(txn)
        tree.is_fuzzy = False
        if invariants.enabled:
            tree.check_invariants()
        self._snapshots.remove_unfinished()
        self._snapshots.save_first(tree)
        self._tree = tree
        final = FinalProcessor(tree, self._watches, self._on_applied)
        self._sync = SyncProcessor(
            self._txn_log, self._executor, self._schedule, final, self._on_lost, self._on_broken
        )
        self._prep = PrepProcessor(
            tree,
            self._clock.time_ms,
            self._sync,
            data_bytes_max=self._data_bytes_max,
            acl_schemes=self._acl_schemes,
            own_acl=self.own_acl,
        )
        self._next_session_id = _first_session_id(self._clock.time_ms(), max(tree.sessions, default=0))
        for session_id, timeout_ms in list(tree.sessions.items()):
            if timeout_ms == IN_PROCESS_TIMEOUT_MS:
                self.submit(Request(session_id, CloseSession(), _ignore))
            else:
                # The full time-out, as in ZooKeeper: without a server clients could not send heartbeats.
                self.sessions.add(session_id, timeout_ms)
        logger.info("the ZooKeeper server recovered %d znodes at zxid %#x", len(tree.nodes), tree.last_zxid)

    def _on_applied(self, txn: Txn) -> None:
        self._prep.settle(txn.zxid)
        self._changes_since_snapshot += _change_count(txn)
        due = max(self._snapshot_changes_min, len(self._tree.nodes))
        if self._changes_since_snapshot >= due and not self._is_snapshotting:
            self.snapshot()

    def _on_expired(self, session_id: int, timeout_ms: int, outcome: object) -> None:
        if isinstance(outcome, StorageError | ConnectionLossError):
            # The end of the session is not durable, so the session lives on for another time-out.
            self.sessions.add(session_id, timeout_ms)

    def _on_lost(self) -> None:
        self._prep.reset()

    def _on_broken(self, error: BaseException) -> None:
        for listener in self._broken_listeners:
            listener(error)


def _change_count(txn: Txn) -> int:
    if isinstance(txn.body, MultiTxn):
        return len(txn.body.txns)
    if isinstance(txn.body, CloseSessionTxn):
        return 1 + len(txn.body.paths or ())
    return 1


def _first_session_id(time_ms: int, newest: int) -> int:
    # ZooKeeper's rule: the clock in the middle bytes, so that ids do not repeat after a restart.
    return max((time_ms << 24 & (1 << 64) - 1) >> 8, newest + 1)


def _open_to_everybody(path: str) -> tuple[Acl, ...]:
    return OPEN_ACL


def _ignore(outcome: object) -> None:
    """Ignore the outcome of a request that has no caller."""
