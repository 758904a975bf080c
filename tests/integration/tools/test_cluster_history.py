"""`kalda cluster history` on brokers in this process: changes with their authors, the state at a time."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kalda import Admin, NewTopic, TopicPartition
from kalda.testing import Cluster
from tests.integration.tools.commands import Commands


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, settings={"kalda.cluster.history.enable": "true"}) as cluster:
        yield cluster


@pytest.fixture
def kalda(cluster: Cluster) -> Commands:
    return Commands(cluster.bootstrap)


def changes(kalda: Commands, *what: str) -> list[Any]:
    found: list[Any] = kalda.json("cluster", "history", *what)["changes"]
    return found


def wait_changes(
    cluster: Cluster, kalda: Commands, is_there: Callable[[list[Any]], bool], *what: str
) -> list[Any]:
    """Return the changes once they are as expected: they are recorded soon after the response."""
    found: list[Any] = []

    def is_found() -> bool:
        found[:] = changes(kalda, *what)
        return is_there(found)

    cluster.wait_until(is_found, what=f"the history of {what}")
    return found


def test_the_life_of_a_topic_is_listed_with_authors(cluster: Cluster, kalda: Commands) -> None:
    """Creation, a setting, more partitions, deletion: who asked, and what was before."""
    assert "has no history" in kalda.refused("cluster", "history").stderr

    with Admin(bootstrap_servers=cluster.bootstrap, client_id="tests") as admin:
        admin.create_topics([NewTopic("orders", partitions=2, config={"retention.ms": "1000"})])
        kalda("configs", "alter", "--topic", "orders", "--add-config", "retention.ms=2000")
        admin.create_partitions({"orders": 3})
        admin.delete_topics(["orders"])
    found = wait_changes(
        cluster, kalda, lambda found: any("topic" == each["kind"] and each["is_deleted"] for each in found),
        "topic", "orders",
    )  # fmt: skip

    own = [each for each in found if each["kind"] != "partition"]
    assert [
        ("topic", False, "CreateTopics"),
        ("topic-config", False, "CreateTopics"),
        ("topic-config", False, "IncrementalAlterConfigs"),
        ("topic", False, "CreatePartitions"),
        ("topic-deletion", False, "DeleteTopics"),
        ("topic", True, None),
        ("topic-config", True, None),
    ] == [(each["kind"], each["is_deleted"], each["author"].get("request")) for each in own]
    altered = own[2]
    assert {"retention.ms": "1000"} == altered["before"]["config"]
    assert {"retention.ms": "2000"} == altered["after"]["config"]
    assert {
        "broker": 0,
        "request": "IncrementalAlterConfigs",
        "user": "User:ANONYMOUS",
        "client_id": "kalda",
        "host": "127.0.0.1",
    } == altered["author"]
    assert {"broker": 0, "controller_epoch": 1} == own[5]["author"]
    # The deletion may come before the states of the partitions that the controller created.
    assert {"orders-0", "orders-1", "orders-2"} >= {each["name"] for each in found if each not in own}


def test_nothing_is_missing_when_the_leader_of_the_history_is_killed() -> None:
    """Changes go on while it is down; the next leader records the notes that wait, each once."""
    names = [f"topic-{number}" for number in range(9)]
    with Cluster(brokers=3, settings={"kalda.cluster.history.enable": "true"}) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            for number, name in enumerate(names):
                admin.create_topics([NewTopic(name, partitions=1, replication_factor=2)])
                if number == 3:
                    cluster.wait_in_sync("__cluster_history")
                    cluster.kill(leader_of(cluster, "__cluster_history"))
        kalda = Commands(cluster.bootstrap)
        found = wait_changes(
            cluster, kalda, lambda found: any(names[-1] == each["name"] for each in found), "topic"
        )
        created = [
            (each["name"], each["origin"], each["author"]["request"])
            for each in found
            if each["name"] != "__cluster_history"
        ]
        assert [(name, "written", "CreateTopics") for name in names] == created
        found = wait_changes(
            cluster, kalda, lambda found: any(each["is_deleted"] for each in found), "broker"
        )
        assert 1 == sum(each["is_deleted"] for each in found), "the broker that was killed"


def leader_of(cluster: Cluster, topic: str) -> int:
    """Return the broker that leads the first partition of a topic."""
    found = cluster.server(0).services.metadata_cache.partition(TopicPartition(topic, 0))
    assert found is not None
    return found.leader
