"""`kalda groups` against a broker, with a group of confluent-kafka's."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest

from tests.integration.tools.commands import Commands

RECORDS = 10


def fill(kalda: Commands, topic: str, partitions: int = 1) -> None:
    """Create a topic with ten records in partition 0; record n has timestamp n seconds."""
    kalda("topics", "create", topic, "--partitions", partitions)
    producer = confluent_kafka.Producer({"bootstrap.servers": kalda.bootstrap, "linger.ms": 0})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=0, timestamp=1_000_000_000_000 + number * 1000)
    assert 0 == producer.flush(20)


@contextmanager
def member(kalda: Commands, group: str, topic: str, **settings: str) -> Iterator[confluent_kafka.Consumer]:
    """A member of a group that has read five records and committed that."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": kalda.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "client.id": "reader",
            **settings,
        }
    )
    consumer.subscribe([topic])
    read: list[confluent_kafka.Message] = []
    while len(read) < RECORDS // 2:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        read.append(message)
    consumer.commit(message=read[-1], asynchronous=False)
    try:
        yield consumer
    finally:
        consumer.close()


def committed(kalda: Commands, group: str) -> dict[tuple[str, int], int]:
    (described,) = kalda.json("groups", "describe", group)["groups"]
    return {(each["topic"], each["partition"]): each["current_offset"] for each in described["offsets"]}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_listed_and_described_with_lag_members_and_state(kalda: Commands, protocol: str) -> None:
    topic, group = f"described-{protocol}", f"readers-{protocol}"
    fill(kalda, topic)
    with member(kalda, group, topic, **{"group.protocol": protocol}):
        listed = {row[0]: row[1:] for row in kalda("groups", "list").rows}
        assert [protocol.capitalize(), "consumer", "Stable"] == listed[group]
        (row,) = kalda("groups", "describe", group).rows
        assert [group, topic, "0", "5", "10", "5"] == row[:6]
        assert "reader" == row[8]
        (row,) = kalda("groups", "describe", "--group", group, "--members", "--verbose").rows
        assert [group, "reader", "1", f"{topic}(0)"] == [row[0], row[4], row[5], row[7]]
        (row,) = kalda("groups", "describe", group, "--state").rows
        assert [
            group,
            f"{kalda.bootstrap}(0)",
            "range" if protocol == "classic" else "uniform",
            "Stable",
            "1",
        ] == row
        (described,) = kalda.json("groups", "describe", group)["groups"]
        assert ("Stable", 1) == (described["state"], len(described["members"]))
        assert [{"topic": topic, "partition": 0}] == described["members"][0]["assignment"]
        (offset,) = described["offsets"]
        assert (5, 10, 5) == (offset["current_offset"], offset["log_end_offset"], offset["lag"])

        done = kalda.refused("groups", "reset-offsets", group, "--all-topics", "--to-earliest", "--execute")
        assert f"group {group} is Stable with 1 member; stop its consumers" in done.stderr
        done = kalda.refused("groups", "delete", group, "--json")
        assert "NON_EMPTY_GROUP" == done.json["groups"][0]["error"]["code"]
    done = kalda("groups", "describe", group)
    assert [[group, topic, "0", "5", "10", "5", "-", "-", "-"]] == done.rows
    assert f"Group {group} has no members.\n" == done.stderr
    assert f"Deleted group {group}.\n" == kalda("groups", "delete", group).stdout
    done = kalda.refused("groups", "describe", group)
    expected = rf"kalda: describe group {group} at .+: GROUP_ID_NOT_FOUND: Group {group} not found.\n"
    assert re.fullmatch(expected, done.stderr)


def test_members_are_removed(kalda: Commands) -> None:
    fill(kalda, "left")
    with member(kalda, "leaving", "left", **{"group.instance.id": "static"}):
        assert (
            "Removed static member static from group leaving.\n"
            == kalda("groups", "remove-members", "leaving", "--group-instance-id", "static").stdout
        )


def test_a_reset_shows_its_plan_first_and_then_carries_it_out(kalda: Commands) -> None:
    fill(kalda, "reset")
    plan = kalda("groups", "reset-offsets", "planned", "--topic", "reset", "--to-offset", 4)
    assert [["planned", "reset", "0", "4", "-"]] == plan.rows
    assert "Nothing was changed: this is the plan; --execute carries it out.\n" == plan.stderr
    kalda.refused("groups", "describe", "planned")

    kalda("groups", "reset-offsets", "planned", "--topic", "reset", "--to-offset", 4, "--execute")
    assert {("reset", 0): 4} == committed(kalda, "planned")


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-current"], 6),
        (["--shift-by", "-2"], 4),
        (["--shift-by", "100"], 10),
        (["--to-offset", "3"], 3),
        (["--to-datetime", "2001-09-09T01:46:45.000"], 5),  # 1,000,000,005 seconds after 1970
        (["--to-datetime", "2001-09-09T03:46:45.001+02:00"], 6),
        (["--to-datetime", "2030-01-01T00:00:00.000"], 10),
        (["--by-duration", "P20000D"], 0),
        (["--by-duration", "PT1S"], 10),
    ],
)
def test_offsets_are_reset_to_any_place(kalda: Commands, scenario: list[str], expected: int) -> None:
    if "scenarios" not in kalda("topics", "list").stdout.split():
        fill(kalda, "scenarios")
    kalda("groups", "reset-offsets", "anywhere", "--topic", "scenarios:0", "--to-offset", 6, "--execute")
    done = kalda.json("groups", "reset-offsets", "anywhere", "--all-topics", *scenario)

    assert [(expected, 6)] == [(each["new_offset"], each["current_offset"]) for each in done["offsets"]]
    assert not done["is_executed"]


def test_a_plan_is_exported_edited_and_executed_from_its_file(kalda: Commands, tmp_path: Path) -> None:
    fill(kalda, "exported", partitions=2)
    reset = ("groups", "reset-offsets", "--group", "exporters")
    text = kalda(*reset, "--topic", "exported", "--to-latest", "--export").stdout
    assert "exported,0,10\nexported,1,0\n" == text
    file = tmp_path / "plan.csv"
    file.write_text(text.replace("10", "7"))

    kalda(*reset, "--from-file", str(file), "--execute")
    assert {("exported", 0): 7, ("exported", 1): 0} == committed(kalda, "exporters")
    rows = kalda("groups", "delete-offsets", "exporters", "--topic", "exported:1").rows
    assert [["exported", "1", "deleted"]] == rows
    assert {("exported", 0): 7} == committed(kalda, "exporters")


def test_faults_of_the_command_line_are_one_line_each(kalda: Commands) -> None:
    fill(kalda, "faulty")
    for arguments, expected in (
        (("describe",), "use --group or --all-groups"),
        (("describe", "g", "--all-groups"), "--all-groups means every group"),
        (("describe", "g", "--members", "--state"), "exclude each other"),
        (("list", "--state", "Happy"), "--state=Happy is not allowed: it takes PreparingRebalance"),
        (("reset-offsets", "g", "--topic", "faulty"), "where to is not given; use one of --to-offset"),
        (("reset-offsets", "g", "--to-latest"), "choose the partitions by either --topic or --all-topics"),
        (("reset-offsets", "g", "--topic", "faulty", "--to-latest", "--to-earliest"), "several places"),
        (("reset-offsets", "g", "--from-file", "nowhere"), "--from-file=nowhere: No such file"),
        (
            ("reset-offsets", "g", "--topic", "faulty", "--to-datetime", "now"),
            "--to-datetime=now is not allowed",
        ),
        (("remove-members", "g"), "use --all-members"),
        (("delete-offsets", "g"), "name the topics whose offsets to delete"),
    ):
        done = kalda.refused("groups", *arguments)
        assert (2, "") == (done.code, done.stdout)
        (line,) = done.stderr.splitlines()
        assert expected in line
