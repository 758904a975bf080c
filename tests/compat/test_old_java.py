"""Java's clients and tools from 0.8.2 to 4.1, all against one cluster of Kalda."""

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from benchmarks.apache_kafka import NotAvailableError
from kalda.clients.legacy import Consumer
from kalda.testing import KaldaProcess
from tests.compat.java_releases import RELEASES, JavaRelease, write_properties
from tests.compat.programs import ProgramClient, kafkajs_client
from tests.integration.clients.clients import ConfluentClient, Message
from tests.integration.cluster.helpers import create_topic
from tests.integration.tools.commands import Commands

CODECS = ("none", "gzip", "snappy", "lz4")
Release = Callable[[str], JavaRelease]
Peer = ProgramClient | ConfluentClient


@pytest.fixture(scope="module")
def release() -> Release:
    def of(name: str) -> JavaRelease:
        try:
            return JavaRelease(name)
        except NotAvailableError as error:
            pytest.skip(str(error))

    return of


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    settings = {"num.partitions": "3", "default.replication.factor": "3"}
    with KaldaProcess(tmp_path_factory.mktemp("java") / "data", brokers=3, settings=settings) as process:
        yield process


def until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.fixture(scope="module")
def peers(cluster: KaldaProcess, go_programs: Path, node_modules: Path) -> dict[str, Peer]:
    """Clients of other languages, those that can be set to an old release so."""
    # The programs take one address.
    bootstrap = cluster.bootstrap.partition(",")[0]
    sarama = [
        ProgramClient(f"sarama-{version}", [go_programs / "sarama"], bootstrap, {"version": version})
        for version in ("0.8.2.2", "0.10.2.0")
    ]
    return {
        **{each.name: each for each in (*sarama, kafkajs_client(node_modules, bootstrap))},
        **{f"librdkafka-{each}": ConfluentClient(bootstrap, version=each) for each in ("0.8.2", "0.9.0")},
    }


@pytest.mark.timeout(900)
def test_each_client_reads_what_all_clients_wrote_at_the_same_time(
    cluster: KaldaProcess, release: Release, peers: dict[str, Peer]
) -> None:
    """Old and new ones with every codec, on topics of one partition because Go and Node read one."""
    # In format 0, lz4 frames have the wrong checksum of Java's old clients, which Sarama does not accept.
    others, lz4 = "world", "world-lz4"
    for topic in (others, lz4):
        create_topic(cluster.bootstrap, topic, partitions=1, replicas=3)
    releases = [release(name) for name in RELEASES]
    expected: dict[str, Counter[str]] = {others: Counter(), lz4: Counter()}
    writes: list[Callable[[], object]] = []

    def add(name: str, codec: str, write: Callable[[str, str, list[str]], object]) -> None:
        topic = lz4 if codec == "lz4" else others
        lines = [f"{name}-{codec}-{number}" for number in range(20)]
        expected[topic].update(lines)
        writes.append(partial(write, topic, codec, lines))

    for java in releases:
        for codec in CODECS:
            add(java.name, codec, partial(java.produce, cluster.bootstrap))
            if java.has_old_clients:
                add(f"{java.name}-old", codec, partial(java.produce, cluster.bootstrap, by_old=True))
    for name, peer in peers.items():
        for codec in CODECS:
            # Sarama itself refuses lz4 before Kafka 0.10. lz4js chains blocks, which Java does not read.
            if codec != "lz4" or name not in {"sarama-0.8.2.2", "kafkajs"}:
                add(name, codec, partial(produce_lines, peer))
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write) for write in writes]:
            done.result()

    for topic, lines in expected.items():
        for java in releases:
            servers = []
            if java.has_old_clients:
                servers.append(("--zookeeper", cluster.zookeeper))
            if java.has_new_consumer:
                servers.append(("--bootstrap-server", cluster.bootstrap))
            for server in servers:
                found = java.consume(server, topic, lines.total(), "--from-beginning")
                assert lines == Counter(found), f"{java.name} {server[0]} {topic}"
        for name, peer in peers.items():
            if (name, topic) != ("sarama-0.8.2.2", lz4):
                found = [(each.value or b"").decode() for each in peer.consume(topic, lines.total())]
                assert lines == Counter(found), f"{name} {topic}"


def produce_lines(peer: Peer, topic: str, codec: str, lines: Sequence[str]) -> None:
    """Produce values, without headers, which old formats lack."""
    now_ms = int(time.time() * 1000)
    messages = [Message(None, line.encode(), (), now_ms) for line in lines]
    if isinstance(peer, ProgramClient):
        peer.produce(topic, messages, codec=codec, idempotent=False)
    else:
        peer.produce(topic, messages, codec=codec)


@pytest.mark.timeout(300)
def test_zstd_is_read_by_the_releases_that_have_it(cluster: KaldaProcess, release: Release) -> None:
    releases = [release(name) for name in RELEASES if JavaRelease(name).number >= (2, 1)]
    for each in releases:
        each.produce(cluster.bootstrap, "zstd", "zstd", [f"{each.name}-{number}" for number in range(20)])
    for each in releases:
        server = ("--bootstrap-server", cluster.bootstrap)
        count = 20 * len(releases)
        assert count == len(set(each.consume(server, "zstd", count, "--from-beginning")))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [each for each in RELEASES if each < "3"])
def test_tools_that_write_znodes(name: str, cluster: KaldaProcess, release: Release, tmp_path: Path) -> None:
    """Topics are created, grown, configured, moved and deleted through the coordination server."""
    java, topic = release(name), f"tools-{name}"
    zookeeper = ("--zookeeper", cluster.zookeeper)
    topics = ("kafka.admin.TopicCommand", *zookeeper)
    java.run(*topics, "--create", "--topic", topic, "--replica-assignment", "0:1,1:2")
    until("leaders", lambda: "Leader: 0" in java.run(*topics, "--describe", "--topic", topic))
    java.run(*topics, "--alter", "--topic", topic, "--partitions", "3")
    if java.number < (0, 9):
        java.run(*topics, "--alter", "--topic", topic, "--config", "max.message.bytes=128000")
    else:
        configs = ("kafka.admin.ConfigCommand", *zookeeper, "--entity-type", "topics", "--entity-name", topic)
        java.run(*configs, "--alter", "--add-config", "max.message.bytes=128000")
    assert "max.message.bytes=128000" in java.run(*topics, "--describe", "--topic", topic)
    java.produce(cluster.bootstrap, topic, "none", [str(number) for number in range(10)])

    plan = tmp_path / "plan.json"
    moved = [{"topic": topic, "partition": 0, "replicas": [2, 1]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moved}))
    reassign = ("kafka.admin.ReassignPartitionsCommand", *zookeeper, "--reassignment-json-file", str(plan))
    assert "uccessfully started" in java.run(*reassign, "--execute")
    until("the replicas moved", lambda: "is complete" in _verified(java.run(*reassign, "--verify")))
    java.run("kafka.admin.PreferredReplicaLeaderElectionCommand", *zookeeper)
    until("a leader of choice", lambda: "Leader: 2" in java.run(*topics, "--describe", "--topic", topic))
    server = ("--bootstrap-server", cluster.bootstrap) if java.has_new_consumer else zookeeper
    assert 10 == len(java.consume(server, topic, 10, "--from-beginning"))
    java.run(*topics, "--delete", "--topic", topic)
    until("the deletion", lambda: topic not in java.run(*topics, "--list"))


def _verified(output: str) -> str:
    return output.replace("completed successfully", "is complete").replace("is completed", "is complete")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
@pytest.mark.parametrize("name", [each for each in RELEASES if each < "2"])
def test_an_old_group_goes_on_where_it_stopped(
    name: str, storage: str, cluster: KaldaProcess, release: Release, tmp_path: Path
) -> None:
    java, topic = release(name), f"group-{name}-{storage}"
    zookeeper = ("--zookeeper", cluster.zookeeper)
    java.produce(cluster.bootstrap, topic, "gzip", [str(number) for number in range(10)])
    config = write_properties(
        tmp_path / "c.properties", group_id=topic, offsets_storage=storage, dual_commit_enabled="false"
    )
    kalda = Commands(cluster.bootstrap)
    first = java.consume(zookeeper, topic, 6, "--consumer.config", config, "--from-beginning")
    if java.number < (1,):
        table = java.run("kafka.tools.ConsumerOffsetChecker", *zookeeper, "--group", topic)
        lags = [int(line.split()[5]) for line in table.splitlines()[1:] if line]
        assert 4 == sum(lags), table
        assert table == kalda("legacy", "ConsumerOffsetChecker", *zookeeper, "--group", topic).stdout
    second = java.consume(zookeeper, topic, 4, "--consumer.config", config)
    assert {str(number) for number in range(10)} == {*first, *second}


@pytest.mark.timeout(300)
def test_exported_offsets_are_exchanged(cluster: KaldaProcess, release: Release, tmp_path: Path) -> None:
    """Java's file and ours are the same, and each imports the other's."""
    java, where = release("0.8.2.2"), ("--zkconnect", cluster.zookeeper, "--group", "exported")
    kalda = Commands(cluster.bootstrap)
    ours, theirs, changed = tmp_path / "ours", tmp_path / "theirs", tmp_path / "changed"
    changed.write_text("/consumers/exported/offsets/t/0:7\n/consumers/exported/offsets/t/1:8\n")
    kalda("legacy", "ImportZkOffsets", *where[:2], "--input-file", changed)
    java.run("kafka.tools.ExportZkOffsets", *where, "--output-file", str(theirs))
    kalda("legacy", "ExportZkOffsets", *where, "--output-file", ours)
    assert sorted(changed.read_text().split()) == sorted(theirs.read_text().split())
    assert changed.read_text() == ours.read_text()

    ours.write_text("/consumers/exported/offsets/t/0:9\n")
    java.run("kafka.tools.ImportZkOffsets", *where[:2], "--input-file", str(ours))
    kalda("legacy", "ExportZkOffsets", *where, "--output-file", ours)
    assert "/consumers/exported/offsets/t/0:9" in ours.read_text()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_javas_consumer_of_0_8_2_and_ours_share_a_group(
    storage: str, cluster: KaldaProcess, release: Release, tmp_path: Path
) -> None:
    """Both rebalance when the other comes and goes; each record has one reader."""
    java, topic = release("0.8.2.2"), f"mixed-{storage}"
    zookeeper = ("--zookeeper", cluster.zookeeper)
    java.run(
        "kafka.admin.TopicCommand",
        *zookeeper,
        "--create",
        "--topic",
        topic,
        "--replica-assignment",
        "0,1,2,0",
    )
    shared = {"group_id": topic, "offsets_storage": storage, "dual_commit_enabled": "false"}
    config = write_properties(tmp_path / "c.properties", **shared, auto_commit_interval_ms=500)
    ours = Consumer.create(
        {name.replace("_", "."): value for name, value in shared.items()},
        zookeeper_connect=cluster.zookeeper,
        auto_offset_reset="smallest",
        auto_commit_interval_ms=500,
        rebalance_backoff_ms=500,
        rebalance_max_retries=20,
    )
    found: list[str] = []
    (stream,) = ours.create_message_streams({topic: 1})[topic]
    reader = threading.Thread(
        target=lambda: found.extend((each.raw_message.payload or b"").decode() for each in stream),
        daemon=True,
    )
    reader.start()
    theirs = tmp_path / "theirs.txt"
    with theirs.open("wb") as output, KazooSession(cluster.zookeeper) as zk:
        command = java.command(*java.consumer(zookeeper, topic, "--consumer.config", config))
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        try:
            until("two owners", lambda: owners(zk, topic) == [2, 2])
            java.produce(cluster.bootstrap, topic, "none", [str(number) for number in range(400)])
            until("400 read", lambda: len(found) + len(theirs.read_text().split()) >= 400)
            assert found
            assert theirs.read_text().split()
        finally:
            process.terminate()
            process.wait(30)
        until("one owner", lambda: owners(zk, topic) == [4])
        java.produce(cluster.bootstrap, topic, "none", [str(number) for number in range(400, 500)])
        until("500 read", lambda: len(found) + len(theirs.read_text().split()) >= 500)
    ours.shutdown()
    reader.join(10)
    assert Counter(str(number) for number in range(500)) == Counter([*found, *theirs.read_text().split()])


class KazooSession:
    def __init__(self, hosts: str) -> None:
        self._client = KazooClient(hosts)

    def __enter__(self) -> KazooClient:
        self._client.start(20)
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()


def owners(zk: KazooClient, topic: str) -> list[int]:
    """How many partitions each thread of the group owns."""
    base = f"/consumers/{topic}/owners/{topic}"
    found: Counter[bytes] = Counter()
    # A rebalance deletes an owner's znode at any time.
    for name in zk.get_children(base) if zk.exists(base) else []:
        with suppress(NoNodeError):
            found[zk.get(f"{base}/{name}")[0]] += 1
    return sorted(found.values())


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("name", "version"), [("0.8.2.2", "0.9.0"), ("0.10.2.2", "0.10.2")])
def test_segments_are_dumped_as_by_the_old_tool(
    name: str, version: str, release: Release, tmp_path: Path
) -> None:
    """Messages of each codec in the release's own format, by both tools, as wrappers and opened."""
    java, directory = release(name), tmp_path / "data"
    settings = {"log.message.format.version": version, "log.index.interval.bytes": "300"}
    with KaldaProcess(directory, settings=settings) as process:
        kalda = Commands(process.bootstrap)
        for codec in CODECS:
            java.produce(process.bootstrap, "dumped", codec, [f"{codec} {number}" for number in range(30)])
    (log,) = directory.rglob("dumped-0/*.log")
    files = f"{log},{log.with_suffix('.index')}"
    for options in ((), ("--deep-iteration",), ("--deep-iteration", "--print-data-log")):
        theirs = java.run("kafka.tools.DumpLogSegments", "--files", files, *options)
        ours = kalda("legacy", "DumpLogSegments", "--files", files, *options).stdout
        assert theirs.count("offset: ") > 30 or not options
        assert theirs == ours
