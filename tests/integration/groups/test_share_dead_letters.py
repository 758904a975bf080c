"""Dead letters of share groups (KIP-1191), with librdkafka's share consumer."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from kalda import Admin, AlterConfigOp, ConfigResource, Consumer, ConsumerRecord, NewTopic, Producer
from kalda.testing import Cluster
from tests.integration.groups.test_share_groups import SETTINGS, consumer, make_group, polled

Letter = ConsumerRecord[bytes | None, bytes | None]
AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(brokers=2, directory=tmp_path / "cluster", settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        yield admin


def group_with(admin: Admin, bootstrap: str, **settings: str) -> str:
    group = make_group(bootstrap)
    # No lock ends because the machine is busy.
    settings = {"share_record_lock_duration_ms": "60000", **settings}
    operations = [AlterConfigOp.set(name.replace("_", "."), value) for name, value in settings.items()]
    admin.incremental_alter_configs({ConfigResource.group(group): operations})
    return group


def produce(bootstrap: str, topic: str, values: list[bytes], partition: int = 0) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            producer.send(topic, value=value, key=b"key", headers=[("trace", b"1")], partition=partition)


def handle(
    found: ShareConsumer, count: int, kind: Callable[[Message], AcknowledgeType]
) -> list[tuple[bytes, int]]:
    """Acknowledge deliveries until there were so many; return the value of each and its delivery count."""
    seen: list[tuple[bytes, int]] = []
    deadline = time.monotonic() + 60
    while len(seen) < count:
        assert time.monotonic() < deadline, f"{len(seen)} of {count} deliveries: {seen}"
        for each in polled(found):
            seen.append((each.value(), each.delivery_count()))
            found.acknowledge(each, kind(each))
        found.commit_sync(30.0)
    return seen


def reader_of(bootstrap: str, topic: str) -> Consumer[bytes | None, bytes | None]:
    return Consumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=500)


def read(bootstrap: str, topic: str, count: int) -> list[Letter]:
    found: list[Letter] = []
    deadline = time.monotonic() + 60
    with reader_of(bootstrap, topic) as reader:
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} letters"
            found += reader.poll(timeout_s=1.0)
    return found


def header(record: Letter, name: str) -> bytes | None:
    return dict(record.headers).get(f"__dlq.errors.{name}")


def test_rejected_and_undeliverable_records_are_copied_to_a_topic_that_is_created(
    cluster: Cluster, admin: Admin
) -> None:
    bootstrap = cluster.bootstrap
    admin.incremental_alter_configs({ConfigResource.broker(): [AlterConfigOp.set(AUTO_CREATE, "true")]})
    admin.create_topics([NewTopic("copied", partitions=2, replication_factor=2)])
    group = group_with(
        admin,
        bootstrap,
        share_delivery_count_limit="2",
        errors_deadletterqueue_topic_name="dlq.copied",
        errors_deadletterqueue_copy_record_enable="true",
    )
    produce(bootstrap, "copied", [b"good", b"bad", b"ugly"], partition=1)

    def kind(message: Message) -> AcknowledgeType:
        kinds = {b"good": AcknowledgeType.ACCEPT, b"bad": AcknowledgeType.REJECT}
        return kinds.get(message.value(), AcknowledgeType.RELEASE)

    with consumer(bootstrap, group, "copied") as found:
        seen = handle(found, 4, kind)
        letters = {each.value: each for each in read(bootstrap, "dlq.copied", 2)}
    assert [(b"bad", 1), (b"good", 1), (b"ugly", 1), (b"ugly", 2)] == sorted(seen)
    assert {b"bad", b"ugly"} == letters.keys()
    bad, ugly = letters[b"bad"], letters[b"ugly"]
    assert (b"key", ("trace", b"1")) == (bad.key, bad.headers[0])
    assert [b"copied", b"1", b"1", group.encode(), b"1", b"Offset rejected by client."] == [
        header(bad, name) for name in ("topic", "partition", "offset", "group", "delivery.count", "message")
    ]
    assert [b"2", b"2", b"Offset delivery count exceeded the threshold."] == [
        header(ugly, name) for name in ("offset", "delivery.count", "message")
    ]


def test_records_wait_until_their_letters_can_be_written(cluster: Cluster, admin: Admin) -> None:
    """The topic is missing first: nothing is archived, and nothing is delivered again either."""
    bootstrap = cluster.bootstrap
    admin.incremental_alter_configs({ConfigResource.broker(): [AlterConfigOp.set(AUTO_CREATE, "false")]})
    admin.create_topics([NewTopic("waiting", partitions=1, replication_factor=1)])
    group = group_with(admin, bootstrap, errors_deadletterqueue_topic_name="dlq.waiting")
    produce(bootstrap, "waiting", [b"%d" % number for number in range(10)])
    with consumer(bootstrap, group, "waiting") as found:
        handle(found, 10, lambda _: AcknowledgeType.REJECT)
        assert (0, 10) == _progress(cluster, group)
    with consumer(bootstrap, group, "waiting") as found:
        assert [] == polled(found)
        enable = {"errors.deadletterqueue.group.enable": "true"}
        admin.create_topics([NewTopic("dlq.waiting", partitions=1, replication_factor=1, config=enable)])
        deadline = time.monotonic() + 60
        while _progress(cluster, group) != (10, 0):
            assert time.monotonic() < deadline, f"{_progress(cluster, group)}: the records are not archived"
            assert [] == polled(found)
        letters = read(bootstrap, "dlq.waiting", 10)
    assert [(None, b"%d" % offset) for offset in range(10)] == [
        (each.value, header(each, "offset")) for each in letters
    ]


def test_the_letters_of_a_namespace_stay_in_it(cluster: Cluster) -> None:
    """The names in settings and headers are those that its clients know."""
    with cluster.namespace() as space, Admin(bootstrap_servers=space.bootstrap) as admin:
        enable = {"errors.deadletterqueue.group.enable": "true"}
        letters = NewTopic("dlq.inside", partitions=1, replication_factor=1, config=enable)
        admin.create_topics([NewTopic("inside", partitions=1, replication_factor=1), letters])
        group = group_with(admin, space.bootstrap, errors_deadletterqueue_topic_name="dlq.inside")
        produce(space.bootstrap, "inside", [b"bad"])
        with consumer(space.bootstrap, group, "inside") as found:
            handle(found, 1, lambda _: AcknowledgeType.REJECT)
            (letter,) = read(space.bootstrap, "dlq.inside", 1)
        assert [b"inside", group.encode()] == [header(letter, name) for name in ("topic", "group")]


def _progress(cluster: Cluster, group: str) -> tuple[int, int] | None:
    """Return the start offset of the group's only share partition, and how many of its records are dead."""
    for number in (0, 1):
        made = cluster.server(number).services.lazy_share.made
        for led in made.partitions if made is not None else ():
            if led.key.group_id == group and led.core is not None:
                return led.core.start_offset, led.core.dead_count
    return None


def test_no_dead_letter_is_lost_when_a_leader_dies(tmp_path: Path) -> None:
    """Some may be there twice: their headers say which record they are of."""
    with Cluster(brokers=3, directory=tmp_path / "cluster", settings=SETTINGS) as cluster:
        bootstrap = cluster.bootstrap
        with Admin(bootstrap_servers=bootstrap) as admin:
            enable = {"errors.deadletterqueue.group.enable": "true"}
            letters = NewTopic("dlq.killed", partitions=2, replication_factor=3, config=enable)
            admin.create_topics([NewTopic("killed", partitions=3, replication_factor=3), letters])
            group = group_with(admin, bootstrap, errors_deadletterqueue_topic_name="dlq.killed")
        for number in range(3):
            produce(bootstrap, "killed", [b"%d" % (number * 1000 + value) for value in range(200)], number)
        with consumer(bootstrap, group, "killed") as found, reader_of(bootstrap, "dlq.killed") as reader:
            handle(found, 300, lambda _: AcknowledgeType.REJECT)
            for topic in ("killed", "dlq.killed", "__consumer_offsets", "__share_group_state"):
                cluster.wait_in_sync(topic)
            handle(found, 1, lambda _: AcknowledgeType.REJECT)
            cluster.kill(0)
            expected = {(partition, offset) for partition in range(3) for offset in range(200)}
            found_letters: set[tuple[int, int]] = set()
            deadline = time.monotonic() + 90
            while not expected <= found_letters:
                missing = len(expected - found_letters)
                assert time.monotonic() < deadline, f"letters of {missing} records are missing"
                for each in polled(found):
                    found.acknowledge(each, AcknowledgeType.REJECT)
                with contextlib.suppress(KafkaException):
                    found.commit_sync(10.0)
                found_letters |= {
                    (int(header(each, "partition") or b"-1"), int(header(each, "offset") or b"-1"))
                    for each in reader.poll(timeout_s=0.2)
                }
