"""`kalda doctor` on clusters in this process."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kalda import Admin, AlterConfigOp, ConfigResource, NewTopic, Producer, TopicPartition
from kalda.security.tls.authority import CertificateAuthority
from kalda.testing import Cluster, Security
from kalda.tools.doctor.read_certificates import certificate_of
from tests.integration.tools.commands import Commands

LONELY = TopicPartition("lonely", 0)


def test_nothing_is_reported_on_a_new_cluster_of_three_brokers() -> None:
    with Cluster(brokers=3) as cluster:
        done = Commands(cluster.bootstrap)("doctor")

    assert "Everything is sound." == done.stdout.splitlines()[0]


def test_a_broker_that_hangs_is_reported_in_bounded_time() -> None:
    with Cluster(brokers=3) as cluster:
        kalda = Commands(cluster.bootstrap)
        kalda("topics", "create", "flights", "--replica-assignment", "0:1:2,2:0:1")
        cluster.pause(2)
        done = kalda.run("doctor", "--json")

    found = {each["check"]: each for each in done.json["findings"]}
    assert 1 == done.code
    assert {"brokers.absent"} <= found.keys()
    assert "critical" == found["brokers.absent"]["severity"]
    assert "Broker 2 does not respond." == found["brokers.absent"]["what"]


PLANTED = {
    "brokers.absent": "Broker 2 does not respond.",
    "partitions.under-replicated": "",
    "topics.one-replica": "lonely",
    "topics.internal-replicas": "__consumer_offsets (2)",
    "topics.min-isr-equals-replicas": "strict (minimum 2, replicas 2)",
    "topics.min-isr-above-replicas": "impossible (minimum 3, replicas 2)",
    "settings.unclean-election": "topics unclean",
    "settings.retention-below-segment": "short (retention.ms=1000, segment.ms=604800000)",
    "settings.retention-of-compacted": "compacted (retention.ms=1000)",
    "settings.compaction-late": "compacted (min.cleanable.dirty.ratio=0.99)",
    "settings.message-above-replica-fetch": "large (max.message.bytes=3000000)",
    "settings.message-above-request": "max.message.bytes=3000000 of large",
    "settings.session-bounds": "group.max.session.timeout.ms=30000",
    "settings.cleaner-off": "brokers 0, 1",
    "settings.offsets-retention": "offsets.retention.minutes=60",
    "settings.transaction-log-min-isr": "transaction.state.log.min.isr=2",
    "settings.differ": "log.retention.ms: 100000000 on 0",
    "settings.for-tests": "kalda.faults.api.enable on brokers 0, 1",
    "reassignment.throttle-left": "leader.replication.throttled.rate=1000 on broker 0",
    "groups.behind-retention": "readers at lonely-0 (committed 1, first record 3)",
}
"""What is wrong with the cluster of the test, by the check that must name it, with a part of its evidence."""

SETTINGS = {
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.num.partitions": "1",
    "log.cleaner.enable": "false",
    "offsets.retention.minutes": "60",
    "group.max.session.timeout.ms": "30000",
    "socket.request.max.bytes": "2000000",
    "kalda.faults.api.enable": "true",
}

TOPICS = {
    "lonely": ("0", {}),
    "strict": ("0:1", {"min.insync.replicas": "2"}),
    "impossible": ("1:0", {"min.insync.replicas": "3"}),
    "unclean": ("0:1:2", {"unclean.leader.election.enable": "true"}),
    "short": ("0:1:2", {"retention.ms": "1000"}),
    "compacted": (
        "0:1:2",
        {"cleanup.policy": "compact", "retention.ms": "1000", "min.cleanable.dirty.ratio": "0.99"},
    ),
    "large": ("0:1:2", {"max.message.bytes": "3000000"}),
}


def test_planted_misconfigurations_are_each_named() -> None:
    with Cluster(brokers=3, settings=SETTINGS) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics(
                NewTopic(
                    name, replica_assignments={0: [int(each) for each in replicas.split(":")]}, config=config
                )
                for name, (replicas, config) in TOPICS.items()
            )
            with Producer(bootstrap_servers=cluster.bootstrap) as producer:
                for _ in range(3):
                    producer.send("lonely", b"v")
            admin.alter_consumer_group_offsets({"readers": {LONELY: 1}})
            admin.delete_records({LONELY: 3})
            admin.incremental_alter_configs(
                {
                    ConfigResource.broker(0): [
                        AlterConfigOp.set("log.retention.ms", 100_000_000),
                        AlterConfigOp.set("leader.replication.throttled.rate", 1000),
                    ]
                }
            )
        cluster.kill(2, expire_session=True)
        done = Commands(cluster.bootstrap).run("doctor", "--json")

    found = {each["check"]: each for each in done.json["findings"]}
    assert 1 == done.code
    assert {} == {
        check: found.get(check)
        for check, part in PLANTED.items()
        if check not in found or part not in f"{found[check]['what']} {found[check]['evidence']}"
    }


def test_the_exit_code_says_that_nothing_could_be_looked_at() -> None:
    done = Commands("127.0.0.1:1").run("doctor")

    assert 2 == done.code
    assert "127.0.0.1:1" in done.stderr


def test_a_machine_is_checked_before_its_broker_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={data},{tmp_path / 'missing'}\n")
    done = Commands("127.0.0.1:1").run("doctor", "--config", config, "--json")

    found = {each["check"]: each for each in done.json["findings"]}
    assert 1 == done.code
    assert f"{data} (0777)" == found["machine.data-writable"]["evidence"]
    assert str(tmp_path / "missing") in found["machine.directory-unusable"]["evidence"]
    assert "127.0.0.1:1" in done.json["unread"][0]


def test_clocks_that_are_apart_are_named() -> None:
    with Cluster(brokers=2) as cluster:
        cluster.jump_clock(1, 3600)
        done = Commands(cluster.bootstrap).run("doctor", "--json")

    found = {each["check"]: each for each in done.json["findings"]}
    assert "critical" == found["clocks.skew"]["severity"]
    assert found["clocks.skew"]["what"].startswith("The clocks of brokers 0 and 1 are at least ")


def test_open_znodes_are_named_where_zookeeper_is_given() -> None:
    with Cluster(brokers=1) as cluster:
        done = Commands(cluster.bootstrap).run("doctor", "--zookeeper", cluster.zookeeper, "--json")

    (finding,) = done.json["findings"]
    assert "security.open-znodes" == finding["check"]
    assert "/brokers" in finding["evidence"]


def test_the_certificates_of_a_secured_cluster_are_looked_at(tmp_path: Path) -> None:
    """Those of a cluster for tests end within a month; nothing else is wrong with it. With `SSL` the listener
    demands a certificate of clients, which the look at its own does without."""
    with Cluster(brokers=1, security=Security(protocol="SSL")) as cluster:
        config = tmp_path / "client.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in cluster.client_config().items()))
        done = Commands(cluster.bootstrap).run("doctor", "--command-config", config, "--json")

    (finding,) = done.json["findings"]
    assert "security.certificate-ends-soon" == finding["check"]
    assert "CN=kalda-broker" in finding["evidence"]
    assert [] == done.json["unread"]


async def test_the_certificate_of_a_listener_is_read_from_its_handshake(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = CertificateAuthority.make("test authority", now, timedelta(days=30))
    issued = authority.issue("broker", now, timedelta(days=5), ["127.0.0.1"])
    store = tmp_path / "broker.pem"
    store.write_bytes(issued.key_store)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(store)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        host, port = server.sockets[0].getsockname()
        found = await certificate_of(host, port, "here")

    assert "CN=broker" == found.subject
    assert abs(found.not_after_s - (now + timedelta(days=5)).timestamp()) < 2
