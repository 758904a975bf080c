"""Where messages go: the list of the documents, Java's hashes, random places, leaders that are away."""

from typing import Any

import pytest

from kalda.clients.errors import ClientConfigError
from kalda.clients.legacy import DefaultPartitioner, InvalidPartitionError, NoBrokersForPartitionError
from kalda.clients.legacy.producer.partitioner import (
    BrokerPartition,
    choose,
    java_hash,
    partition_list,
    partitioner_of,
)
from kalda.clients.metadata import ClusterMetadata, TopicMetadata
from tests.unit.clients import metadata_responses as metadata


def topic(*leaders: int) -> TopicMetadata:
    partitions = [metadata.partition(number, leader, 0) for number, leader in enumerate(leaders)]
    response = metadata.response(metadata.topic("t", *partitions))
    return ClusterMetadata.from_response(response).topics["t"]


def first(below: int) -> int:
    return 0


def test_list_is_sorted_by_broker_and_then_by_partition() -> None:
    """The document: brokers of 3 and 4 partitions give (0,0) (0,1) (0,2) (1,0) (1,1) (1,2) (1,3)."""
    found = partition_list(topic(1, 0, 1, 0, 1, 0, 1), by_broker=True)
    assert [(0, 1), (0, 3), (0, 5), (1, 0), (1, 2), (1, 4), (1, 6)] == found


def test_list_of_08_is_sorted_by_partition() -> None:
    assert [(1, 0), (0, 1), (-1, 2)] == partition_list(topic(1, 0, -1), by_broker=False)
    assert [] == partition_list(None, by_broker=False)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", 0),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("\N{PILE OF POO}", 1772556),
        (b"", 1),
        (b"\x01\x02\x03", 30817),
        (b"\xff", 30),
        (0, 0),
        (-7, -7),
        (2**31 - 1, 2**31 - 1),
        (2**32, 1),
        (-(2**31) - 1, -(2**31)),
    ],
)
def test_hashes_are_javas(key: object, expected: int) -> None:
    """String.hashCode over UTF-16, Arrays.hashCode over signed bytes, Integer's and Long's."""
    assert expected == java_hash(key)


@pytest.mark.parametrize("key", [1.5, True, ("a",), 2**63])
def test_key_without_a_hash_names_the_setting(key: object) -> None:
    with pytest.raises(TypeError, match=r"partitioner\.class"):
        java_hash(key)


def test_default_partitioner_takes_the_absolute_value() -> None:
    partitioner = DefaultPartitioner()
    assert abs(java_hash("test-key")) % 7 == partitioner.partition("test-key", 7)
    assert 0 == partitioner.partition("polygenelubricants", 7), "the smallest int has no absolute value"
    assert 7 % 5 == partitioner.partition(-7, 5)


def test_partitioner_indexes_the_list() -> None:
    partitions = partition_list(topic(1, 0, 1, 0), by_broker=True)

    def third(key: object, count: int) -> int:
        assert ("k", 4) == (key, count)
        return 2

    assert BrokerPartition(1, 0) == choose("t", "k", partitions, {0, 1}, third, first)


@pytest.mark.parametrize("index", [-1, 4, None, 1.0, "1"])
def test_index_outside_of_the_list_is_an_error(index: Any) -> None:
    partitions = partition_list(topic(1, 0, 1, 0), by_broker=True)
    with pytest.raises(InvalidPartitionError, match=f"returned {index!r} for key 'k'; topic t takes 0 to 3"):
        choose("t", "k", partitions, {0, 1}, lambda key, count: index, first)


def test_message_without_a_key_goes_to_a_random_live_broker() -> None:
    partitions = partition_list(topic(1, 0, -1, 0), by_broker=True)
    asked: list[int] = []

    def last(below: int) -> int:
        asked.append(below)
        return below - 1

    assert BrokerPartition(0, 3) == choose("t", None, partitions, {0}, lambda key, count: 0, last)
    assert [2] == asked


def test_missing_leader_is_an_error_that_a_new_look_may_cure() -> None:
    partitions = partition_list(topic(0, -1), by_broker=True)
    for key, live in [("k", {0}), (None, set[int]())]:
        with pytest.raises(NoBrokersForPartitionError, match=r"no.*live leader") as raised:
            choose("t", key, partitions, live, lambda key, count: 0, first)
        assert raised.value.is_retriable
    with pytest.raises(NoBrokersForPartitionError):
        choose("t", "k", [], {0}, lambda key, count: 0, first)


class ByLength:
    def partition(self, key: object, num_partitions: int) -> int:
        return len(str(key)) % num_partitions


def by_two(key: object, num_partitions: int) -> int:
    return 2


@pytest.mark.parametrize("value", [ByLength, ByLength(), f"{__name__}.ByLength", by_two])
def test_partitioner_is_a_class_an_object_a_name_or_a_function(
    value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or pytest)
    monkeypatch.setattr(sys.modules[__name__], "ByLength", ByLength, raising=False)
    assert 2 == partitioner_of(value)("ab", 5)


@pytest.mark.parametrize("name", ["kafka.producer.DefaultPartitioner", "kafka.producer.ByteArrayPartitioner"])
def test_kafkas_names_are_understood(name: str) -> None:
    assert 99162322 % 5 == partitioner_of(name)("hello", 5)


@pytest.mark.parametrize("value", ["com.example.Nothing", "nothing", "json.nothing", 5, object()])
def test_what_is_no_partitioner_is_refused(value: object) -> None:
    with pytest.raises(ClientConfigError, match=r"partitioner\.class"):
        partitioner_of(value)
