"""Runs the behaviour suite of Kalda's clients against each target that `--targets` names.

``make test`` runs it on Kalda with one and three brokers, ``make compat`` on Apache Kafka:
``pytest tests/behaviour --targets apache-3.9.1,apache-4.1.0,apache-4.4.0``.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda import Admin, Consumer, ConsumerRecord, NewTopic, Producer, TopicPartition
from kalda.clients.consumer.consumer_config import Isolation
from kalda.testing.process import CommandProcess
from tests import forked_commands
from tests.behaviour.targets import Target, target_named

CommandProcess._popen = forked_commands.Popen

Topics = Callable[..., str]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        names = str(metafunc.config.getoption("--targets")).split(",")
        metafunc.parametrize("target", names, indirect=True, scope="session")
    if "group_protocol" in metafunc.fixturenames:
        metafunc.parametrize("group_protocol", ["classic", "consumer"])


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The cluster; tests leave it whole, with topics and groups of their own."""
    try:
        with target_named(request.param, tmp_path_factory.mktemp(request.param)) as running:
            yield running
    except NotAvailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def topics(target: Target) -> Topics:
    """Makes a topic that no other test uses and returns its name."""

    def make(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        with Admin(bootstrap_servers=target.bootstrap) as admin:
            created = admin.create_topics(
                [
                    NewTopic(
                        name,
                        partitions=partitions,
                        replication_factor=target.brokers,
                        config={key.replace("_", "."): value for key, value in config.items()},
                    )
                ]
            )
            created.raise_for_errors()
        return name

    return make


@pytest.fixture
def group() -> str:
    """The name of a group that no other test uses."""
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def _skip_unsupported(request: pytest.FixtureRequest) -> None:
    if "group_protocol" in request.fixturenames and "target" in request.fixturenames:
        target = request.getfixturevalue("target")
        if request.getfixturevalue("group_protocol") == "consumer" and not target.supports_consumer_protocol:
            pytest.skip(f"{target.name} has the consumer protocol as a preview only")


def read_all(
    target: Target, topic: str, count: int, *, isolation_level: Isolation = "read_uncommitted"
) -> list[ConsumerRecord[Any, Any]]:
    """Read `count` records of a topic from the beginning; fail when there are fewer, or more after them."""
    with Consumer(
        bootstrap_servers=target.bootstrap, auto_offset_reset="earliest", isolation_level=isolation_level
    ) as consumer:
        consumer.assign(
            [TopicPartition(topic, number) for number in range(len(consumer.partitions_for(topic)))]
        )
        records: list[ConsumerRecord[Any, Any]] = []
        deadline = time.monotonic() + 60
        while len(records) < count:
            assert time.monotonic() < deadline, f"{len(records)} of {count} records within 60 s"
            records += consumer.poll(timeout_s=1.0)
        records += consumer.poll(timeout_s=0.2)
    assert count == len(records)
    return records


def fill(target: Target, topic: str, count: int, *, start: int = 0, partitions: int = 1) -> None:
    """Write the values ``b"0"``, ``b"1"``, … in turn to the partitions."""
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        for number in range(start, start + count):
            producer.send(topic, value=b"%d" % number, partition=number % partitions)


def wait_until(what: str, condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Call `condition` until it is true; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
