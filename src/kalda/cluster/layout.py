"""Makes persistent znodes that must exist, with their parents."""

from collections.abc import Iterable

from kalda.zookeeper.errors import NodeExistsError, ZooKeeperError
from kalda.zookeeper.port import Create, ZooKeeperClient


async def ensure_paths(zookeeper: ZooKeeperClient, wanted_paths: Iterable[str]) -> None:
    """Create the znodes that are missing, parents first.

    Raises:
        ZooKeeperError: one could not be created.
    """
    wanted: dict[str, None] = {}
    for path in wanted_paths:
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            wanted["/".join(parts[:end])] = None
    present = await zookeeper.get_many(list(wanted))
    missing = [path for path, found in zip(wanted, present, strict=True) if found is None]
    outcomes = await zookeeper.multi_many([[Create(path)] for path in missing])
    for outcome in outcomes:
        if isinstance(outcome, ZooKeeperError) and not isinstance(outcome, NodeExistsError):
            raise outcome
