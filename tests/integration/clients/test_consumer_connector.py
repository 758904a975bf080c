"""The high-level consumer of the documents, in groups that balance themselves through ZooKeeper."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kalda import Producer
from kalda.clients.errors import BrokerConnectionError, ClientConfigError, ClientError, IllegalStateError
from kalda.clients.legacy import (
    Blacklist,
    Consumer,
    ConsumerConnector,
    ConsumerRebalanceFailedError,
    ConsumerTimeoutError,
    KafkaStream,
    StringDecoder,
    Whitelist,
)
from kalda.testing import KaldaProcess
from kalda.testing.ports import free_ports
from kalda.testing.process import CommandProcess

TopicName = Callable[[str], str]


@pytest.fixture(scope="module")
def kalda(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    with KaldaProcess(tmp_path_factory.mktemp("connector") / "data") as process:
        yield process


@pytest.fixture
def topic(kalda: KaldaProcess, topic_name: TopicName) -> str:
    return create(kalda, topic_name("connector"), 4)


def create(kalda: KaldaProcess, topic: str, partitions: int) -> str:
    admin = AdminClient({"bootstrap.servers": kalda.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
    return topic


def write(kalda: KaldaProcess, topic: str, values: range) -> None:
    with Producer(bootstrap_servers=kalda.bootstrap) as producer:
        for value in values:
            producer.send(topic, b"%d" % value, key=b"%d" % value)


def connector(kalda: KaldaProcess, group: str, **settings: object) -> ConsumerConnector:
    return Consumer.create(
        {
            "zk.connect": kalda.zookeeper,
            "groupid": group,
            "autooffset.reset": "smallest",
            "consumer.timeout.ms": 10_000,
            "rebalance.backoff.ms": 100,
            "rebalance.retries.max": 20,
            **settings,
        }
    )


def take(stream: "KafkaStream[Any, Any]", count: int) -> list[int]:
    return [int(next(stream).raw_message.payload or b"") for _ in range(count)]


class Reader:
    """A thread that reads a stream to its end, as a program of the documents does."""

    def __init__(self, stream: "KafkaStream[Any, Any]") -> None:
        self.found: list[int] = []
        self._stream = stream
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        for each in self._stream:
            self.found.append(int(each.raw_message.payload or b""))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "no such thing within 30 s"
        time.sleep(0.02)


def test_one_consumer_reads_all_and_the_next_goes_on_behind_it(kalda: KaldaProcess, topic: str) -> None:
    write(kalda, topic, range(100))
    with connector(kalda, topic) as first:
        (stream,) = first.create_message_streams({topic: 1})[topic]
        assert list(range(100)) == sorted(take(stream, 100))
    write(kalda, topic, range(100, 150))
    with connector(kalda, topic) as second:
        (stream,) = second.create_message_streams({topic: 1})[topic]
        assert list(range(100, 150)) == sorted(take(stream, 50))


def test_streams_of_two_consumers_share_the_partitions(kalda: KaldaProcess, topic: str) -> None:
    endless = {"consumer.timeout.ms": -1}
    with connector(kalda, topic, **endless) as first, connector(kalda, topic, **endless) as second:
        streams = [
            *first.create_message_streams({topic: 2})[topic],
            *second.create_message_streams({topic: 2})[topic],
        ]
        readers = [Reader(stream) for stream in streams]
        until(lambda: owners(kalda, topic) == {str(each.thread) for each in streams})
        write(kalda, topic, range(1000))
        until(lambda: sum(len(each.found) for each in readers) >= 1000)
    assert Counter(range(1000)) == Counter(value for each in readers for value in each.found)
    assert all(each.found for each in readers)


def test_stream_that_was_full_when_another_came_goes_on(kalda: KaldaProcess, topic: str) -> None:
    """Its partitions are paused at the rebalance, and those that it keeps must be fetched again after it."""
    write(kalda, topic, range(10_000))
    with connector(kalda, topic) as first, connector(kalda, topic) as second:
        (stream,) = first.create_message_streams({topic: 1})[topic]
        while not stream.is_full:
            time.sleep(0.01)
        (other,) = second.create_message_streams({topic: 1})[topic]
        found = [value for each in (stream, other) for value in take(each, 2_000)]
    assert 4_000 == len(set(found))


def test_partitions_of_a_consumer_that_leaves_are_read_on_by_others(kalda: KaldaProcess, topic: str) -> None:
    first = connector(kalda, topic)
    second = connector(kalda, topic, **{"consumer.timeout.ms": -1})
    reader_of_first = Reader(first.create_message_streams({topic: 1})[topic][0])
    reader_of_second = Reader(second.create_message_streams({topic: 1})[topic][0])
    write(kalda, topic, range(500))
    until(lambda: len(reader_of_first.found) + len(reader_of_second.found) >= 500)
    first.shutdown()
    write(kalda, topic, range(500, 1000))
    until(lambda: len(reader_of_first.found) + len(reader_of_second.found) >= 1000)
    second.shutdown()

    assert Counter(range(1000)) == Counter(reader_of_first.found + reader_of_second.found)
    reader_of_second.thread.join(60)
    assert not reader_of_second.thread.is_alive()


def test_a_filter_reads_topics_that_come_later(kalda: KaldaProcess, topic_name: TopicName) -> None:
    stem = topic_name("filtered")
    create(kalda, f"{stem}-a", 1)
    create(kalda, f"other-{stem}", 1)
    for each in (f"{stem}-a", f"other-{stem}"):
        write(kalda, each, range(3))
    with connector(kalda, stem) as consumer:
        (stream,) = consumer.create_message_streams_by_filter(Whitelist(f"{stem}-.*"))
        assert [0, 1, 2] == take(stream, 3)
        create(kalda, f"{stem}-b", 1)
        write(kalda, f"{stem}-b", range(10, 13))
        assert [10, 11, 12] == take(stream, 3)
    with connector(kalda, f"{stem}-black") as consumer:
        (stream,) = consumer.createMessageStreamsByFilter(Blacklist(f"(?:{stem}-.*|connector-.*)"), 1)
        assert f"other-{stem}" == next(each for each in stream if each.topic.startswith("other-")).topic


def test_topic_that_is_deleted_stays_deleted(kalda: KaldaProcess, topic_name: TopicName) -> None:
    """Requests for its metadata would create it again."""
    topic = create(kalda, topic_name("deleted"), 2)
    write(kalda, topic, range(4))
    with connector(kalda, topic, **{"consumer.timeout.ms": -1}) as consumer:
        reader = Reader(consumer.create_message_streams_by_filter(Whitelist(f"{topic}.*"))[0])
        until(lambda: len(reader.found) == 4)
        admin = AdminClient({"bootstrap.servers": kalda.bootstrap})
        admin.delete_topics([topic])[topic].result(60)
        until(lambda: owners(kalda, topic) == set())
        later = create(kalda, f"{topic}-later", 1)
        write(kalda, later, range(4, 5))
        until(lambda: len(reader.found) == 5)
    with zookeeper_of(kalda) as client:
        assert client.exists(f"/brokers/topics/{topic}") is None


def test_a_commit_counts_the_message_of_the_thread_that_asks(
    kalda: KaldaProcess, topic_name: TopicName
) -> None:
    topic = create(kalda, topic_name("commit"), 1)
    write(kalda, topic, range(10))
    manual = {"autocommit.enable": False}
    with connector(kalda, topic, **manual) as first:
        (stream,) = first.create_message_streams({topic: 1})[topic]
        assert [0, 1, 2] == take(stream, 3)
        first.commit_offsets()
        assert [3, 4] == take(stream, 2)
    with connector(kalda, topic, **manual) as second:
        (stream,) = second.create_message_streams({topic: 1})[topic]
        assert [3] == take(stream, 1)


def test_program_is_asked_before_a_commit_of_its_own(kalda: KaldaProcess, topic_name: TopicName) -> None:
    """It may commit then, or fail; neither keeps the group waiting."""
    topic = create(kalda, topic_name("asked"), 1)
    write(kalda, topic, range(20))
    first: list[int] = []

    def commits(consumer: ConsumerConnector) -> bool:
        consumer.commit_offsets()
        return False

    answers: list[Callable[[ConsumerConnector], bool]] = [
        lambda _: True,
        lambda _: False,
        commits,
        lambda _: bool(1 / 0),
        lambda _: True,
    ]
    for answer in answers:
        with connector(kalda, topic, **{"autocommit.enable": False}) as consumer:
            with pytest.raises(IllegalStateError, match="needs streams"):
                consumer.set_before_release(lambda: True)
            (stream,) = consumer.create_message_streams({topic: 1})[topic]
            consumer.set_before_release(partial(answer, consumer))
            first += take(stream, 3)[:1]
    assert [0, 3, 3, 6, 6] == first


def test_offsets_in_kafka_are_the_groups(kalda: KaldaProcess, topic_name: TopicName) -> None:
    topic = create(kalda, topic_name("kafka"), 1)
    write(kalda, topic, range(10))
    with connector(kalda, topic, **{"offsets.storage": "kafka", "dual.commit.enabled": False}) as consumer:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        take(stream, 4)
        consumer.commit_offsets()
        assert 4 == committed(kalda, topic)
        take(stream, 2)
    assert 6 == committed(kalda, topic)


@pytest.mark.parametrize("way", [("zookeeper", "kafka"), ("kafka", "zookeeper")])
def test_offsets_migrate_in_four_steps(
    kalda: KaldaProcess, topic_name: TopicName, way: tuple[str, str]
) -> None:
    """Set the new storage and dual commits, bounce, switch dual commits off, bounce: nothing comes twice."""
    topic = create(kalda, topic_name("migrated"), 1)
    write(kalda, topic, range(40))
    old, new = way
    found = []
    for storage, dual in ((old, False), (new, True), (new, True), (new, False)):
        settings = {"offsets.storage": storage, "dual.commit.enabled": dual}
        with connector(kalda, topic, **settings) as consumer:
            found += take(consumer.create_message_streams({topic: 1})[topic][0], 10)
    assert list(range(40)) == found


class BrokerProcess(CommandProcess):
    """A broker of a cluster of its own, under a chroot of the others' server; each start has another port."""

    def __init__(self, directory: Path, zookeeper: str) -> None:
        super().__init__(directory.with_suffix(".log"))
        self._directory = directory
        self._zookeeper = zookeeper
        self._ports = iter(free_ports(2))

    def arguments(self) -> list[str]:
        port = str(next(self._ports))
        where = ("--dir", str(self._directory), "--port", port, "--zookeeper", self._zookeeper)
        return ["broker", "--id", "0", *where]


def test_broker_that_moves_is_found_again(kalda: KaldaProcess, tmp_path: Path) -> None:
    """Its id is logical, so that it may move to another address without affecting consumers."""
    zookeeper = f"{kalda.zookeeper}/moved"
    with BrokerProcess(tmp_path / "broker", zookeeper) as broker:
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("moved", b"0").result(60)
        settings = {"consumer.timeout.ms": 20_000, "zk.connect": zookeeper}
        with connector(kalda, "moved", **settings) as consumer:
            (stream,) = consumer.create_message_streams({"moved": 1})["moved"]
            assert [0] == take(stream, 1)
            consumer.commit_offsets()
            broker.stop()
            broker.start()
            with Producer(bootstrap_servers=broker.bootstrap) as producer:
                producer.send("moved", b"1").result(60)
            assert [1] == take(stream, 1)


def test_decoders_make_keys_and_values(kalda: KaldaProcess, topic: str) -> None:
    write(kalda, topic, range(1))
    with connector(kalda, topic) as consumer:
        streams = consumer.create_message_streams({topic: 1}, StringDecoder, lambda data: int(data) + 1)
        each = next(streams[topic][0])
    assert ("0", 1, topic) == (each.key(), each.message(), each.topic)
    assert b"0" == each.raw_message.payload


def test_a_stream_without_messages_says_so_and_can_be_asked_again(kalda: KaldaProcess, topic: str) -> None:
    with connector(kalda, topic, **{"consumer.timeout.ms": 100}) as consumer:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        for _ in range(2):
            with pytest.raises(ConsumerTimeoutError, match=r"no message for 0\.1 s"):
                next(stream)
        write(kalda, topic, range(1))
        until(lambda: has_message(stream))


def has_message(stream: "KafkaStream[Any, Any]") -> bool:
    try:
        next(stream)
    except ConsumerTimeoutError:
        return False
    return True


def test_largest_begins_at_the_end(kalda: KaldaProcess, topic: str) -> None:
    write(kalda, topic, range(10))
    with connector(kalda, topic, **{"autooffset.reset": "largest", "consumer.timeout.ms": 1_000}) as consumer:
        (stream,) = consumer.create_message_streams({topic: 1})[topic]
        with pytest.raises(ConsumerTimeoutError):
            next(stream)
        write(kalda, topic, range(10, 12))
        assert [10, 11] == sorted(take(stream, 2))


class TestMistakes:
    def test_streams_are_made_once(self, kalda: KaldaProcess, topic: str) -> None:
        with connector(kalda, topic) as consumer:
            consumer.create_message_streams({topic: 1})
            with pytest.raises(IllegalStateError, match="has streams already"):
                consumer.create_message_streams({topic: 1})

    def test_a_connector_that_is_shut_down_says_so(self, kalda: KaldaProcess, topic: str) -> None:
        consumer = connector(kalda, topic)
        consumer.shutdown()
        consumer.shutdown()
        for call in (consumer.commit_offsets, lambda: consumer.create_message_streams({topic: 1})):
            with pytest.raises(IllegalStateError, match="is closed"):
                call()

    def test_zookeeper_that_is_not_there(self) -> None:
        with pytest.raises(BrokerConnectionError):
            Consumer.create({"zk.connect": "127.0.0.1:1", "groupid": "g", "zk.connectiontimeout.ms": 200})

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({}, "`group.id` is missing"),
            ({"groupid": "g"}, "`zookeeper.connect` is missing"),
            ({"groupid": "g/h", "zk.connect": "x"}, "takes a string, a name that a znode can have"),
            ({"groupid": "..", "zk.connect": "x"}, "`group.id`=.. is not allowed"),
            ({"groupid": "g", "consumerid": "a\0b", "zk.connect": "x"}, "`consumer.id`=a.b is not allowed"),
            ({"groupid": "g", "zk.connect": "x", "autooffset.reset": "earliest"}, "smallest, largest, none"),
            ({"groupid": "g", "group.id": "g", "zk.connect": "x"}, "one setting"),
            ({"groupid": "g", "zk.connekt": "x"}, "did you mean `zk.connect`"),
        ],
    )
    def test_settings_are_checked(self, settings: dict[str, object], message: str) -> None:
        with pytest.raises(ClientConfigError, match=message):
            Consumer.create(settings)

    def test_chroot_that_does_not_exist(self, kalda: KaldaProcess) -> None:
        with pytest.raises(ClientConfigError, match="/absent is not allowed: the chroot does not exist"):
            Consumer.create({"zk.connect": f"{kalda.zookeeper}/absent", "groupid": "g"})

    @pytest.mark.parametrize("topic", [None, 5, "a" * 40_000])
    def test_what_can_be_no_topic(self, kalda: KaldaProcess, topic: Any) -> None:
        with connector(kalda, "g") as consumer, pytest.raises(ValueError, match="topic="):
            consumer.create_message_streams({topic: 1})

    def test_offset_that_is_none_is_passed_over(self, kalda: KaldaProcess, topic_name: TopicName) -> None:
        topic = create(kalda, topic_name("offset"), 1)
        write(kalda, topic, range(1))
        with zookeeper_of(kalda) as client:
            client.create(f"/consumers/{topic}/offsets/{topic}/0", b"9" * 30, makepath=True)
        with connector(kalda, topic) as consumer:
            assert [0] == take(consumer.create_message_streams({topic: 1})[topic][0], 1)

    def test_a_join_that_failed_leaves_the_group_and_can_be_tried_again(
        self, kalda: KaldaProcess, topic: str
    ) -> None:
        """Else the group would give partitions to a consumer that has no streams."""
        with (
            zookeeper_of(kalda) as client,
            connector(kalda, topic, **{"rebalance.retries.max": 0}) as consumer,
        ):
            owner = f"/consumers/{topic}/owners/{topic}/0"
            client.create(owner, b"stranger-0", ephemeral=True, makepath=True)
            with pytest.raises(ConsumerRebalanceFailedError, match="have other owners yet"):
                consumer.create_message_streams({topic: 1})
            assert [] == client.get_children(f"/consumers/{topic}/ids")
            client.delete(owner)
            write(kalda, topic, range(1))
            assert [0] == take(consumer.create_message_streams({topic: 1})[topic][0], 1)

    def test_no_offset_and_no_rule(self, kalda: KaldaProcess, topic: str) -> None:
        settings = {"autooffset.reset": "none", "rebalance.retries.max": 0}
        missing = pytest.raises(ClientError, match=r"`auto\.offset\.reset` is none")
        with connector(kalda, topic, **settings) as consumer, missing:
            consumer.create_message_streams({topic: 1})


@contextmanager
def zookeeper_of(kalda: KaldaProcess) -> Iterator[KazooClient]:
    client = KazooClient(kalda.zookeeper)
    client.start(10)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def owners(kalda: KaldaProcess, group: str) -> set[str]:
    base = f"/consumers/{group}/owners/{group}"
    with zookeeper_of(kalda) as client:
        found = set()
        # What is listed may be gone when it is read.
        with contextlib.suppress(NoNodeError):
            for each in client.get_children(base):
                found.add(client.get(f"{base}/{each}")[0].decode())
        return found


def committed(kalda: KaldaProcess, group: str) -> int:
    consumer = ConfluentConsumer({"bootstrap.servers": kalda.bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(group, 0)], 20)
    consumer.close()
    return int(found.offset)
