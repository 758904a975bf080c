from collections.abc import Mapping

import pytest

from kalda.clients.argument_checks import (
    check_callback,
    check_collection,
    check_headers,
    check_interceptors,
    check_listener,
    check_max_records,
    check_offset,
    check_timeout,
    check_timestamp,
    check_topic_name,
    checked_partition,
    checked_partitions,
)
from kalda.clients.consumer.consumer_setup import ConsumerSetup, OffsetLike, read_offsets
from kalda.clients.consumer.rebalance_listener import ConsumerRebalanceListener
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


@pytest.mark.parametrize("pair", [("orders", True), ("orders", 0.0), ("orders", "0"), ("orders", -1)])
def test_only_numbers_are_partitions(pair: object) -> None:
    """False counted as partition 0, and was the partition of the records that came later."""
    with pytest.raises(ValueError, match="partition="):
        checked_partition(pair)


@pytest.mark.parametrize("partitions", [5, None, "orders", TopicPartition("orders", 0)])
def test_one_partition_is_no_list_of_partitions(partitions: object) -> None:
    with pytest.raises(ValueError, match="takes a list of TopicPartition"):
        checked_partitions(partitions)


@pytest.mark.parametrize("names", ["orders", b"orders", TopicPartition("orders", 0), 5])
def test_one_name_is_no_list_of_names(names: object) -> None:
    """`delete_topics("orders")` deleted the topics o, r, d, e and s."""
    with pytest.raises(ValueError, match="it takes a list"):
        check_collection("delete topic", names)


@pytest.mark.parametrize("offset", ["5", 1.5, None, True, 2**63])
def test_only_integers_of_64_bits_are_offsets(offset: object) -> None:
    """A larger one ended the fetches of the consumer: no request could carry it."""
    with pytest.raises(ValueError, match="offset="):
        check_offset("offset", offset)


@pytest.mark.parametrize(
    "headers",
    [
        {"a": b"b"},
        "ab",
        5,
        iter([("a", b"b")]),
        [None],
        ["ab"],
        [("a",)],
        [("a", b"b", 3)],
        [("a", "b")],
        [(b"a", b"b")],
    ],
)
def test_headers_are_pairs_of_names_and_bytes(headers: object) -> None:
    with pytest.raises(ValueError, match="header"):
        check_headers(headers)


def test_headers_may_have_no_value_and_several_kinds_of_bytes() -> None:
    check_headers([("a", None), ("a", b"1"), ("b", bytearray(b"2")), ("c", memoryview(b"3"))])
    check_headers((("a", b"1"),))


@pytest.mark.parametrize("value", [5, "print"])
def test_a_callback_can_be_called(value: object) -> None:
    with pytest.raises(ValueError, match="on_delivery="):
        check_callback("on_delivery", value)
    check_callback("on_delivery", None)
    check_callback("on_delivery", print)


@pytest.mark.parametrize("listener", [5, print, ConsumerRebalanceListener])
def test_a_listener_is_an_object_with_the_methods(listener: object) -> None:
    """It was found out at the first rebalance, which may be days later."""
    with pytest.raises(ClientConfigError, match="listener: "):
        check_listener(listener)
    check_listener(ConsumerRebalanceListener())
    check_listener(None)


def test_a_timeout_is_a_number() -> None:
    with pytest.raises(ValueError, match="nan"):
        check_timeout(float("nan"))


@pytest.mark.parametrize("timestamp", [-1, -2, "5", 1.5, None, True, 2**63])
def test_a_time_to_seek_to_is_no_special_timestamp(timestamp: object) -> None:
    """-1 and -2 of ListOffsets are the ends of the log, which have methods of their own."""
    with pytest.raises(ValueError, match="timestamp_ms="):
        check_timestamp("timestamp_ms", timestamp)
