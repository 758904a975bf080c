"""Runs one broker in a process until it terminates, and implements `kalda broker`."""

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kalda.broker.process.errors import ProcessError
from kalda.broker.process.lifecycle import (
    ORPHAN_SECONDS_MAX,
    SHARED_LOCK_NAME,
    ProcessDirectory,
    Termination,
    run,
)
from kalda.broker.process.ports import ports_of
from kalda.broker.process.secure import write_bootstrap
from kalda.broker.process.start_log import Announcement
from kalda.broker.server import BrokerServer
from kalda.cluster.znode_audit import close_open_znodes
from kalda.net.client.stream import connect_stream
from kalda.runtime.system.background import EventLoopExecutor
from kalda.runtime.system.event_loop import poll_busily
from kalda.runtime.system.runtime import system_runtime
from kalda.security.tls.settings import TlsSettingsError
from kalda.security.zookeeper.client_security import read_client_security
from kalda.settings import BrokerConfig
from kalda.settings.summary import differing_settings, settings_without_effect
from kalda.zookeeper.errors import ZooKeeperError
from kalda.zookeeper.port import SessionState, ZooKeeperClient

if TYPE_CHECKING:
    from kalda.broker.process.faulty_machine import FaultyMachine
    from kalda.broker.process.http_child import HttpChild
    from kalda.etcd.client import EtcdClient
    from kalda.zookeeper.client.ensemble_client import EnsembleClient

logger: Final = logging.getLogger(__name__)

CLOSE_SECONDS_MAX: Final = 5.0
"""How long a shutdown waits for ZooKeeper to close the session; if it does not, the session expires."""


def faulty_machine(config: BrokerConfig) -> "FaultyMachine | None":
    """Return a machine for a broker whose settings allow faults, and None for others."""
    if config.kalda_faults_file is None and not config.kalda_faults_api_enable:
        return None
    # Imported only when needed: few brokers have faults.
    from kalda.broker.process.faulty_machine import FaultyMachine

    return FaultyMachine()


def make_broker(
    config: BrokerConfig,
    zookeeper: ZooKeeperClient,
    executor: EventLoopExecutor,
    machine: "FaultyMachine | None",
) -> BrokerServer:
    """Return a broker that uses the files and the clock of this machine, or those of one with faults."""
    if machine is None:
        return BrokerServer(config, zookeeper, runtime=system_runtime(executor))
    runtime = machine.runtime(executor)
    return BrokerServer(config, zookeeper, runtime=runtime, dialer=machine.endpoint, machine=machine)


async def serve(
    broker: BrokerServer,
    config: BrokerConfig,
    termination: Termination,
    zookeeper: str,
    client_file: Path | None = None,
    http: "HttpChild | None" = None,
) -> BaseException | None:
    """Run a broker until termination is requested; return the fault that caused the request, if one did.

    The ready line names the address of the broker, `zookeeper` (``coordination=`` in front of an address with
    a scheme), and the address of `http`, a child process
    that lives as long as the broker. The `client_file` gets the address of the broker.

    Raises:
        TerminationRequestedError: termination was requested before the broker served.
        ExceptionGroup: the broker or the child could not start, or one of the broker's tasks failed.
    """
    poll_busily(asyncio.get_running_loop(), config.kalda_busy_poll_us / 1e6)
    async with asyncio.TaskGroup() as tasks:
        await termination.unless_requested(broker.start(tasks))
        if client_file is not None:
            write_bootstrap(client_file, broker.bootstrap)
        try:
            address = "" if http is None else await termination.unless_requested(http.start(broker.bootstrap))
            served = f" http={address}" if address else ""
            engine = "coordination" if "://" in zookeeper else "zookeeper"
            termination.ready(f"bootstrap={broker.bootstrap} {engine}={zookeeper}{served}")
            fault = await termination.wait()
        finally:
            if http is not None:
                await http.stop()
        await broker.stop(termination.hurried)
    return fault


def run_broker(directory: Path, config: BrokerConfig, *, is_supervised: bool = False) -> int:
    """Run a broker of a cluster until its termination is requested; return the exit code."""

    async def main(termination: Termination) -> int:
        async with EventLoopExecutor(asyncio.get_running_loop()) as executor:
            machine = faulty_machine(config)
            zookeeper = await termination.unless_requested(connect(config, machine))
            if machine is not None:
                machine.use_session(zookeeper)
            broker = make_broker(config, zookeeper, executor, machine)
            try:
                fault = await serve(broker, config, termination, coordination_of(config))
            finally:
                if zookeeper.state is SessionState.SUSPENDED or broker.is_zookeeper_silent:
                    zookeeper.abandon()
                else:
                    await close_session(zookeeper)
        return 0 if fault is None else 1

    # A child of a killed parent may still be shutting down in this directory.
    wait_seconds = ORPHAN_SECONDS_MAX if is_supervised else 0.0
    others = [Path(each) for each in config.log_dirs]
    # The parent has logged the settings without effect.
    without_effect = [] if is_supervised else settings_without_effect(config)
    return run(
        ProcessDirectory(directory, SHARED_LOCK_NAME, wait_seconds, others=others),
        main,
        announcement=Announcement("kalda broker", differing_settings(config), without_effect),
        ports=ports_of(config),
        is_supervised=is_supervised,
    )


def coordination_of(config: BrokerConfig) -> str:
    """Return the address of the engine: that of etcd, or ZooKeeper's without a scheme."""
    return config.coordination_connect or config.zookeeper_connect or ""


async def connect(
    config: BrokerConfig, machine: "FaultyMachine | None" = None
) -> "EnsembleClient | EtcdClient":
    """Open a session with the engine of the settings.

    Raises:
        ProcessError: the engine does not answer in time, or a setting is not valid.
    """
    if config.coordination_connect is not None:
        # Imported here: its library is an extra, and the other engines need none of it.
        from kalda.broker.process.etcd import connect_etcd

        return await connect_etcd(config, machine)
    return await _connect_zookeeper(config, machine)


async def _connect_zookeeper(
    config: BrokerConfig, machine: "FaultyMachine | None" = None
) -> "EnsembleClient":
    """Open a session with the ZooKeeper ensemble of ``zookeeper.connect``, over the links of `machine`.

    With ``zookeeper.set.acl`` it closes the znodes of the cluster that everybody could change.

    Raises:
        ProcessError: the ensemble does not answer in time, or a setting is not valid.
    """
    # Imported here: a broker with the embedded engine needs no client.
    from kalda.zookeeper.client.ensemble_client import EnsembleClient

    hosts = config.zookeeper_connect or ""
    session_timeout_ms = config.zookeeper_session_timeout_ms
    connection_timeout_ms = config.zookeeper_connection_timeout_ms or session_timeout_ms
    try:
        zookeeper = await EnsembleClient.connect(
            hosts,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=connection_timeout_ms,
            max_in_flight=config.zookeeper_max_in_flight_requests,
            connect=connect_stream if machine is None else machine.endpoint.connect,
            security=read_client_security(config.value, restricts_access=config.zookeeper_set_acl),
        )
        if config.zookeeper_set_acl:
            try:
                (await close_open_znodes(zookeeper)).log()
            except BaseException:
                zookeeper.abandon()
                raise
        return zookeeper
    except (ZooKeeperError, TlsSettingsError) as error:
        raise ProcessError(f"cannot connect to ZooKeeper: {error}") from None


async def close_session(zookeeper: ZooKeeperClient) -> None:
    """Close the session; if the engine does not answer, leave it to expire."""
    try:
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await zookeeper.close()
    except (ZooKeeperError, TimeoutError) as error:
        logger.warning(
            "the %s session was not closed and will expire: %s",
            zookeeper.engine_name,
            str(error) or "no answer",
        )
