"""franz-go, Sarama and kafkajs over TLS and SASL, each with what it has."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from kalda import Admin, NewTopic
from kalda.clients.admin.users import ScramCredentialUpsertion, ScramMechanism
from kalda.security.tls.authority import CertificateAuthority
from kalda.testing import KaldaProcess
from kalda.testing.process import free_ports
from tests.compat.programs import NODE, ProgramClient, ProgramError
from tests.integration.clients.clients import Message

PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRET = "alice-secret"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = {"franz-go": ("PLAIN", *SCRAM), "sarama": ("PLAIN",), "kafkajs": ("PLAIN", *SCRAM)}
"""Sarama brings no SCRAM of its own."""


class Secured(NamedTuple):
    """A broker with a listener for each protocol."""

    addresses: dict[str, str]
    ca: Path
    certificate: Path

    def security(self, protocol: str, mechanism: str, password: str = SECRET) -> dict[str, str]:
        files = {"ca": str(self.ca), "certificate": str(self.certificate)} if "SSL" in protocol else {}
        login = {"mechanism": mechanism, "username": "alice", "password": password}
        return {**files, **(login if mechanism else {})}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    now, valid = datetime.now(UTC), timedelta(days=1)
    authority = CertificateAuthority.make("compat", now, valid)
    ca, own, client = (directory / name for name in ("ca.pem", "broker.pem", "alice.pem"))
    ca.write_bytes(authority.own.certificate)
    own.write_bytes(authority.issue("broker", now, valid, ["127.0.0.1", "localhost"]).key_store)
    client.write_bytes(authority.issue("alice", now, valid).key_store)
    ports = dict(zip(("PLAINTEXT", *PROTOCOLS), free_ports(4), strict=True))
    logins = {
        f"listener.name.{name}.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{SECRET}";'
        for name in ("sasl_plaintext", "sasl_ssl")
    }
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "listener.name.ssl.ssl.client.auth": "required",
        **logins,
    }
    with KaldaProcess(directory / "data", settings=settings) as process:
        with Admin(bootstrap_servers=process.bootstrap) as admin:
            admin.alter_user_scram_credentials(
                [ScramCredentialUpsertion("alice", mechanism, SECRET) for mechanism in ScramMechanism]
            ).raise_for_errors()
        yield Secured({name: f"127.0.0.1:{port}" for name, port in ports.items()}, ca, client)


@pytest.mark.parametrize("name", ["franz-go", "sarama", "kafkajs"])
def test_clients_write_and_read_with_every_protocol_and_mechanism(
    name: str, secured: Secured, request: pytest.FixtureRequest
) -> None:
    if name == "kafkajs":
        modules = request.getfixturevalue("node_modules")
        arguments: list[str | Path] = ["env", f"NODE_PATH={modules}", "node", NODE / "kafkajs.js"]
    else:
        programs = request.getfixturevalue("go_programs")
        arguments = [programs / {"franz-go": "franzgo"}.get(name, name)]
    ways = [("SSL", ""), *((protocol, each) for protocol in PROTOCOLS[1:] for each in MECHANISMS[name])]
    for protocol, mechanism in ways:
        topic = f"{name}-{protocol}-{mechanism}"
        with Admin(bootstrap_servers=secured.addresses["PLAINTEXT"]) as admin:
            admin.create_topics([NewTopic(topic, 1, 1)]).raise_for_errors()
        version = {"version": "2.8.0"} if name == "sarama" else {}
        security = secured.security(protocol, mechanism)
        address = secured.addresses[protocol]
        client = ProgramClient(name, arguments, address, {**version, "security": security})
        written = [Message(b"k%d" % number, b"v" * 1000, (), 1_700_000_000_000) for number in range(50)]
        client.produce(topic, written)
        assert written == client.consume(topic, len(written))
        if mechanism:
            wrong = secured.security(protocol, mechanism, "wrong")
            stranger = ProgramClient(name, arguments, address, {**version, "security": wrong})
            with pytest.raises(ProgramError):
                stranger.consume(topic, 1)
