"""A topic with numbers for tests."""

import confluent_kafka
import confluent_kafka.admin


def produce_numbers(bootstrap: str, topic: str, count: int) -> None:
    """Create a topic of one partition with the values ``0``, ``1``, ``2``, …."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, 1, 1)])[topic].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert 0 == producer.flush(30)
