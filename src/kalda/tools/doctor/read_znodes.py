"""Finds the znodes of a cluster that everybody may change, by the check that brokers make at their start."""

from collections.abc import Sequence
from typing import Final

_CONNECTION_TIMEOUT_MS: Final = 8000


async def read_open_znodes(servers: str) -> Sequence[str]:
    """Return the paths of open znodes, in order.

    Raises:
        ToolError: ZooKeeper cannot be read.
    """
    from kalda.cluster.znode_audit import close_open_znodes
    from kalda.command.zookeeper_session import open_zookeeper

    async with open_zookeeper("--zookeeper", servers, _CONNECTION_TIMEOUT_MS) as client:
        return sorted((await close_open_znodes(client, closes=False)).left)
