"""`kalda mirror` with brokers of Apache Kafka on either side, and what Java's clients read of it."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.apache_kafka import ApacheKafka, NotAvailableError, maven_jars
from kalda import Admin, Consumer, NewTopic, Producer
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition
from kalda.testing import KaldaProcess
from tests.compat.old_kafka import old_kafka
from tests.integration.cluster.helpers import wait_until

PROGRAM = Path(__file__).parent / "java" / "MirrorClients.java"
RELEASES = ("2.1.1", "2.8.2", "4.1.0")
COUNT = 2_000
Row = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


@pytest.fixture(scope="module")
def mirror_client_jars() -> Path:
    """Java's classes that read what MirrorMaker writes."""
    try:
        return maven_jars(
            "mirror-client-4.1.1",
            ("org.apache.kafka:connect-mirror-client:4.1.1", "org.slf4j:slf4j-nop:1.7.36"),
        )
    except NotAvailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=RELEASES)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker of a release."""
    with ExitStack() as stack:
        try:
            if request.param == "4.1.0":
                yield stack.enter_context(ApacheKafka(version=request.param)).bootstrap
            else:
                directory = tmp_path_factory.mktemp("kafka")
                yield stack.enter_context(old_kafka(request.param, directory)).bootstrap
        except NotAvailableError as error:
            pytest.skip(str(error))


@pytest.fixture
def kalda(tmp_path: Path) -> Iterator[str]:
    with KaldaProcess(tmp_path / "data") as process:
        yield process.bootstrap


def flow_file(directory: Path, source: str, target: str, topic: str, *more: str) -> Path:
    file = directory / "mirror.properties"
    lines = [
        f"clusters={topic}-a,{topic}-b",
        f"{topic}-a.bootstrap.servers={source}",
        f"{topic}-b.bootstrap.servers={target}",
        f"{topic}-a->{topic}-b.enabled=true",
        f"topics={topic}",
        f"groups={topic}",
        "sync.group.offsets.enabled=true",
        *(f"{each}replication.factor=1" for each in ("", "offset-syncs.topic.", "checkpoints.topic.")),
        "heartbeats.topic.replication.factor=1",
        "emit.checkpoints.interval.seconds=1",
        *more,
    ]
    file.write_text("\n".join(lines) + "\n")
    return file


def rows(bootstrap: str, topic: str, count: int) -> list[list[Row]]:
    """Return the records of both partitions."""
    found: list[list[Row]] = [[], []]
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(2)])
        consumer.seek_to_beginning()
        while sum(map(len, found)) < count:
            for each in consumer.poll(30.0):
                row = (each.key, each.value, each.timestamp_ms, tuple(each.headers))
                found[each.partition].append(row)
    return found


@pytest.mark.parametrize("to_kafka", [True, False])
def test_records_and_groups_pass_between_kalda_and_kafka(
    kafka: str, kalda: str, to_kafka: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    release = request.node.callspec.params["kafka"]
    source, target = (kalda, kafka) if to_kafka else (kafka, kalda)
    topic = f"mirror-{to_kafka}"
    with Admin(bootstrap_servers=source) as admin:
        config = {"retention.ms": "86400001"}
        admin.create_topics([NewTopic(topic, 2, 1, config=config)])
    with Producer(bootstrap_servers=source) as producer:
        for number in range(COUNT):
            value = None if number % 7 == 0 else b"v%d" % number
            producer.send(
                topic,
                value,
                key=b"k%d" % number,
                headers=[("n", b"%d" % number)],
                timestamp_ms=1_700_000_000_000 + number,
            )
    committed = {TopicPartition(topic, 0): OffsetAndMetadata(100, "here")}
    with Consumer(bootstrap_servers=source, group_id=topic, enable_auto_commit=False) as consumer:
        consumer.assign(list(committed))
        consumer.commit(committed)
    file = flow_file(tmp_path, source, target, topic)
    command = [sys.executable, "-m", "kalda", "mirror", "once", str(file)]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert 0 == done.returncode, done.stderr
    assert (to_kafka and release == "2.1.1") == ("copies at least once" in done.stderr)

    copy = f"{topic}-a.{topic}"
    assert rows(source, topic, COUNT) == rows(target, copy, COUNT)
    with Admin(bootstrap_servers=target) as admin:
        offsets = admin.list_consumer_group_offsets([topic])[topic]
        answer = offsets[TopicPartition(copy, 0)]
        assert answer is not None
        assert 100 == answer.offset


def test_java_translates_offsets_and_finds_clusters(
    mirror_client_jars: Path, kalda: str, tmp_path: Path
) -> None:
    """`RemoteClusterUtils` reads checkpoints and heartbeats as those of MirrorMaker."""
    topic = "orders"
    with KaldaProcess(tmp_path / "source") as process:
        source = process.bootstrap
        with Admin(bootstrap_servers=source) as admin:
            admin.create_topics([NewTopic(topic, 2)])
            with Producer(bootstrap_servers=source) as producer:
                for number in range(100):
                    producer.send(topic, b"x", partition=number % 2)
            committed = {
                TopicPartition(topic, 0): OffsetAndMetadata(10, "ten"),
                TopicPartition(topic, 1): OffsetAndMetadata(20),
            }
            admin.alter_consumer_group_offsets({topic: committed})
        file = flow_file(tmp_path, source, kalda, topic)
        mirror = subprocess.Popen([sys.executable, "-m", "kalda", "mirror", "run", str(file)])
        try:
            wait_until(lambda: has_offset(kalda, topic) and has_heartbeats(kalda, topic))
        finally:
            mirror.send_signal(signal.SIGTERM)
            assert 0 == mirror.wait(60)
    java = shutil.which("java")
    assert java is not None
    arguments = [java, "-cp", f"{mirror_client_jars}/*", str(PROGRAM), kalda, f"{topic}-a", topic]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert 0 == done.returncode, done.stderr
    assert [
        f"upstream [{topic}-a]",
        "hops 1",
        f"checkpoints [{topic}-a.checkpoints.internal]",
        f"heartbeats [heartbeats, {topic}-a.heartbeats]",
        f"offsets {{{topic}-a.{topic}-0=10 ten, {topic}-a.{topic}-1=20 }}",
    ] == done.stdout.splitlines()


def has_offset(bootstrap: str, topic: str) -> bool:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return len(admin.list_consumer_group_offsets([topic])[topic].results) == 2


def has_heartbeats(bootstrap: str, topic: str) -> bool:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return f"{topic}-a.heartbeats" in admin.list_topics()
