"""Clusters for groups: the delays of rebalances are short, so that tests are."""

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.cluster.helpers import cluster_fixture

SETTINGS = {
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "12",
}


one_broker = cluster_fixture(1, SETTINGS)
three_brokers = cluster_fixture(3, SETTINGS)


@pytest.fixture
def make_topic() -> Callable[..., str]:
    """Makes a topic filled with ``value-0`` ... and returns its name."""

    def make(bootstrap: str, partitions: int = 6, values: int = 300, replicas: int = -1) -> str:
        name = f"read-{uuid.uuid4().hex[:10]}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(30)
        fill(bootstrap, name, range(values))
        return name

    return make


def fill(bootstrap: str, topic: str, numbers: range) -> list[str]:
    """Produce ``value-<n>`` for each number; return the values."""
    # Idempotent, or a retry after a lost broker would double values.
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    values = [f"value-{number}" for number in numbers]
    for value in values:
        producer.produce(topic, key=value, value=value)
    assert 0 == producer.flush(30)
    return values
