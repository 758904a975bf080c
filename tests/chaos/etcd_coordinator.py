"""Three etcd servers as the coordination server of a cluster: faults hit the leader of etcd."""

import random
import time
from collections.abc import Callable
from typing import Final

from tests.integration.etcd_servers import EtcdCluster, EtcdServer

QUOTA_BYTES: Final = 16 * 1024 * 1024
"""Room for the cluster's metadata; `EtcdCoordinator.fill` reaches it within a second or two."""

OPTIONS: Final = ("--quota-backend-bytes", str(QUOTA_BYTES))

_FILLER_BYTES: Final = 1_000_000
_FILLER: Final = "/filler/"


class EtcdCoordinator:
    """The `Coordinator` and the maintenance of an etcd cluster whose servers all run between two faults."""

    def __init__(self, cluster: EtcdCluster) -> None:
        self._cluster: Final = cluster
        self._victim: EtcdServer | None = None

    def start(self) -> None:
        """Start the leader that was killed."""
        self._cluster.restart(self._taken())

    def kill(self) -> None:
        """End the leader at once."""
        self._victim = self._cluster.leader()
        self._victim.kill()

    def pause(self) -> None:
        """Suspend the leader."""
        self._victim = self._cluster.leader()
        self._victim.pause()

    def resume(self) -> None:
        """Resume the leader that was paused."""
        self._taken().resume()

    def compact(self) -> None:
        """Drop all revisions but the last one."""
        self._cluster.compact()

    def defragment(self) -> None:
        """Compact, and let each server rewrite its database, during which it does not answer."""
        self._cluster.compact()
        for server in self._cluster.servers:
            self._cluster.ctl("defrag", "--command-timeout", "30s", server=server)

    def replace(self, choice: random.Random) -> None:
        """Remove a server from the cluster, and add one with its addresses and an empty disk."""
        self._cluster.replace(choice.choice(self._cluster.servers))
        # The new server applies all of etcd's log, and so fills its database as `fill` did.
        self._make_room()

    def fill(self, wait: Callable[[], None]) -> None:
        """Fill the database up to its quota, so that writes are refused; `wait`, and make room again."""
        for number in range(2 * QUOTA_BYTES // _FILLER_BYTES):
            self._cluster.ctl("put", f"{_FILLER}{number}", text="x" * _FILLER_BYTES, check=False)
        assert "NOSPACE" in self._cluster.ctl("alarm", "list"), "etcd took more than its quota"
        wait()
        self._make_room()

    def _make_room(self) -> None:
        """Do what etcd's documents tell an operator to do, until no server reports a full disk."""
        deadline = time.monotonic() + 60
        while True:
            self._cluster.ctl("del", "--prefix", _FILLER, check=False)
            self.defragment()
            self._cluster.ctl("alarm", "disarm")
            # Deletes are refused as long as the alarm stands.
            if not self._cluster.ctl("get", "--prefix", "--keys-only", _FILLER).strip() and not (
                self._cluster.ctl("alarm", "list").strip()
            ):
                return
            assert time.monotonic() < deadline, "etcd has no room again"

    def _taken(self) -> EtcdServer:
        victim, self._victim = self._victim, None
        assert victim is not None, "no server of etcd was killed or paused"
        return victim
