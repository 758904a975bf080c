"""A broker is assembled from the ports that it is given: another clock and randomness reach every part."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kalda.broker.assembly import BrokerParts, assemble
from kalda.broker.server import BrokerServer
from kalda.common.types import random_uuid
from kalda.net.peer.peer_connection import DialOptions
from kalda.runtime.clock import ManualClock
from kalda.runtime.network import Stream, StreamListener
from kalda.runtime.runtime import Runtime
from kalda.runtime.system.network import SystemNetwork
from kalda.settings import BrokerConfig
from tests.runtimes import runtime_with, seeded
from tests.unit.cluster.in_memory import InMemoryZooKeeper


@contextlib.asynccontextmanager
async def assembled(directory: Path, runtime: Runtime) -> AsyncIterator[BrokerParts]:
    """Yield the parts of a broker on an empty log directory, which does not listen."""
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";'
    settings = {
        "broker.id": "0",
        "log.dirs": str(directory),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": jaas,
    }
    config = BrokerConfig.from_properties(settings)
    server = BrokerServer(config, await InMemoryZooKeeper().connect(), runtime=runtime)
    async with asyncio.TaskGroup() as tasks, contextlib.AsyncExitStack() as undo:
        context = await server._open_logs_and_settings(undo)
        parts = assemble(context, tasks)
        yield parts
        parts.timer.close()


def drawn(parts: BrokerParts) -> list[object]:
    """Return what parts of a broker draw."""
    context, services = parts.context, parts.services
    return [
        context.cluster_id,
        services.fetch_sessions._random_id(),
        services.client_metrics._new_id(),
        services.topic_admin._random.random(),
        random_uuid(services.access.delegation_tokens._random),
        services.lease_grants is not None and services.lease_grants._leases._new_id(),
        context.log_manager.resources.new_name_suffix(),
        context.log_manager.resources.random_fraction(),
        context.cluster_store.random.randbytes(20),
        services.access.logins.new_server("SASL_PLAINTEXT", "SCRAM-SHA-256")._nonce,  # type: ignore[attr-defined]
    ]


async def test_brokers_with_the_same_seed_draw_the_same_ids(tmp_path: Path) -> None:
    found = []
    for number, seed in enumerate((7, 7, 8)):
        directory = tmp_path / str(number)
        directory.mkdir()
        async with assembled(directory, runtime_with(random=seeded(seed))) as parts:
            found.append(drawn(parts))
    first, second, other = found
    assert first == second
    assert not any(one == another for one, another in zip(first, other, strict=True))


async def test_every_part_has_the_ports_of_the_runtime(tmp_path: Path) -> None:
    runtime = runtime_with(clock=ManualClock())
    async with assembled(tmp_path, runtime) as parts:
        context, services = parts.context, parts.services
        resources = context.log_manager.resources
        assert [runtime.clock] * 5 == [
            context.clock,
            services.clock,
            resources.clock,
            services.topic_admin._clock,
            services.access.delegation_tokens._clock,
        ]
        assert runtime.network is parts.server._network
        assert runtime.file_system is resources.file_system
        assert runtime.background is resources.executor


async def test_a_broker_listens_and_dials_over_its_network(tmp_path: Path) -> None:
    network = Recording()
    async with assembled(tmp_path, runtime_with(network=network)) as parts:
        await parts.listeners.bind()
        (port,) = parts.listeners._ports.values()
        with pytest.raises(ConnectionError):
            await parts.context.dialer.dial(
                "127.0.0.1", port, DialOptions(client_id="", timeout_seconds=0.01)
            )
        await parts.server.close(0.0)
    assert [("listen", 0), ("connect", port)] == network.calls


class Recording(SystemNetwork):
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    async def listen(self, host: str, port: int, **options: Any) -> StreamListener:
        self.calls.append(("listen", port))
        return await super().listen(host, port, **options)

    async def connect(self, host: str, port: int, **options: Any) -> Stream:
        self.calls.append(("connect", port))
        raise ConnectionRefusedError(f"{host} takes no connection here")
