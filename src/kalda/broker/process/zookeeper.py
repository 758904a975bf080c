"""Runs the coordination server: our ZooKeeper server over its directory, with a listener for clients.

`kalda zookeeper` runs it alone, `kalda start` beside one broker or in the parent of several.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from kalda.broker.process.brokers_login import OwnAcl
from kalda.broker.process.config import DEFAULT_HOST
from kalda.broker.process.errors import ProcessError
from kalda.broker.process.lifecycle import SHARED_LOCK_NAME, ProcessDirectory, Termination, run
from kalda.broker.process.ports import WantedPort
from kalda.broker.process.start_log import Announcement
from kalda.cluster.znode_audit import close_open_znodes
from kalda.runtime.network import address_text
from kalda.runtime.system.background import EventLoopExecutor
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.settings.summary import differing
from kalda.zookeeper.server.config import WITHOUT_EFFECT, ZOOKEEPER_CONFIG, ZooKeeperConfig
from kalda.zookeeper.server.embedded import EmbeddedServer
from kalda.zookeeper.server.listener import ZooKeeperListener

logger: Final = logging.getLogger(__name__)

DEFAULT_ZOOKEEPER_DIRECTORY: Final = "kalda-zookeeper"
_SECURE: Final = "the coordination server's secureClientPort"


@asynccontextmanager
async def coordination_server(
    directory: Path,
    config: ZooKeeperConfig,
    host: str,
    port: int | None,
    executor: EventLoopExecutor,
    on_broken: Callable[[BaseException], None],
    own_acl: OwnAcl | None = None,
    *,
    is_meant_secure: bool = False,
) -> AsyncIterator[tuple[EmbeddedServer, str]]:
    """Run the server and its listeners; yield the server and the address that clients connect to.

    That is the address of the secure port if `port` is None. `own_acl` is that of `EmbeddedServer`. With
    `is_meant_secure` but without `own_acl` what everybody may change is logged.

    Raises:
        DirectoryInUseError, CorruptionError, OSError: see `EmbeddedServer.start`.
        ProcessError: the port cannot be used.
    """
    clock = SystemClock()
    embedded = EmbeddedServer(
        str(directory),
        filesystem=OsFileSystem(is_private=True),
        executor=executor,
        clock=clock,
        config=config,
        own_acl=own_acl,
    )
    embedded.start()
    embedded.add_broken_listener(on_broken)
    try:
        if own_acl is not None or is_meant_secure:
            await _close_open_znodes(embedded, own_acl)
        listener = ZooKeeperListener(embedded.server, config, clock)
        addresses = []
        try:
            for each in _ports(config, host, port):
                is_secure = each.what == _SECURE
                try:
                    bound = await listener.listen(each.host, each.port, is_secure=is_secure)
                except OSError as error:
                    reason = error.strerror or str(error)
                    wanted = address_text(each.host, each.port)
                    raise ProcessError(f"{each.what} cannot use {wanted}: {reason}") from None
                addresses.append(address_text(each.host, bound))
                if is_secure:
                    logger.info("%s listens on %s", each.what, addresses[-1])
            yield embedded, addresses[0]
        finally:
            await listener.close()
    finally:
        await embedded.close()


async def _close_open_znodes(embedded: EmbeddedServer, own_acl: OwnAcl | None) -> None:
    """Close what earlier releases, or brokers without access lists, left open; before anyone can connect."""
    client = await embedded.connect()
    found = await close_open_znodes(
        client, own=None if own_acl is None else own_acl.entry, closes=own_acl is not None
    )
    await client.close()
    found.log()


def _ports(config: ZooKeeperConfig, host: str, port: int | None) -> list[WantedPort]:
    """Return the addresses to listen on, that of plaintext first."""
    ports = [] if port is None else [WantedPort("the coordination server", host, port)]
    if config.secure_client_port is not None:
        secure_host = config.secure_client_port_address or host
        ports.append(WantedPort(_SECURE, secure_host, config.secure_client_port))
    return ports


def run_zookeeper(config: ZooKeeperConfig, properties: Mapping[str, str]) -> int:
    """Run the coordination server alone until its termination is requested; return the exit code.

    `properties` are the settings that `config` was read from, for the log.
    """
    directory = Path(config.data_dir or DEFAULT_ZOOKEEPER_DIRECTORY)
    host, port = config.client_port_address or DEFAULT_HOST, config.client_port

    async def main(termination: Termination) -> int:
        async with (
            EventLoopExecutor(asyncio.get_running_loop()) as executor,
            coordination_server(directory, config, host, port, executor, termination.request) as (_, address),
        ):
            termination.ready(f"zookeeper={address}")
            fault = await termination.wait()
        if fault is not None:
            logger.critical("the coordination server failed: %s", fault)
        return 0 if fault is None else 1

    return run(
        ProcessDirectory(directory, SHARED_LOCK_NAME),
        main,
        announcement=Announcement(
            "kalda zookeeper",
            differing(ZOOKEEPER_CONFIG, properties),
            sorted(WITHOUT_EFFECT & properties.keys()),
        ),
        ports=_ports(config, host, port),
    )
