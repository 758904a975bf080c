"""`kalda reassign` on three brokers. A move is kept under way by a throttle of one byte a second."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.integration.cluster.helpers import shared_cluster, wait_until
from tests.integration.tools.commands import Commands

RECORD = b"x" * 100_000
RECORDS = 40


@pytest.fixture(scope="module")
def kalda(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with shared_cluster(tmp_path_factory.mktemp("cluster"), brokers=3, settings={}) as bootstrap:
        yield Commands(bootstrap)


def make_topic(kalda: Commands, name: str, assignment: str) -> None:
    """A topic with several fetches of data: a throttle may reach the brokers after the first one."""
    kalda("topics", "create", name, "--replica-assignment", assignment)
    producer = confluent_kafka.Producer({"bootstrap.servers": kalda.bootstrap})
    for partition in range(len(assignment.split(","))):
        for _ in range(RECORDS):
            producer.produce(name, RECORD, partition=partition)
    assert 0 == producer.flush(30)


def plan(directory: Path, topic: str, *replicas: list[int]) -> str:
    file = directory / f"{topic}.json"
    partitions = [
        {"topic": topic, "partition": number, "replicas": brokers} for number, brokers in enumerate(replicas)
    ]
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(file)


def replicas_of(kalda: Commands, topic: str) -> list[list[int]]:
    (described,) = kalda.json("topics", "describe", topic)["topics"]
    return [each["replicas"] for each in described["partitions"]]


def throttles_of(kalda: Commands) -> list[tuple[Any, str]]:
    """The throttles of all brokers and topics."""
    found = []
    for kind, names in (("topics", kalda("topics", "list").stdout.split()), ("brokers", ["0", "1", "2"])):
        arguments = [word for name in names for word in ("--entity-name", name)]
        for entity in kalda.json("configs", "describe", "--entity-type", kind, *arguments)["entities"]:
            found += [
                (entity["name"], each["name"]) for each in entity["configs"] if "throttled" in each["name"]
            ]
    return found


def test_a_proposal_is_carried_out_and_verified(kalda: Commands, tmp_path: Path) -> None:
    make_topic(kalda, "generated", "0,0")
    done = kalda("reassign", "generate", "generated", "--broker-list", "1,2")
    assert "Current partition replica assignment:" in done.stderr
    file = tmp_path / "proposal.json"
    file.write_text(done.stdout)
    proposed = [each["replicas"] for each in done.json["partitions"]]
    assert [[1], [2]] == sorted(proposed)

    done = kalda("reassign", "execute", "--reassignment-json-file", str(file), "--wait")
    assert "Moved generated-0, generated-1.\n" == done.stdout
    assert "Save the current assignment to be able to go back: " in done.stderr
    assert proposed == replicas_of(kalda, "generated")
    done = kalda("reassign", "verify", "--reassignment-json-file", str(file))
    assert [["generated", "0", "completed"], ["generated", "1", "completed"]] == [
        row[:3] for row in done.rows
    ]
    assert "The moves are done; the throttles are lifted.\n" == done.stderr


def test_topics_to_move_come_from_kafkas_file_too(kalda: Commands, tmp_path: Path) -> None:
    make_topic(kalda, "filed", "0:1")
    file = tmp_path / "topics.json"
    file.write_text('{"topics": [{"topic": "filed"}], "version": 1}')
    generate = ("reassign", "generate", "--topics-to-move-json-file", str(file))

    document = kalda.json(*generate, "--broker-list", "0,1,2")
    assert [0, 1] == document["current"]["partitions"][0]["replicas"]
    assert 2 == len(document["proposed"]["partitions"][0]["replicas"])
    done = kalda.refused(*generate, "--broker-list", "1,7")
    assert (1, "kalda: the cluster has no broker 7; its brokers are 0, 1, 2\n") == (done.code, done.stderr)
    done = kalda.refused(*generate, "--broker-list", "1")
    assert (
        "topic filed: The replication factor 2 is larger than the number of live brokers, 1." in done.stderr
    )


def test_a_throttled_move_is_listed_verified_refused_and_cancelled(kalda: Commands, tmp_path: Path) -> None:
    make_topic(kalda, "slow", "0")
    file = plan(tmp_path, "slow", [1, 2])
    execute = ("reassign", "execute", "--reassignment-json-file", file, "--throttle")
    done = kalda(*execute, 1)
    assert "Started to move slow-0.\n" == done.stdout
    assert "Run `kalda reassign verify` until the moves are done; it lifts the throttle.\n" in done.stderr
    assert [
        ("slow", "follower.replication.throttled.replicas"),
        ("slow", "leader.replication.throttled.replicas"),
        *(
            (broker, f"{side}.replication.throttled.rate")
            for broker in "012"
            for side in ("follower", "leader")
        ),
    ] == throttles_of(kalda)

    (listed,) = kalda.json("reassign", "list")["reassignments"]
    assert ("slow", 0, {1, 2}, [0]) == (
        listed["topic"],
        listed["partition"],
        set(listed["adding"]),
        listed["removing"],
    )
    assert [["slow", "0"]] == [row[:2] for row in kalda("reassign", "list").rows]
    verify = ("reassign", "verify", "--reassignment-json-file", file)
    verified = kalda.json(*verify)
    assert (True, False, "in-progress") == (
        verified["is_ongoing"],
        verified["throttles_lifted"],
        verified["partitions"][0]["status"],
    )
    done = kalda.refused(*execute, 1)
    assert "partitions are being reassigned already: slow-0; wait for them, cancel them, or" in done.stderr

    done = kalda("reassign", "cancel", "--reassignment-json-file", file)
    assert "Cancelled the reassignment of slow-0.\n" == done.stdout
    assert [[0]] == replicas_of(kalda, "slow")
    assert [] == throttles_of(kalda)
    done = kalda("reassign", "verify", "--reassignment-json-file", file, "--preserve-throttles")
    assert ["slow", "0", "not-active", "0", "1,2"] == done.rows[0]
    assert (
        "None of the moves is under way.\n"
        == kalda("reassign", "cancel", "--reassignment-json-file", file, "--preserve-throttles").stdout
    )


def test_verify_lifts_the_throttles_when_the_moves_are_done(kalda: Commands, tmp_path: Path) -> None:
    make_topic(kalda, "quick", "0")
    file = plan(tmp_path, "quick", [2])
    kalda("reassign", "execute", "--reassignment-json-file", file, "--throttle", 100_000_000)
    verify = ("reassign", "verify", "--reassignment-json-file", file)
    wait_until(lambda: bool(kalda.json(*verify)["throttles_lifted"]))

    assert [[2]] == replicas_of(kalda, "quick")
    assert [] == throttles_of(kalda)


def test_plans_for_what_is_not_there_are_refused(kalda: Commands, tmp_path: Path) -> None:
    make_topic(kalda, "there", "0")
    execute = ("reassign", "execute", "--reassignment-json-file")
    done = kalda.refused(*execute, plan(tmp_path, "there", [0, 9]))
    assert (1, "kalda: the cluster has no broker 9; its brokers are 0, 1, 2\n") == (done.code, done.stderr)
    done = kalda.refused(*execute, plan(tmp_path, "there", [1], [2]))
    assert "kalda: the cluster has no partition there-1; correct the file\n" == done.stderr
    done = kalda.refused(*execute, str(tmp_path / "nowhere.json"))
    assert 2 == done.code
    assert "nowhere.json: No such file or directory" in done.stderr


def test_a_directory_that_a_broker_does_not_have_is_refused(kalda: Commands, tmp_path: Path) -> None:
    make_topic(kalda, "placed", "0")
    file = tmp_path / "placed.json"
    entry = {"topic": "placed", "partition": 0, "replicas": [0], "log_dirs": ["/elsewhere"]}
    file.write_text(json.dumps({"version": 1, "partitions": [entry]}))

    done = kalda.refused("reassign", "execute", "--reassignment-json-file", str(file))
    assert 1 == done.code
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("kalda: ")]
    assert line.startswith("kalda: the directory of replica placed-0-0 could not be chosen: ")
    assert line.endswith("; moves between brokers go on")


def test_leaders_are_elected_after_a_move(kalda: Commands, tmp_path: Path) -> None:
    make_topic(kalda, "led", "0:1")
    file = plan(tmp_path, "led", [1, 0])
    kalda("reassign", "execute", "--reassignment-json-file", file, "--wait")
    rows = kalda("elect-leaders", "--election-type", "preferred", "--topic", "led").rows

    assert [["led", "0"]] == [row[:2] for row in rows]
    (described,) = kalda.json("topics", "describe", "led")["topics"]
    assert 1 == described["partitions"][0]["leader"]
