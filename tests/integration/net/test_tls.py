"""Clients of several libraries over TLS, with and without certificates of their own, and replaced ones."""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

from kalda import Admin, Consumer, Producer
from kalda.clients.errors import ClientConfigError
from kalda.net.client.client_errors import TlsError
from kalda.security.tls.authority import CertificateAuthority
from kalda.security.tls.stores import parse_key_store
from kalda.testing import KaldaProcess

NAMES = ["localhost", "127.0.0.1"]
VALID = timedelta(days=1)


class Certificates:
    """The files of an authority, a broker and a client."""

    def __init__(self, directory: Path) -> None:
        self.authority = CertificateAuthority.make("tests", datetime.now(UTC), VALID)
        self.ca = directory / "ca.pem"
        self.broker = directory / "broker.pem"
        self.client = directory / "client.pem"
        self.ca.write_bytes(self.authority.own.certificate)
        self.replace_broker()
        self.client.write_bytes(self._issued([("O", "Acme"), ("CN", "alice")], []))

    def _issued(self, subject: str | list[tuple[str, str]], names: list[str]) -> bytes:
        return self.authority.issue(subject, datetime.now(UTC), VALID, names).key_store

    def replace_broker(self, subject: str = "broker") -> bytes:
        """Write a new certificate in one step, as tools that rotate them do, and return it."""
        data = self._issued(subject, NAMES)
        new = self.broker.with_suffix(".new")
        new.write_bytes(data)
        new.rename(self.broker)
        return data

    def settings(self, client_auth: str) -> dict[str, str]:
        return {
            "listeners": "SSL://127.0.0.1:0",
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "ssl.client.auth": client_auth,
            "socket.request.max.bytes": "20000000",
        }

    def properties(self, bootstrap: str, *, has_certificate: bool = True) -> dict[str, str]:
        """What clients take that know Kafka's names."""
        own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.client)}
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            **(own if has_certificate else {}),
        }


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    directory = tmp_path_factory.mktemp("tls") / "data"
    with KaldaProcess(directory, settings=certificates.settings("requested")) as process:
        yield process


@pytest.mark.parametrize("has_certificate", [True, False])
def test_own_clients_write_and_read(
    broker: KaldaProcess, certificates: Certificates, topic_name: Callable[[str], str], has_certificate: bool
) -> None:
    """Values above and below the size of a record, a receive and a piece."""
    topic = topic_name("tls")
    properties = certificates.properties(broker.bootstrap, has_certificate=has_certificate)
    values = [os.urandom(size) for size in (1, 100, 16_000, 300_000, 900_000) for _ in range(4)]
    with Producer.from_config(properties) as producer:
        for value in values:
            producer.send(topic, value=value, partition=0)
        producer.flush(timeout_s=30)
    found: list[bytes | None] = []
    with Consumer.from_config({**properties, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        while len(found) < len(values):
            found += [record.value for record in consumer.poll(timeout_s=5)]
    assert values == found


def test_librdkafka_writes_and_reads(
    broker: KaldaProcess, certificates: Certificates, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("rdkafka")
    config = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(certificates.ca),
        "ssl.certificate.location": str(certificates.client),
        "ssl.key.location": str(certificates.client),
    }
    producer = confluent_kafka.Producer({**config, "message.max.bytes": 5_000_000})
    values = [os.urandom(100_000) for _ in range(100)]
    for value in values:
        producer.produce(topic, value, partition=0)
    assert 0 == producer.flush(30)
    consumer = confluent_kafka.Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[object] = []
    while len(found) < len(values):
        message = consumer.poll(10)
        assert message is not None
        found.append(message.value())
    consumer.close()
    assert values == found


def test_kafka_python_and_aiokafka_write_and_read(
    broker: KaldaProcess, certificates: Certificates, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("python")
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(certificates.client)
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap, security_protocol="SSL", ssl_context=context
    )
    producer.send(topic, b"from kafka-python").get(60)
    producer.close()

    async def read() -> bytes:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            security_protocol="SSL",
            ssl_context=context,
            auto_offset_reset="earliest",
        )
        async with consumer:
            value = (await asyncio.wait_for(consumer.getone(), 60)).value
            assert isinstance(value, bytes)
            return value

    assert b"from kafka-python" == asyncio.run(read())


def test_clients_name_what_is_wrong(broker: KaldaProcess, certificates: Certificates) -> None:
    properties = certificates.properties(broker.bootstrap)
    no_trust = {name: value for name, value in properties.items() if "truststore" not in name}
    with Admin.from_config(no_trust) as admin, pytest.raises(TlsError, match="certificate is not accepted"):
        admin.list_topics()
    with pytest.raises(ClientConfigError, match=r"`ssl\.keystore\.location`=/none"):
        Admin.from_config({**properties, "ssl.keystore.location": "/none"})


def connect(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def test_a_client_without_tls_fails_at_once(broker: KaldaProcess) -> None:
    """Such a client would wait for its whole time: the broker closes the connection without a word."""
    at = broker.bootstrap
    expected = rf"{at} speaks TLS, .*: `security.protocol`=PLAINTEXT; set it to SSL"
    with (
        Producer(bootstrap_servers=at, max_block_ms=3_600_000) as producer,
        pytest.raises(TlsError, match=expected),
    ):
        producer.send("t", b"v")
    with Consumer("t", bootstrap_servers=at, group_id="g") as reader, pytest.raises(TlsError, match=expected):
        reader.poll(3600)
    with (
        Admin(bootstrap_servers=at, default_api_timeout_ms=3_600_000) as admin,
        pytest.raises(TlsError, match=expected),
    ):
        admin.list_topics()


def test_peers_without_tls_are_closed_and_others_served(
    broker: KaldaProcess, certificates: Certificates
) -> None:
    """Plaintext Kafka, HTTP, junk, a truncated hello, and many who say nothing."""
    silent = [connect(broker.bootstrap) for _ in range(200)]
    for data in (
        bytes.fromhex("00000010001200000000000100046563686f"),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 600,
    ):
        with connect(broker.bootstrap) as peer:
            peer.sendall(data)
            while peer.recv(1000):
                continue
    with connect(broker.bootstrap) as peer:
        peer.sendall(bytes.fromhex("160301020001"))
    with Admin.from_config(certificates.properties(broker.bootstrap)) as admin:
        assert 1 == len(admin.describe_cluster().nodes)
    for each in silent:
        each.close()


def test_a_client_of_another_authority_is_refused(
    certificates: Certificates, tmp_path: Path, topic_name: Callable[[str], str]
) -> None:
    others = tmp_path / "others"
    others.mkdir()
    strange = Certificates(others)
    with KaldaProcess(tmp_path / "data", settings=certificates.settings("required")) as process:
        for properties in (
            certificates.properties(process.bootstrap, has_certificate=False),
            {**certificates.properties(process.bootstrap), "ssl.keystore.location": str(strange.client)},
        ):
            with (
                Admin.from_config(properties) as admin,
                pytest.raises(TlsError, match="ended the connection"),
            ):
                admin.list_topics()
        with Admin.from_config(certificates.properties(process.bootstrap)) as admin:
            assert not admin.list_topics()


def served_certificate(bootstrap: str) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(connect(bootstrap)) as peer:
        certificate = peer.getpeercert(binary_form=True)
    assert certificate is not None
    return ssl.DER_cert_to_PEM_cert(certificate).encode()


def test_a_replaced_certificate_is_served_and_open_connections_go_on(
    broker: KaldaProcess, certificates: Certificates, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("rotated")
    with Producer.from_config(certificates.properties(broker.bootstrap)) as producer:
        producer.send(topic, value=b"before").result(60)
        new = parse_key_store("PEM", certificates.replace_broker(), None, None).certificates
        deadline = time.monotonic() + 30
        while served_certificate(broker.bootstrap) != new:
            assert time.monotonic() < deadline, "the new certificate is not served"
            time.sleep(0.2)
        producer.send(topic, value=b"after").result(60)
