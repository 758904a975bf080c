"""`Security` in test clusters: each protocol and mechanism with the clients that users have, and ACLs."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

from kalda import Admin, Consumer, NewTopic, Producer
from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.clients.admin.users import ScramCredentialUpsertion, ScramMechanism
from kalda.clients.errors import BrokerResponseError
from kalda.testing import Cluster, ProcessCluster, Security
from kalda.testing.process import CommandProcess

WAYS = [
    ("SSL", "PLAIN"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-512"),
]


def write_with_every_client(cluster: Cluster | ProcessCluster, topic: str) -> None:
    with Producer.from_config(cluster.client_config("alice")) as producer:
        producer.send(topic, value=b"own", partition=0).result(60)
    rdkafka = confluent_kafka.Producer(dict(cluster.client_config("alice", "confluent-kafka")))
    rdkafka.produce(topic, b"rdkafka", partition=0)
    assert 0 == rdkafka.flush(20)
    python = kafka.KafkaProducer(**cluster.client_config("alice", "kafka-python"))
    python.send(topic, b"python", partition=0).get(60)
    python.close()

    async def write() -> None:
        async with aiokafka.AIOKafkaProducer(**cluster.client_config("alice", "aiokafka")) as client:
            await client.send_and_wait(topic, b"aio", partition=0)

    asyncio.run(write())


def read(cluster: Cluster | ProcessCluster, topic: str, count: int) -> list[object]:
    found: list[object] = []
    config = {**cluster.client_config("alice"), "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer.from_config(config) as consumer:
        consumer.subscribe([topic])
        while len(found) < count:
            found += [record.value for record in consumer.poll(timeout_s=5)]
    return found


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_clients_of_every_library_connect(protocol: str, mechanism: str) -> None:
    """A password that JAAS and properties files must escape."""
    security = Security(
        users={"alice": 'a\\ "b;c'}, protocol=protocol, mechanism=mechanism, super_users=["alice"]
    )
    with Cluster(brokers=2, security=security) as cluster:
        with Admin.from_config(cluster.client_config()) as admin:
            admin.create_topics([NewTopic("t", 1, 2)])
        write_with_every_client(cluster, "t")
        cluster.wait_in_sync("t")
        assert [b"own", b"rdkafka", b"python", b"aio"] == read(cluster, "t", 4)


@pytest.fixture
def secured() -> Iterator[Cluster]:
    with Cluster(brokers=1, security=Security(users=["alice", "bob"])) as cluster:
        yield cluster


def test_users_need_acls_and_right_passwords(secured: Cluster) -> None:
    allowed = AclBinding(
        ResourcePattern(ResourceType.TOPIC, "t"),
        AccessControlEntry("User:alice", "*", AclOperation.WRITE, PermissionType.ALLOW),
    )
    with Admin.from_config(secured.client_config()) as admin:
        admin.create_topics([NewTopic("t", 1, 1)])
        admin.create_acls([allowed])
    with Producer.from_config(secured.client_config("alice")) as producer:
        producer.send("t", value=b"x").result(60)
    with (
        Producer.from_config(secured.client_config("bob")) as producer,
        pytest.raises(BrokerResponseError, match="TOPIC_AUTHORIZATION_FAILED"),
    ):
        producer.send("t", value=b"x").result(60)
    with pytest.raises(ValueError, match="there is no user 'carol', only admin, alice, bob, kalda-broker"):
        secured.client_config("carol")


def test_a_changed_password_outlives_restarts(secured: Cluster) -> None:
    with Admin.from_config(secured.client_config()) as admin:
        admin.alter_user_scram_credentials(
            [ScramCredentialUpsertion("alice", ScramMechanism.SCRAM_SHA_512, "new")]
        )
    secured.kill_coordinator()
    secured.start_coordinator()
    secured.restart(0)
    config = secured.client_config("alice")
    old = config["sasl.jaas.config"].split('"')[3]
    with Admin.from_config(
        {**config, "sasl.jaas.config": config["sasl.jaas.config"].replace(old, "new")}
    ) as admin:
        assert not admin.list_topics()


def test_without_acls_every_user_may_do_everything() -> None:
    with (
        Cluster(brokers=1, security=Security(users=["alice"], acls=False)) as cluster,
        Admin.from_config(cluster.client_config("alice")) as admin,
    ):
        admin.create_topics([NewTopic("t", 1, 1)])


def test_processes_are_secured_and_no_command_line_has_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fork has the command line of its parent.
    monkeypatch.setattr(CommandProcess, "_popen", subprocess.Popen)
    security = Security(users={"alice": "in-the-open"}, mechanism="PLAIN", super_users=["alice"])
    with ProcessCluster(tmp_path, brokers=2, security=security) as cluster:
        write_with_every_client(cluster, "t")
        assert [b"own", b"rdkafka", b"python", b"aio"] == read(cluster, "t", 4)
        for pid in cluster.broker_pids:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            assert b"\0broker\0" in line
            assert b"in-the-open" not in line
        assert "in-the-open" not in "".join(cluster.broker(each).log() for each in range(2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"protocol": "PLAINTEXT"}, "protocol='PLAINTEXT'; it must be one of SSL, SASL_PLAINTEXT, SASL_SSL"),
        (
            {"mechanism": "GSSAPI"},
            "mechanism='GSSAPI'; it must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        ({"users": "alice"}, "users and super_users take several names, not one text"),
        ({"users": ["a/b"]}, "the user 'a/b'; names have letters"),
        ({"super_users": ["alice"]}, "super_users names alice, which are not among the users"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Security(**arguments)  # type: ignore[arg-type]  # what a user without a type checker can write


def test_an_open_cluster_needs_no_login() -> None:
    with Cluster(brokers=1) as cluster:
        assert {"bootstrap.servers": cluster.bootstrap} == cluster.client_config("anybody", "confluent-kafka")
        assert {"bootstrap_servers": cluster.bootstrap} == cluster.client_config(library="aiokafka")
