"""The producer's metrics after real work, under Kafka's names."""

import threading
from collections.abc import Callable

from kalda import AsyncProducer, Producer

TopicName = Callable[[str], str]


def test_what_was_sent_is_counted(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("metrics")
    with Producer(bootstrap_servers=bootstrap, client_id="measured", compression_type="gzip") as producer:
        for _ in range(100):
            producer.send(topic, b"v" * 1000)
        producer.flush()
        values = producer.metrics()

    def value(name: str) -> float:
        return values.value("producer-metrics", name)

    assert 100 == value("record-send-total")
    assert 100 == values.value("producer-topic-metrics", "record-send-total", topic=topic)
    assert 0 == value("record-error-total")
    assert 100 / 60 <= value("record-send-rate") <= 100 / 30
    assert 0 < value("compression-rate-avg") < 0.5
    assert 1000 < value("record-size-avg") < 1020
    assert value("request-latency-avg") > 0
    assert value("buffer-total-bytes") == value("buffer-available-bytes")
    assert 0 == value("requests-in-flight")
    assert value("connection-count") >= 1
    assert value("request-total") >= value("response-total") > 0
    assert value("outgoing-byte-total") > 0
    assert value("incoming-byte-total") > 0
    assert value("flush-time-ns-total") > 0
    assert value("metadata-wait-time-ns-total") > 0
    assert 0 <= value("io-ratio") <= 1
    assert values.value("producer-node-metrics", "request-latency-max", node_id="node-0") > 0
    assert {"measured"} == {dict(name.tags)["client-id"] for name in values}


async def test_the_asyncio_producer_has_the_same_metrics(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("metrics")
    async with AsyncProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        before = set(producer.metrics())
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send(topic, b"v")
        values = producer.metrics()

    assert 1 == values.value("producer-metrics", "record-send-total")
    assert values.value("producer-metrics", "txn-commit-time-ns-total") > 0
    assert values.value("producer-metrics", "txn-init-time-ns-total") > 0
    assert before < set(values)


def test_metrics_can_be_read_in_any_thread_and_after_close(bootstrap: str, topic_name: TopicName) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic_name("metrics"), b"v").result(60)
        read: list[float] = []
        thread = threading.Thread(
            target=lambda: read.append(producer.metrics().value("producer-metrics", "record-send-total"))
        )
        thread.start()
        thread.join()
    assert [1.0] == read
    assert 1.0 == producer.metrics().value("producer-metrics", "record-send-total")
    assert 0.0 == producer.metrics().value("producer-metrics", "connection-count")
