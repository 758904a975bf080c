"""`kalda start` with one broker: one process that holds the coordination server and the broker.

Layout of the directory::

    pid  .lock            the process
    zookeeper/            the coordination server
    broker-0/             the broker's log directory, unless `log.dirs` says otherwise

The broker's session is a call, not a connection; the coordination server's port is there for tools and other
brokers. `kalda start --brokers N` is `kalda.broker.process.group`, over the same layout.
"""

import asyncio
import logging
from pathlib import Path
from typing import Final

from kalda.broker.config import BrokerConfig
from kalda.broker.config.summary import differing_settings
from kalda.broker.process.announcement import Announcement
from kalda.broker.process.broker import close_session, serve
from kalda.broker.process.config import DEFAULT_HOST, without_effect_in_start
from kalda.broker.process.lifecycle import ProcessDirectory, Termination, run
from kalda.broker.process.ports import WantedPort, ports_of
from kalda.broker.process.zookeeper import coordination_server
from kalda.broker.server import BrokerServer
from kalda.common.clock import SystemClock
from kalda.storage.background import EventLoopExecutor
from kalda.storage.filesystem import OsFileSystem
from kalda.zk.server.config import ZooKeeperConfig

logger: Final = logging.getLogger(__name__)


def run_standalone(directory: Path, config: BrokerConfig, zookeeper_port: int = 0) -> int:
    """Run until a signal or a fault; return the exit code."""

    async def main(termination: Termination) -> int:
        async with (
            EventLoopExecutor(asyncio.get_running_loop()) as executor,
            coordination_server(
                directory / "zookeeper",
                ZooKeeperConfig.from_properties({}),
                DEFAULT_HOST,
                zookeeper_port,
                executor,
                termination.ask,
            ) as (embedded, address),
        ):
            zookeeper = await embedded.connect()
            broker = BrokerServer(
                config,
                zookeeper,
                file_system=OsFileSystem(),
                clock=SystemClock(),
                executor=executor,
            )
            fault = await serve(
                broker,
                termination,
                lambda broker: termination.ready(f"bootstrap={broker.bootstrap} zookeeper={address}"),
            )
            if fault is None:
                await close_session(zookeeper)
            else:
                logger.critical("the broker ends because its coordination is broken: %s", fault)
        return 0 if fault is None else 1

    return run(
        ProcessDirectory(directory, others=[Path(each) for each in config.log_dirs]),
        main,
        announcement=Announcement("kalda start", differing_settings(config), without_effect_in_start(config)),
        ports=[*ports_of(config), WantedPort("the coordination server", DEFAULT_HOST, zookeeper_port)],
    )
