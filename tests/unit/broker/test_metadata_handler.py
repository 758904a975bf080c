"""What Metadata and its relatives answer, version by version."""

import gc
import itertools
import sys
import uuid
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from types import GeneratorType
from typing import TypeVar, cast

import pytest

from kalda.broker.requests.handlers import describe_cluster, describe_topic_partitions, metadata
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import STEPS_AT_ONCE, Steps, first_turn
from kalda.common.types import ZERO_UUID
from kalda.protocol import codec
from kalda.protocol.messages.describe_cluster import DescribeClusterRequest
from kalda.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.unit.broker.admin_fakes import AdminHarness, broker, context
from tests.unit.broker.handler_parts import finished

T = TypeVar("T")

INT32_MIN = -(2**31)
ALL_TOPIC_OPERATIONS = 3576
ALL_CLUSTER_OPERATIONS = 8096
"""Both as Apache Kafka without an authorizer answers."""


def ask(
    harness: AdminHarness, version: int, *names: str, listener: str = "PLAINTEXT", **fields: object
) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    for field, value in fields.items():
        setattr(request, field, value)
    response = metadata.handle(harness.metadata_parts, request, context(version, listener))
    assert isinstance(response, MetadataResponse)
    # What was answered must be what the version can carry.
    return codec.decode(MetadataResponse, version, codec.encode(response, version))


def names(response: MetadataResponse) -> list[str | None]:
    return [topic.name for topic in response.topics]


@pytest.fixture
def harness() -> AdminHarness:
    harness = AdminHarness(broker_count=2)
    harness.add_topic("b", partitions=2, replicas=(1, 0))
    harness.add_topic("a")
    return harness


@pytest.mark.parametrize("version", range(13))
def test_all_topics_and_no_topics_by_version(harness: AdminHarness, version: int) -> None:
    """v0 has no null: there an empty list asks for everything."""
    assert (["a", "b"] if version == 0 else []) == names(ask(harness, version))
    if version > 0:
        assert ["a", "b"] == names(ask(harness, version, topics=None))


@pytest.mark.parametrize("version", range(13))
def test_every_version_tells_what_it_can(harness: AdminHarness, version: int) -> None:
    harness.brokers = [broker(0, rack="r0"), broker(1)]
    harness.apply([])
    response = ask(harness, version, "b")

    [topic] = response.topics
    assert [(0, "host0", 9092), (1, "host1", 9092)] == [(b.node_id, b.host, b.port) for b in response.brokers]
    assert (0, 1) == (response.brokers[0].node_id, response.brokers[1].node_id)
    assert ("r0" if version >= 1 else None) == response.brokers[0].rack
    assert (0 if version >= 1 else -1) == response.controller_id
    assert ("cluster" if version >= 2 else None) == response.cluster_id
    assert (harness.cache.topic_id("b") if version >= 10 else ZERO_UUID) == topic.topic_id
    assert [(0, 0, 1, [1, 0], [1, 0]), (0, 1, 1, [1, 0], [1, 0])] == [
        (p.error_code, p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions
    ]
    assert INT32_MIN == topic.topic_authorized_operations == response.cluster_authorized_operations


def test_a_topic_named_twice_is_answered_once(harness: AdminHarness) -> None:
    assert ["b", "a"] == names(ask(harness, 12, "b", "a", "b"))


def test_unknown_and_impossible_names(harness: AdminHarness) -> None:
    response = ask(harness, 9, "nowhere", "not a name", "", "__consumer_offsets")

    codes = {topic.name: topic.error_code for topic in response.topics}
    assert {
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "not a name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "__consumer_offsets": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    } == codes
    assert [False, False, False, True] == [topic.is_internal for topic in response.topics]


def test_topics_by_id(harness: AdminHarness) -> None:
    unknown = uuid.uuid4()
    wanted = [
        MetadataRequestTopic(topic_id=topic_id, name=None)
        for topic_id in (harness.cache.topic_id("a"), unknown)
    ]

    response = ask(harness, 12, topics=wanted)

    assert [("a", ErrorCode.NONE), (None, ErrorCode.UNKNOWN_TOPIC_ID)] == [
        (topic.name, topic.error_code) for topic in response.topics
    ]
    assert unknown == response.topics[1].topic_id


@pytest.mark.parametrize("version", [10, 11])
def test_ids_in_a_request_are_refused_before_v12(harness: AdminHarness, version: int) -> None:
    """The field exists in v10 and v11 but servers never took it (KAFKA-15171)."""
    for topic in (
        MetadataRequestTopic(topic_id=harness.cache.topic_id("a"), name="a"),
        MetadataRequestTopic(name=None),
    ):
        with pytest.raises(ApiError) as caught:
            ask(harness, version, topics=[topic])
        assert ErrorCode.INVALID_REQUEST is caught.value.code


def test_authorized_operations_on_request_only(harness: AdminHarness) -> None:
    for version in (8, 9, 10):
        response = ask(
            harness,
            version,
            "a",
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
        assert ALL_CLUSTER_OPERATIONS == response.cluster_authorized_operations
        assert ALL_TOPIC_OPERATIONS == response.topics[0].topic_authorized_operations
    response = ask(harness, 12, "a", include_topic_authorized_operations=True)
    assert INT32_MIN == response.cluster_authorized_operations
    assert ALL_TOPIC_OPERATIONS == response.topics[0].topic_authorized_operations
    # The answer that others share was not touched.
    assert INT32_MIN == ask(harness, 12, "a").topics[0].topic_authorized_operations


def test_a_partition_whose_leader_is_gone(harness: AdminHarness) -> None:
    harness.brokers = [broker(0)]
    harness.apply([])

    for version in (1, 5, 6, 12):
        [topic] = ask(harness, version, "b").topics
        found = topic.partitions[0]
        assert (ErrorCode.LEADER_NOT_AVAILABLE, -1) == (found.error_code, found.leader_id)
        assert [1, 0] == found.replica_nodes
        assert ([1] if version >= 5 else []) == found.offline_replicas


def test_replicas_that_cannot_be_reached_are_left_out_in_v0(harness: AdminHarness) -> None:
    harness.brokers = [broker(1)]
    harness.apply([])

    [topic] = ask(harness, 0, "b").topics

    found = topic.partitions[0]
    assert (ErrorCode.REPLICA_NOT_AVAILABLE, 1) == (found.error_code, found.leader_id)
    assert ([1], [1]) == (found.replica_nodes, found.isr_nodes)


def test_a_leader_without_the_clients_listener_is_told_apart_from_v6(harness: AdminHarness) -> None:
    harness.brokers = [broker(0), broker(1, listener="OTHER")]
    harness.apply([])

    assert [0] == [b.node_id for b in ask(harness, 12).brokers]
    for version, code in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)):
        assert code == ask(harness, version, "b").topics[0].partitions[0].error_code
    assert ErrorCode.NONE == ask(harness, 12, "b", listener="OTHER").topics[0].partitions[0].error_code


def test_answers_follow_every_change(harness: AdminHarness) -> None:
    """They are kept between requests; a stale one would send clients to the wrong broker."""
    assert 1 == ask(harness, 12, "b").topics[0].partitions[0].leader_id
    topic = harness.cache.topic("b")
    assert topic is not None
    harness.apply([replace(topic.partitions[0], leader=0, leader_epoch=1)])
    found = ask(harness, 12, "b").topics[0].partitions
    assert [(0, 1), (1, 0)] == [(p.leader_id, p.leader_epoch) for p in found]
    harness.brokers = [broker(0)]
    harness.apply([])
    assert [0, -1] == [p.leader_id for p in ask(harness, 12, "b").topics[0].partitions]
    harness.remove_from_metadata("b")
    assert ["a"] == names(ask(harness, 12, topics=None))


def test_an_unknown_topic_is_created_only_if_both_sides_want_it(harness: AdminHarness) -> None:
    refused = ask(harness, 4, "new")
    assert [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == [topic.error_code for topic in refused.topics]
    forbidding = AdminHarness(settings={"auto.create.topics.enable": "false"})
    refused = ask(forbidding, 4, "new", allow_auto_topic_creation=True)
    assert [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == [topic.error_code for topic in refused.topics]
    assert {"a", "b"} == harness.cluster.assignments.keys()


async def test_an_unknown_topic_is_created_and_announced_without_a_leader() -> None:
    """Kafka answers before the leader is known; clients ask again."""
    harness = AdminHarness(settings={"num.partitions": "3"})
    harness.add_topic("old")
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in ("old", "new", "bad name")],
        allow_auto_topic_creation=True,
    )

    answer = metadata.handle(harness.metadata_parts, request, context(5))
    response = await cast("Coroutine[None, None, MetadataResponse]", answer)

    codes = {topic.name: topic.error_code for topic in response.topics}
    assert {
        "old": ErrorCode.NONE,
        "new": ErrorCode.LEADER_NOT_AVAILABLE,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    } == codes
    assert 3 == len(ask(harness, 5, "new").topics[0].partitions)


def test_one_topic_costs_the_same_among_many() -> None:
    """Counted in calls, which do not depend on the machine."""

    def calls(harness: AdminHarness) -> int:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="topic-0")])
        count = 0

        def count_call(frame: object, event: str, argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        # A collection would call the callbacks of gc, which hypothesis has registered.
        gc.collect()
        gc.disable()
        sys.setprofile(count_call)
        try:
            response = metadata.handle(harness.metadata_parts, request, context(12))
            codec.encode(cast("MetadataResponse", response), 12)
        finally:
            sys.setprofile(None)
            gc.enable()
        return count

    few, many = AdminHarness(), AdminHarness()
    few.add_topic("topic-0", 4)
    for number in range(1000):
        many.add_topic(f"topic-{number}", 4)
    ask(few, 12, "topic-0")
    ask(many, 12, "topic-0")

    assert calls(few) == calls(many)


def test_describe_cluster(harness: AdminHarness) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = describe_cluster.handle(harness.cache, "cluster", request, context(1))

    assert ("cluster", 0, ErrorCode.NONE) == (
        response.cluster_id,
        response.controller_id,
        response.error_code,
    )
    assert [0, 1] == [b.broker_id for b in response.brokers]
    assert ALL_CLUSTER_OPERATIONS == response.cluster_authorized_operations
    for endpoint_type, code in (
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ):
        refused = describe_cluster.handle(
            harness.cache, "cluster", DescribeClusterRequest(endpoint_type=endpoint_type), context(1)
        )
        assert code == refused.error_code


def test_a_controller_out_of_reach_is_not_named(harness: AdminHarness) -> None:
    harness.brokers = [broker(0, listener="OTHER"), broker(1)]
    harness.apply([])

    assert (
        -1
        == describe_cluster.handle(
            harness.cache, "cluster", DescribeClusterRequest(), context(0)
        ).controller_id
    )


def page(
    harness: AdminHarness, *topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in topics],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = finished(describe_topic_partitions.handle(harness.cache, harness.config, request, context(0)))
    return codec.decode(DescribeTopicPartitionsResponse, 0, codec.encode(response, 0))


def shape(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [p.partition_index for p in topic.partitions]) for topic in response.topics]


def test_pages_of_partitions_join_to_the_whole() -> None:
    harness = AdminHarness()
    for name, count in (("c", 3), ("a", 1), ("b", 5)):
        harness.add_topic(name, count)
    whole = [(name, number) for name, count in (("a", 1), ("b", 5), ("c", 3)) for number in range(count)]

    for limit in range(1, 10):
        collected = []
        cursor: tuple[str, int] | None = None
        while True:
            response = page(harness, limit=limit, cursor=cursor)
            found = [(name or "", number) for name, numbers in shape(response) for number in numbers]
            assert len(found) <= limit
            collected += found
            if response.next_cursor is None:
                break
            cursor = (response.next_cursor.topic_name, response.next_cursor.partition_index)
            assert cursor == whole[len(collected)]
        assert whole == collected


def test_the_brokers_own_limit_holds() -> None:
    harness = AdminHarness(settings={"max.request.partition.size.limit": "2"})
    harness.add_topic("a", 3)

    response = page(harness, limit=1000)

    assert [("a", [0, 1])] == shape(response)
    assert response.next_cursor is not None
    assert ("a", 2) == (response.next_cursor.topic_name, response.next_cursor.partition_index)
    assert [("a", [0])] == shape(page(harness, limit=-5))


def test_partitions_of_named_topics_in_order_with_errors_for_the_unknown(harness: AdminHarness) -> None:
    response = page(harness, "b", "a", "nowhere", "bad name")

    assert [("a", [0]), ("b", [0, 1]), ("bad name", []), ("nowhere", [])] == shape(response)
    assert [0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == [
        topic.error_code for topic in response.topics
    ]
    assert ALL_TOPIC_OPERATIONS == response.topics[0].topic_authorized_operations


@pytest.mark.parametrize(("topics", "cursor"), [(("a",), ("b", 0)), (("a", "b"), ("b", -1))])
def test_a_cursor_outside_the_question_is_refused(
    harness: AdminHarness, topics: tuple[str, ...], cursor: tuple[str, int]
) -> None:
    with pytest.raises(ApiError) as caught:
        page(harness, *topics, cursor=cursor)

    assert ErrorCode.INVALID_REQUEST is caught.value.code


def test_many_names_take_many_turns(harness: AdminHarness) -> None:
    """20,000 names that were looked at in one piece held the event loop for 5 ms."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=f"t{number}") for number in range(5_000)],
        allow_auto_topic_creation=False,
    )
    seen: list[int] = []

    class Counted(list[MetadataRequestTopic]):
        """Notes how far it was read."""

        def __iter__(self) -> Iterator[MetadataRequestTopic]:
            for number, topic in enumerate(super().__iter__()):
                seen.append(number)
                yield topic

    request.topics = Counted(request.topics or [])
    steps = metadata.handle(harness.metadata_parts, request, context(9))
    counts = [len(seen)]
    while isinstance(steps, GeneratorType):
        steps = first_turn(steps)
        counts.append(len(seen))
    assert isinstance(steps, MetadataResponse)
    assert 5_000 == len(steps.topics)
    assert 32 * STEPS_AT_ONCE >= max(after - before for before, after in itertools.pairwise([0, *counts]))


def in_turns(answer: T | Steps[T]) -> T:
    """Return what a handler answers, which must take more than one turn."""
    is_steps = isinstance(answer, GeneratorType)
    assert is_steps, "it was answered in one turn"
    return finished(answer)


@pytest.mark.parametrize("version", [0, 12])
def test_a_topic_of_many_partitions_takes_turns(harness: AdminHarness, version: int) -> None:
    """Its partitions cost time, not its name; a kept answer takes turns too, to be encoded in turns."""
    harness.add_topic("many", partitions=5_000)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="many")], allow_auto_topic_creation=False)
    for _ in range(2):
        response = metadata.handle(harness.metadata_parts, request, context(version))
        [topic] = cast(MetadataResponse, in_turns(response)).topics
        assert list(range(5_000)) == [each.partition_index for each in topic.partitions]


def test_a_topic_that_changes_while_its_answer_is_made_is_not_kept(harness: AdminHarness) -> None:
    harness.add_topic("many", partitions=5_000)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="many")], allow_auto_topic_creation=False)
    begun = metadata.handle(harness.metadata_parts, request, context(12))
    harness.add_topic("many", partitions=5_001)
    finished(begun)
    answer = metadata.handle(harness.metadata_parts, request, context(12))
    [topic] = cast(MetadataResponse, finished(answer)).topics
    assert 5_001 == len(topic.partitions)


def test_a_page_of_many_partitions_takes_turns(harness: AdminHarness) -> None:
    harness.add_topic("many", partitions=500)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="many")], response_partition_limit=400)
    page = describe_topic_partitions.handle(harness.cache, harness.config, request, context(0))
    response = in_turns(page)
    assert [("many", list(range(400)))] == shape(response)
    assert Cursor(topic_name="many", partition_index=400) == response.next_cursor


def test_many_names_are_sorted_in_turns(harness: AdminHarness) -> None:
    """Each once, from the cursor on, however they are mixed."""
    asked = [f"topic-{number * 7919 % 3000:04}" for number in range(3_000)]
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in [*asked, *asked]],
        cursor=Cursor(topic_name="topic-1000", partition_index=0),
    )
    page = describe_topic_partitions.handle(harness.cache, harness.config, request, context(0))
    assert sorted(asked)[1000:] == [topic.name for topic in in_turns(page).topics]
