"""Records for the consumer's tests, written by another client."""

import time
from collections.abc import Sequence
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from kalda import Consumer, ConsumerRecord

TIMEOUT_SECONDS = 60.0


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    """Create a topic and wait until it is there."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(TIMEOUT_SECONDS)


def produce(
    bootstrap: str, topic: str, values: Sequence[bytes], *, partitions: int = 1, codec: str = "none"
) -> None:
    """Write values, in turns to the partitions."""
    options = {"bootstrap.servers": bootstrap, "compression.type": codec, "batch.size": 30_000}
    producer = confluent_kafka.Producer(options)
    for number, value in enumerate(values):
        producer.produce(topic, value, key=b"k%d" % number, partition=number % partitions)
        producer.poll(0)
    assert 0 == producer.flush(TIMEOUT_SECONDS)


def read(consumer: Consumer, count: int) -> list[ConsumerRecord[Any, Any]]:
    """Poll until `count` records have come."""
    records: list[ConsumerRecord[Any, Any]] = []
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
        records += consumer.poll(1.0)
    return records
