"""A pytest plug-in under which kazoo's own tests meet our server instead of starting ZooKeepers.

kazoo's harness asks for a cluster; it gets one of a single server, which its tests may stop and start. What
kazoo imports only to make certificates for its ZooKeepers need not be installed. Each xdist worker imports
this for itself and so has a server of its own.
"""

import gc
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.zookeeper.coordination_server import CoordinationServer
from tests.integration.zookeeper.kazoo_suite_exceptions import EXCEPTION_MARK, EXCEPTIONS

SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="
"""The password is "test"; kazoo's harness gives its ZooKeepers the same."""

USERS = """Server {
  org.apache.zookeeper.server.auth.DigestLoginModule required
    user_super="super_secret" user_jaasuser="jaas_password";
};
"""
"""Those of kazoo's own test servers."""

SETTINGS = {
    "tickTime": "2000",
    "minSessionTimeout": "-1",
    "maxClientCnxns": "0",
    "4lw.commands.whitelist": "*",
    "DigestAuthenticationProvider.superDigest": SUPER_DIGEST,
}


class ManagedServer:
    """What kazoo's tests know of a server of their cluster."""

    def __init__(self, server: CoordinationServer) -> None:
        self._server = server

    @property
    def address(self) -> str:
        return self._server.address

    secure_address = address

    @property
    def client_port(self) -> int:
        return self._server.port

    @property
    def running(self) -> bool:
        return self._server.is_running

    def run(self) -> None:
        if not self._server.is_running:
            self._server.start()

    def stop(self) -> None:
        self._server.stop()


class Cluster:
    """What kazoo's harness knows of a cluster; it lives as long as the worker."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="kazoo-suite-")
        directory = Path(self._directory.name)
        jaas = directory / "jaas.conf"
        jaas.write_text(USERS)
        settings = {**SETTINGS, "java.security.auth.login.config": str(jaas)}
        self._servers = [ManagedServer(CoordinationServer(directory / "data", settings))]

    def __getitem__(self, index: int) -> ManagedServer:
        return self._servers[index]

    def __iter__(self) -> Iterator[ManagedServer]:
        return iter(self._servers)

    def start(self) -> None:
        for server in self._servers:
            server.run()

    def terminate(self) -> None:
        """Called after each class of tests: there is no need to start anew."""

    def get_logs(self) -> list[str]:
        return []

    def close(self) -> None:
        for server in self._servers:
            server.stop()
        self._directory.cleanup()


def _count_objects(type_name: str) -> int:
    return sum(type(found).__name__ == type_name for found in gc.get_objects())


def _install() -> Cluster:
    common = types.ModuleType("kazoo.testing.common")
    common.ZookeeperCluster = Cluster  # type: ignore[attr-defined]  # stands for kazoo's class
    sys.modules["kazoo.testing.common"] = common
    import kazoo.testing.harness as harness

    objgraph = types.ModuleType("objgraph")
    objgraph.count = _count_objects  # type: ignore[attr-defined]  # all that kazoo's tests use of it
    sys.modules.setdefault("objgraph", objgraph)
    cluster = Cluster()
    harness.get_global_cluster = lambda: cluster
    return cluster


_CLUSTER = _install()


def pytest_sessionfinish() -> None:
    # Not when the process ends: xdist kills a worker that takes its time for that.
    _CLUSTER.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = EXCEPTIONS.get(f"{item.path.name}::{item.nodeid.partition('::')[2]}")
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"{EXCEPTION_MARK}{reason}"))
