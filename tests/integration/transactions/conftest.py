"""Clusters for transactions, with time-outs that tests can wait for."""

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.cluster.helpers import cluster_fixture

SETTINGS = {
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}

PARTITIONS = 3


one_broker = cluster_fixture(1, SETTINGS)
three_brokers = cluster_fixture(3, SETTINGS)


@pytest.fixture
def make_topic() -> Callable[[str], str]:
    """Makes an empty topic and returns its name."""

    def make(bootstrap: str) -> str:
        name = f"txn-{uuid.uuid4().hex[:10]}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(name, PARTITIONS, -1)])[name].result(30)
        return name

    return make


@pytest.fixture
def transactional_id() -> str:
    return f"id-{uuid.uuid4().hex[:10]}"
