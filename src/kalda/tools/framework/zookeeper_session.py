"""Opens the ZooKeeper session of a tool, with errors that name the tool's option."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from kalda.tools.framework.errors import ToolError

if TYPE_CHECKING:
    from kalda.zk.client.kazoo.ensemble_client import EnsembleClient

_SESSION_TIMEOUT_MS: Final = 30_000


@asynccontextmanager
async def open_zookeeper(
    option: str, servers: str, connection_timeout_ms: int, timeout_option: str | None = None
) -> AsyncIterator["EnsembleClient"]:
    """Open a session and end it behind the block.

    Raises:
        ToolError: as `connect_zookeeper`, or ZooKeeper fails in the block.
    """
    from kalda.zk.client.zookeeper_errors import ZooKeeperError

    client = await connect_zookeeper(option, servers, connection_timeout_ms, timeout_option)
    try:
        yield client
    except ZooKeeperError as error:
        raise ToolError(str(error)) from error
    finally:
        await client.close()


async def connect_zookeeper(
    option: str, servers: str, connection_timeout_ms: int, timeout_option: str | None = None
) -> "EnsembleClient":
    """Open a session with the servers that `option` names; `timeout_option` names the time, if one does.

    Raises:
        ToolError: no server takes the session, or the chroot does not exist.
    """
    from kalda.zk.client.kazoo.ensemble_client import EnsembleClient
    from kalda.zk.client.zookeeper_errors import ZooKeeperError

    try:
        client = await EnsembleClient.connect(
            servers,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            connection_timeout_ms=connection_timeout_ms,
            creates_chroot=False,  # a typing error in an address must not leave znodes behind
        )
    except ZooKeeperError as error:
        raise ToolError(_with_options(str(error), option, timeout_option)) from error
    try:
        if await client.exists("/") is None:
            raise ToolError(f"{option}={servers}: the chroot does not exist on these servers")
    except BaseException:
        await client.close()
        raise
    return client


def _with_options(message: str, option: str, timeout_option: str | None) -> str:
    """Return a message of the client, which names a broker's settings, with the tool's options instead."""
    named = message.replace("`zookeeper.connect`", option)
    if timeout_option is None:
        return named.replace(" (`zookeeper.connection.timeout.ms`)", "")
    return named.replace("`zookeeper.connection.timeout.ms`", timeout_option)
