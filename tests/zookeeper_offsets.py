"""Reads the offsets of an old group in ZooKeeper, over kazoo alone."""

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError


class ZooKeeperOffsets:
    """One group and topic; while ZooKeeper is away there are none."""

    def __init__(self, hosts: str, group: str, topic: str) -> None:
        self._client = KazooClient(hosts, connection_retry={"max_tries": -1}, timeout=2)
        self._client.start(30)
        self._base = f"/consumers/{group}/offsets/{topic}"

    def read(self) -> dict[int, int]:
        """Return the offsets by partition."""
        try:
            if not self._client.exists(self._base):
                return {}
            names = self._client.get_children(self._base)
            return {int(name): int(self._client.get(f"{self._base}/{name}")[0]) for name in names}
        except (KazooException, KazooTimeoutError):
            return {}

    def close(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()
