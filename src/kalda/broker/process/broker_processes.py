"""Runs `kalda start --brokers N`: a parent process with the coordination server, and N broker processes.

The parent starts the children, prints the ready line when all of them serve, and stops them in order: the
brokers side by side, then the coordination server. It reports a child that dies and does not restart it,
which is the operator's decision. A child never outlives the parent: its stdin is a pipe, which closes with
the parent.

Layout of the directory, the same as for one broker::

    pid  .lock            the parent
    zookeeper/            the coordination server
    broker-<id>/          a child: its pid, its lock, its logs
"""

import asyncio
import logging
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kalda.broker.process.brokers_login import OwnAcl, login_user, write_login
from kalda.broker.process.config import DEFAULT_HOST, PER_BROKER, without_effect_in_start
from kalda.broker.process.errors import ProcessError
from kalda.broker.process.http_child import HttpChild, HttpOptions
from kalda.broker.process.lifecycle import ProcessDirectory, Termination, run
from kalda.broker.process.ports import WantedPort, ports_of
from kalda.broker.process.secure import ensure_users, open_doors, write_bootstrap
from kalda.broker.process.start_log import Announcement
from kalda.broker.process.zookeeper import coordination_server
from kalda.cluster import paths
from kalda.cluster.cluster_store import ClusterStore
from kalda.runtime.system.background import EventLoopExecutor
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.security.zookeeper.login_file import LOGIN_FILE
from kalda.settings import BrokerConfig
from kalda.settings.summary import differing_settings
from kalda.zookeeper.server.config import ZooKeeperConfig
from kalda.zookeeper.server.embedded import EmbeddedServer

logger: Final = logging.getLogger(__name__)

MOVE_SECONDS_MAX: Final = 2.0
"""How long the brokers may move their leaderships when all of them stop. The last broker has no other to move
them to, so waiting longer helps no client."""

FLUSH_SECONDS_MAX: Final = 30.0
"""How long a broker may take to flush its logs after the second signal before it is killed."""

_CONNECTIONS_PER_HOST_MAX: Final = 200
"""All brokers connect from one host; ZooKeeper's default of 60 would limit the number of brokers."""

_READY: Final = re.compile(rb"kalda ready bootstrap=(\S+) zookeeper=\S+\n")


class Child:
    """One broker process."""

    def __init__(self, broker_id: int, process: Process) -> None:
        self.broker_id: Final = broker_id
        self.process: Final = process

    @classmethod
    async def spawn(
        cls,
        broker_id: int,
        directory: Path,
        settings: Mapping[str, str],
        config_file: Path | None,
        options: Sequence[str],
    ) -> "Child":
        """Start a `kalda broker` whose stdin is a pipe that the parent holds open and never writes to."""
        arguments = ["-m", "kalda", "broker", "--supervised", "--dir", str(directory), *options]
        if config_file is not None:
            arguments += ["--config", str(config_file)]
        for name, value in settings.items():
            arguments += ["--set", f"{name}={value}"]
        # A process group of its own: Ctrl-C reaches only the parent, which stops the children in order.
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdin=PIPE, stdout=PIPE, process_group=0
        )
        return cls(broker_id, process)

    async def wait_ready(self) -> str:
        """Return the address of the broker, once it serves.

        Raises:
            ProcessError: the broker ended before; its stderr has the reason.
        """
        assert self.process.stdout is not None
        match = _READY.fullmatch(await self.process.stdout.readline())
        if match is None:
            code = await self.process.wait()
            raise ProcessError(f"broker {self.broker_id} did not start; it ended with exit code {code}")
        return match[1].decode("ascii")


class ProcessGroup:
    """The children of one parent."""

    def __init__(
        self,
        termination: Termination,
        embedded: EmbeddedServer,
        directory: Path,
        config_file: Path | None,
        options: Sequence[str],
    ) -> None:
        self._options: Final = options
        self._termination: Final = termination
        self._embedded: Final = embedded
        self._directory: Final = directory
        self._config_file: Final = config_file
        self._children: Final[list[Child]] = []

    async def start(self, settings: Sequence[Mapping[str, str]]) -> list[str]:
        """Start one broker for each of the settings, side by side; return their addresses when all serve.

        Raises:
            ProcessError: a broker did not start.
        """
        # This process holds the directory's lock, so registrations there are left from killed children.
        for broker_id in range(len(settings)):
            await self._end_session(broker_id)
        for broker_id, each in enumerate(settings):
            directory = self._directory / f"broker-{broker_id}"
            self._children.append(
                await Child.spawn(broker_id, directory, each, self._config_file, self._options)
            )
        return list(await asyncio.gather(*(child.wait_ready() for child in self._children)))

    async def watch(self) -> None:
        """Log each child that ends by itself; request the parent's termination when none is left."""
        await asyncio.gather(*(self._watch(child) for child in self._children))
        if not self._termination.is_requested:
            self._termination.request(ProcessError("no broker is left"))

    async def stop(self) -> bool:
        """Stop the children side by side; return whether all of them ended with exit code 0.

        They first move their leaderships. A second signal makes them skip that; later a child is killed.
        """
        self._signal(signal.SIGTERM)
        await self._wait_ended(MOVE_SECONDS_MAX, self._termination.hurried)
        self._signal(signal.SIGTERM)
        await self._wait_ended(FLUSH_SECONDS_MAX)
        for child in self._running():
            logger.error("broker %d did not stop in time and is killed", child.broker_id)
        self._signal(signal.SIGKILL)
        await self._wait_ended(FLUSH_SECONDS_MAX)
        return all(child.process.returncode == 0 for child in self._children)

    def _running(self) -> list[Child]:
        return [child for child in self._children if child.process.returncode is None]

    def _signal(self, number: signal.Signals) -> None:
        for child in self._running():
            # The child may end at this moment.
            with suppress(ProcessLookupError):
                child.process.send_signal(number)

    async def _wait_ended(self, seconds_max: float, cut_short: asyncio.Event | None = None) -> None:
        """Return when every child has ended, when the time is up, or when the event is set."""
        ended = asyncio.gather(*(child.process.wait() for child in self._running()))
        waits: list[asyncio.Future[object]] = [asyncio.ensure_future(ended)]
        if cut_short is not None:
            waits.append(asyncio.ensure_future(cut_short.wait()))
        await asyncio.wait(waits, timeout=seconds_max, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    async def _watch(self, child: Child) -> None:
        code = await child.process.wait()
        if not self._termination.is_requested:
            logger.error(
                "broker %d ended with exit code %d; the others go on; restart this command to have it again",
                child.broker_id,
                code,
            )
            await self._end_session(child.broker_id)

    async def _end_session(self, broker_id: int) -> None:
        """Close the session of a dead broker, so that others take over without waiting for the time-out."""
        zookeeper = await self._embedded.connect()
        stat = await zookeeper.exists(paths.broker(broker_id))
        await zookeeper.close()
        if stat is None:
            return
        ended = asyncio.get_running_loop().create_future()
        self._embedded.server.close_session(stat.ephemeral_owner, ended.set_result)
        await ended
        logger.info("closed session %#x of broker %d, which is dead", stat.ephemeral_owner, broker_id)


def run_group(
    directory: Path,
    configs: Sequence[BrokerConfig],
    settings: Sequence[Mapping[str, str]],
    *,
    config_file: Path | None = None,
    zookeeper_port: int = 0,
    users: Mapping[str, str] = MappingProxyType({}),
    client_file: Path | None = None,
    options: Sequence[str] = (),
    http: HttpOptions | None = None,
) -> int:
    """Run one broker for each of the settings until a signal, or until none is left; return the exit code.

    The children read the `config_file` themselves, so its secrets stay out of command lines; `settings` are
    passed on the command line. `configs` has the result of both for each broker. Every child gets `options`.
    `users` are passwords by user that exist before the brokers start. The start makes a secured cluster if
    there is a `client_file`, into which the addresses of the brokers are written. With `http`, `kalda http`
    runs as one more child.
    """

    async def main(termination: Termination) -> int:
        login = _zookeeper_login(configs[0], directory / "zookeeper")
        async with (
            EventLoopExecutor(asyncio.get_running_loop()) as executor,
            coordination_server(
                directory / "zookeeper",
                ZooKeeperConfig.from_properties({"maxClientCnxns": str(_CONNECTIONS_PER_HOST_MAX), **login}),
                DEFAULT_HOST,
                zookeeper_port,
                executor,
                termination.request,
                OwnAcl(login_user(configs[0])) if configs[0].zookeeper_set_acl else None,
                is_meant_secure=client_file is not None,
            ) as (embedded, address),
        ):
            if client_file is not None:
                logger.info("%s", open_doors(address, configs))
            if users:
                zookeeper = await embedded.connect()
                await ensure_users(ClusterStore(zookeeper, SystemClock(), SYSTEM_RANDOM), users)
                await zookeeper.close()
            group = ProcessGroup(termination, embedded, directory, config_file, options)
            wanted = [{**each, "zookeeper.connect": address, **login} for each in settings]
            child = None if http is None else HttpChild(http)
            return await _run_children(termination, group, wanted, address, client_file, child)

    shared = [each for each in differing_settings(configs[0]) if each.partition("=")[0] not in PER_BROKER]
    ports = [port for config in configs for port in ports_of(config)]
    return run(
        ProcessDirectory(directory),
        main,
        announcement=Announcement(
            f"kalda start with {len(configs)} brokers", shared, without_effect_in_start(configs[0])
        ),
        ports=[*ports, WantedPort("the coordination server", DEFAULT_HOST, zookeeper_port)],
    )


def _zookeeper_login(config: BrokerConfig, directory: Path) -> dict[str, str]:
    """Return the setting that names the JAAS file of server and brokers; empty without access lists."""
    if not config.zookeeper_set_acl:
        return {}
    own = config.java_security_auth_login_config
    return write_login(directory) if own is None else {LOGIN_FILE: own}


async def _run_children(
    termination: Termination,
    group: ProcessGroup,
    settings: Sequence[Mapping[str, str]],
    zookeeper: str,
    client_file: Path | None,
    http: HttpChild | None,
) -> int:
    watching: asyncio.Task[None] | None = None
    fault: BaseException | None = None
    try:
        addresses = await termination.unless_requested(group.start(settings))
        watching = asyncio.create_task(group.watch(), name="watch over the brokers")
        bootstrap = ",".join(addresses)
        if client_file is not None:
            write_bootstrap(client_file, bootstrap)
        served = ""
        if http is not None:
            served = f" http={await termination.unless_requested(http.start(bootstrap))}"
        termination.ready(f"bootstrap={bootstrap} zookeeper={zookeeper}{served}")
        fault = await termination.wait()
        if fault is not None:
            logger.critical("the cluster stops: %s", fault)
    finally:
        if http is not None:
            await http.stop()
        is_clean = await group.stop()
        if watching is not None:
            await watching
    return 0 if is_clean and fault is None else 1
