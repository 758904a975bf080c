"""`kalda start`: one process with embedded coordination and a broker, from directory lock to exit code.

Layout of the directory::

    pid  .lock            the process
    zookeeper/            the embedded coordination
    broker-0/             the broker's log directory, unless `log.dirs` says otherwise

What a maintainer must not break: stdout carries the ready line and nothing else; programs wait for it.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from kalda.broker.config import BrokerConfig
from kalda.broker.server import BrokerServer, BrokerStartError
from kalda.common.clock import SystemClock
from kalda.common.config_def import ConfigError
from kalda.coordination.cluster import BrokerIdInUseError
from kalda.coordination.errors import CoordinationError
from kalda.coordination.schema import SchemaError
from kalda.storage.background import EventLoopExecutor
from kalda.storage.errors import StorageError
from kalda.storage.filesystem import DirectoryLock, OsFileSystem
from kalda.zk.server.embedded import EmbeddedServer
from kalda.zk.server.errors import CorruptionError, DirectoryInUseError

logger: Final = logging.getLogger(__name__)

DEFAULT_HOST: Final = "127.0.0.1"
BROKER_ID: Final = 0

START_ERRORS: Final = (
    BrokerStartError,
    BrokerIdInUseError,
    ConfigError,
    CoordinationError,
    CorruptionError,
    DirectoryInUseError,
    SchemaError,
    StorageError,
    OSError,
)
"""What an operator can mend: told in one line, without a traceback."""


def build_config(directory: Path, port: int, properties: Mapping[str, str]) -> BrokerConfig:
    """Lay what the command line says under the settings that were given.

    Raises:
        ConfigError: a setting is unknown or not allowed.
    """
    settings = {
        "broker.id": str(BROKER_ID),
        "listeners": f"PLAINTEXT://{DEFAULT_HOST}:{port}",
        "log.dirs": str(directory / f"broker-{BROKER_ID}"),
        # One broker can hold one replica; Kafka's own default of 3 is for clusters.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **properties,
    }
    if "node.id" in properties and "broker.id" not in properties:
        del settings["broker.id"]
    if "log.dir" in properties and "log.dirs" not in properties:
        del settings["log.dirs"]
    return BrokerConfig.from_properties(settings)


def run(directory: Path, config: BrokerConfig) -> int:
    """Run until a signal or a fault; return the exit code."""
    try:
        with _Directory(directory):
            code = asyncio.run(_main(directory, config, _print_ready))
            # The loop's handlers are gone. A second signal, as when a terminal's Ctrl-C reaches this process
            # and its parent sends SIGTERM too, must not turn a finished shutdown into a failure.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            return code
    except START_ERRORS as error:
        print(f"kalda: {error}", file=sys.stderr)
        return 1
    except ExceptionGroup as group:
        return _tell_failure(group)


async def _main(directory: Path, config: BrokerConfig, on_ready: Callable[[BrokerServer], None]) -> int:
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[BaseException | None] = loop.create_future()

    def stop(reason: BaseException | None) -> None:
        if not stopping.done():
            stopping.set_result(reason)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, None)
    executor = EventLoopExecutor(loop)
    file_system, clock = OsFileSystem(), SystemClock()
    embedded = EmbeddedServer(
        str(directory / "zookeeper"), filesystem=file_system, executor=executor, clock=clock
    )
    embedded.start()
    embedded.server.add_broken_listener(stop)
    try:
        coordination = await embedded.connect()
        broker = BrokerServer(config, coordination, file_system=file_system, clock=clock, executor=executor)
        async with asyncio.TaskGroup() as tasks:
            await broker.start(tasks)
            on_ready(broker)
            fault = await stopping
            if fault is not None:
                logger.critical("the broker ends because its coordination is broken: %s", fault)
            await broker.stop()
        if fault is not None:
            return 1
        await coordination.close()
    finally:
        await embedded.close()
        # Off the loop: what the pool finishes is delivered by the loop.
        await loop.run_in_executor(None, executor.close)
    return 0


def _print_ready(broker: BrokerServer) -> None:
    print(f"kalda ready bootstrap={broker.bootstrap} zookeeper=embedded", flush=True)


def _tell_failure(group: ExceptionGroup[Exception]) -> int:
    """Say why the process ends: in one line for what an operator can mend, else with all there is to know."""
    mendable, other = group.split(START_ERRORS)
    if other is not None:
        logger.critical("the broker ends because one of its tasks failed", exc_info=other)
    if mendable is not None:
        for error in mendable.exceptions:
            print(f"kalda: {error}", file=sys.stderr)
    return 1


class _Directory:
    """The process's directory: made, locked, and marked with the pid while in use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: DirectoryLock | None = None

    def __enter__(self) -> None:
        file_system = OsFileSystem()
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            lock = file_system.lock(str(self._path / ".lock"))
        except OSError as error:
            raise BrokerStartError(f"cannot use directory {self._path}: {error.strerror}") from None
        if isinstance(lock, int):
            holder = f"process {lock}" if lock else "another process"
            raise BrokerStartError(
                f"directory {self._path} is in use by {holder}; stop it or choose another directory"
            )
        self._lock = lock
        try:
            self._pid_file.write_text(f"{os.getpid()}\n")
        except OSError as error:
            # On a full disk the broker must start, or nobody could delete a topic to make room.
            logger.warning("%s is not written: %s", self._pid_file, error.strerror)

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._pid_file.unlink()
        assert self._lock is not None
        self._lock.release()

    @property
    def _pid_file(self) -> Path:
        return self._path / "pid"
