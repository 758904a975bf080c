"""Opens the ZooKeeper session of a tool, with errors that name the tool's option."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from kalda.command.errors import ToolError
from kalda.command.zookeeper_security import security_of_options
from kalda.common.logging import report_failure

if TYPE_CHECKING:
    from kalda.security.zookeeper.client_security import ClientSecurity
    from kalda.zookeeper.client.ensemble_client import EnsembleClient

_SESSION_TIMEOUT_MS: Final = 30_000

_PROBE_AFTER_SECONDS: Final = 0.1
"""How long a server may take for a session before the tool looks why; it takes some milliseconds."""

_NOTICE_SECONDS: Final = 0.5
"""How long the tool then waits in silence."""


@asynccontextmanager
async def open_zookeeper(
    option: str,
    servers: str,
    connection_timeout_ms: int,
    timeout_option: str | None = None,
    *,
    restricts_access: bool = False,
) -> AsyncIterator["EnsembleClient"]:
    """Open a session and end it behind the block; see `connect_zookeeper`.

    Raises:
        ToolError: as `connect_zookeeper`, or ZooKeeper fails in the block.
    """
    from kalda.zookeeper.errors import ZooKeeperError

    client = await connect_zookeeper(
        option, servers, connection_timeout_ms, timeout_option, restricts_access=restricts_access
    )
    try:
        yield client
    except ZooKeeperError as error:
        raise ToolError(str(error)) from error
    finally:
        await client.close()


def connect_zookeeper(
    option: str,
    servers: str,
    connection_timeout_ms: int,
    timeout_option: str | None = None,
    *,
    restricts_access: bool = False,
) -> Coroutine[None, None, "EnsembleClient"]:
    """Open a session with the servers that `option` names; `timeout_option` names the time, if one does.

    The command's `--zk-tls-config-file` says how; `restricts_access` is that of `security_of_options`. It is
    read before the coroutine runs, since only the command's own thread knows its options.

    Raises:
        ToolError: no server takes the session, the chroot does not exist, or the file cannot be used.
    """
    security = security_of_options(restricts_access=restricts_access)
    return _connect(option, servers, connection_timeout_ms, timeout_option, security)


async def _connect(
    option: str,
    servers: str,
    connection_timeout_ms: int,
    timeout_option: str | None,
    security: "ClientSecurity",
) -> "EnsembleClient":
    from kalda.zookeeper.client.ensemble_client import EnsembleClient
    from kalda.zookeeper.errors import ZooKeeperError

    opening = EnsembleClient.connect(
        servers,
        session_timeout_ms=_SESSION_TIMEOUT_MS,
        connection_timeout_ms=connection_timeout_ms,
        security=security,
        creates_chroot=False,  # a typing error in an address must not leave znodes behind
    )
    try:
        client = await _watched(opening, option, servers, uses_tls=security.tls is not None)
    except ZooKeeperError as error:
        raise ToolError(_with_options(str(error), option, timeout_option)) from error
    try:
        if await client.exists("/") is None:
            raise ToolError(f"{option}={servers}: the chroot does not exist on these servers")
    except BaseException:
        await client.close()
        raise
    return client


async def _watched(
    opening: Coroutine[None, None, "EnsembleClient"], option: str, servers: str, *, uses_tls: bool
) -> "EnsembleClient":
    """Wait for the session; fail early where it cannot come, and report a wait that a person notices."""
    connecting = asyncio.create_task(opening, name="open a ZooKeeper session")
    try:
        await asyncio.wait((connecting,), timeout=_PROBE_AFTER_SECONDS)
        if not connecting.done():
            from kalda.command.zookeeper_probe import no_session_reason

            reason = await no_session_reason(servers, option, uses_tls=uses_tls)
            if reason is not None and not connecting.done():
                raise ToolError(reason)
            await asyncio.wait((connecting,), timeout=_NOTICE_SECONDS)
            if not connecting.done():
                report_failure(f"waiting for a ZooKeeper session at {option}={servers}")
        return await connecting
    finally:
        connecting.cancel()
        await asyncio.wait((connecting,))


def _with_options(message: str, option: str, timeout_option: str | None) -> str:
    """Return a message of the client, which names a broker's settings, with the tool's options instead."""
    named = message.replace("`zookeeper.connect`", option)
    if timeout_option is None:
        return named.replace(" (`zookeeper.connection.timeout.ms`)", "")
    return named.replace("`zookeeper.connection.timeout.ms`", timeout_option)
