"""One broker from start to shutdown inside a process, and `kalda broker`, which is such a process."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kalda.broker.config import BrokerConfig
from kalda.broker.config.summary import differing_settings, settings_without_effect
from kalda.broker.process.announcement import Announcement
from kalda.broker.process.errors import ProcessError
from kalda.broker.process.lifecycle import (
    ORPHAN_SECONDS_MAX,
    SHARED_LOCK_NAME,
    ProcessDirectory,
    Termination,
    run,
)
from kalda.broker.process.ports import ports_of
from kalda.broker.server import BrokerServer
from kalda.common.clock import SystemClock
from kalda.storage.background import EventLoopExecutor
from kalda.storage.filesystem import OsFileSystem
from kalda.zk.client.port import SessionState, ZooKeeperClient
from kalda.zk.client.zookeeper_errors import ZooKeeperError

if TYPE_CHECKING:
    from kalda.zk.client.kazoo.ensemble_client import EnsembleClient

logger: Final = logging.getLogger(__name__)

CLOSE_SECONDS_MAX: Final = 5.0
"""How long a shutdown waits for coordination to end the session; its time-out ends it otherwise."""


async def serve(
    broker: BrokerServer, termination: Termination, on_ready: Callable[[BrokerServer], None]
) -> BaseException | None:
    """Run a broker until the end is asked for; return the fault that made the end necessary, if one did.

    Raises:
        TerminationAskedError: that was before the broker served.
        ExceptionGroup: it could not start, or one of its tasks failed.
    """
    async with asyncio.TaskGroup() as tasks:
        await termination.unless_asked(broker.start(tasks))
        on_ready(broker)
        fault = await termination.wait()
        await broker.stop(termination.hurried)
    return fault


def run_broker(directory: Path, config: BrokerConfig, *, is_supervised: bool = False) -> int:
    """Run a broker of a cluster until it is asked to end; return the exit code."""

    async def main(termination: Termination) -> int:
        async with EventLoopExecutor(asyncio.get_running_loop()) as executor:
            zookeeper = await termination.unless_asked(connect(config))
            broker = BrokerServer(
                config,
                zookeeper,
                file_system=OsFileSystem(),
                clock=SystemClock(),
                executor=executor,
            )
            try:
                fault = await serve(
                    broker,
                    termination,
                    lambda broker: termination.ready(
                        f"bootstrap={broker.bootstrap} zookeeper={config.zookeeper_connect}"
                    ),
                )
            finally:
                if zookeeper.state is SessionState.SUSPENDED or broker.is_zookeeper_silent:
                    zookeeper.abandon()
                else:
                    await close_session(zookeeper)
        return 0 if fault is None else 1

    # A child of an earlier parent, which was killed, may be about to end.
    wait_seconds = ORPHAN_SECONDS_MAX if is_supervised else 0.0
    others = [Path(each) for each in config.log_dirs]
    # The parent has said which settings have no effect.
    without_effect = [] if is_supervised else settings_without_effect(config)
    return run(
        ProcessDirectory(directory, SHARED_LOCK_NAME, wait_seconds, others=others),
        main,
        announcement=Announcement("kalda broker", differing_settings(config), without_effect),
        ports=ports_of(config),
        is_supervised=is_supervised,
    )


async def connect(config: BrokerConfig) -> "EnsembleClient":
    """Open a session with the coordination service that the settings name.

    Raises:
        ProcessError: it cannot be reached in time, or the settings name none.
    """
    # Imported here: a broker with embedded coordination does without kazoo.
    from kalda.zk.client.kazoo.ensemble_client import EnsembleClient

    hosts = config.zookeeper_connect or ""
    session_timeout_ms = config.zookeeper_session_timeout_ms
    connection_timeout_ms = config.zookeeper_connection_timeout_ms or session_timeout_ms
    try:
        return await EnsembleClient.connect(
            hosts,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=connection_timeout_ms,
            max_in_flight=config.zookeeper_max_in_flight_requests,
        )
    except ZooKeeperError as error:
        raise ProcessError(f"coordination cannot be used: {error}") from None


async def close_session(zookeeper: ZooKeeperClient) -> None:
    """End the session, or leave that to its time-out where coordination cannot be reached."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await zookeeper.close()
    except (ZooKeeperError, TimeoutError) as error:
        logger.warning("the session with coordination is left to expire: %s", str(error) or "no answer")
