"""Listeners on IPv4 and IPv6."""

import socket
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kalda import Admin
from kalda.runtime.system.bound_socket import bound_socket
from kalda.testing import KaldaProcess
from kalda.testing.ports import free_ports

pytestmark = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this host has no IPv6")


@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("", ["127.0.0.1", "::1"]),
        ("::", ["127.0.0.1", "::1"]),
        ("0.0.0.0", ["127.0.0.1"]),
        ("127.0.0.1", ["127.0.0.1"]),
        ("::1", ["::1"]),
    ],
)
def test_a_host_stands_for_the_families_that_it_has_in_java(host: str, reached: list[str]) -> None:
    found = []
    with closing(bound_socket(host, 0)) as server:
        server.listen()
        for address in ("127.0.0.1", "::1"):
            try:
                socket.create_connection((address, server.getsockname()[1]), 30).close()
            except ConnectionRefusedError:
                continue
            found.append(address)

    assert reached == found


def test_a_name_is_bound_to_its_address_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    """Java prefers IPv4 too; a resolver may return ::1 first."""
    six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))
    four = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
    for answer, family in (([six, four], socket.AF_INET), ([six], socket.AF_INET6)):
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, answer=answer, **__: answer)
        with closing(bound_socket("broker.example", 0)) as sock:
            assert family == sock.family


@pytest.mark.parametrize("host", ["", "[::]"])
def test_one_listener_serves_both_families(tmp_path: Path, host: str) -> None:
    (port,) = free_ports(1)
    settings = {
        "listeners": f"PLAINTEXT://{host}:{port}",
        "advertised.listeners": f"PLAINTEXT://localhost:{port}",
        "metrics.port": "0",
    }
    with KaldaProcess(tmp_path, settings=settings):
        for address in ("127.0.0.1", "[::1]"):
            with Admin(bootstrap_servers=f"{address}:{port}") as admin:
                assert 1 == len(admin.describe_cluster().nodes)


def test_two_listeners_share_a_port_and_the_ready_line_has_brackets(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = {
        "listeners": f"SIX://[::1]:{port},FOUR://127.0.0.1:{port}",
        "listener.security.protocol.map": "FOUR:PLAINTEXT,SIX:PLAINTEXT",
        "inter.broker.listener.name": "SIX",
    }
    with KaldaProcess(tmp_path, settings=settings) as process:
        assert f"[::1]:{port}" == process.bootstrap
        for address, host in (("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")):
            client = AdminClient({"bootstrap.servers": f"{address}:{port}"})
            (node,) = client.list_topics(timeout=30).brokers.values()
            assert (host, port) == (node.host, node.port)
