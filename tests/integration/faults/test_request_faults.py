"""What each fault of requests does on the wire: which part fails, what has its effect, what is answered."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import kalda
from kalda.common.errors import ErrorCode
from kalda.faults import FaultError
from kalda.protocol import codec, registry
from kalda.protocol.headers import RequestHeader, read_response_header, request_header
from kalda.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kalda.protocol.messages.heartbeat import HeartbeatRequest
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kalda.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kalda.records.record import RecordBatchBuilder
from kalda.testing import Cluster
from tests.integration.faults.recipe_clients import records_of
from tests.raw_client import RawClient

Error = ErrorCode


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1) as cluster:
        yield cluster


def new_topics(cluster: Cluster, count: int, partitions: int = 2) -> list[str]:
    names = [f"t-{uuid.uuid4().hex[:8]}" for _ in range(count)]
    with kalda.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([kalda.NewTopic(name, partitions, 1) for name in names])
    return names


class Wire:
    """A connection that sends one request after the other, as messages."""

    def __init__(self, cluster: Cluster) -> None:
        self.client = RawClient(cluster.bootstrap)

    def __enter__(self) -> "Wire":
        self.client.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.__exit__(*_)

    def ask(self, request: Any, version: int) -> Any:
        """Return the response; None if the connection closed instead."""
        key = request.SCHEMA.api_key
        header_version = registry.request_header_version(key, version)
        head = request_header(RequestHeader(key, version, 7, "wire"), header_version)
        self.client.send_frame(head + codec.encode(request, version))
        frame = self.client.receive()
        if frame is None:
            return None
        _, position = read_response_header(frame, registry.response_header_version(key, version))
        return codec.decode(registry.spec(key).response_class, version, memoryview(frame), position)


def batch(value: bytes, headers: list[tuple[str, bytes]] | None = None, producer: int = -1) -> bytes:
    epoch, sequence = (-1, -1) if producer < 0 else (0, 0)
    builder = RecordBatchBuilder(producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    builder.append(None, value, timestamp=1_700_000_000_000, headers=headers or [])
    return bytes(builder.build())


def produce(topics: dict[str, dict[int, bytes]], acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[
                    PartitionProduceData(index=index, records=records) for index, records in each.items()
                ],
            )
            for name, each in topics.items()
        ],
    )


def produced(response: Any) -> dict[tuple[str, int], str]:
    return {
        (topic.name, each.index): Error(each.error_code).name
        for topic in response.responses
        for each in topic.partition_responses
    }


def fetch(topics: dict[str, list[int]], epoch: int = -1, session: int = 0) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic=name,
                partitions=[
                    FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1 << 20)
                    for each in partitions
                ],
            )
            for name, partitions in topics.items()
        ],
    )


def fetched(response: Any) -> dict[tuple[str, int], tuple[str, int]]:
    return {
        (topic.topic, each.partition_index): (Error(each.error_code).name, len(each.records or b""))
        for topic in response.responses
        for each in topic.partitions
    }


def test_only_the_named_partition_fails_and_the_others_are_written(cluster: Cluster) -> None:
    one, two = new_topics(cluster, 2)
    cluster.apply_faults(f"produce:NOT_LEADER*1,topic={one},partition=1")
    records = {one: {0: batch(b"a"), 1: batch(b"b")}, two: {0: batch(b"c"), 1: batch(b"d")}}
    with Wire(cluster) as wire:
        answer = produced(wire.ask(produce(records), 9))
        refused = {key for key, code in answer.items() if code != "NONE"}
        assert {(one, 1)} == refused
        assert "NOT_LEADER_OR_FOLLOWER" == answer[one, 1]
        assert 4 == len(answer)
        assert {"NONE"} == set(produced(wire.ask(produce(records), 9)).values())
        ends = fetched(wire.ask(fetch({one: [0, 1], two: [0, 1]}), 12))
    size = len(records[one][0])
    assert {(one, 0): 2, (one, 1): 1, (two, 0): 2, (two, 1): 2} == {
        key: bytes_ // size for key, (_, bytes_) in ends.items()
    }


def test_fetch_of_one_partition_fails_and_the_others_have_their_records(cluster: Cluster) -> None:
    one, two = new_topics(cluster, 2)
    records = {name: {0: batch(b"a"), 1: batch(b"b")} for name in (one, two)}
    with Wire(cluster) as wire:
        wire.ask(produce(records), 9)
        size = len(records[one][0])
        cluster.apply_faults(f"fetch:KAFKA_STORAGE*1,topic={one},partition=0")
        answer = fetched(wire.ask(fetch({one: [0, 1], two: [0]}), 12))
        assert ("KAFKA_STORAGE_ERROR", 0) == answer.pop((one, 0))
        assert {(one, 1): ("NONE", size), (two, 0): ("NONE", size)} == answer


def test_fetch_requests_have_no_session_while_they_may_fail(cluster: Cluster) -> None:
    """In a session a request names only what has changed, so that a partition could not be refused."""
    (topic,) = new_topics(cluster, 1)
    with Wire(cluster) as wire:
        session = wire.ask(fetch({topic: [0]}, epoch=0), 12).session_id
        assert session
        cluster.apply_faults(f"fetch:NOT_LEADER@3,topic={topic}")
        gone = wire.ask(fetch({}, epoch=1, session=session), 12)
        assert Error.FETCH_SESSION_ID_NOT_FOUND == gone.error_code
        for expected in ("NONE", "NONE", "NOT_LEADER_OR_FOLLOWER", "NONE"):
            answer = wire.ask(fetch({topic: [0]}, epoch=0), 12)
            assert (0, 0) == (answer.session_id, answer.error_code)
            assert expected == fetched(answer)[topic, 0][0]


def test_error_after_the_effect_concerns_the_named_partition(cluster: Cluster) -> None:
    (topic,) = new_topics(cluster, 1)
    cluster.apply_faults(f"produce:error-after=REQUEST_TIMED_OUT*1,topic={topic},partition=0")
    with Wire(cluster) as wire:
        answer = produced(wire.ask(produce({topic: {0: batch(b"a"), 1: batch(b"b")}}), 9))
        assert {(topic, 0): "REQUEST_TIMED_OUT", (topic, 1): "NONE"} == answer
        assert all(size for _, size in fetched(wire.ask(fetch({topic: [0, 1]}), 12)).values())


def test_metadata_of_a_topic_fails_and_brokers_are_named(cluster: Cluster) -> None:
    one, two = new_topics(cluster, 2)
    cluster.apply_faults(f"metadata:LEADER_NOT_AVAILABLE,topic={one}")
    with Wire(cluster) as wire:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in (one, two)])
        answer = wire.ask(request, 9)
        everything = wire.ask(MetadataRequest(topics=None), 9)
    assert 1 == len(answer.brokers)
    codes = {topic.name: Error(topic.error_code).name for topic in answer.topics}
    assert {one: "LEADER_NOT_AVAILABLE", two: "NONE"} == codes
    assert "LEADER_NOT_AVAILABLE" not in {
        Error(topic.error_code).name for topic in everything.topics if topic.name != one
    }


def test_request_without_answer_that_is_refused_closes_the_connection(cluster: Cluster) -> None:
    (topic,) = new_topics(cluster, 1)
    cluster.apply_faults("produce:NOT_LEADER*1")
    with Wire(cluster) as wire:
        assert wire.ask(produce({topic: {0: batch(b"a")}}, acks=0), 9) is None
    assert [1] == cluster.faults_applied()


@pytest.mark.parametrize("effect", ["drop", "lose", "truncate", "truncate=0", "truncate=30"])
def test_connection_closes(cluster: Cluster, effect: str) -> None:
    (topic,) = new_topics(cluster, 1)
    cluster.apply_faults(f"produce:{effect}*1,topic={topic}")
    with Wire(cluster) as wire:
        assert wire.ask(produce({topic: {0: batch(b"a")}}), 9) is None
    expected = [] if effect == "drop" else ["a"]
    assert expected == records_of(cluster.bootstrap, topic, len(expected))


def test_hung_request_gets_no_answer_and_the_next_one_does(cluster: Cluster) -> None:
    (topic,) = new_topics(cluster, 1)
    cluster.apply_faults(f"produce:hang*1,topic={topic}")
    with Wire(cluster) as wire:
        body = codec.encode(produce({topic: {0: batch(b"a")}}), 9)
        head = request_header(RequestHeader(0, 9, 1, "wire"), 2)
        wire.client.send_frame(head + body)
        assert {(topic, 0): "NONE"} == produced(wire.ask(produce({topic: {0: batch(b"b")}}), 9))
    assert ["b"] == records_of(cluster.bootstrap, topic, 1)


@pytest.mark.parametrize("version", [4, 7, 8, 9, 12])
def test_throttle_time_is_in_the_response(cluster: Cluster, version: int) -> None:
    (topic,) = new_topics(cluster, 1)
    cluster.apply_faults("produce:throttle=5ms*1; fetch:throttle=7ms*1; heartbeat:throttle=9ms*1")
    with Wire(cluster) as wire:
        assert 5 == wire.ask(produce({topic: {0: batch(b"a")}}), version).throttle_time_ms
        answer = wire.ask(fetch({topic: [0]}), version)
        assert 7 == answer.throttle_time_ms
        assert fetched(answer)[topic, 0][1]
        heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        assert 9 == wire.ask(heartbeat, 4).throttle_time_ms


def test_records_are_routed_to_another_topic(cluster: Cluster) -> None:
    one, other = new_topics(cluster, 2)
    cluster.apply_faults(f"produce:route={other},topic={one},client=wire")
    with Wire(cluster) as wire:
        answer = produced(wire.ask(produce({one: {0: batch(b"a"), 1: batch(b"b")}}), 9))
        assert {(one, 0): "NONE", (one, 1): "NONE"} == answer
    assert [] == records_of(cluster.bootstrap, one, 0)
    assert ["a"] == records_of(cluster.bootstrap, other, 1)


@pytest.mark.parametrize("more", ["", "; produce:delay=1ms"])
def test_records_with_a_header_are_routed(cluster: Cluster, more: str) -> None:
    """The numbers of an idempotent producer would have gaps in both topics, and are taken away."""
    one, other = new_topics(cluster, 2, partitions=1)
    cluster.apply_faults(f"produce:route={other},topic={one},header=canary=yes{more}")
    with kalda.Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
        for number in range(6):
            headers = [("canary", b"yes" if number % 2 else b"no")]
            producer.send(one, value=str(number).encode(), headers=headers).result(30)
    assert ["0", "2", "4"] == records_of(cluster.bootstrap, one, 3)
    assert ["1", "3", "5"] == records_of(cluster.bootstrap, other, 3)


def test_transactions_are_not_routed(cluster: Cluster) -> None:
    """The other topic would not be part of the transaction."""
    one, other = new_topics(cluster, 2, partitions=1)
    cluster.apply_faults(
        f"produce:route={other},topic={one},header=canary; produce:route={other},topic={one}"
    )
    with kalda.Producer(bootstrap_servers=cluster.bootstrap, transactional_id=one) as producer:
        producer.init_transactions()
        for number in range(2):
            with producer.transaction():
                producer.send(one, value=str(number).encode(), headers=[("canary", b"")])
    assert ["0", "1"] == records_of(cluster.bootstrap, one, 2)
    assert [] == records_of(cluster.bootstrap, other, 0)


def test_share_of_clients_is_routed_as_a_whole(cluster: Cluster) -> None:
    one, other = new_topics(cluster, 2, partitions=1)
    cluster.apply_faults(f"produce:route={other}~50%,topic={one}")
    for number in range(12):
        with kalda.Producer(
            bootstrap_servers=cluster.bootstrap, client_id=f"app-{number}", linger_ms=0
        ) as producer:
            for _ in range(3):
                producer.send(one, value=str(number).encode()).result(30)
    routed = records_of(cluster.bootstrap, other, 1)
    stayed = records_of(cluster.bootstrap, one, 36 - len(routed))
    assert 36 == len(routed) + len(stayed)
    assert not set(routed) & set(stayed)


def test_between_brokers_only_if_the_plan_says_so() -> None:
    with Cluster(brokers=2) as cluster:
        with kalda.Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([kalda.NewTopic("t", 1, 2)])
        cluster.wait_in_sync("t")
        cluster.apply_faults("fetch:drop; fetch:NOT_LEADER*3,from=brokers")
        cluster.wait_until(lambda: cluster.faults_applied()[1] == 3)
        assert 0 == cluster.faults_applied()[0]
        cluster.clear_faults()
        with kalda.Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            producer.send("t", value=b"x").result(60)


def test_names_are_plain_in_a_namespace_also_where_topics_have_ids(cluster: Cluster) -> None:
    cluster.apply_faults("produce:NOT_LEADER*2,topic=orders; fetch:NOT_LEADER*2,topic=orders")
    with cluster.namespace() as space:
        with kalda.Admin(bootstrap_servers=space.bootstrap) as admin:
            admin.create_topics([kalda.NewTopic("orders", 1, 1)])
        with kalda.Producer(bootstrap_servers=space.bootstrap) as producer:
            producer.send("orders", value=b"x").result(60)
        assert ["x"] == records_of(space.bootstrap, "orders", 1)
    assert [2, 2] == cluster.faults_applied()


def test_plan_is_replaced_and_a_wrong_one_changes_nothing(cluster: Cluster) -> None:
    (topic,) = new_topics(cluster, 1)
    cluster.apply_faults("produce:drop*1")
    with pytest.raises(FaultError, match="is no API"):
        cluster.apply_faults("produc:drop")
    with pytest.raises(FaultError, match="only `kalda simulate` has the fault"):
        cluster.apply_faults("broker:power@0")
    with pytest.raises(FaultError, match="only `kalda simulate` has links of clients"):
        cluster.apply_faults("link:cut@clients-0")
    assert [0] == cluster.faults_applied()
    cluster.apply_faults("fetch:drop*1")
    with Wire(cluster) as wire:
        assert {(topic, 0): "NONE"} == produced(wire.ask(produce({topic: {0: batch(b"a")}}), 9))
        assert wire.ask(fetch({topic: [0]}), 12) is None
