"""`kalda state`: a cluster becomes files and the files become a cluster; what loses data is refused."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda import NewTopic
from kalda.clients.admin.admin import Admin
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource
from kalda.common.types import TopicPartition
from kalda.testing import KaldaProcess
from tests import forked_commands
from tests.integration.tools.commands import KALDA, Commands

TOPICS = 200
POLICIES = ("delete", "compact", "compact,delete")


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Commands]:
    """A second cluster, which has nothing."""
    with KaldaProcess(tmp_path / "empty") as process:
        yield Commands(process.bootstrap)


def fill(bootstrap: str) -> None:
    """Create 200 topics with settings, two groups with offsets, and dynamic settings of the broker."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics(
            NewTopic(
                f"topic-{number}",
                partitions=1 + number % 3,
                replication_factor=1,
                config={"retention.ms": 1_000_000 + number, "cleanup.policy": POLICIES[number % 3]}
                if number % 2
                else {},
            )
            for number in range(TOPICS)
        )
        offsets = {TopicPartition(f"topic-{number}", 0): number for number in range(0, TOPICS, 7)}
        admin.alter_consumer_group_offsets(
            {"billing": offsets, "team/ä #1": {TopicPartition("topic-2", 2): 5}}
        )
        broker = admin.describe_cluster().nodes[0].id
        admin.incremental_alter_configs(
            {
                ConfigResource.broker(): [AlterConfigOp.set("log.retention.ms", 90_000_000)],
                ConfigResource.broker(broker): [AlterConfigOp.set("log.cleaner.threads", 2)],
            }
        )


def files(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in sorted(directory.rglob("*.yml"))
        if path.name != "environment.yml"
    }


def test_a_cluster_of_200_topics_goes_to_an_empty_one_and_a_second_push_changes_nothing(
    kalda: Commands, empty: Commands, tmp_path: Path
) -> None:
    """The acceptance of the issue: files hold everything, and a push is idempotent."""
    fill(kalda.bootstrap)
    directory = tmp_path / "production"
    done = kalda("state", "pull", directory)
    assert f"{directory} is up to date: {TOPICS} topics, 2 groups" == done.stdout.splitlines()[-1]
    assert f"bootstrap.servers: {kalda.bootstrap}\n" == (
        (directory / "environment.yml").read_text().replace('"', "")
    )
    pulled = files(directory)
    assert TOPICS + 3 == len(pulled)
    assert (
        "topic: topic-1\npartitions: 2\nreplication-factor: 1\nconfigs:\n"
        "  cleanup.policy: compact\n  retention.ms: 1000001\n"
    ) == pulled["topics/topic-1.yml"]
    assert "files, no faults" in kalda("state", "lint", directory).stdout
    assert {"written": [], "deleted": []} == kalda.json("state", "pull", directory)

    at = ("--bootstrap-server", empty.bootstrap)
    done = empty.run("state", "diff", directory, *at)
    assert 1 == done.code
    assert "+ topic topic-1: 2 partitions, replication factor 1, cleanup.policy=compact, " in done.stdout
    refused = empty.refused("state", "push", directory, *at, "--yes")
    assert 1 == refused.code
    assert "needs --allow-shorter-retention" in refused.stdout, "the retention of all brokers falls"
    expected = "nothing was changed: 1 step would lose data; allowed by --allow-shorter-retention"
    assert expected in refused.stderr

    document = empty.json("state", "push", directory, *at, "--yes", "--allow-shorter-retention")
    assert {True} == {step["done"] for step in document["steps"]}
    assert {"CreateTopic": TOPICS, "AlterBrokerConfigs": 2, "CommitOffsets": 2} == {
        kind: sum(step["step"] == kind for step in document["steps"])
        for kind in {step["step"] for step in document["steps"]}
    }
    assert {"steps": [], "impossible": []} == empty.json("state", "push", directory, *at, "--yes")
    done = empty("state", "diff", directory, *at)
    assert "nothing to change\n" == done.stdout

    second = tmp_path / "staging"
    empty("state", "pull", second, *at)
    assert pulled == files(second)


def test_a_push_changes_what_was_edited_and_refuses_what_loses_data(empty: Commands, tmp_path: Path) -> None:
    with Admin(bootstrap_servers=empty.bootstrap) as admin:
        admin.create_topics(
            [
                NewTopic("flights", partitions=2, replication_factor=1, config={"retention.ms": 7_200_000}),
                NewTopic("old", partitions=1, replication_factor=1),
            ]
        )
        admin.alter_consumer_group_offsets({"screens": {TopicPartition("flights", 0): 10}})
    directory = tmp_path / "production"
    empty("state", "pull", directory)
    topic, group = directory / "topics/flights.yml", directory / "groups/screens.yml"
    (directory / "topics/old.yml").unlink()
    topic.write_text(
        "topic: flights\npartitions: 3\nreplication-factor: 1\nconfigs:\n"
        "  retention.ms: 3600000\n  segment.ms: 60000\n"
    )
    group.write_text("group: screens\noffsets:\n  flights:\n    0: 4\n    1: 7\n")

    done = empty.refused("state", "push", directory, "--yes")
    assert [
        "- topic old   needs --allow-delete-topics: the records of the topic are gone",
        "~ topic flights: 2 -> 3 partitions",
        "~ topic flights: segment.ms=60000",
        (
            "~ topic flights: retention.ms: 7200000 -> 3600000   needs --allow-shorter-retention: "
            "records are deleted that are kept now"
        ),
        "+ group screens: flights-1=7",
        ("~ group screens: flights-0: 10 -> 4   needs --allow-offset-rewind: the group reads records again"),
        "6 steps",
    ] == done.stdout.splitlines()
    assert "old" in empty("topics", "list").stdout

    allowed = ("--allow-delete-topics", "--allow-shorter-retention", "--allow-offset-rewind")
    done = empty("state", "push", directory, "--yes", *allowed)
    assert "6 of 6 steps done" == done.stdout.splitlines()[-1]
    assert "old" not in empty("topics", "list").stdout
    assert "nothing to change\n" == empty("state", "diff", directory).stdout

    topic.write_text("topic: flights\npartitions: 1\nreplication-factor: 2\n")
    done = empty.refused("state", "push", directory, "--yes", *allowed)
    assert (
        "! topic flights has 3 partitions and the file wants 1: partitions cannot be removed" in done.stdout
    )
    assert "2 differences that no push can remove" in done.stderr


def test_a_push_asks_on_a_terminal_and_refuses_without_one(empty: Commands, tmp_path: Path) -> None:
    topic = tmp_path / "topics/flights.yml"
    topic.parent.mkdir()
    topic.write_text("topic: flights\npartitions: 1\nreplication-factor: 1\n")

    done = empty.refused("state", "push", tmp_path)
    assert (2, "kalda: push asks before it changes anything: run it on a terminal, or add --yes\n") == (
        done.code,
        done.stderr,
    )
    assert 1 == answered("n", empty, tmp_path)
    assert "" == empty("topics", "list", "--exclude-internal").stdout.replace("TOPIC", "").strip()
    assert 0 == answered("y", empty, tmp_path)
    assert "flights" in empty("topics", "list").stdout


def answered(answer: str, kalda: Commands, directory: Path) -> int:
    """Push on a terminal and return the exit code."""
    end, other = pty.openpty()
    try:
        process = forked_commands.Popen(
            [*KALDA, "state", "push", str(directory), "--bootstrap-server", kalda.bootstrap],
            stdin=other,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.write(end, f"{answer}\n".encode())
        _, stderr = process.communicate(timeout=60)
        assert "Push 1 step" in stderr
        return process.returncode
    finally:
        os.close(end)
        os.close(other)


def test_offsets_of_a_group_with_members_are_not_changed(empty: Commands, tmp_path: Path) -> None:
    """The coordinator refuses it; the message says what to do."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    with Admin(bootstrap_servers=empty.bootstrap) as admin:
        admin.create_topics([NewTopic("flights", partitions=1, replication_factor=1)])
    (tmp_path / "groups").mkdir()
    (tmp_path / "groups/g.yml").write_text("group: screens\noffsets:\n  flights:\n    0: 0\n")
    consumer = confluent_kafka.Consumer({"bootstrap.servers": empty.bootstrap, "group.id": "screens"})
    try:
        consumer.subscribe(["flights"])
        for _ in range(100):
            consumer.poll(0.1)
            if consumer.assignment():
                break
        done = empty.refused("state", "push", tmp_path, "--yes")
    finally:
        consumer.close()
    assert "offsets of a group can be changed while it has no members: stop its consumers" in done.stderr
    assert "1 of 1 step failed" in done.stderr


def test_faults_of_files_are_named_before_anything_is_sent(tmp_path: Path) -> None:
    topic = tmp_path / "topics/flights.yml"
    topic.parent.mkdir()
    topic.write_text("topic: flights\npartitions: 1\nreplication-factor: 1\nconfigs:\n  retention.mss: 5\n")
    kalda = Commands("127.0.0.1:1")

    done = kalda.run("state", "lint", tmp_path)
    assert 1 == done.code
    assert "`retention.mss` is not a setting; did you mean `retention.ms`?" in done.stdout
    document = json.loads(kalda.run("state", "lint", tmp_path, "--json").stdout)
    assert (1, 1) == (len(document["faults"]), document["files"])
    topic.write_text("topic: flights\npartitions: none\n")
    done = kalda.refused("state", "push", tmp_path, "--yes")
    assert (2, "kalda: topics/flights.yml:1: replication-factor is missing in a topic's file\n") == (
        done.code,
        done.stderr,
    )
