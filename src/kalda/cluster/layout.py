"""Makes persistent znodes that must exist, with their parents."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from kalda.zookeeper.errors import ConnectionLossError, NodeExistsError, ZooKeeperError
from kalda.zookeeper.port import Create, ZooKeeperClient

ATTEMPTS_MAX: Final = 5
"""Each waits for a connection as long as the session's time-out."""


async def ensure_paths(zookeeper: ZooKeeperClient, wanted_paths: Iterable[str]) -> None:
    """Create the znodes that are missing, parents first; after a lost connection try again, as Kafka does.

    Raises:
        ZooKeeperError: one could not be created.
    """
    wanted: dict[str, None] = {}
    for path in wanted_paths:
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            wanted["/".join(parts[:end])] = None
    await retried(lambda: _create_missing(zookeeper, list(wanted)))


async def retried(operation: Callable[[], Awaitable[None]]) -> None:
    """Run an operation that may be repeated, again after a lost connection.

    Raises:
        ZooKeeperError: as the operation, or the connection was lost `ATTEMPTS_MAX` times.
    """
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            await operation()
            return
        except ConnectionLossError:
            if attempt == ATTEMPTS_MAX:
                raise


async def _create_missing(zookeeper: ZooKeeperClient, wanted: list[str]) -> None:
    present = await zookeeper.get_many(wanted)
    missing = [path for path, found in zip(wanted, present, strict=True) if found is None]
    outcomes = await zookeeper.multi_many([[Create(path)] for path in missing])
    for outcome in outcomes:
        if isinstance(outcome, ZooKeeperError) and not isinstance(outcome, NodeExistsError):
            raise outcome
