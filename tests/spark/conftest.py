"""One Spark session and one broker for all of these tests, on one worker."""

import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import confluent_kafka
import confluent_kafka.admin
import pytest
from _pytest.runner import runtestprotocol

from kalda.testing.process import CommandProcess
from tests import forked_commands
from tests.shared_broker import shared_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HERE: Final = Path(__file__).parent
_LATE_WORKER: Final = "Python worker failed to connect back"
"""Spark gives a process of a Python source 10 s to start, whatever the machine has to do; nothing sets it."""

CommandProcess._popen = forked_commands.Popen

_TEST_TIMEOUT_SECONDS = 300
"""The first query of a session starts a JVM and Python workers on a machine that other tests load."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give these tests more time than others. That they run on one worker is the parent's doing."""
    item.add_marker(pytest.mark.timeout(_TEST_TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the broker; ``KALDA_TEST_BOOTSTRAP`` points the tests at another one."""
    settings = {"transaction.two.phase.commit.enable": "true"}
    with shared_broker(tmp_path_factory.mktemp("spark-broker"), settings) as address:
        yield address


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """The shared session. The source is not registered here: Spark must find it by itself."""
    from pyspark.sql import SparkSession

    from kalda.spark.session import startup_path

    # Spark looks for data sources and starts workers with the Python that these name.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("kalda-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    )
    with startup_path():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


class Topics:
    """Creates, fills, grows and trims topics as an application would, with an ordinary client."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})

    def create(self, stem: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create a topic under a name that no other test uses."""
        name = f"{stem}-{uuid.uuid4().hex[:10]}"
        self.create_named(name, partitions, config)
        return name

    def create_named(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic under a name that was used before."""
        topic = confluent_kafka.admin.NewTopic(name, partitions, 1, config=dict(config or {}))
        self._admin.create_topics([topic])[name].result(30)

    def delete(self, name: str) -> None:
        """Delete a topic."""
        self._admin.delete_topics([name])[name].result(30)

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self._admin.create_partitions([confluent_kafka.admin.NewPartitions(name, partitions)])[name].result(
            30
        )

    def trim(self, name: str, partition: int, offset: int) -> None:
        """Delete a partition's records before an offset."""
        trimmed = confluent_kafka.TopicPartition(name, partition, offset)
        self._admin.delete_records([trimmed])[trimmed].result(30)

    def fill(
        self,
        name: str,
        values: Sequence[bytes | None],
        *,
        partition: int = 0,
        keys: Sequence[bytes | None] | None = None,
        timestamps: Sequence[int] | None = None,
        headers: Sequence[list[tuple[str, bytes | None]] | None] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Produce records to one partition and wait for their acknowledgement."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, **(config or {})})
        for index, value in enumerate(values):
            arguments: dict[str, object] = {"partition": partition}
            if timestamps is not None:
                arguments["timestamp"] = timestamps[index]
            if headers is not None and headers[index] is not None:
                arguments["headers"] = headers[index]
            producer.produce(name, value=value, key=keys[index] if keys else None, **arguments)
            producer.poll(0)
        assert 0 == producer.flush(30)


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Topics:
    """Access to topics by an ordinary client."""
    return Topics(bootstrap)


Options = Callable[..., dict[str, str]]


@pytest.fixture(scope="session")
def options(bootstrap: str) -> Options:
    """Options of the source, by keyword, with the address filled in."""
    return lambda **given: {"kafka.bootstrap.servers": bootstrap, **given}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test once more where Spark did not wait for its Python worker."""
    if _HERE not in item.path.parents or not isinstance(item, pytest.Function):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    if any(each.failed and _LATE_WORKER in each.longreprtext for each in reports):
        item._initrequest()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for each in reports:
        item.ihook.pytest_runtest_logreport(report=each)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
