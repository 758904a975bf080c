"""Logins by SASL: clients of several libraries, users that come and go, sessions that end, hostile peers."""

import asyncio
import struct
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

from kalda import Admin, Consumer, Producer
from kalda.clients.admin.users import ScramCredentialDeletion, ScramCredentialUpsertion, ScramMechanism
from kalda.clients.errors import ClientConfigError
from kalda.net.client import sasl_login
from kalda.net.client.client_errors import BrokerResponseError, SaslAuthenticationError
from kalda.testing import KaldaProcess
from tests import forked_commands
from tests.raw_client import RawClient, text

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{PLAIN} required username="admin" password="admin-secret" '
        'user_admin="admin-secret" user_alice="alice-secret";'
    ),
    "sasl.server.max.receive.size": "10000",
}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def properties(
    bootstrap: str, mechanism: str = "PLAIN", user: str = "alice", password: str = ""
) -> dict[str, str]:
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    secret = password or f"{user}-secret"
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{user}" password="{secret}";',
    }


def set_user(bootstrap: str, user: str, password: str) -> None:
    with Admin.from_config(properties(bootstrap, user="admin")) as admin:
        admin.alter_user_scram_credentials(
            [ScramCredentialUpsertion(user, mechanism, password) for mechanism in ScramMechanism]
        )


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    with KaldaProcess(tmp_path_factory.mktemp("sasl") / "data", settings=SETTINGS) as process:
        set_user(process.bootstrap, "alice", "alice-secret")
        yield process


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_clients_write_and_read(
    broker: KaldaProcess, topic_name: Callable[[str], str], mechanism: str
) -> None:
    topic = topic_name("sasl")
    config = properties(broker.bootstrap, mechanism)
    with Producer.from_config(config) as producer:
        producer.send(topic, value=b"own", partition=0).result(60)
    names = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
    }
    rdkafka = confluent_kafka.Producer(names)
    rdkafka.produce(topic, b"rdkafka", partition=0)
    assert 0 == rdkafka.flush(20)
    login = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
    }
    python = kafka.KafkaProducer(**login)
    python.send(topic, b"python", partition=0).get(60)
    python.close()

    async def write() -> None:
        async with aiokafka.AIOKafkaProducer(**login) as client:
            await client.send_and_wait(topic, b"aio", partition=0)

    asyncio.run(write())
    found: list[object] = []
    with Consumer.from_config({**config, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        while len(found) < 4:
            found += [record.value for record in consumer.poll(timeout_s=5)]
    assert [b"own", b"rdkafka", b"python", b"aio"] == found


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_fails_at_once_and_is_not_logged(broker: KaldaProcess, mechanism: str) -> None:
    config = properties(broker.bootstrap, mechanism, password="hunter2")
    with (
        Admin.from_config(config) as admin,
        pytest.raises(SaslAuthenticationError, match="refused the login"),
    ):
        admin.list_topics()
    assert "hunter2" not in broker.log()
    assert "alice-secret" not in broker.log()


def test_a_mechanism_that_is_not_offered_is_named(broker: KaldaProcess) -> None:
    with pytest.raises(ClientConfigError, match=r"`sasl\.mechanism`=DIGEST-MD5 is not supported"):
        Admin.from_config({**properties(broker.bootstrap), "sasl.mechanism": "DIGEST-MD5"})


def test_users_are_set_described_and_deleted(broker: KaldaProcess) -> None:
    user = "CN=bob, OU=Ops"
    set_user(broker.bootstrap, user, "first")
    with Admin.from_config(properties(broker.bootstrap, user="admin")) as admin:
        found = admin.describe_user_scram_credentials(outcomes=True)
        assert {"alice", user} <= set(found)
        assert [4096, 4096] == [info.iterations for info in found[user]]
        with Admin.from_config(properties(broker.bootstrap, "SCRAM-SHA-512", user, "first")) as bob:
            bob.list_topics()
        set_user(broker.bootstrap, user, "second")
        for password, mechanism in (("second", "SCRAM-SHA-256"), ("first", "SCRAM-SHA-256")):
            with Admin.from_config(properties(broker.bootstrap, mechanism, user, password)) as bob:
                if password == "second":
                    bob.list_topics()
                else:
                    with pytest.raises(SaslAuthenticationError):
                        bob.list_topics()
        kinds = list(ScramMechanism)
        deleted = [ScramCredentialDeletion(user, kind) for kind in kinds]
        admin.alter_user_scram_credentials(deleted)
        assert user not in admin.describe_user_scram_credentials()
        errors = admin.alter_user_scram_credentials(deleted, outcomes=True).errors
        assert "RESOURCE_NOT_FOUND" in str(errors[user])
        weak = ScramCredentialUpsertion("weak", kinds[0], "x", iterations=100)
        assert "Too few iterations" in str(
            admin.alter_user_scram_credentials([weak], outcomes=True).errors["weak"]
        )
        with pytest.raises(BrokerResponseError, match="RESOURCE_NOT_FOUND"):
            admin.describe_user_scram_credentials(["nobody"])["nobody"]


def test_the_tool_manages_users(broker: KaldaProcess, tmp_path: Path) -> None:
    file = tmp_path / "admin.properties"
    file.write_text("\n".join(f"{k}={v}" for k, v in properties(broker.bootstrap, user="admin").items()))

    def run(*arguments: str, stdin: str = "") -> str:
        done = forked_commands.run(
            [sys.executable, "-m", "kalda", "users", *arguments, "--command-config", str(file)],
            input=stdin,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return str(done.stdout)

    assert "carol can log in by SCRAM-SHA-512" in run(
        "set", "carol", "--mechanism", "scram-sha-512", stdin="secret\n"
    )
    assert ["carol", "SCRAM-SHA-512", "4096"] == run("describe", "carol").splitlines()[1].split()
    assert "no longer" in run("delete", "carol")
    assert "carol" not in run("list")


def test_sessions_end_and_clients_log_in_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-368: over the same connection, and no request fails although some are always in flight.

    The clients begin earlier than they would: a busy machine may use up the 0.6 s that remain otherwise.
    """
    monkeypatch.setattr(sasl_login, "_RENEW_FROM", 0.2)
    monkeypatch.setattr(sasl_login, "_RENEW_TO", 0.3)
    settings = {**SETTINGS, "connections.max.reauth.ms": "12000"}
    with KaldaProcess(tmp_path / "data", settings=settings) as broker:
        config = properties(broker.bootstrap)
        with Producer.from_config(config) as producer:
            deadline = time.monotonic() + 13
            futures = []
            while time.monotonic() < deadline:
                futures.append(producer.send("t", value=b"x"))
                time.sleep(0.0005)
            sent = len([future.result(60) for future in futures])
        with Consumer.from_config({**config, "auto.offset.reset": "earliest", "group.id": "g"}) as consumer:
            consumer.subscribe(["t"])
            read = 0
            deadline = time.monotonic() + 13
            while read < sent or time.monotonic() < deadline:
                read += len(consumer.poll(timeout_s=0.2))
        assert sent == read
        assert "the session has expired" not in broker.log()


def test_raw_tokens_follow_the_first_version_of_the_handshake(broker: KaldaProcess) -> None:
    """Clients of 0.10 know no SaslAuthenticate."""
    with RawClient(broker.bootstrap) as peer:
        peer.send(17, 0, text("PLAIN"))
        assert peer.receive() is not None
        peer.send_frame(b"\0alice\0alice-secret")
        assert b"" == peer.receive()
        peer.send(3, 0, struct.pack(">i", 0))
        assert peer.receive() is not None
        peer.send(17, 1, text("PLAIN"))
        assert struct.pack(">ih", 7, 34) == (peer.receive() or b"")[:6]


def test_nothing_is_served_before_the_login(broker: KaldaProcess) -> None:
    for key, version, body in (
        (3, 0, struct.pack(">i", 0)),
        (36, 0, struct.pack(">i", 4) + b"abcd"),
        (17, 9, text("PLAIN")),
        (999, 0, b""),
    ):
        with RawClient(broker.bootstrap) as peer:
            peer.send(key, version, body)
            assert peer.receive() is None, f"request {key} was answered"
    with RawClient(broker.bootstrap) as peer:
        peer.send(17, 1, text("PLAIN"))
        assert peer.receive() is not None
        peer.send(3, 0, struct.pack(">i", 0))
        assert peer.receive() is None


def test_large_requests_before_the_login_close_the_connection(broker: KaldaProcess) -> None:
    with RawClient(broker.bootstrap) as peer:
        peer.socket.sendall(struct.pack(">i", 10_001))
        assert peer.receive() is None
    with RawClient(broker.bootstrap) as peer:
        peer.send(17, 1, text("PLAIN"))
        peer.receive()
        peer.socket.sendall(struct.pack(">i", 1_000_000_000))
        assert peer.receive() is None


def test_many_failed_logins_do_not_disturb_others(broker: KaldaProcess) -> None:
    """The log has a bounded number of lines about them."""

    def fail(_: int) -> int:
        with RawClient(broker.bootstrap) as peer:
            peer.send(17, 1, text("PLAIN"))
            peer.receive()
            token = b"\0alice\0wrong"
            peer.send(36, 0, struct.pack(">i", len(token)) + token)
            answer = peer.receive() or b""
            return int(struct.unpack_from(">h", answer, 4)[0])

    before = broker.log().count("failed authentication")
    with ThreadPoolExecutor(20) as pool, Admin.from_config(properties(broker.bootstrap)) as admin:
        codes = pool.map(fail, range(400))
        admin.list_topics()
        assert {58} == set(codes)
    assert broker.log().count("failed authentication") - before < 100


def test_brokers_log_in_by_scram_with_users_that_exist_before_them(tmp_path: Path) -> None:
    """The first start creates the users; a later one leaves a password alone that was changed since."""
    users = tmp_path / "users.properties"
    users.write_text("admin=admin-secret\nalice=alice-secret\n")
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": (
            f'{SCRAM} required username="admin" password="admin-secret";'
        ),
    }
    options = ["--scram-users", str(users)]
    for password in ("alice-secret", "changed"):
        with KaldaProcess(tmp_path / "data", settings=settings, brokers=2, options=options) as brokers:
            config = properties(brokers.bootstrap, "SCRAM-SHA-512", password=password)
            with Producer.from_config({**config, "acks": "all"}) as producer:
                producer.send("t", value=b"x").result(60)
            with Admin.from_config(config) as admin:
                admin.alter_user_scram_credentials(
                    [ScramCredentialUpsertion("alice", ScramMechanism.SCRAM_SHA_512, "changed")]
                )
            assert "alice-secret" not in brokers.log()
