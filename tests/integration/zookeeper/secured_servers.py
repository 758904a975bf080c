"""A server of ours and a real ZooKeeper with a plaintext port, a TLS port and the SASL user bob."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kalda.testing.ports import free_ports
from tests.integration.real_zookeeper import RealZooKeeper, missing
from tests.integration.zookeeper.coordination_server import running_server
from tests.integration.zookeeper.tls_files import TlsFiles


class SecuredServer(NamedTuple):
    """The addresses of a server, and the files that clients of it need."""

    files: TlsFiles
    plain: str
    secure: str


def _tls(files: TlsFiles, client_auth: str, port: int) -> dict[str, str]:
    return {
        "secureClientPort": str(port),
        "ssl.keyStore.location": files.key("server"),
        "ssl.trustStore.location": files.trust,
        "ssl.clientAuth": client_auth,
    }


@contextlib.contextmanager
def our_server(directory: Path, client_auth: str) -> Iterator[SecuredServer]:
    files, port = TlsFiles(directory), free_ports(1)[0]
    settings = {"clientPort": "0", "java.security.auth.login.config": files.login_file("bob")}
    with running_server(directory / "data", {**settings, **_tls(files, client_auth, port)}) as server:
        yield SecuredServer(files, server.address, f"localhost:{port}")


@contextlib.contextmanager
def apache_server(directory: Path, client_auth: str) -> Iterator[SecuredServer]:
    files, port = TlsFiles(directory), free_ports(1)[0]
    settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        **_tls(files, client_auth, port),
    }
    login = f"-Djava.security.auth.login.config={files.login_file('bob')}"
    with RealZooKeeper(directory / "zookeeper", settings=settings, java_options=[login]) as server:
        yield SecuredServer(files, server.hosts, f"localhost:{port}")


SERVERS: dict[str, Callable[[Path, str], contextlib.AbstractContextManager[SecuredServer]]] = {
    "kalda": our_server,
    "zookeeper": apache_server,
}


@contextlib.contextmanager
def secured_server(name: str, directory: Path, client_auth: str = "need") -> Iterator[SecuredServer]:
    """Run a server of `SERVERS`; skip the test where it cannot be run."""
    reason = missing()
    if name == "zookeeper" and reason is not None:
        pytest.skip(reason)
    with SERVERS[name](directory, client_auth) as server:
        yield server
