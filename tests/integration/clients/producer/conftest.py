"""What the tests of the producers share."""

from collections.abc import Callable

import confluent_kafka
import pytest

Read = Callable[..., list[confluent_kafka.Message]]


@pytest.fixture
def read() -> Read:
    """Reads records with another client: ``read(bootstrap, topic, count, partitions=1)``, in order."""

    def read(bootstrap: str, topic: str, count: int, partitions: int = 1) -> list[confluent_kafka.Message]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
        )
        try:
            starts = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)]
            consumer.assign(starts)
            found: list[confluent_kafka.Message] = []
            while len(found) < count:
                messages = consumer.consume(count - len(found), timeout=20)
                assert messages, f"{len(found)} of {count} records came"
                found += messages
            return found
        finally:
            consumer.close()

    return read
