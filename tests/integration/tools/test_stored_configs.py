"""Passwords of brokers that are in no file: stored before the first start, rotated, encrypted again."""

import json
import ssl
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kalda.broker.process.secure import login, properties_text
from kalda.security.password_encoder import Encoding, PasswordEncoder
from kalda.security.tls.authority import CertificateAuthority
from kalda.testing.process_cluster import BrokerProcess, ZooKeeperProcess
from tests.integration.tools.commands import Commands

VALID = timedelta(days=1)
PREFIX = "listener.name.sasl_ssl."
JAAS = f"{PREFIX}plain.sasl.jaas.config"
KEY = f"{PREFIX}ssl.keystore.key"
SETTINGS = {
    "listeners": "SASL_SSL://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "ssl.keystore.type": "PEM",
    "offsets.topic.replication.factor": "1",
}


def jaas(password: str) -> str:
    return login("plain.Plain", "kalda", "s", {"kalda": "s", "alice": password})


class Broker:
    """A ZooKeeper, a broker with SASL_SSL, and the commands for them."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        self.directory = directory
        self.zookeeper = zookeeper
        self.authority = CertificateAuthority.make("tests", datetime.now(UTC), VALID)
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(self.authority.own.certificate)
        self.kalda = Commands("")

    def key_settings(self) -> dict[str, str]:
        """An own key and its certificate as PEM in the settings."""
        issued = self.authority.issue("broker", datetime.now(UTC), VALID, ["127.0.0.1"])
        return {
            KEY: issued.private_key.decode(),
            f"{PREFIX}ssl.keystore.certificate.chain": issued.certificate.decode(),
        }

    def file(self, settings: dict[str, str]) -> Path:
        path = self.directory / "settings.properties"
        path.write_text(properties_text(settings))
        return path

    def process(self, **settings: str) -> BrokerProcess:
        own = {name.replace("_", "."): value for name, value in settings.items()}
        return BrokerProcess(0, self.directory / "data", self.zookeeper, settings={**SETTINGS, **own})

    def client(self, bootstrap: str, password: str) -> Path:
        """A file with which alice connects."""
        path = self.directory / "client.properties"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        settings = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{module} required username="alice" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }
        path.write_text(properties_text(settings))
        return path

    def stored(self) -> dict[str, str]:
        config: dict[str, str] = json.loads(
            self.kalda("zk", "get", "/config/brokers/0", "--zookeeper", self.zookeeper).stdout
        )["config"]
        return config

    def served_key(self, bootstrap: str) -> bytes:
        host, _, port = bootstrap.rpartition(":")
        return ssl.get_server_certificate((host, int(port))).encode()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with ZooKeeperProcess(tmp_path / "zookeeper") as zookeeper:
        yield Broker(tmp_path, zookeeper.zookeeper)


def test_passwords_that_stand_in_no_file(broker: Broker) -> None:
    """From before the first start, over changes of the login and the key, to a change of the secret."""
    kalda, alter = broker.kalda, ("configs", "alter", "--broker", "0")
    in_zookeeper = ("--zookeeper", broker.zookeeper)
    settings = {**broker.key_settings(), JAAS: jaas("alice-1")}
    file = broker.file(settings)
    refused = kalda.refused(*alter, *in_zookeeper, "--add-config-file", file)
    assert f"must also hold `password.encoder.secret` to set {JAAS}" in refused.stderr
    kalda(*alter, *in_zookeeper, "--add-config-file", file, "--add-config", "password.encoder.secret=one")
    described = kalda("configs", "describe", "--broker", "0", *in_zookeeper)
    assert [[name, "sensitive"] for name in sorted(settings)] == [[row[2], row[4]] for row in described.rows]
    for name, text in broker.stored().items():
        assert settings[name] == PasswordEncoder("one", Encoding()).decode(text)

    with broker.process(password_encoder_secret="one") as process:
        client = ("--command-config", broker.client(process.bootstrap, "alice-1"))
        kalda("topics", "create", "t", *client)
        assert "broker 0 is running" in kalda.refused(*alter, *in_zookeeper, "--delete-config", JAAS).stderr

        kalda(*alter, "--add-config-file", broker.file({JAAS: jaas("alice-2")}), *client)
        assert "Invalid username or password" in kalda.refused("topics", "list", *client).stderr
        client = ("--command-config", broker.client(process.bootstrap, "alice-2"))
        before = broker.served_key(process.bootstrap)
        kalda(*alter, "--add-config-file", broker.file(broker.key_settings()), *client)
        deadline = time.monotonic() + 30
        while broker.served_key(process.bootstrap) == before:
            assert time.monotonic() < deadline, "the new certificate is not served"
            time.sleep(0.1)
        (entity,) = kalda.json("configs", "describe", "--broker", "0", *client)["entities"]
        assert {None} == {entry["value"] for entry in entity["configs"]}

    with broker.process(password_encoder_secret="two", password_encoder_old_secret="one") as process:
        client = ("--command-config", broker.client(process.bootstrap, "alice-2"))
        assert "t" in kalda("topics", "list", *client).stdout
    assert jaas("alice-2") == PasswordEncoder("two", Encoding()).decode(broker.stored()[JAAS])
    log = process.log_file.read_text()
    for secret in ("alice-1", "alice-2", "PRIVATE KEY", "encryptedPassword"):
        assert secret not in log


def test_what_is_stored_for_brokers_is_checked(broker: Broker) -> None:
    alter = ("configs", "alter", "--zookeeper", broker.zookeeper)
    for arguments, part in [
        (("--topic", "t", "--add-config", "retention.ms=1"), "use --bootstrap-server for topics"),
        (("--broker", "0", "--add-config", "no.such=1"), "`no.such` is not a setting"),
        (("--broker", "0", "--add-config", "broker.rack=a"), "cannot change while the broker runs"),
        (("--broker", "0", "--add-config", "max.connections=many"), "`max.connections`=many"),
        (("--broker", "0", "--delete-config", "max.connections"), "max.connections is not stored"),
        (("--broker", "0", "--add-config", "password.encoder.secret=x"), "nothing to alter beside"),
        (("--broker-defaults", "--add-config", f"{JAAS}=x,password.encoder.secret=x"), "per broker only"),
    ]:
        assert part in broker.kalda.refused(*alter, *arguments).stderr
    broker.kalda(*alter, "--broker-defaults", "--add-config", "max.connections=100")
    broker.kalda(*alter, "--broker", "0", "--add-config", "max.connections=200", "--dry-run")
    described = broker.kalda("configs", "describe", "--zookeeper", broker.zookeeper, "--broker-defaults")
    assert [["brokers", "<default>", "max.connections", "DYNAMIC_DEFAULT_BROKER_CONFIG", "-", "100"]] == (
        described.rows
    )
    assert [] == broker.kalda("configs", "describe", "--zookeeper", broker.zookeeper, "--broker", "0").rows
