"""A server on files in memory, driven by hand: nothing happens until the test says so."""

from collections.abc import Callable

from kalda.runtime.background import InlineExecutor
from kalda.runtime.clock import ManualClock
from kalda.zookeeper.server.acl import Identity
from kalda.zookeeper.server.processor_requests import Multi, NodeOperation, Read, Request, Write
from kalda.zookeeper.server.txn_log import RESERVE_BYTES
from kalda.zookeeper.server.zookeeper_server import ZooKeeperServer
from tests.unit.zookeeper.memory_files import MemoryFileSystem


class Bench:
    """One life of a server, from `start` to a crash or an end."""

    def __init__(
        self,
        files: MemoryFileSystem,
        *,
        snapshot_changes: int = 10_000,
        log_reserve_bytes: int = RESERVE_BYTES,
    ) -> None:
        self.files = files
        self.clock = ManualClock()
        self._soon: list[Callable[[], None]] = []
        self.server = ZooKeeperServer(
            "/data",
            filesystem=files,
            executor=InlineExecutor(),
            clock=self.clock,
            schedule=self._soon.append,
            snapshot_changes=snapshot_changes,
            log_reserve_bytes=log_reserve_bytes,
        )
        self.server.start()
        self.settle()

    def settle(self) -> None:
        """Let the group that has gathered go to the disk and finish, and what follows from it."""
        while self._soon:
            self._soon.pop(0)()

    def session(self, timeout_ms: int = 1000) -> int:
        """Open a session that a restart does not end."""
        opened: list[object] = []
        session_id = self.server.open_session(timeout_ms, lambda: None, opened.append)
        self.settle()
        assert [[]] == opened
        return session_id

    def submit(
        self, session_id: int, operation: Write | Read, identities: tuple[Identity, ...] | None = None
    ) -> list[object]:
        """Send a request and return where its outcome will appear."""
        outcomes: list[object] = []
        self.server.submit(Request(session_id, operation, outcomes.append, 0, identities))
        return outcomes

    def do(self, session_id: int, operation: Write | Read) -> object:
        """Send a request and see it finished."""
        outcomes = self.submit(session_id, operation)
        self.settle()
        (outcome,) = outcomes
        return outcome

    def multi(self, session_id: int, *operations: NodeOperation) -> object:
        """Do a multi."""
        return self.do(session_id, Multi(operations))

    def close(self) -> None:
        """End this life in order."""
        ended: list[BaseException | None] = []
        self.server.close(ended.append)
        self.settle()
        assert [None] == ended

    def tree(self) -> dict[str, bytes | None]:
        """Return path and data of every znode but the server's own."""
        return {
            path: node.data
            for path, node in self.server.freeze().nodes.items()
            if path != "/" and not path.startswith("/zookeeper")
        }
