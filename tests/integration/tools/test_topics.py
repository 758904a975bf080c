"""`kalda topics` against a broker."""

import os
import pty
import re
import subprocess
from pathlib import Path

from tests import forked_commands
from tests.integration.tools.commands import KALDA, Commands


def test_topics_are_created_listed_described_altered_and_deleted(kalda: Commands) -> None:
    assert (
        "Created topic flights.\nCreated topic trains.\n"
        == kalda(
            "topics",
            "create",
            "flights",
            "--topic",
            "trains",
            "--partitions",
            4,
            "--config",
            "retention.ms=60000",
        ).stdout
    )
    assert ["flights", "trains"] == kalda("topics", "list").stdout.split()

    topic, partitions = kalda("topics", "describe", "flights").stdout.split("\n\n")
    assert ["TOPIC", "TOPIC-ID", "PARTITIONS", "REPLICATION-FACTOR", "CONFIGS"] == topic.splitlines()[
        0
    ].split()
    name, _, *rest = topic.splitlines()[1].split()
    assert ["flights", "4", "1", "retention.ms=60000"] == [name, *rest]
    assert [["flights", str(number), "0", "0", "0"] for number in range(4)] == [
        line.split()[:5] for line in partitions.splitlines()[1:]
    ]

    assert (
        "Altered topic flights.\n"
        == kalda("topics", "alter", "flights", "--partitions", 6, "--delete-config", "retention.ms").stdout
    )
    (described,) = kalda.json("topics", "describe", "flights")["topics"]
    assert ("flights", 6, {}) == (described["name"], described["partition_count"], described["configs"])
    assert list(range(6)) == [each["partition"] for each in described["partitions"]]
    assert {0} == {each["leader"] for each in described["partitions"]}

    assert (
        "Deleted topic flights.\nDeleted topic trains.\n"
        == kalda("topics", "delete", "flights|trains").stdout
    )
    assert {"topics": []} == kalda.json("topics", "list", "--exclude-internal")


def test_json_says_what_was_created_and_what_failed(kalda: Commands) -> None:
    kalda("topics", "create", "there")
    done = kalda.run("topics", "create", "there", "new", "--json")

    assert 1 == done.code
    failed, created = done.json["topics"]
    assert ("there", False, "TOPIC_ALREADY_EXISTS") == (
        failed["name"],
        failed["is_created"],
        failed["error"]["code"],
    )
    assert ("new", True, None) == (created["name"], created["is_created"], created["error"])
    expected = (
        r"kalda: create topic there at broker .+: TOPIC_ALREADY_EXISTS: Topic 'there' already exists.\n"
    )
    assert re.fullmatch(expected, done.stderr)


def test_conditions_and_dry_runs_change_nothing(kalda: Commands) -> None:
    kalda("topics", "create", "kept")
    assert "Topic kept exists.\n" == kalda("topics", "create", "kept", "--if-not-exists").stdout
    assert "Would create topic planned.\n" == kalda("topics", "create", "planned", "--dry-run").stdout
    assert (
        "Would alter topic kept.\n"
        == kalda(
            "topics", "alter", "kept", "--partitions", 9, "--config", "retention.ms=1", "--dry-run"
        ).stdout
    )
    assert "" == kalda("topics", "delete", "planned", "--if-exists").stdout
    (kept,) = kalda.json("topics", "describe", "kept")["topics"]
    assert (1, {}) == (kept["partition_count"], kept["configs"])


def test_partitions_are_found_by_their_state(kalda: Commands) -> None:
    kalda("topics", "create", "plain")
    kalda("topics", "create", "risky", "--partitions", 2, "--config", "min.insync.replicas=2")

    def found(option: str) -> list[str]:
        return [
            f"{topic['name']}-{partition['partition']}"
            for topic in kalda.json("topics", "describe", "plain", "risky", option)["topics"]
            for partition in topic["partitions"]
        ]

    assert [] == found("--under-replicated-partitions")
    assert [] == found("--unavailable-partitions")
    assert ["risky-0", "risky-1"] == found("--under-min-isr-partitions")
    assert ["plain-0"] == found("--at-min-isr-partitions")
    rows = kalda("topics", "describe", "plain", "risky", "--under-min-isr-partitions").rows
    assert [["risky", "0"], ["risky", "1"]] == [row[:2] for row in rows]
    assert ["risky"] == [
        row[0] for row in kalda("topics", "describe", "plain|risky", "--topics-with-overrides").rows
    ]


def test_faults_of_the_command_line_are_one_line_each(kalda: Commands) -> None:
    for arguments, expected in (
        (("create",), "no name was given: write it behind the command, or use --topic"),
        (("create", "x", "--partitions", "0"), "--partitions=0 is not allowed: it takes an int, at least 1"),
        (("create", "x", "--partitions", "9999999999"), "it takes an int, at most 2147483647"),
        (("create", "x", "--config", "y"), "--config: 'y' is not a setting: write name=value"),
        (("create", "x", "--replica-assignment", "0:0"), "--replica-assignment=0:0 names a broker twice"),
        (("create", "x", "--replica-assignment", "0", "--partitions", "1"), "--replica-assignment implies"),
        (("alter", "x"), "there is nothing to alter"),
        (("list", "(x"), "'(x' is neither a topic's name nor a regular expression"),
        (("list", "--command-property", "bootstrap.server=x"), "bootstrap.servers"),
    ):
        done = kalda.refused("topics", *arguments)
        assert (2, "") == (done.code, done.stdout)
        (line,) = done.stderr.splitlines()
        assert line.startswith("kalda: ")
        assert expected in line


def test_a_topic_that_does_not_exist_is_named(kalda: Commands) -> None:
    done = kalda.refused("topics", "delete", "nowhere")

    assert 1 == done.code
    assert "kalda: topic nowhere does not exist; `kalda topics list` prints the names\n" == done.stderr
    kalda("topics", "create", "some.orders")
    done = kalda.refused("topics", "delete", "some.ordrs")
    assert "kalda: topic some.ordrs does not exist; did you mean `some.orders`?\n" == done.stderr
    done = kalda.refused("topics", "delete", "none-.*")
    assert "kalda: no topic matches none-.*; `kalda topics list` prints the names\n" == done.stderr


def test_settings_of_the_client_come_from_a_file_and_options(kalda: Commands, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    # A file may serve several kinds of clients.
    file.write_text(f"bootstrap.servers={kalda.bootstrap}\nclient.id=operator\nacks=all\ngroup.id=g\n")
    nowhere = Commands("127.0.0.1:1")

    nowhere("topics", "list", "--command-config", str(file))
    nowhere("topics", "list", "--bootstrap-server", kalda.bootstrap)
    done = nowhere.refused("topics", "list", "--command-property", "default.api.timeout.ms=500")
    assert 1 == done.code
    (line,) = done.stderr.splitlines()
    assert "127.0.0.1:1" in line


def test_a_terminal_gets_a_drawn_table(kalda: Commands) -> None:
    kalda("topics", "create", "drawn")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "KALDA_BOOTSTRAP_SERVER": kalda.bootstrap, "TERM": "xterm", "COLUMNS": "160"}
    done = forked_commands.run(
        [*KALDA, "topics", "describe", "drawn"], env=environment, stdout=theirs, timeout=60, check=True
    )
    os.close(theirs)
    text = b""
    try:
        while chunk := os.read(ours, 4096):
            text += chunk
    except OSError:  # Linux: the other end is closed
        pass
    os.close(ours)

    assert 0 == done.returncode
    assert "─" in text.decode()
    assert "drawn" in text.decode()


def test_a_reader_that_leaves_early_is_no_failure(kalda: Commands) -> None:
    """As in `kalda topics list | head -1`."""
    command = f"{' '.join(KALDA)} topics list --bootstrap-server {kalda.bootstrap} | head -0"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)

    assert "" == done.stderr


def test_a_topic_is_described_by_its_id(kalda: Commands) -> None:
    kalda("topics", "create", "by-id", "--partitions", 3)
    (described,) = kalda.json("topics", "describe", "by-id")["topics"]

    found = kalda.json("topics", "describe", "--topic-id", described["topic_id"])
    paged = kalda.json("topics", "describe", "by-id", "--partition-size-limit-per-response", 1)

    assert [described] == found["topics"] == paged["topics"]
    assert (
        "no topic has the id AAAAAAAAAAAAAAAAAAAAAw"
        in kalda.refused("topics", "describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAw").stderr
    )
    assert 2 == kalda.refused("topics", "describe", "--topic-id", "?").code
