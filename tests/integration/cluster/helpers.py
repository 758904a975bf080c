"""What tests of clusters share."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka.admin
import pytest

from tests.integration.cluster.cluster_process import ClusterProcess
from tests.shared_broker import NO_RETENTION

TIMEOUT_SECONDS = 60.0


def create_topic(
    bootstrap: str,
    topic: str,
    *,
    partitions: int = 1,
    replicas: int = 3,
    config: Mapping[str, str] | None = None,
) -> None:
    """Create a topic and return when the cluster has it."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    new = confluent_kafka.admin.NewTopic(topic, partitions, replicas, config=dict(config or {}))
    admin.create_topics([new])[topic].result(TIMEOUT_SECONDS)


def leaders(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the leader of each partition, -1 where there is none."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    found: dict[int, int] = {}

    def is_known() -> bool:
        # The broker that is asked may not have heard of a new topic yet.
        partitions = admin.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic].partitions
        found.update({number: partition.leader for number, partition in partitions.items()})
        return bool(found)

    wait_until(is_known)
    return found


@contextmanager
def shared_cluster(directory: Path, *, brokers: int, settings: Mapping[str, str]) -> Iterator[str]:
    """Run a cluster that several tests share, in which nothing fails; yields its addresses."""
    with ClusterProcess(directory, brokers=brokers, settings={**NO_RETENTION, **settings}) as cluster:
        yield cluster.bootstrap
        # Where it ended by itself there is nothing left to stop, and so nothing that would tell.
        assert cluster.is_running, cluster.log()


def cluster_fixture(brokers: int, settings: Mapping[str, str]) -> Callable[..., Iterator[str]]:
    """Make a fixture: the addresses of a cluster that all tests of a worker share."""

    @pytest.fixture(scope="session")
    def fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        directory = tmp_path_factory.mktemp(f"{brokers}-brokers")
        with shared_cluster(directory, brokers=brokers, settings=settings) as bootstrap:
            yield bootstrap

    return fixture


def wait_until(condition: Callable[[], bool], seconds: float = TIMEOUT_SECONDS) -> None:
    """Poll; the time is only there to end a test that fails."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
