"""`kalda share-groups` against a broker, with a group of librdkafka's share consumers."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka

from tests.integration.tools.commands import Commands

RECORDS = 10


@contextmanager
def worker(kalda: Commands, group: str, topic: str) -> Iterator[confluent_kafka.ShareConsumer]:
    """A member of a share group that has accepted all records of a topic."""
    consumer = confluent_kafka.ShareConsumer(
        {"bootstrap.servers": kalda.bootstrap, "group.id": group, "client.id": "worker"}
    )
    consumer.subscribe([topic])
    read = 0
    deadline = time.monotonic() + 30
    while read < RECORDS:
        assert time.monotonic() < deadline, f"{read} records of {RECORDS}"
        read += sum(each.error() is None for each in consumer.poll(1.0))
        consumer.commit_sync(10.0)
    try:
        yield consumer
    finally:
        consumer.close()


def test_a_share_group_from_its_first_record_to_its_deletion(kalda: Commands) -> None:
    """In the order of the examples of the help screens."""
    kalda("topics", "create", "jobs", "--partitions", 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": kalda.bootstrap, "linger.ms": 0})
    for number in range(RECORDS):
        producer.produce("jobs", str(number), partition=0)
    assert 0 == producer.flush(20)
    kalda("configs", "alter", "--group", "workers", "--add-config", "share.auto.offset.reset=earliest")
    with worker(kalda, "workers", "jobs"):
        (listed,) = kalda.json("share-groups", "list")["groups"]
        assert {"group": "workers", "state": "Stable"} == listed
        (described,) = kalda.json("share-groups", "describe", "workers")["groups"]
        assert [{"topic": "jobs", "partition": 0, "start_offset": RECORDS, "lag": 0}] == described[
            "partitions"
        ]
        (member,) = described["members"]
        assert ("worker", ["jobs"], ["jobs-0"]) == (member["client"], member["topics"], member["partitions"])
        assert "worker" in kalda("share-groups", "describe", "workers", "--members").stdout
        assert "Stable" in kalda("share-groups", "describe", "--all-groups", "--state").stdout
        reset = ("share-groups", "reset-offsets", "workers", "--topic", "jobs", "--to-earliest")
        assert "NON_EMPTY_GROUP" in kalda.refused(*reset, "--execute").stderr
    kalda(*reset)
    assert RECORDS == start_offset(kalda)
    kalda(*reset, "--execute")
    assert 0 == start_offset(kalda)
    with worker(kalda, "workers", "jobs"):
        pass
    assert RECORDS == start_offset(kalda)
    kalda("share-groups", "delete-offsets", "workers", "--topic", "jobs")
    (described,) = kalda.json("share-groups", "describe", "workers")["groups"]
    assert [] == described["partitions"]
    kalda("share-groups", "delete", "workers")
    assert {"groups": []} == kalda.json("share-groups", "list")


def start_offset(kalda: Commands) -> int:
    (described,) = kalda.json("share-groups", "describe", "workers")["groups"]
    (partition,) = described["partitions"]
    found: int = partition["start_offset"]
    return found


def test_what_the_commands_refuse(kalda: Commands) -> None:
    assert "GROUP_ID_NOT_FOUND" in kalda.refused("share-groups", "describe", "nobody").stderr
    for arguments, words in (
        (("reset-offsets", "g", "--topic", "t"), "use one of --to-earliest"),
        (("reset-offsets", "g", "--to-latest"), "either --topic or --all-topics"),
        (("delete-offsets", "g"), "name the topics"),
        (("describe", "g", "--all-groups"), "name no group beside it"),
        (("describe", "g", "--members", "--state"), "exclude each other"),
    ):
        assert words in kalda.refused("share-groups", *arguments).stderr
