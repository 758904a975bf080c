"""Runs `kalda start` with one broker: one process with the coordination server and the broker.

Layout of the directory::

    pid  .lock            the process
    zookeeper/            the coordination server
    broker-0/             the broker's log directory, unless `log.dirs` names another

The broker's session is in-process; tools and further brokers connect to the coordination server's port.
`kalda start --brokers N` is `kalda.broker.process.broker_processes`, with the same layout.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kalda.broker.process.broker import close_session, faulty_machine, make_broker, serve
from kalda.broker.process.brokers_login import OwnAcl
from kalda.broker.process.config import DEFAULT_HOST, without_effect_in_start
from kalda.broker.process.http_child import HttpChild, HttpOptions
from kalda.broker.process.lifecycle import ProcessDirectory, Termination, run
from kalda.broker.process.ports import WantedPort, ports_of
from kalda.broker.process.secure import ensure_users, open_doors
from kalda.broker.process.start_log import Announcement
from kalda.broker.process.zookeeper import coordination_server
from kalda.cluster.cluster_store import ClusterStore
from kalda.runtime.system.background import EventLoopExecutor
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.settings import BrokerConfig
from kalda.settings.summary import differing_settings
from kalda.zookeeper.server.config import ZooKeeperConfig

logger: Final = logging.getLogger(__name__)


def run_standalone(
    directory: Path,
    config: BrokerConfig,
    zookeeper_port: int = 0,
    users: Mapping[str, str] = MappingProxyType({}),
    client_file: Path | None = None,
    http: HttpOptions | None = None,
) -> int:
    """Run until a signal or a fault; return the exit code.

    `users` are passwords by user that exist before the broker starts. The start makes a secured cluster if
    there is a `client_file`, into which the broker's address is written. With `http`, `kalda http` runs as a
    child.
    """

    async def main(termination: Termination) -> int:
        async with (
            EventLoopExecutor(asyncio.get_running_loop()) as executor,
            coordination_server(
                directory / "zookeeper",
                ZooKeeperConfig.from_properties({}),
                DEFAULT_HOST,
                zookeeper_port,
                executor,
                termination.request,
                OwnAcl() if config.zookeeper_set_acl else None,
                is_meant_secure=client_file is not None,
            ) as (embedded, address),
        ):
            if client_file is not None:
                logger.info("%s", open_doors(address, [config]))
            zookeeper = await embedded.connect()
            if users:
                await ensure_users(ClusterStore(zookeeper, SystemClock(), SYSTEM_RANDOM), users)
            broker = make_broker(config, zookeeper, executor, faulty_machine(config))
            child = None if http is None else HttpChild(http)
            fault = await serve(broker, config, termination, address, client_file, child)
            if fault is None:
                await close_session(zookeeper)
            else:
                logger.critical("the broker stops because its coordination server failed: %s", fault)
        return 0 if fault is None else 1

    return run(
        ProcessDirectory(directory, others=[Path(each) for each in config.log_dirs]),
        main,
        announcement=Announcement("kalda start", differing_settings(config), without_effect_in_start(config)),
        ports=[*ports_of(config), WantedPort("the coordination server", DEFAULT_HOST, zookeeper_port)],
    )
