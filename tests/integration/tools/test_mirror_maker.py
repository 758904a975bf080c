"""`kalda legacy MirrorMaker` between clusters: what arrives, what is committed, restarts and mistakes."""

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kalda import Admin, Consumer, Producer, TopicPartition
from kalda.testing import KaldaProcess
from tests import forked_commands
from tests.integration.cluster.helpers import create_topic, wait_until
from tests.integration.tools.commands import KALDA, Commands
from tests.integration.zookeeper_client import zookeeper_client


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[KaldaProcess]]:
    """Two sources and a target."""
    directory = tmp_path_factory.mktemp("mirror")
    settings = {"group.min.session.timeout.ms": "500", "group.initial.rebalance.delay.ms": "0"}
    with (
        KaldaProcess(directory / "a", settings=settings) as first,
        KaldaProcess(directory / "b", settings=settings) as second,
        KaldaProcess(directory / "c") as target,
    ):
        yield [first, second, target]


class Files:
    """The properties files of a mirror."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, name: str, **properties: object) -> Path:
        path = self._directory / f"{name}.properties"
        lines = [f"{key.replace('_', '.')}={value}\n" for key, value in properties.items()]
        path.write_text("".join(lines))
        return path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


PATIENT_MS = 20_000
"""A session that a busy machine does not end."""
SHORT_MS = 1_500
"""The session of a mirror that is killed: the next one waits for its end."""


def consumer(
    files: Files, source: KaldaProcess, group: str, name: str = "consumer", session_ms: int = PATIENT_MS
) -> Path:
    return files(
        name,
        bootstrap_servers=source.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=200,
    )


def old_consumer(
    files: Files, source: KaldaProcess, group: str, name: str = "consumer", session_ms: int = PATIENT_MS
) -> Path:
    return files(
        name,
        zk_connect=source.zookeeper,
        groupid=group,
        autooffset_reset="smallest",
        zk_sessiontimeout_ms=session_ms,
        zk_connectiontimeout_ms=30_000,
        rebalance_backoff_ms=300,
        rebalance_max_retries=30,
    )


class Mirror:
    """A mirror maker in a process of its own; a fixture ends those that a test leaves."""

    running: ClassVar[list["Mirror"]] = []

    def __init__(self, *arguments: object) -> None:
        self._process = forked_commands.Popen(
            [*KALDA, "legacy", "MirrorMaker", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.running.append(self)

    def kill(self) -> None:
        """End it at once, if it runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Return the exit code and the output."""
        self._process.send_signal(number)
        stdout, stderr = self._process.communicate(timeout=60)
        return self._process.returncode, stdout, stderr


@pytest.fixture(autouse=True)
def _no_mirrors_left() -> Iterator[None]:
    yield
    for each in Mirror.running:
        each.kill()
    Mirror.running.clear()


def produce(cluster: KaldaProcess, topic: str, *pairs: tuple[bytes | None, bytes | None]) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number, (key, value) in enumerate(pairs):
            producer.send(topic, key=key, value=value, timestamp_ms=1_000 + number, headers=[("h", b"x")])


def records(cluster: KaldaProcess, topic: str) -> list[tuple[bytes | None, bytes | None, int]]:
    """Return key, value and timestamp of all records, by timestamp; none if there is no such topic."""
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        at = [each.topic_partition for each in consumer.partitions_for(topic)]
        consumer.assign(at)
        consumer.seek_to_beginning(at)
        ends = consumer.end_offsets(at)
        found = []
        while any(consumer.position(each) < end for each, end in ends.items()):
            found += [(each.key, each.value, each.timestamp_ms) for each in consumer.poll(1.0)]
    return sorted(found, key=lambda each: each[2])


def committed(cluster: KaldaProcess, group: str, topic: str) -> int:
    with Consumer(bootstrap_servers=cluster.bootstrap, group_id=group) as consumer:
        at = TopicPartition(topic, 0)
        found = consumer.committed([at])[at]
        return 0 if found is None else found.offset


def committed_in_zookeeper(cluster: KaldaProcess, group: str, topic: str) -> int:
    with zookeeper_client(cluster.zookeeper) as client:
        data, _ = client.get(f"/consumers/{group}/offsets/{topic}/0")
    return int(data)


def test_messages_of_many_sources_arrive_in_one_target(clusters: list[KaldaProcess], files: Files) -> None:
    """Keys, timestamps and tombstones; headers cannot pass the old formats. SIGTERM commits what arrived."""
    first, second, target = clusters
    produce(first, "many", (b"k", b"1"), (b"k", None), (None, b"3"))
    produce(second, "many", (b"j", b"4"))
    produce(second, "not-many", (b"j", b"5"))
    mirror = Mirror(
        *("--consumer.config", consumer(files, first, "many", "a")),
        *("--consumer.config", old_consumer(files, second, "many", "b")),
        *("--producer.config", files("producer", metadata_broker_list=target.bootstrap)),
        *("--whitelist", "many", "--num.producers", 2),
    )
    wait_until(lambda: len(records(target, "many")) >= 4)
    code, stdout, stderr = mirror.end()
    assert (0, "4 messages were copied, 0 were dropped.\n") == (code, stdout), stderr
    assert sorted(
        [(b"j", b"4", 1_000), (b"k", b"1", 1_000), (b"k", None, 1_001), (None, b"3", 1_002)], key=str
    ) == sorted(records(target, "many"), key=str)
    assert (3, 1) == (committed(first, "many", "many"), committed_in_zookeeper(second, "many", "many"))
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        assert "not-many" not in admin.list_topics()


@pytest.mark.parametrize("kind", [consumer, old_consumer])
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_restart_loses_nothing(
    clusters: list[KaldaProcess],
    files: Files,
    ending: signal.Signals,
    kind: Callable[..., Path],
) -> None:
    """After SIGTERM nothing is copied twice; after SIGKILL what was not committed may be."""
    source, _, target = clusters
    topic = f"restart-{ending.name}-{kind.__name__}"
    session_ms = SHORT_MS if ending is signal.SIGKILL else PATIENT_MS
    arguments = (
        *("--consumer.config", kind(files, source, topic, session_ms=session_ms)),
        *("--producer.config", files("producer", broker_list=f"0:{target.bootstrap}")),
        *("--whitelist", topic, "--offset.commit.interval.ms", 100),
    )
    produce(source, topic, *[(b"%d" % number, b"v") for number in range(50)])
    mirror = Mirror(*arguments)
    wait_until(lambda: len(records(target, topic)) >= 50)
    mirror.end(ending)
    with Producer(bootstrap_servers=source.bootstrap) as producer:
        for number in range(50, 100):
            producer.send(topic, key=b"%d" % number, value=b"v")
    mirror = Mirror(*arguments)
    wait_until(lambda: len({key for key, _, _ in records(target, topic)}) >= 100)
    code, _, stderr = mirror.end()
    assert 0 == code, stderr
    found = records(target, topic)
    assert {b"%d" % number for number in range(100)} == {key for key, _, _ in found}
    if ending is signal.SIGTERM:
        assert 100 == len(found)


@pytest.mark.parametrize("kind", [consumer, old_consumer])
def test_rebalance_copies_nothing_twice(
    clusters: list[KaldaProcess], files: Files, kind: Callable[[Files, KaldaProcess, str], Path]
) -> None:
    """What has arrived is committed before another gets its partitions, as in Kafka's since 0.9."""
    source, _, target = clusters
    topic = f"shared-{kind.__name__}"
    create_topic(source.bootstrap, topic, partitions=4, replicas=1)
    arguments = (
        *("--consumer.config", kind(files, source, topic)),
        *("--producer.config", files("producer", broker_list=f"0:{target.bootstrap}")),
        *("--whitelist", topic),
    )
    produce(source, topic, *[(b"%d" % number, b"v") for number in range(100)])
    first = Mirror(*arguments)
    wait_until(lambda: len(records(target, topic)) >= 100)
    second = Mirror(*arguments)
    wait_until(lambda: 2 == len(set(readers(source, topic, kind)).difference([""])))
    assert (0, 0) == (first.end()[0], second.end()[0])
    assert 100 == len(records(target, topic))


def readers(cluster: KaldaProcess, topic: str, kind: Callable[[Files, KaldaProcess, str], Path]) -> list[str]:
    """Return the member of the group, named like its topic, that reads each of the 4 partitions."""
    partitions = [TopicPartition(topic, number) for number in range(4)]
    if kind is old_consumer:
        with zookeeper_client(cluster.zookeeper) as client:
            return [
                owner(client, f"/consumers/{topic}/owners/{topic}/{each.partition}") for each in partitions
            ]
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        members = admin.describe_consumer_groups([topic])[topic].members
    return [
        next((member.member_id for member in members if each in member.assignment), "") for each in partitions
    ]


def owner(client: KazooClient, path: str) -> str:
    """Return the thread that owns a partition, empty where none does, as at any time in a rebalance."""
    try:
        return str(client.get(path)[0].decode())
    except NoNodeError:
        return ""


def test_old_consumers_leave_topics_out(clusters: list[KaldaProcess], files: Files) -> None:
    """A blacklist copies every other topic, with streams and producers of their own threads."""
    _, source, target = clusters
    produce(source, "black", (b"k", b"1"))
    produce(source, "white", (b"k", b"1"), (b"k", b"2"))
    mirror = Mirror(
        *("--consumer.config", old_consumer(files, source, "black")),
        *("--producer.config", files("producer", zk_connect=target.zookeeper)),
        *("--blacklist", "black|many|not-many", "--num.streams", 2, "--num.producers", 2),
    )
    wait_until(lambda: len(records(target, "white")) >= 2)
    assert 0 == mirror.end()[0]
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        assert "black" not in admin.list_topics()


@pytest.mark.parametrize("kind", [consumer, old_consumer])
def test_new_producer_copies_headers(
    clusters: list[KaldaProcess], files: Files, kind: Callable[[Files, KaldaProcess, str], Path]
) -> None:
    """As Kafka's own since 0.11; the formats of the old producer have none."""
    source, _, target = clusters
    topic = f"headers-{kind.__name__}"
    produce(source, topic, (b"k", b"1"))
    mirror = Mirror(
        *("--consumer.config", kind(files, source, topic)),
        *("--producer.config", files("producer", bootstrap_servers=target.bootstrap)),
        *("--whitelist", topic),
    )
    wait_until(lambda: bool(records(target, topic)))
    assert 0 == mirror.end()[0]
    with Consumer(
        topic, bootstrap_servers=target.bootstrap, auto_offset_reset="earliest", group_id="g"
    ) as found:
        assert [("h", b"x")] == list(next(iter(found)).headers)


def test_new_producer_copies_too(clusters: list[KaldaProcess], files: Files) -> None:
    source, _, target = clusters
    produce(source, "new", (b"k", b"1"), (b"k", None))
    mirror = Mirror(
        *("--consumer.config", consumer(files, source, "new"), "--new.consumer"),
        *("--producer.config", files("producer", bootstrap_servers=target.bootstrap), "--new.producer"),
        *("--whitelist", "new,other", "--num.streams", 2),
    )
    wait_until(lambda: len(records(target, "new")) >= 2)
    assert 0 == mirror.end(signal.SIGINT)[0]
    assert [(b"k", b"1", 1_000), (b"k", None, 1_001)] == records(target, "new")


def test_refused_message_ends_the_copy_or_is_dropped(clusters: list[KaldaProcess], files: Files) -> None:
    """By default the copy ends with exit code 1, and nothing is committed behind what was lost."""
    source, _, target = clusters
    create_topic(target.bootstrap, "refused", replicas=1, config={"max.message.bytes": "1000"})
    produce(source, "refused", (None, b"x" * 5_000))
    arguments = (
        *("--consumer.config", consumer(files, source, "refused")),
        *("--producer.config", files("producer", metadata_broker_list=target.bootstrap)),
        *("--whitelist", "refused"),
    )
    mirror = Mirror(*arguments)
    stdout, stderr = mirror._process.communicate(timeout=60)
    assert (1, "0 messages were copied, 0 were dropped.\n") == (mirror._process.returncode, stdout)
    assert "the copy ended: 1 of 1 messages were not sent" in stderr
    assert 0 == committed(source, "refused", "refused")
    mirror = Mirror(*arguments, "--abort.on.send.failure", "false", "--offset.commit.interval.ms", 100)
    wait_until(lambda: committed(source, "refused", "refused") == 1)
    assert (0, "0 messages were copied, 1 were dropped.\n") == mirror.end()[:2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "exactly one of --whitelist and --blacklist"),
        (["--whitelist", "a", "--blacklist", "b"], "exactly one of --whitelist and --blacklist"),
        (["--whitelist", "("], "--whitelist=(: .* is no regular expression"),
        (["--whitelist", "a", "--new.producer"], "--new.producer: .* has no `bootstrap.servers`"),
        (["--blacklist", "a"], "--blacklist works with old consumers only"),
    ],
)
def test_mistakes_are_named(
    clusters: list[KaldaProcess], files: Files, arguments: list[str], message: str
) -> None:
    source, _, target = clusters
    done = Commands(source.bootstrap).run(
        *("legacy", "MirrorMaker", "--consumer.config", consumer(files, source, "g")),
        *("--producer.config", files("producer", metadata_broker_list=target.bootstrap)),
        *arguments,
    )

    assert 2 == done.code
    assert re.search(message.replace("(", r"\("), done.stderr), done.stderr
