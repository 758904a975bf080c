"""Tools that talk to a ZooKeeper with TLS, logins and access lists."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kalda.testing.process_cluster import ZooKeeperProcess
from tests.integration.tools.commands import Commands
from tests.integration.zookeeper.tls_files import TlsFiles

kalda = Commands("")


@dataclass
class Server:
    address: str
    config_file: str

    @property
    def secure(self) -> tuple[str, ...]:
        return ("--zookeeper", self.address.replace("127.0.0.1", "localhost"), *self.identity)

    @property
    def plain(self) -> tuple[str, ...]:
        return ("--zookeeper", self.address)

    @property
    def identity(self) -> tuple[str, ...]:
        return ("--zk-tls-config-file", self.config_file)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("secure")
    files = TlsFiles(directory)
    login = files.login_file("kafka")
    settings = {
        "ssl.keyStore.location": files.key("server"),
        "ssl.trustStore.location": files.trust,
        "ssl.clientAuth": "none",
        "client.portUnification": "true",
        "java.security.auth.login.config": login,
    }
    properties = directory / "zookeeper.properties"
    properties.write_text(
        "broker.id=1\n"
        "zookeeper.ssl.client.enable=true\n"
        f"zookeeper.ssl.truststore.location={files.trust}\n"
        f"java.security.auth.login.config={login}\n"
    )
    with ZooKeeperProcess(directory / "data", settings=settings) as process:
        yield Server(process.zookeeper, str(properties))


def test_migration_protects_and_opens_what_brokers_have_written(server: Server) -> None:
    kalda("zk", "create", "-p", "/brokers/topics/t", "x", *server.plain)
    kalda("zk", "create", "-p", "/consumers/g", "x", *server.plain)
    refused = kalda.refused("zk", "security-migration", "--zookeeper.acl", "secure", *server.plain)
    assert "access lists need an identity" in refused.stderr
    stopped = kalda.refused(
        *("zk", "security-migration", "--zookeeper.acl", "secure", "--enable.path.check", *server.secure)
    )
    assert "these do not exist: /admin," in stopped.stderr
    assert "\n" == kalda("zk", "set", "/brokers/topics/t", "y", *server.plain).stdout[-1:]

    done = kalda("zk", "security-migration", "--zookeeper.acl", "secure", *server.secure)
    assert "znodes have new access lists" in done.stderr
    assert "does not allow it" in kalda.refused("zk", "set", "/brokers/topics/t", "z", *server.plain).stderr
    assert "y\n" == kalda("zk", "get", "/brokers/topics/t", *server.plain).stdout
    kalda("zk", "set", "/consumers/g", "z", *server.plain)
    kalda("zk", "set", "/brokers/topics/t", "z", *server.secure)

    kalda("zk", "security-migration", "--zookeeper.acl", "unsecure", *server.secure)
    kalda("zk", "set", "/brokers/topics/t", "open", *server.plain)


def test_user_that_is_set_before_the_brokers_start_is_private(server: Server) -> None:
    kalda("users", "set", "alice", "--password", "secret", *server.secure)
    refused = kalda.refused("zk", "get", "/config/users/alice", *server.plain)
    assert "does not allow it" in refused.stderr
    assert "SCRAM-SHA-512" in kalda("zk", "get", "/config/users/alice", *server.secure).stdout


def test_mistakes_in_the_file_are_named(server: Server, tmp_path: Path) -> None:
    absent = kalda.refused("zk", "ls", *server.plain, "--zk-tls-config-file", str(tmp_path / "none"))
    assert f"--zk-tls-config-file={tmp_path / 'none'}: No such file" in absent.stderr
    wrong = tmp_path / "wrong"
    wrong.write_text("zookeeper.ssl.client.enable=yes\n")
    refused = kalda.refused("zk", "ls", *server.plain, "--zk-tls-config-file", str(wrong))
    assert "`zookeeper.ssl.client.enable`=yes is not allowed" in refused.stderr
