"""Reading a state folder: every fault is named with its file and line, and a pull keeps what is equal."""

from pathlib import Path

from kalda.common.types import TopicPartition
from kalda.tools.state.folder import load, pulled_files, write_files
from kalda.tools.state.lint import faults
from kalda.tools.state.model import ClusterState, TopicState

STATE = ClusterState(
    {"flights": TopicState("flights", 4, 3, {"retention.ms": "1000", "cleanup.policy": "compact,delete"})},
    {"a/b c": {TopicPartition("flights", 0): 12, TopicPartition("flights", 3): 5}},
    {None: {"log.retention.hours": "5"}, 2: {"log.cleaner.threads": "2"}},
)


def write(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_a_pull_into_an_empty_folder_writes_readable_files(tmp_path: Path) -> None:
    write_files(tmp_path, pulled_files(load(tmp_path), STATE))

    assert (
        "topic: flights\npartitions: 4\nreplication-factor: 3\nconfigs:\n"
        "  cleanup.policy: compact,delete\n  retention.ms: 1000\n"
    ) == (tmp_path / "topics/flights.yml").read_text()
    assert (
        "group: a/b c\noffsets:\n  flights:\n    0: 12\n    3: 5\n"
        == (tmp_path / "groups/a%2Fb%20c.yml").read_text()
    )
    assert (
        "all:\n  log.retention.hours: 5\n2:\n  log.cleaner.threads: 2\n"
        == (tmp_path / "brokers.yml").read_text()
    )
    folder = load(tmp_path)
    assert [] == faults(folder)
    assert STATE == folder.state
    assert {} == pulled_files(folder, STATE)


def test_a_pull_keeps_files_that_say_the_same(tmp_path: Path) -> None:
    """Comments and the order of lines belong to the people who edit the files."""
    text = "# the schedule\ntopic: flights\nreplication-factor: 3\npartitions: 4   # one for each gate\n"
    write(tmp_path, "topics/anything.yaml", text)
    state = ClusterState({"flights": TopicState("flights", 4, 3, {})})

    assert {} == pulled_files(load(tmp_path), state)
    assert {"topics/anything.yaml": None} == pulled_files(load(tmp_path), ClusterState({}))


def test_every_fault_is_named_with_its_place(tmp_path: Path) -> None:
    write(tmp_path, "topics/a.yml", "topic: a\npartitions: six\nreplication-factor: 1\n")
    write(tmp_path, "topics/b.yml", "topic: b\npartitions: 1\n")
    write(tmp_path, "topics/c.yml", "topic: c\npartitions: 1\nreplication-factor: 1\nretention.ms: 5\n")
    write(tmp_path, "topics/d.yml", "topic: [d\n")
    write(tmp_path, "topics/e.yml", "topic: e\ntopic: f\n")
    write(tmp_path, "topics/g.yml", "")
    write(tmp_path, "topics/h.yml", "topic: a b\npartitions: 1\nreplication-factor: 1\n")
    write(tmp_path, "groups/g.yml", "group: g\noffsets:\n  t:\n    0: -4\n")
    write(tmp_path, "environment.yml", "ignore.topics: '('\n")

    assert [
        "environment.yml:1: ( is no regular expression: missing ), unterminated subpattern at position 0",
        "topics/a.yml:2: partitions=six is not allowed: it takes an int, at least 1",
        "topics/b.yml:1: replication-factor is missing in a topic's file",
        (
            "topics/c.yml:4: retention.ms is unknown in a topic's file; known are topic, partitions, "
            "replication-factor, configs"
        ),
        "topics/d.yml:2: this is not YAML: expected ',' or ']', but got '<stream end>'",
        "topics/e.yml:2: topic occurs twice in a topic's file; keep one",
        "topics/g.yml: the file is empty; delete it, or write what it is about",
        (
            "topics/h.yml:1: topic=a b is not allowed: it takes up to 249 letters, digits, dots, "
            "underscores and dashes"
        ),
        "groups/g.yml:4: the offset of t=-4 is not allowed: it takes an int, at least 0",
    ] == load(tmp_path).faults


def test_two_files_for_one_topic_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path, f"topics/{name}.yml", "topic: t\npartitions: 1\nreplication-factor: 1\n")

    assert ["topics/b.yml: topic t is in topics/a.yml too; keep one of them"] == load(tmp_path).faults


def test_lint_finds_what_brokers_would_refuse(tmp_path: Path) -> None:
    write(
        tmp_path,
        "topics/t.yml",
        "topic: t\npartitions: 2\nreplication-factor: 1\nconfigs:\n  retention.mss: 5\n  segment.bytes: x\n"
        "  min.insync.replicas: 2\n",
    )
    write(tmp_path, "groups/g.yml", "group: g\noffsets:\n  t:\n    2: 4\n")
    write(tmp_path, "brokers.yml", "all:\n  log.retention.hour: 1\n")

    found = faults(load(tmp_path))
    assert 5 == len(found), found
    assert found[0].startswith("topics/t.yml: `retention.mss` is not a setting; did you mean `retention.ms`?")
    assert found[1].startswith("topics/t.yml: `segment.bytes`=x ")
    assert "min.insync.replicas=2 is above replication-factor=1" in found[2]
    assert "groups/g.yml: t-2 has an offset, but the file of topic t has 2 partitions" == found[3]
    assert found[4].startswith("brokers.yml: all brokers: `log.retention.hour` is not a setting")


def test_numbers_that_no_topic_can_have_are_faults(tmp_path: Path) -> None:
    for name, digits in (("a", "9" * 5000), ("b", "2147483648")):
        write(tmp_path, f"topics/{name}.yml", f"topic: {name}\npartitions: {digits}\nreplication-factor: 1\n")

    write(tmp_path, "groups/g.yml", f"group: g\noffsets:\n  a:\n    0: {2**63 - 1}\n")

    first, second = load(tmp_path).faults
    assert first.startswith("topics/a.yml:2: partitions=999")
    assert (
        "topics/b.yml:2: partitions=2147483648 is not allowed: it takes an int, at most 2147483647" == second
    )


def test_a_misspelled_part_is_a_fault(tmp_path: Path) -> None:
    """A push would say that there is nothing to change."""
    write(tmp_path, "topic/a.yml", "topic: a\npartitions: 1\nreplication-factor: 1\n")
    write(tmp_path, "enviroment.yml", "")
    write(tmp_path, "README.md", "")

    assert [
        "enviroment.yml is not read: did you mean environment.yml? Rename it, or give it another name",
        "topic is not read: did you mean topics? Rename it, or give it another name",
    ] == load(tmp_path).faults
