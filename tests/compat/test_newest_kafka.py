"""Java's tools of the newest Apache Kafka, on Kalda and on Apache Kafka itself: each check runs on both.

What only KRaft has (quorums, share groups, the protocol of streams groups) is not here.
"""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda import AcknowledgeType, Admin, AlterConfigOp, ConfigResource, ShareConsumer, serializers
from tests.compat.newest_kafka import TARGETS, Site, running, streams_jars

WORDS = Path(__file__).parent / "java" / "WordCount.java"
WAIT_SECONDS = 60.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", params=TARGETS)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    try:
        with running(request.param, tmp_path_factory.mktemp("newest")) as site:
            yield site
    except NotAvailableError as error:
        pytest.skip(str(error))


def wait_until(found: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not found():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_api_versions_and_the_cluster_id(site: Site) -> None:
    apis = site.tool("BrokerApiVersionsCommand")
    for highest in ("Fetch(1): 4 to 18", "ListOffsets(2): 1 to 11", "TxnOffsetCommit(28): 0 to 6"):
        # Kalda serves the versions that Kafka 4 dropped as well.
        api, _, last = highest.partition(": ")[0], None, highest.rpartition(" ")[2]
        assert 3 == len(re.findall(rf"{re.escape(api)}: \d+ to {last} ", apis)), apis
    assert "Cluster ID:" in site.run("ClusterTool", "cluster-id", "--bootstrap-server", site.bootstrap)


def test_features(site: Site) -> None:
    described = site.tool("FeatureCommand", "describe")
    for feature, level in (("transaction.version", "2"), ("group.version", "1")):
        assert re.search(rf"{feature}\s.*FinalizedVersionLevel: {level}", described), described


def test_topics(site: Site) -> None:
    site.create_topic(
        "topics", "--partitions", "3", "--replication-factor", "3", "--config", "retention.ms=5000"
    )
    described = site.tool("TopicCommand", "--describe", "--topic", "topics")
    for told in ("PartitionCount: 3", "ReplicationFactor: 3", "retention.ms=5000", "Isr: "):
        assert told in described
    site.tool("TopicCommand", "--alter", "--topic", "topics", "--partitions", "5")
    assert "PartitionCount: 5" in site.tool("TopicCommand", "--describe", "--topic", "topics")
    wait_until(
        lambda: not site.tool("TopicCommand", "--describe", "--under-replicated-partitions").strip(),
        "all replicas in sync",
    )
    assert "topics" in site.tool("TopicCommand", "--list").split()
    site.tool("TopicCommand", "--delete", "--topic", "topics")
    wait_until(lambda: "topics" not in site.tool("TopicCommand", "--list").split(), "the topic is gone")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_and_consumer(site: Site, codec: str) -> None:
    topic = f"console-{codec}"
    site.create_topic(topic)
    lines = [f"h:{n}\tkey {n}\tvalue {n}" for n in range(500)]
    site.tool(
        "ConsoleProducer",
        *("--topic", topic, "--compression-codec", codec),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        text="\n".join(lines) + "\n",
    )
    shown = ("print.key=true", "print.headers=true")
    read = site.consume(topic, 500, *(part for each in shown for part in ("--formatter-property", each)))
    assert sorted(lines) == sorted(read)


def test_configs_of_topics_and_brokers(site: Site) -> None:
    site.create_topic("configured")
    topic = ("--entity-type", "topics", "--entity-name", "configured")
    site.tool(
        "ConfigCommand",
        *topic,
        "--alter",
        "--add-config",
        "retention.ms=7000,cleanup.policy=[compact,delete]",
    )
    described = site.tool("ConfigCommand", *topic, "--describe")
    assert "retention.ms=7000" in described
    assert "cleanup.policy=compact,delete" in described
    site.tool("ConfigCommand", *topic, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in site.tool("ConfigCommand", *topic, "--describe")
    for broker, setting in (
        (("--entity-default",), "log.retention.ms=9000000"),
        (("--entity-name", "1"), "log.cleaner.io.max.bytes.per.second=1000000.0"),
        (("--entity-name", "1"), "group.consumer.assignment.interval.ms=500"),
    ):
        name = setting.partition("=")[0]
        entity = ("--entity-type", "brokers", *broker)
        site.tool("ConfigCommand", *entity, "--alter", "--add-config", setting)
        wait_until(lambda e=entity, s=setting: s in site.tool("ConfigCommand", *e, "--describe"), setting)  # type: ignore[misc]
        site.tool("ConfigCommand", *entity, "--alter", "--delete-config", name)
    with pytest.raises(AssertionError, match=r"group\.consumer\.assignment\.interval\.ms"):
        site.tool(
            "ConfigCommand",
            *("--entity-type", "brokers", "--entity-name", "1"),
            *("--alter", "--add-config", "group.consumer.assignment.interval.ms=-1"),
        )


def test_configs_of_loggers_users_and_client_metrics(site: Site) -> None:
    logger = ("--entity-type", "broker-loggers", "--entity-name", "0")
    name = "kalda.broker.server" if site.is_kalda else "root"
    site.tool("ConfigCommand", *logger, "--alter", "--add-config", f"{name}=WARN")
    assert f"{name}=WARN" in site.tool("ConfigCommand", *logger, "--describe")
    user = ("--entity-type", "users", "--entity-name", "alice")
    for change in ("producer_byte_rate=1048576", "SCRAM-SHA-512=[password=secret]"):
        site.tool("ConfigCommand", *user, "--alter", "--add-config", change)
    described = site.tool("ConfigCommand", *user, "--describe")
    assert "producer_byte_rate=1048576.0" in described
    assert "SCRAM-SHA-512=iterations=4096" in described
    ip = ("--entity-type", "ips", "--entity-name", "192.0.2.1")
    site.tool("ConfigCommand", *ip, "--alter", "--add-config", "connection_creation_rate=10")
    assert "connection_creation_rate=10.0" in site.tool("ConfigCommand", *ip, "--describe")
    site.tool(
        "ClientMetricsCommand",
        "--alter",
        "--name",
        "all",
        "--metrics",
        "org.apache.kafka.",
        "--interval",
        "10000",
    )
    assert "all" in site.tool("ClientMetricsCommand", "--list").split()
    site.tool("ClientMetricsCommand", "--delete", "--name", "all")


def test_a_cordoned_broker(site: Site) -> None:
    """KIP-1066; the tools show the setting, and no other state."""
    broker = ("--entity-type", "brokers", "--entity-name", "1")

    def is_refused(*arguments: str) -> bool:
        try:
            site.create_topic("refused", *arguments)
        except AssertionError as error:
            return "cordoned" in str(error)
        site.tool("TopicCommand", "--delete", "--topic", "refused")
        return False

    site.tool("ConfigCommand", *broker, "--alter", "--add-config", "cordoned.log.dirs=*")
    try:
        assert "cordoned.log.dirs=*" in site.tool("ConfigCommand", *broker, "--describe")
        wait_until(lambda: is_refused("--replica-assignment", "1:2"), "the broker is cordoned")
        assert is_refused("--partitions", "1", "--replication-factor", "3")
        site.create_topic("cordoned", "--partitions", "6", "--replication-factor", "2")
        described = site.tool("TopicCommand", "--describe", "--topic", "cordoned")
        placed = re.findall(r"Replicas: ([\d,]+)", described)
        assert {"0", "2"} == {broker for each in placed for broker in each.split(",")}
    finally:
        site.tool("ConfigCommand", *broker, "--alter", "--delete-config", "cordoned.log.dirs")
    wait_until(lambda: not is_refused("--replica-assignment", "1:2"), "the broker is as before")


def test_log_directories(site: Site) -> None:
    site.create_topic("directories", "--partitions", "1", "--replication-factor", "3")
    site.produce("directories", ["x" * 1000])
    told = site.tool("LogDirsCommand", "--describe", "--topic-list", "directories", "--broker-list", "0,2")
    found = json.loads(told.splitlines()[-1])
    sizes = {
        each["broker"]: [part["size"] for place in each["logDirs"] for part in place["partitions"]]
        for each in found["brokers"]
    }
    assert {0, 2} == sizes.keys()
    assert all(len(each) == 1 for each in sizes.values())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups(site: Site, protocol: str) -> None:
    topic, group = f"groups-{protocol}", f"readers-{protocol}"
    site.create_topic(topic, "--partitions", "1", "--replication-factor", "3")
    site.produce(topic, [str(n) for n in range(30)])
    read = site.consume(topic, 30, "--group", group, "--command-property", f"group.protocol={protocol}")
    assert [str(n) for n in range(30)] == read

    def command(*arguments: str) -> str:
        return site.tool("consumer.group.ConsumerGroupCommand", *arguments)

    def offset_and_lag() -> list[str]:
        lines = command("--describe", "--group", group).splitlines()
        [line] = [each.split() for each in lines if f" {topic} " in each]
        return [line[3], line[5]]

    listed = site.tool("GroupsCommand", "--list")
    [row] = [line.split() for line in listed.splitlines() if group in line.split()]
    assert [group, protocol.title(), "consumer"] == row[:3]
    assert group in command("--list").split()
    assert "Empty" in command("--describe", "--state", "--group", group)
    assert ["30", "0"] == offset_and_lag()
    command("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "10", "--execute")
    assert ["10", "20"] == offset_and_lag()
    assert "Successful" in command("--delete-offsets", "--group", group, "--topic", topic)
    assert "successful" in command("--delete", "--group", group)
    assert group not in command("--list").split()


def test_share_groups(site: Site) -> None:
    """The console share consumer accepts, rejects and reads again; the tool of share groups does the rest."""
    site.create_topic("jobs", "--partitions", "1", "--replication-factor", "3")
    site.produce("jobs", [str(n) for n in range(30)])
    site.tool(
        "ConfigCommand", "--alter", "--group", "workers", "--add-config", "share.auto.offset.reset=earliest"
    )

    def consume(*arguments: str) -> list[str]:
        limits = ("--max-messages", "30", "--timeout-ms", "60000")
        read = site.tool(
            "consumer.ConsoleShareConsumer", "--topic", "jobs", "--group", "workers", *limits, *arguments
        )
        return sorted(read.split(), key=int)

    def command(*arguments: str) -> str:
        return site.tool("consumer.group.ShareGroupCommand", *arguments)

    def lag() -> str:
        # Apache's leader stores the start offset with the next change only.
        lines = command("--describe", "--group", "workers").splitlines()
        [line] = [each.split() for each in lines if " jobs " in each]
        return line[4]

    assert [str(n) for n in range(30)] == consume()
    assert "workers" in command("--list").split()
    assert "Empty" in command("--describe", "--state", "--group", "workers")
    assert "0" == lag()
    command("--reset-offsets", "--group", "workers", "--topic", "jobs", "--to-earliest", "--execute")
    assert "30" == lag()
    assert [str(n) for n in range(30)] == consume("--reject")
    assert "0" == lag()
    assert "Successful" in command("--delete-offsets", "--group", "workers", "--topic", "jobs")
    assert "successful" in command("--delete", "--group", "workers")
    assert "workers" not in command("--list").split()


@pytest.mark.parametrize("acquire_mode", ["batch_optimized", "record_limit"])
def test_kaldas_share_consumer(site: Site, acquire_mode: Literal["batch_optimized", "record_limit"]) -> None:
    topic, group = f"shared-{acquire_mode}", f"sharing-{acquire_mode}"
    site.create_topic(topic)
    site.produce(topic, [str(n) for n in range(300)])
    with Admin(bootstrap_servers=site.bootstrap) as admin:
        earliest = AlterConfigOp.set("share.auto.offset.reset", "earliest")
        admin.incremental_alter_configs({ConfigResource.group(group): [earliest]})
    accepted: list[str] = []
    with ShareConsumer(
        topic,
        bootstrap_servers=site.bootstrap,
        group_id=group,
        share_acknowledgement_mode="explicit",
        share_acquire_mode=acquire_mode,
        max_poll_records=50,
        value_deserializer=serializers.string(),
    ) as consumer:
        renewed = None
        deadline = time.monotonic() + WAIT_SECONDS
        while len(accepted) < 299:
            assert time.monotonic() < deadline, f"{len(accepted)} of 300"
            for record in consumer.poll(1.0):
                if record.value == "7" and renewed is None:
                    renewed = record
                    consumer.acknowledge(record, AcknowledgeType.RENEW)
                elif record.value == "8" and record.delivery_count == 1:
                    consumer.acknowledge(record, AcknowledgeType.RELEASE)
                else:
                    accepted.append(record.value)
                    consumer.acknowledge(record)
        assert renewed is not None
        consumer.acknowledge(renewed)
        assert {None} == set(consumer.commit().values())
    assert {str(n) for n in range(300)} - {"7"} == set(accepted)
    assert 299 == len(accepted)


def test_acls(site: Site) -> None:
    topic = ("--topic", "secret", "--resource-pattern-type", "prefixed")
    site.tool("AclCommand", "--add", "--allow-principal", "User:bob", "--operation", "Read", *topic)
    listed = site.tool("AclCommand", "--list", *topic)
    assert "principal=User:bob" in listed
    assert "operation=READ" in listed
    site.tool("AclCommand", "--add", "--producer", "--allow-principal", "User:eve", "--topic", "open")
    assert "operation=WRITE" in site.tool("AclCommand", "--list", "--topic", "open")
    site.tool("AclCommand", "--remove", "--force", *topic)
    assert "User:bob" not in site.tool("AclCommand", "--list", *topic)


def test_reassignment_and_leader_election(site: Site, tmp_path: Path) -> None:
    site.create_topic("moved", "--replica-assignment", "0:1")
    site.produce("moved", ["x"] * 10)
    plan = tmp_path / "plan.json"
    partitions = [{"topic": "moved", "partition": 0, "replicas": [2, 1]}]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    file = ("--reassignment-json-file", str(plan))
    reassign = "reassign.ReassignPartitionsCommand"
    assert "Successfully started" in site.tool(reassign, *file, "--execute", "--throttle", "10000000")
    wait_until(lambda: "is completed" in site.tool(reassign, *file, "--verify"), "the move ends")
    assert "Replicas: 2,1" in site.tool("TopicCommand", "--describe", "--topic", "moved")
    assert "No partition reassignments" in site.tool(reassign, "--list")
    election = ("--election-type", "preferred", "--topic", "moved", "--partition", "0")
    site.tool("LeaderElectionCommand", *election)
    wait_until(
        lambda: "Leader: 2" in site.tool("TopicCommand", "--describe", "--topic", "moved"), "the leader moves"
    )
    assert ["x"] * 10 == site.consume("moved", 10)


def test_offsets(site: Site) -> None:
    site.create_topic("offsets", "--partitions", "1", "--replication-factor", "3")
    site.produce("offsets", ["a", "b", "c"])
    for moment, offset in (
        ("-1", "3"),
        ("latest", "3"),
        ("earliest", "0"),
        ("max-timestamp", r"[012]"),
        ("earliest-local", "0"),
        # Without tiered storage there is no such offset.
        ("latest-tiered", ""),
        ("earliest-pending-upload", ""),
        ("0", "0"),
    ):
        told = site.tool("GetOffsetShell", "--topic", "offsets", "--time", moment).strip()
        assert re.fullmatch(f"offsets:0:{offset}" if offset else r"(offsets:0:)?", told), (moment, told)
    file = json.dumps({"partitions": [{"topic": "offsets", "partition": 0, "offset": 2}], "version": 1})
    path = Path("/dev/stdin")
    assert "low_watermark: 2" in site.tool("DeleteRecordsCommand", "--offset-json-file", str(path), text=file)
    assert "offsets:0:2" == site.tool("GetOffsetShell", "--topic", "offsets", "--time", "earliest").strip()


def test_transactions(site: Site) -> None:
    site.create_topic("transactions")
    site.run(
        "ProducerPerformance",
        *("--topic", "transactions", "--num-records", "3000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", "perf", "--transaction-duration-ms", "20"),
        *("--bootstrap-server", site.bootstrap),
    )
    read = site.consume("transactions", 3000, "--isolation-level", "read_committed")
    assert 3000 == len(read)
    assert "perf" in site.tool("TransactionsCommand", "list")
    assert "CompleteCommit" in site.tool("TransactionsCommand", "describe", "--transactional-id", "perf")
    site.tool("TransactionsCommand", "find-hanging", "--broker-id", "0")
    site.tool("TransactionsCommand", "describe-producers", "--topic", "transactions", "--partition", "0")


def test_performance_tools(site: Site) -> None:
    site.create_topic("perf")
    done = site.run(
        "ProducerPerformance",
        *("--topic", "perf", "--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
        *("--bootstrap-server", site.bootstrap, "--command-property", "acks=all"),
    )
    assert "20000 records sent" in done
    done = site.tool("ConsumerPerformance", "--topic", "perf", "--num-records", "20000", "--timeout", "60000")
    assert re.search(r", 20000, ", done), done


def test_verifiable_producer_and_consumer(site: Site) -> None:
    site.create_topic("verified")
    produced = site.tool(
        "VerifiableProducer", "--topic", "verified", "--max-messages", "1000", "--acks", "-1"
    )
    assert 1000 == produced.count('"name":"producer_send_success"')
    consumed = site.tool(
        "VerifiableConsumer",
        *("--topic", "verified", "--group-id", "verified", "--max-messages", "1000"),
        *("--reset-policy", "earliest", "--group-protocol", "consumer"),
    )
    counts = re.findall(r'"name":"records_consumed".*?"count":(\d+)', consumed)
    assert 1000 == sum(map(int, counts)), consumed[-2000:]


def test_streams_count_words_exactly_once(site: Site) -> None:
    """Its repartition topic, its changelog, and transactions over all of them."""
    for topic in ("lines", "counts"):
        site.create_topic(topic, "--partitions", "3", "--replication-factor", "3")
    command = [
        "java",
        "-Xmx256m",
        "-cp",
        f"{streams_jars()}/*",
        str(WORDS),
        site.bootstrap,
        "lines",
        "counts",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as program:
        try:
            for _ in range(2):
                site.produce("lines", ["to be or not to be", "that is the question"] * 10)
            shown = ("--formatter-property", "print.key=true", "--isolation-level", "read_committed")
            counts: dict[str, int] = {}

            def read() -> bool:
                latest = site.tool(
                    "consumer.ConsoleConsumer",
                    *("--topic", "counts", "--from-beginning", "--timeout-ms", "10000", *shown),
                )
                for line in latest.splitlines():
                    if "\t" in line:
                        word, _, count = line.partition("\t")
                        counts[word] = max(counts.get(word, 0), int(count))
                return counts.get("to", 0) >= 40

            wait_until(read, f"counts, so far {counts}")
            once = dict.fromkeys(("or", "not", "that", "is", "the", "question"), 20)
            assert {"to": 40, "be": 40, **once} == counts
        finally:
            program.terminate()
            output, _ = program.communicate(timeout=60)
    assert "Exception" not in output, output
