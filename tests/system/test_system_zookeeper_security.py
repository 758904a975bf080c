"""Access lists, TLS and logins between brokers and the coordination server, as processes."""

from collections.abc import Callable
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from kalda.testing import BrokerProcess, KaldaProcess, ZooKeeperProcess
from tests.integration.cluster.helpers import create_topic
from tests.integration.zk.tls_files import TlsFiles

SECURE = {"zookeeper.set.acl": "true"}


def is_refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except NoAuthError:
        return True
    return False


def check_that_others_only_read(zookeeper: str) -> None:
    """Another client of the coordination server reads topics, and neither users nor changes anything."""
    client = KazooClient(zookeeper)
    client.start(20)
    try:
        assert b"" != client.get("/brokers/topics/t")[0]
        assert is_refused(lambda: client.set("/brokers/topics/t", b"{}"))
        assert is_refused(lambda: client.get_children("/config/users"))
        assert is_refused(lambda: client.delete("/brokers/ids/0"))
    finally:
        client.stop()
        client.close()


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
        check_that_others_only_read(zookeeper.zookeeper)
