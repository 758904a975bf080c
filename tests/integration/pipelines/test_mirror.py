"""A mirror between two real brokers."""

import re
from collections.abc import Callable, Iterator, Mapping

import confluent_kafka
import confluent_kafka.admin
import pytest

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.configs import ConfigResource
from kalda.clients.errors import UnknownTopicOrPartitionError
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.cluster_settings import ClusterSettings
from kalda.pipelines.mirror.mirror import Mirror, MirrorOptions
from kalda.pipelines.mirror.policy import MirrorError, MirrorNames, NameFilter, RenameRule
from kalda.testing import KaldaProcess
from tests.shared_broker import NO_RETENTION


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The target cluster."""
    with KaldaProcess(tmp_path_factory.mktemp("other") / "data", settings=NO_RETENTION) as process:
        yield process.bootstrap


def options(
    source: str,
    target: str,
    pattern: str,
    *,
    name: str = "dr",
    rule: RenameRule = RenameRule.IDENTITY,
    start: str = "earliest",
) -> MirrorOptions:
    return MirrorOptions(
        name=name,
        source=ClusterSettings({"bootstrap.servers": source}),
        target=ClusterSettings({"bootstrap.servers": target}),
        names=MirrorNames("a", "b", NameFilter(re.compile(pattern)), rule),
        sync_groups=True,
        start=start,
    )


def create(bootstrap: str, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    topic = confluent_kafka.admin.NewTopic(name, partitions, 1, config=dict(config or {}))
    admin.create_topics([topic])[name].result(30)


def fill(bootstrap: str, topic: str, start: int, end: int, partitions: int = 2) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(start, end):
        producer.produce(
            topic,
            b"v%d" % number,
            key=b"k%d" % number,
            partition=number % partitions,
            timestamp=1_700_000_000_000 + number,
            headers=[("n", b"%d" % number)],
        )
    assert 0 == producer.flush(30)


def fill_in_transactions(bootstrap: str, topic: str, name: str) -> None:
    """Ten records that are committed, between ten that are not and ten that are."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions()
    for part in range(3):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, b"t%d-%d" % (part, number), partition=0)
        if part == 1:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()


Row = tuple[int, bytes | None, bytes | None, int, tuple[tuple[str, bytes], ...]]


def rows(bootstrap: str, topic: str, partitions: int = 2) -> list[Row]:
    """The committed records, by partition and offset."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "rows",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(partitions)])
    found: list[tuple[int, int, Row]] = []
    at_end = 0
    while at_end < partitions:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            at_end += 1
            continue
        headers = tuple(message.headers() or ())
        row = (message.partition(), message.key(), message.value(), message.timestamp()[1], headers)
        found.append((message.partition(), message.offset(), row))
    consumer.close()
    return [row for _, _, row in sorted(found, key=lambda each: each[:2])]


def test_a_mirror_copies_exactly_once_over_restarts(
    bootstrap: str, other: str, topic_name: Callable[[str], str]
) -> None:
    """Records, timestamps, headers and partitions are equal; new partitions and topics are found."""
    topic = topic_name("mirror")
    create(bootstrap, topic, 2, {"retention.ms": "86400001", "min.insync.replicas": "1"})
    fill(bootstrap, topic, 0, 500)
    fill_in_transactions(bootstrap, topic, topic)
    given = options(bootstrap, other, f"{topic}.*")
    with Mirror(given) as mirror:
        mirror.run_once()
        assert 520 == mirror.statistics().records
    assert rows(bootstrap, topic) == rows(other, topic)
    with Admin(bootstrap_servers=other) as admin:
        resource = ConfigResource.topic(topic)
        configs = admin.describe_configs([resource])[resource]
        assert "86400001" == configs["retention.ms"].value

    admin_client = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    admin_client.create_partitions([confluent_kafka.admin.NewPartitions(topic, 3)])[topic].result(30)
    create(bootstrap, f"{topic}-second", 1)
    fill(bootstrap, topic, 500, 800, partitions=3)
    fill(bootstrap, f"{topic}-second", 0, 10, partitions=1)
    with Mirror(given) as mirror:
        mirror.run_once()
        assert 310 == mirror.statistics().records
        assert 0 == mirror.statistics().lost
        mirror.run_once()
        assert 310 == mirror.statistics().records
    assert rows(bootstrap, topic, 3) == rows(other, topic, 3)
    assert 10 == len(rows(other, f"{topic}-second", 1))


def copy_all(mirror: Mirror) -> None:
    while mirror.copy_next():
        pass


def test_a_topic_that_is_created_again_is_not_copied_from_the_old_position(
    bootstrap: str, other: str, topic_name: Callable[[str], str]
) -> None:
    """The mirror looks for topics now and then; the new topic may be longer than the old one before that."""
    topic = topic_name("mirror-again")
    create(bootstrap, topic, 1)
    fill(bootstrap, topic, 0, 5, partitions=1)
    with Mirror(options(bootstrap, other, topic, name=topic)) as mirror:
        mirror.look_for_topics()
        copy_all(mirror)
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
        admin.delete_topics([topic])[topic].result(30)
        while topic in admin.list_topics(timeout=30).topics:
            pass
        create(bootstrap, topic, 1)
        fill(bootstrap, topic, 100, 120, partitions=1)
        with pytest.raises(UnknownTopicOrPartitionError):
            copy_all(mirror)

    with Mirror(options(bootstrap, other, topic, name=topic)) as mirror:
        mirror.run_once()
    expected = [b"v%d" % number for number in (*range(5), *range(100, 120))]
    assert expected == [row[2] for row in rows(other, topic, 1)]


def test_a_group_goes_on_in_the_copy_where_it_stood(
    bootstrap: str, other: str, topic_name: Callable[[str], str]
) -> None:
    """Offsets differ between the two logs, by the markers of transactions on either side."""
    topic = topic_name("mirror-group")
    create(bootstrap, topic, 1)
    fill_in_transactions(bootstrap, topic, topic)
    fill(bootstrap, topic, 0, 30, partitions=1)
    partition = TopicPartition(topic, 0)
    with Admin(bootstrap_servers=bootstrap) as admin:
        # Three transactions of ten and their markers come first; 40 is the eighth of the thirty.
        admin.alter_consumer_group_offsets({topic: {partition: 40}})
    with Mirror(options(bootstrap, other, topic, name="groups")) as mirror:
        mirror.run_once()
    with Admin(bootstrap_servers=other) as admin:
        committed = admin.list_consumer_group_offsets([topic])[topic][partition]
    assert committed is not None
    assert 27 == committed.offset  # ten, ten and seven records, no marker before the copy's own
    fill(bootstrap, topic, 30, 40, partitions=1)
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_consumer_group_offsets({topic: {partition: 73}})
    with Mirror(options(bootstrap, other, topic, name="groups")) as mirror:
        mirror.run_once()
    with Admin(bootstrap_servers=other) as admin:
        committed = admin.list_consumer_group_offsets([topic])[topic][partition]
    assert committed is not None
    assert 61 == committed.offset  # sixty records and the marker of the first copy's transaction


def test_circles_are_refused(bootstrap: str, other: str, topic_name: Callable[[str], str]) -> None:
    topic = topic_name("mirror-circle")
    create(bootstrap, topic, 1)
    fill(bootstrap, topic, 0, 5, partitions=1)
    with pytest.raises(MirrorError, match="same cluster"), Mirror(options(bootstrap, bootstrap, topic)):
        pass
    with Mirror(options(bootstrap, other, topic, name=f"{topic}-there")) as mirror:
        mirror.run_once()
    with (
        Mirror(options(other, bootstrap, topic, name=f"{topic}-back")) as back,
        pytest.raises(
            MirrorError, match=f"topic {topic} of a has records of b, which the mirror {topic}-there"
        ),
    ):
        back.run_once()


def test_a_prefix_names_the_source_and_a_start_at_the_end_copies_what_comes(
    bootstrap: str, other: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("mirror-prefix")
    create(bootstrap, topic, 1)
    fill(bootstrap, topic, 0, 5, partitions=1)
    given = options(bootstrap, other, topic, name=topic, rule=RenameRule.PREFIX, start="latest")
    with Mirror(given) as mirror:
        mirror.run_once()
        assert 0 == mirror.statistics().records
    fill(bootstrap, topic, 5, 8, partitions=1)
    with Mirror(given) as mirror:
        mirror.run_once()
    assert [b"v5", b"v6", b"v7"] == [row[2] for row in rows(other, f"a.{topic}", 1)]
