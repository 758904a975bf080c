"""The consumer's metrics after real work, under Kafka's names, with both group protocols."""

import uuid
from collections.abc import Callable

import pytest

from kalda import AsyncConsumer, Consumer, Producer
from kalda.clients.consumer.consumer_config import GroupProtocol
from kalda.clients.metrics.registry import MetricValues

TopicName = Callable[[str], str]
COUNT = 300


def fill(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for _ in range(COUNT):
            producer.send(topic, b"v" * 100, partition=0)


def check_fetched(values: MetricValues, topic: str) -> None:
    def fetched(name: str, **tags: str) -> float:
        return values.value("consumer-fetch-manager-metrics", name, **tags)

    assert COUNT == fetched("records-consumed-total")
    assert COUNT == fetched("records-consumed-total", topic=topic)
    assert COUNT * 100 < fetched("bytes-consumed-total") < COUNT * 150
    assert fetched("fetch-total") >= 1
    assert fetched("fetch-latency-avg") > 0
    assert 0 == fetched("records-lag", topic=topic, partition="0")
    assert COUNT == fetched("records-lead", topic=topic, partition="0")
    assert values.value("consumer-metrics", "incoming-byte-total") > COUNT * 100
    assert values.value("consumer-metrics", "connection-count") >= 1


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_what_was_read_is_counted(
    bootstrap: str, topic_name: TopicName, group_protocol: GroupProtocol
) -> None:
    topic = topic_name("metrics")
    fill(bootstrap, topic)
    with Consumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"g-{uuid.uuid4().hex}",
        group_protocol=group_protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        read = 0
        while read < COUNT:
            read += len(consumer.poll(5.0, max_records=70))
        consumer.commit()
        values = consumer.metrics()

        check_fetched(values, topic)

        def member(name: str) -> float:
            return values.value("consumer-coordinator-metrics", name)

        assert 1 == member("assigned-partitions")
        assert member("rebalance-total") >= 1
        assert member("commit-total") >= 1
        assert member("commit-latency-max") > 0
        assert member("partition-assigned-latency-max") >= 0
        if group_protocol == "classic":
            assert member("join-total") >= 1
            assert member("sync-total") >= 1
        else:
            assert member("heartbeat-total") >= 1
        assert values.value("consumer-metrics", "time-between-poll-avg") > 0
        assert 0 <= values.value("consumer-metrics", "poll-idle-ratio-avg") <= 1
        assert values.value("consumer-metrics", "commit-sync-time-ns-total") > 0
        consumer.unsubscribe()
        left = {dict(name.tags).get("partition") for name in consumer.metrics()}
        assert {None} == left, "metrics of partitions end with the assignment"


async def test_iteration_and_arrow_count_too(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("metrics")
    fill(bootstrap, topic)
    options = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", "group_id": topic}
    async with AsyncConsumer(topic, **options) as consumer:  # type: ignore[arg-type]  # a plain dict
        read = 0
        async for _ in consumer:
            read += 1
            if read == COUNT:
                break
        await consumer.commit()
        check_fetched(consumer.metrics(), topic)
    async with AsyncConsumer(topic, **{**options, "group_id": f"{topic}-2"}) as consumer:  # type: ignore[arg-type]  # a plain dict
        rows = 0
        while rows < COUNT:
            batch = await consumer.poll_arrow(5.0, 100)
            rows += 0 if batch is None else batch.num_rows
        check_fetched(consumer.metrics(), topic)
