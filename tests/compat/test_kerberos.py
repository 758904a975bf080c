"""Logins by GSSAPI against a real KDC: MIT's, from Debian's package krb5-kdc, and the package gssapi."""

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.testing import KaldaProcess
from tests.compat.kdc import REALM, Kdc, running_kdc
from tests.raw_client import SASL_AUTHENTICATION_FAILED, RawClient

pytest.importorskip(
    "gssapi", reason="pip install 'kalda[kerberos]' (needs libkrb5-dev)", exc_type=ImportError
)

MODULE = "com.sun.security.auth.module.Krb5LoginModule"

CLIENT = """
import sys
from kalda import Producer
config = dict(line.split("=", 1) for line in sys.stdin.read().splitlines())
with Producer.from_config(config) as producer:
    print(producer.send("t", value=b"own").result(20).offset)
"""
KAFKA_PYTHON = """
import sys, kafka
config = dict(line.split("=", 1) for line in sys.stdin.read().splitlines())
producer = kafka.KafkaProducer(
    bootstrap_servers=config["bootstrap.servers"], security_protocol="SASL_PLAINTEXT",
    sasl_mechanism="GSSAPI", sasl_kerberos_service_name="kafka", sasl_kerberos_name="kafka@localhost",
)
print(producer.send("t", b"python").get(20).offset)
producer.close()
"""


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with running_kdc(tmp_path_factory.mktemp("kdc")) as made:
        yield made


@pytest.fixture(scope="module")
def broker(kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    """It logs in to itself and other brokers by Kerberos, too."""
    module = (
        f'{MODULE} required useKeyTab=true storeKey=true keyTab="{kdc.key_table("kafka/localhost")}" '
        f'principal="kafka/localhost@{REALM}";'
    )
    settings = {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": module,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name in ("KRB5_CONFIG", "KRB5CCNAME"):
            patch.setenv(name, kdc.environment[name])
        with KaldaProcess(tmp_path_factory.mktemp("kerberos") / "data", settings=settings) as process:
            yield process


def properties(broker: KaldaProcess, module: str) -> str:
    return "\n".join(
        (
            f"bootstrap.servers={broker.bootstrap}",
            "security.protocol=SASL_PLAINTEXT",
            "sasl.kerberos.service.name=kafka",
            f"sasl.jaas.config={MODULE} required {module};",
        )
    )


def test_own_clients_log_in_by_a_key_table_and_by_tickets(kdc: Kdc, broker: KaldaProcess) -> None:
    table = kdc.key_table("alice")
    by_table = properties(broker, f'useKeyTab=true keyTab="{table}" principal="alice@{REALM}"')
    assert "0" == kdc.run(sys.executable, "-c", CLIENT, stdin=by_table).strip()
    kdc.run("kinit", "-k", "-t", str(table), "alice")
    by_tickets = properties(broker, "useTicketCache=true")
    assert "1" == kdc.run(sys.executable, "-c", CLIENT, stdin=by_tickets).strip()


def test_kafka_python_logs_in(kdc: Kdc, broker: KaldaProcess) -> None:
    kdc.run("kinit", "-k", "-t", str(kdc.key_table("alice")), "alice")
    assert 0 <= int(kdc.run(sys.executable, "-c", KAFKA_PYTHON, stdin=properties(broker, "")))


def test_a_client_without_a_ticket_gets_the_reason(kdc: Kdc, broker: KaldaProcess, tmp_path: Path) -> None:
    cache = tmp_path / "none"
    config = properties(broker, f'useTicketCache=true ticketCache="{cache}"')
    done = subprocess.run(
        [sys.executable, "-c", CLIENT],
        env=kdc.environment,
        input=config,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert 0 != done.returncode
    assert "Krb5LoginModule" in done.stderr or "GSSAPI" in done.stderr


TOKEN = """
import sys
from kalda.security.sasl.jaas import JaasConfig
from kalda.security.sasl.kerberos import GssapiClient, initiator
client = GssapiClient(initiator(JaasConfig.parse(sys.stdin.read())), "kafka", "localhost")
print(client.respond(b"").hex())
"""


def test_changed_cut_and_replayed_tickets_are_refused(kdc: Kdc, broker: KaldaProcess) -> None:
    """A library in C reads them; nothing that a client sends may end the broker."""
    module = f'{MODULE} required useKeyTab=true keyTab="{kdc.key_table("alice")}" principal="alice@{REALM}";'
    ticket = bytes.fromhex(kdc.run(sys.executable, "-c", TOKEN, stdin=module))

    def answer(*tokens: bytes) -> int | None:
        with RawClient(broker.bootstrap) as client:
            return client.log_in("GSSAPI", *tokens)

    step = 1 + len(ticket) // 60
    refused_at_once = 0
    for position in range(0, len(ticket), step):
        changed = bytearray(ticket)
        changed[position] ^= 0x55
        refused_at_once += answer(bytes(changed)) == SASL_AUTHENTICATION_FAILED
        # Nothing depends on some bytes; that login goes on, and the client lacks the key of the session.
        assert SASL_AUTHENTICATION_FAILED == answer(bytes(changed), b"", b"junk")
        assert SASL_AUTHENTICATION_FAILED == answer(ticket[:position])
    assert refused_at_once > 40
    random_ = random.Random(7)
    for size in (0, 1, 4, 100, 5_000):
        assert SASL_AUTHENTICATION_FAILED == answer(random_.randbytes(size))
    assert SASL_AUTHENTICATION_FAILED == answer(ticket, b"", b"junk")
    assert SASL_AUTHENTICATION_FAILED == answer(ticket), "a replay"
    by_table = properties(broker, module.partition("required ")[2].rstrip(";"))
    assert int(kdc.run(sys.executable, "-c", CLIENT, stdin=by_table)) >= 0
    assert "handling a request" not in broker.log()
