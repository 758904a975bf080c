"""`kalda cluster decommission` and `kalda reassign generate --all-topics` on four brokers in this process."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from kalda import Consumer, Producer
from kalda.testing import Cluster
from tests.integration.tools.commands import Commands

VALUES = [str(number).encode() for number in range(100)]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=4) as cluster:
        yield cluster


@pytest.fixture
def kalda(cluster: Cluster) -> Commands:
    return Commands(cluster.bootstrap)


def make_topic(kalda: Commands, name: str, assignment: str) -> None:
    kalda("topics", "create", name, "--replica-assignment", assignment)
    with Producer(bootstrap_servers=kalda.bootstrap, acks="all") as producer:
        for value in VALUES:
            producer.send(name, value=value)


def replicas_of(kalda: Commands, topic: str) -> list[list[int]]:
    (described,) = kalda.json("topics", "describe", topic)["topics"]
    return [each["replicas"] for each in described["partitions"]]


def test_a_decommissioned_broker_has_no_replicas_and_no_record_is_lost(kalda: Commands) -> None:
    """Partition 1 has no replica on the broker and stays where it is."""
    make_topic(kalda, "flights", "0:1,1:2,2:0")

    done = kalda("cluster", "decommission", 0, "--throttle", 100_000_000)

    assert "Broker 0 has no replicas" in done.stdout
    assert "Save the current assignment to be able to go back" in done.stderr
    assert [[3, 1], [1, 2], [2, 3]] == replicas_of(kalda, "flights")
    (broker,) = (each for each in kalda.json("cluster", "describe")["nodes"] if 0 == each["id"])
    assert 0 == broker["replicas"]
    with Consumer(
        "flights", bootstrap_servers=kalda.bootstrap, group_id="readers", auto_offset_reset="earliest"
    ) as consumer:
        assert sorted(VALUES) == sorted(record.value or b"" for record in islice(consumer, len(VALUES)))
    entities = kalda.json("configs", "describe", "--entity-type", "brokers", "--entity-name", "1")["entities"]
    assert [] == [each for entity in entities for each in entity["configs"] if "throttled" in each["name"]]


def test_a_stopped_broker_is_decommissioned_from_the_replicas_of_others(
    cluster: Cluster, kalda: Commands
) -> None:
    """A broker whose machine is lost: nothing can be read from it and nothing can be configured on it."""
    make_topic(kalda, "flights", "0:1,1:2")
    cluster.stop(0)

    kalda("cluster", "decommission", 0, "--throttle", 100_000_000)

    assert [[3, 1], [1, 2]] == replicas_of(kalda, "flights")


def test_a_dry_run_prints_a_file_for_execute_and_moves_nothing(kalda: Commands, tmp_path: Path) -> None:
    make_topic(kalda, "flights", "0:1,1:2")

    done = kalda("cluster", "decommission", 0, "--dry-run")

    assert [[3, 1]] == [each["replicas"] for each in done.json["partitions"]]
    assert [[0, 1], [1, 2]] == replicas_of(kalda, "flights")
    file = tmp_path / "plan.json"
    file.write_text(done.stdout)
    kalda("reassign", "execute", "--reassignment-json-file", file, "--wait")
    assert [[3, 1], [1, 2]] == replicas_of(kalda, "flights")


def test_too_few_brokers_and_unknown_ones_are_refused(kalda: Commands) -> None:
    make_topic(kalda, "flights", "0:1:2:3")

    assert (
        "flights-0 has 4 replicas, brokers that remain: 3"
        in kalda.refused("cluster", "decommission", 0).stderr
    )
    assert "no broker 9 and no replica on it" in kalda.refused("cluster", "decommission", 9).stderr
    assert [[0, 1, 2, 3]] == replicas_of(kalda, "flights")


def test_all_topics_are_balanced_with_as_few_moves_as_possible(kalda: Commands, tmp_path: Path) -> None:
    """Broker 3 was added: it gets its share, three of twelve replicas, and no other replica moves."""
    make_topic(kalda, "flights", "0:1,1:2,2:0")
    make_topic(kalda, "airports", "0:1,1:2,2:0")

    done = kalda("reassign", "generate", "--all-topics")

    assert "to copy: 3 replicas" in done.stderr
    file = tmp_path / "plan.json"
    file.write_text(done.stdout)
    kalda("reassign", "execute", "--reassignment-json-file", file, "--wait")
    found = [each for topic in ("flights", "airports") for each in replicas_of(kalda, topic)]
    assert {0: 3, 1: 3, 2: 3, 3: 3} == dict(Counter(each for replicas in found for each in replicas))
    assert [] == kalda("reassign", "generate", "--all-topics").json["partitions"]


def test_balance_does_not_take_the_replicas_of_a_broker_that_restarts(
    cluster: Cluster, kalda: Commands
) -> None:
    make_topic(kalda, "flights", "0:1,1:2,2:3")
    cluster.stop(3)

    assert (
        "brokers 3 have replicas and do not run"
        in kalda.refused("reassign", "generate", "--all-topics").stderr
    )
    assert (
        "--all-topics excludes names"
        in kalda.refused("reassign", "generate", "--all-topics", "flights").stderr
    )


def test_a_killed_broker_is_a_problem_of_the_cluster_and_no_failure_of_the_commands(
    cluster: Cluster, kalda: Commands
) -> None:
    """Until its session expires the cluster lists it; the first look at an incident must not wait for it."""
    make_topic(kalda, "flights", "0:1,1:2")
    cluster.kill(0)

    done = kalda("cluster", "describe")
    assert ("Broker 0 is not running; start it." in done.stdout, "") == (True, done.stderr)
    kalda("cluster", "decommission", 0, "--throttle", 100_000_000)
    assert [[3, 1], [1, 2]] == replicas_of(kalda, "flights")
