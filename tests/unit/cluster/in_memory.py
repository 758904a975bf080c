"""A coordination server on the test's event loop with files in memory: nothing waits for disk or clock."""

from collections.abc import Callable

from kalda.cluster.cluster_store import ClusterStore
from kalda.runtime.background import InlineExecutor
from kalda.runtime.clock import Clock, ManualClock
from kalda.zookeeper.acl import Acl
from kalda.zookeeper.server.embedded import EmbeddedClient, EmbeddedServer
from tests.runtimes import seeded
from tests.unit.zookeeper.memory_files import MemoryFileSystem


class InMemoryZooKeeper:
    """One server and as many sessions as the test opens."""

    def __init__(
        self,
        files: MemoryFileSystem | None = None,
        own_acl: Callable[[str], tuple[Acl, ...]] | None = None,
    ) -> None:
        self.files = files or MemoryFileSystem()
        self.clock = ManualClock()
        self.server = EmbeddedServer(
            "/data", filesystem=self.files, executor=InlineExecutor(), clock=self.clock, own_acl=own_acl
        )
        self.server.start()

    async def connect(self) -> EmbeddedClient:
        """Open a session."""
        return await self.server.connect()

    async def cluster(self, clock: Clock | None = None) -> ClusterStore:
        """Open a session, of a broker with a clock of its own if need be, and make sure of Kafka's layout."""
        cluster = ClusterStore(await self.connect(), clock or self.clock, seeded())
        await cluster.ensure_layout()
        return cluster
