"""Throughput and latency as an application sees them: librdkafka against brokers on the same machine.

The same code and the same client run against Kalda and against Apache Kafka; only the address differs. Each
figure is the median of several runs, after one that is not counted.
"""

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import confluent_kafka
import confluent_kafka.admin

from benchmarks import page_cache

Figure = tuple[str, float, str]

_RUNS: Final = 3
_SMALL_MESSAGES: Final = 1_000_000
_LARGE_MESSAGES: Final = 300_000
_LATENCY_ROUNDS: Final = 3_000
_TIMEOUT_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Workload:
    """How the topics are made and what a producer waits for."""

    label: str = "acks=1"
    acks: str = "1"
    partitions: int = 1
    replication: int = 1
    topic_config: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, str] = field(default_factory=dict)
    """Further settings of librdkafka, such as those of TLS."""


_ONE_BROKER: Final = Workload()


def run(bootstrap: str, workload: Workload = _ONE_BROKER) -> list[Figure]:
    """Measure produce and consume at 100 B and 1 KB, and the latency of one message in flight."""
    figures: list[Figure] = []
    for size, count in ((100, _SMALL_MESSAGES), (1_000, _LARGE_MESSAGES)):
        produced, consumed = [], []
        for number in range(_RUNS + 1):
            topic = f"throughput-{workload.partitions}-{size}-{number}"
            create_topic(bootstrap, topic, workload)
            page_cache.fill()
            produced.append(count / produce_seconds(bootstrap, topic, size, count, workload))
            consumed.append(count / consume_seconds(bootstrap, topic, count, workload))
            delete_topic(bootstrap, topic, workload)
        for verb, rates in (("produce", produced), ("consume", consumed)):
            rate = statistics.median(rates[1:])
            figures.append((f"{verb} {size} B, {workload.label}", rate / 1e6, "M msg/s"))
            figures.append((f"{verb} {size} B, {workload.label}, bytes", rate * size / 1e6, "MB/s"))
    latencies = one_in_flight_ms(bootstrap, workload)
    suffix = "" if workload == _ONE_BROKER else f", {workload.label}"
    figures.append((f"one in flight, p50{suffix}", latencies[len(latencies) // 2], "ms"))
    figures.append((f"one in flight, p99{suffix}", latencies[len(latencies) * 99 // 100], "ms"))
    return figures


def create_topic(bootstrap: str, name: str, workload: Workload = _ONE_BROKER) -> None:
    """Create a topic and wait until it is there."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, **workload.client})
    topic = confluent_kafka.admin.NewTopic(
        name, workload.partitions, workload.replication, config=dict(workload.topic_config)
    )
    admin.create_topics([topic])[name].result(30)


def delete_topic(bootstrap: str, name: str, workload: Workload = _ONE_BROKER) -> None:
    """Delete a topic, so that its pages do not push those of the next run out of the cache."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, **workload.client})
    admin.delete_topics([name])[name].result(30)


def produce_seconds(bootstrap: str, topic: str, size: int, count: int, workload: Workload) -> float:
    """Produce `count` messages of `size` bytes and wait for all acknowledgements."""
    failed: list[object] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": workload.acks,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
            # Only failures call back, so that the client's Python does not bound the figure.
            "delivery.report.only.error": True,
            "error_cb": failed.append,
            **workload.client,
        }
    )
    value = b"x" * size
    produce, poll, partitions = producer.produce, producer.poll, workload.partitions
    begin = time.perf_counter()
    for number in range(count):
        try:
            produce(topic, value, partition=number % partitions)
        except BufferError:
            poll(0.05)
            produce(topic, value, partition=number % partitions)
    left = producer.flush(_TIMEOUT_SECONDS)
    seconds = time.perf_counter() - begin
    if left or failed:
        raise RuntimeError(f"{left} messages were not acknowledged; errors: {failed[:3]}")
    return seconds


def consume_seconds(bootstrap: str, topic: str, count: int, workload: Workload = _ONE_BROKER) -> float:
    """Read `count` messages from the start of the topic."""
    consumer = _consumer(bootstrap, workload)
    try:
        offsets = [confluent_kafka.TopicPartition(topic, each, 0) for each in range(workload.partitions)]
        consumer.assign(offsets)
        begin = time.perf_counter()
        found = 0
        while found < count:
            batch = consumer.consume(10_000, timeout=_TIMEOUT_SECONDS)
            if not batch:
                raise RuntimeError(f"only {found} of {count} messages arrived")
            found += len(batch)
        return time.perf_counter() - begin
    finally:
        consumer.close()


def one_in_flight_ms(bootstrap: str, workload: Workload) -> list[float]:
    """From `produce` to the message in the consumer's hands, one at a time; sorted milliseconds."""
    topic = f"latency-{workload.partitions}"
    create_topic(bootstrap, topic, workload)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": workload.acks,
            "linger.ms": 0,
            "socket.nagle.disable": True,
            **workload.client,
        }
    )
    consumer = _consumer(bootstrap, workload)
    latencies: list[float] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        for number in range(_LATENCY_ROUNDS + 200):
            begin = time.perf_counter()
            producer.produce(topic, b"x" * 100, partition=0)
            message = consumer.poll(_TIMEOUT_SECONDS)
            seconds = time.perf_counter() - begin
            producer.poll(0)
            if message is None or message.error() is not None:
                raise RuntimeError(f"message {number} did not arrive: {message and message.error()}")
            if number >= 200:
                latencies.append(seconds * 1000)
        producer.flush(_TIMEOUT_SECONDS)
    finally:
        consumer.close()
    return sorted(latencies)


def _consumer(bootstrap: str, workload: Workload) -> Any:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.min.bytes": 1,
            "socket.nagle.disable": True,
            "queued.max.messages.kbytes": 1_048_576,
            "queued.min.messages": 1_000_000,
            **workload.client,
        }
    )
