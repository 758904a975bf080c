"""`kalda reassign` with ``log_dirs`` and `kalda log-dirs`: replicas move between brokers and directories."""

import json
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from kalda.testing import Cluster
from tests.integration.cluster.helpers import wait_until
from tests.integration.tools.commands import Commands

RECORDS = 40


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2, log_directories_per_broker=2) as running:
        yield running


@pytest.fixture
def kalda(cluster: Cluster) -> Commands:
    return Commands(cluster.bootstrap)


def make_topic(kalda: Commands, name: str) -> None:
    kalda("topics", "create", name, "--replica-assignment", "0")
    producer = confluent_kafka.Producer({"bootstrap.servers": kalda.bootstrap})
    for _ in range(RECORDS):
        producer.produce(name, b"x" * 100_000, partition=0)
    assert 0 == producer.flush(30)


def plan(folder: Path, topic: str, places: dict[int, str]) -> str:
    file = folder / f"{topic}.json"
    entry = {
        "topic": topic,
        "partition": 0,
        "replicas": list(places),
        "log_dirs": list(places.values()),
    }
    file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    return str(file)


def places(kalda: Commands, topic: str) -> list[tuple[int, str, bool]]:
    """Broker, directory, and whether it is a future log, of each log of the topic."""
    return [
        (broker["broker"], directory["directory"], log["is_future"])
        for broker in kalda.json("log-dirs", "describe", "--topic", topic)["brokers"]
        for directory in broker["directories"]
        for log in directory["logs"]
    ]


def other_directory(cluster: Cluster, kalda: Commands, topic: str) -> str:
    [(broker_id, source, _)] = places(kalda, topic)
    [other] = [str(path) for path in cluster.log_directories_of(broker_id) if str(path) != source]
    return other


def test_a_replica_moves_to_another_directory(cluster: Cluster, kalda: Commands, tmp_path: Path) -> None:
    make_topic(kalda, "placed")
    target = other_directory(cluster, kalda, "placed")
    file = plan(tmp_path, "placed", {0: target})
    done = kalda("reassign", "execute", "--reassignment-json-file", file, "--wait")
    assert "Moved placed-0.\n" == done.stdout
    assert [(0, target, False)] == places(kalda, "placed")


def test_a_replica_comes_to_another_broker_in_the_chosen_directory(
    cluster: Cluster, kalda: Commands, tmp_path: Path
) -> None:
    make_topic(kalda, "sent")
    for number, path in enumerate(cluster.log_directories_of(1)):
        file = plan(tmp_path, "sent", {1: str(path)})
        kalda("reassign", "execute", "--reassignment-json-file", file, "--wait")
        assert [(1, str(path), False)] == places(kalda, "sent"), number


def test_a_throttled_move_is_shown_and_cancelled(cluster: Cluster, kalda: Commands, tmp_path: Path) -> None:
    make_topic(kalda, "slow")
    target = other_directory(cluster, kalda, "slow")
    [(_, source, _)] = places(kalda, "slow")
    file = plan(tmp_path, "slow", {0: target})
    arguments = ("--reassignment-json-file", file)
    kalda("reassign", "execute", *arguments, "--replica-alter-log-dirs-throttle", "1")
    assert sorted([(0, source, False), (0, target, True)]) == sorted(places(kalda, "slow"))
    rows = kalda("reassign", "verify", *arguments).rows
    assert any("in-progress" in row for row in rows), rows
    done = kalda("reassign", "cancel", *arguments)
    assert "Cancelled the move of replica slow-0-0 to another directory.\n" == done.stdout
    wait_until(lambda: [(0, source, False)] == places(kalda, "slow"))
