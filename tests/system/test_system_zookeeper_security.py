"""Access lists, TLS and logins between brokers and the coordination server, as processes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadArgumentsError, NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE

from kalda.testing import BrokerProcess, KaldaProcess, ZooKeeperProcess
from kalda.testing.process import CommandProcess
from tests.integration.cluster.helpers import create_topic
from tests.integration.zookeeper.secured_servers import secured_server
from tests.integration.zookeeper.tls_files import TlsFiles
from tests.integration.zookeeper_client import zookeeper_client

SECURE = {"zookeeper.set.acl": "true"}


def is_refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except (NoAuthError, BadArgumentsError):
        # What every server has from the start cannot be deleted at all.
        return True
    return False


def check_that_others_only_read(zookeeper: str, *, open_znodes: Sequence[str] = ()) -> None:
    """Another client reads topics, but not users, and changes nothing except what Kafka leaves open."""
    with zookeeper_client(zookeeper) as client:
        assert b"" != client.get("/brokers/topics/t")[0]
        assert is_refused(lambda: client.get_children("/config/users"))
        assert sorted(open_znodes) == [
            path for path in sorted(readable(client, "/")) if is_changed(client, path)
        ]


def readable(client: KazooClient, path: str) -> list[str]:
    """Return the paths of all znodes, without those below a secret one."""
    if is_refused(lambda: client.get_children(path)):
        return [path]
    below = [readable(client, f"{path.rstrip('/')}/{name}") for name in client.get_children(path)]
    return [path, *(each for paths in below for each in paths)]


def is_changed(client: KazooClient, path: str) -> bool:
    """Try all that changes a znode; one with children cannot be deleted in any case."""
    attempts: list[Callable[[], object]] = [
        lambda: client.create(f"{path.rstrip('/')}/mallory", b""),
        lambda: client.set(path, b""),
        lambda: client.set_acls(path, OPEN_ACL_UNSAFE),
    ]
    if is_refused(lambda: client.get_children(path)) or not client.get_children(path):
        attempts.append(lambda: client.delete(path))
    return not all(is_refused(attempt) for attempt in attempts)


def warnings_about_access(kalda: CommandProcess) -> list[str]:
    lines = kalda.log_file.read_text().splitlines()
    return [line for line in lines if "WARNING" in line and "everybody who reache" in line]


def test_access_lists_of_one_process_hold_for_several(tmp_path: Path) -> None:
    """The broker of one process has no login; those of several log in with a password made at their start."""
    with KaldaProcess(tmp_path / "data", settings=SECURE) as kalda:
        create_topic(kalda.bootstrap, "t", replicas=1)
        check_that_others_only_read(kalda.zookeeper)
    with KaldaProcess(tmp_path / "data", settings=SECURE, brokers=2) as kalda:
        create_topic(kalda.bootstrap, "u", replicas=1)
        check_that_others_only_read(kalda.zookeeper)
        login = tmp_path / "data" / "zookeeper" / "login.conf"
        assert 0o600 == login.stat().st_mode & 0o777
        assert "Server" not in kalda.log_file.read_text()
        assert [] == warnings_about_access(kalda)


def test_cluster_that_was_open_is_closed_at_the_next_start(tmp_path: Path) -> None:
    with KaldaProcess(tmp_path / "data") as kalda:
        create_topic(kalda.bootstrap, "t", replicas=1)
    with KaldaProcess(tmp_path / "data", settings=SECURE) as kalda:
        check_that_others_only_read(kalda.zookeeper)
        (line,) = warnings_about_access(kalda)
        named = line.partition("znodes: ")[2].partition(";")[0].split(", ")
        assert {"/", "/brokers/topics/t", "/controller_epoch"} <= set(named)


@pytest.mark.parametrize(("name", "chroot"), [("kalda", ""), ("kalda", "/kafka"), ("zookeeper", "")])
def test_broker_closes_what_it_finds_open_in_a_server_elsewhere(
    name: str, chroot: str, tmp_path: Path
) -> None:
    with secured_server(name, tmp_path) as server:
        address = server.plain + chroot
        with BrokerProcess(0, tmp_path / "broker", address) as kalda:
            create_topic(kalda.bootstrap, "t", replicas=1)
        secure = {**SECURE, "java.security.auth.login.config": server.files.login_file("bob")}
        with BrokerProcess(0, tmp_path / "broker", address, settings=secure) as kalda:
            check_that_others_only_read(address, open_znodes=["/consumers"])
            closed, left = warnings_about_access(kalda)
            assert "could change these" in closed
            assert "can change these 1 znodes: /consumers;" in left


def test_broker_reaches_its_coordination_server_by_tls_alone(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    server = {
        "ssl.keyStore.location": files.key("server"),
        "ssl.trustStore.location": files.trust,
        "client.portUnification": "true",
    }
    broker = {
        **SECURE,
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": files.key("broker"),
        "zookeeper.ssl.truststore.location": files.trust,
    }
    with (
        ZooKeeperProcess(tmp_path / "zookeeper", settings=server) as zookeeper,
        BrokerProcess(0, tmp_path / "broker", zookeeper.zookeeper, settings=broker) as kalda,
    ):
        create_topic(kalda.bootstrap, "t", replicas=1)
        check_that_others_only_read(zookeeper.zookeeper, open_znodes=["/consumers"])
