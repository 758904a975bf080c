from collections.abc import Mapping

import pytest

from kalda.clients.argument_checks import (
    check_interceptors,
    check_max_records,
    check_timeout,
    check_topic_name,
    checked_partition,
)
from kalda.clients.consumer.consumer_setup import ConsumerSetup, OffsetLike, read_offsets
from kalda.clients.errors import ClientConfigError
from kalda.clients.metadata import Metadata
from kalda.clients.producer.partitioner import RoundRobinPartitioner
from kalda.clients.producer.producer_core import ProducerObjects
from kalda.common.types import TopicPartition


@pytest.mark.parametrize("name", [5, None, b"orders", "\ud800", "a" * 40_000])
def test_what_no_request_can_carry_is_not_asked_for(name: str) -> None:
    """One such name made all later metadata requests of the client fail, for all of its topics."""
    metadata = Metadata()
    metadata.add_topic("orders", 0.0)
    with pytest.raises(ValueError, match="topic="):
        metadata.add_topic(name, 1.0)
    request = metadata.next_request(2.0)
    assert request.topics is not None
    assert ["orders"] == [topic.name for topic in request.topics]


def test_a_name_that_only_a_broker_refuses_goes_to_the_broker() -> None:
    check_topic_name("not allowed")
    check_topic_name("a" * 300)


def test_a_pair_names_a_partition() -> None:
    assert TopicPartition("orders", 3) == checked_partition(("orders", 3))
    assert TopicPartition("orders", 3) == checked_partition(TopicPartition("orders", 3))


@pytest.mark.parametrize("value", ["or", "orders", 5, ("orders",), ("orders", "3"), ("orders", -1), (5, 3)])
def test_what_does_not_name_a_partition_is_refused(value: object) -> None:
    """A topic's name of two letters, given instead of a partition, was taken for a pair."""
    with pytest.raises(ValueError, match=r"partition|topic="):
        checked_partition(value)


@pytest.mark.parametrize("value", [0, -1, 1.5, "5", None, True])
def test_a_poll_for_no_records_is_refused(value: object) -> None:
    """A poll for none waited for its whole timeout, as if there were no records."""
    with pytest.raises(ValueError, match="max_records="):
        check_max_records(value)
    check_max_records(1)


@pytest.mark.parametrize("value", ["x", None, True])
def test_what_is_no_time_is_not_a_timeout(value: object) -> None:
    """Else `close` failed halfway, with the client marked as closed."""
    with pytest.raises(TypeError, match="timeout_s="):
        check_timeout(value)
    check_timeout(0)
    check_timeout(1.5)


class _Interceptor:
    def on_send(self) -> None:
        pass


@pytest.mark.parametrize("value", [5, None, "Audit", _Interceptor(), [_Interceptor], [5]])
def test_interceptors_are_a_list_of_objects(value: object) -> None:
    """Each of these was found out with the first record, in a warning of the log."""
    with pytest.raises(ClientConfigError, match="interceptors"):
        check_interceptors(value, ("on_send",))
    check_interceptors([_Interceptor()], ("on_send",))


def test_an_object_without_a_method_is_refused_with_its_name() -> None:
    with pytest.raises(ClientConfigError, match="partitioner: 5 has no method partition"):
        ProducerObjects(partitioner=5)  # type: ignore[arg-type]
    with pytest.raises(ClientConfigError, match="RoundRobinPartitioner is a class"):
        ProducerObjects(partitioner=RoundRobinPartitioner)  # type: ignore[arg-type]
    ProducerObjects(partitioner=RoundRobinPartitioner())
    ProducerObjects(partitioner=lambda topic, key, count, available: 0)


@pytest.mark.parametrize(
    "offsets", [5, "orders", [("orders", 0)], {"orders": 5}, {("orders", 0): "5"}, {("orders", 0): None}]
)
def test_what_are_no_offsets_is_not_committed(offsets: Mapping[TopicPartition, OffsetLike]) -> None:
    """Some of these failed with an AttributeError that named nothing of the user's."""
    with pytest.raises(ValueError, match=r"offset|partition"):
        read_offsets(offsets)


def test_an_empty_instance_id_is_refused() -> None:
    with pytest.raises(ClientConfigError, match=r"`group\.instance\.id` is empty"):
        ConsumerSetup.from_options(
            {"bootstrap_servers": "localhost:9092", "group_id": "billing", "group_instance_id": ""}
        )
