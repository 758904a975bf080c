"""ZooKeeper's Java client, Kafka's tools on our server, brokers on an ensemble: with TLS and SASL."""

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from benchmarks.apache_kafka import NotAvailableError
from kalda.testing import BrokerProcess, ProcessCluster
from kalda.testing.ports import free_ports
from tests.compat.java_releases import JavaRelease
from tests.integration.clients.clients import ConfluentClient, Message
from tests.integration.cluster.helpers import create_topic, leaders, wait_until
from tests.integration.real_zookeeper import RealZooKeeper, missing
from tests.integration.zookeeper.secured_servers import SERVERS, SecuredServer, secured_server
from tests.integration.zookeeper.test_java_client import command_line
from tests.integration.zookeeper.tls_files import TlsFiles

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
    pytest.mark.timeout(300),
]

NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"


@pytest.fixture(scope="module", params=list(SERVERS))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredServer]:
    with secured_server(request.param, tmp_path_factory.mktemp("java"), "want") as made:
        yield made


def java_options(files: TlsFiles, transport: str, login: str) -> dict[str, str]:
    """Return the properties of the JVM; without a login, the client is kept from looking for one."""
    options = {"zookeeper.fips-mode": "false"}  # which refuses MD5
    if transport != "plaintext":
        options |= {
            "zookeeper.client.secure": "true",
            "zookeeper.clientCnxnSocket": NETTY,
            "zookeeper.ssl.trustStore.location": files.trust,
        }
    if transport == "mTLS":
        options["zookeeper.ssl.keyStore.location"] = files.key("alice")
    if login == "SASL":
        options["java.security.auth.login.config"] = files.login_file("bob")
    else:
        options["zookeeper.sasl.client"] = "false"
    return options


@pytest.mark.parametrize("login", ["none", "digest", "SASL"])
@pytest.mark.parametrize("transport", ["plaintext", "TLS", "mTLS"])
def test_javas_client_is_who_it_logs_in_as(server: SecuredServer, transport: str, login: str) -> None:
    """`whoami` lists it all; the node belongs to the client where it has an identity."""
    options = [f"-D{name}={value}" for name, value in java_options(server.files, transport, login).items()]
    address = server.plain if transport == "plaintext" else server.secure
    expected = {"mTLS": ["x509: CN=alice"]}.get(transport, [])
    expected = expected + {"SASL": ["sasl: bob"], "digest": ["digest: carol"]}.get(login, [])
    node = f"/{transport}-{login}"
    with command_line(address, options) as java:
        java.wait_for("state:SyncConnected")
        if login == "digest":
            java.run("addauth digest carol:carol-secret")
        java.run("whoami")
        java.wait_for("ip: 127.0.0.1")
        java.run(f"create {node} hello {'auth::cdrwa' if expected else ''}")
        java.wait_for(f"Created {node}")
        for each in expected:
            assert any(each in line for line in java.seen), java.seen
        java.run(f"getAcl {node}")
        owner = "x509,'CN=alice" if transport == "mTLS" else login.lower() if expected else "world"
        java.wait_for(f"'{owner}")
        java.run(f"get {node}")
        java.wait_for("hello")


def zookeeper_properties(files: TlsFiles, name: str) -> dict[str, str]:
    """Return how Kafka's tools and brokers reach a server over TLS."""
    return {
        "zookeeper.clientCnxnSocket": NETTY,
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": files.key(name),
        "zookeeper.ssl.keystore.type": "PEM",
        "zookeeper.ssl.truststore.location": files.trust,
        "zookeeper.ssl.truststore.type": "PEM",
    }


def test_kafkas_tools_write_users_to_our_server(tmp_path: Path) -> None:
    """`kafka-configs --zookeeper` of the last release that has it, as an operator bootstraps SCRAM."""
    try:
        files = TlsFiles(tmp_path)
        options = {
            "java.security.auth.login.config": files.login_file("bob"),
            "zookeeper.fips-mode": "false",
        }
        java = JavaRelease("3.9.1", [f"-D{name}={value}" for name, value in options.items()])
    except NotAvailableError as error:
        pytest.skip(str(error))
    with secured_server("kalda", tmp_path) as server:
        properties = tmp_path / "zookeeper.properties"
        lines = zookeeper_properties(server.files, "alice")
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        tool = ("--zookeeper", server.secure, "--zk-tls-config-file", str(properties))
        entity = ("--entity-type", "users", "--entity-name", "dora")
        java.run(
            "kafka.admin.ConfigCommand",
            *(*tool, "--alter", *entity, "--add-config", "SCRAM-SHA-512=[iterations=4096,password=secret]"),
        )
        assert "SCRAM-SHA-512" in java.run("kafka.admin.ConfigCommand", *tool, "--describe", *entity)
        login = {"java.security.auth.login.config": options["java.security.auth.login.config"]}
        settings = {
            **zookeeper_properties(server.files, "alice"),
            **login,
            "zookeeper.set.acl": "true",
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required "
                'username="dora" password="secret";'
            ),
        }
        with BrokerProcess(0, tmp_path / "broker", server.secure, settings=settings) as broker:
            user = {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "dora",
                "sasl.password": "secret",
            }
            client = ConfluentClient(broker.bootstrap, security=user)
            client.produce("t", [Message(None, b"hello")])
            assert [b"hello"] == [each.value for each in client.consume("t", 1)]


@contextlib.contextmanager
def ensemble(files: TlsFiles, count: int = 3) -> Iterator[list[tuple[RealZooKeeper, int]]]:
    """Run servers that elect a leader, with their TLS ports; they trust each other over plaintext."""
    ports = [free_ports(3) for _ in range(count)]
    members = {
        f"server.{number}": f"127.0.0.1:{quorum}:{election}"
        for number, (quorum, election, _) in enumerate(ports, 1)
    }
    made = []
    for number, (_, _, secure) in enumerate(ports, 1):
        directory = files.directory / f"zookeeper-{number}"
        (directory / "data").mkdir(parents=True)
        (directory / "data" / "myid").write_text(str(number))
        settings: Mapping[str, str] = {
            **members,
            "initLimit": "50",
            "syncLimit": "25",
            "secureClientPort": str(secure),
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": files.key("server"),
            "ssl.trustStore.location": files.trust,
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        }
        login = f"-Djava.security.auth.login.config={files.login_file('bob')}"
        made.append((RealZooKeeper(directory, settings=settings, java_options=[login]), secure))
    with contextlib.ExitStack() as stack:
        for each, _ in made:
            stack.callback(each.kill)
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda each: each[0].start(), made))
        yield made


def wait_for_another_leader(cluster: ProcessCluster, killed: int) -> None:
    wait_until(lambda: leaders(cluster.bootstrap, "t")[0] not in (killed, -1))


def test_brokers_on_an_ensemble_outlive_the_loss_of_a_server_of_it(tmp_path: Path) -> None:
    """Brokers have certificates and a login; what they write is theirs; each server is lost once."""
    files = TlsFiles(tmp_path)
    settings = {
        **zookeeper_properties(files, "broker"),
        "java.security.auth.login.config": files.login_file("bob"),
        "zookeeper.set.acl": "true",
        "zookeeper.session.timeout.ms": "6000",
        "min.insync.replicas": "2",
    }
    with ensemble(files) as servers:
        hosts = ",".join(f"localhost:{secure}" for _, secure in servers)
        with ProcessCluster(tmp_path, brokers=3, settings=settings, zookeeper=f"{hosts}/kalda") as cluster:
            create_topic(cluster.bootstrap, "t")
            client = ConfluentClient(cluster.bootstrap)
            written = []
            for number, (server, _) in enumerate(servers):
                written.append(b"%d" % number)
                client.produce("t", [Message(None, written[-1])])
                server.kill()
                killed = leaders(cluster.bootstrap, "t")[0]
                cluster.kill(killed)
                wait_for_another_leader(cluster, killed)
                cluster.start(killed)
                server.start()
            assert written == [each.value for each in client.consume("t", len(written))]
            other = KazooClient(f"{servers[0][0].hosts}/kalda")
            other.start(20)
            try:
                assert other.get("/brokers/topics/t")[0]
                with pytest.raises(NoAuthError):
                    other.set("/brokers/topics/t", b"{}")
                with pytest.raises(NoAuthError):
                    other.get_children("/config/users")
            finally:
                other.stop()
                other.close()
