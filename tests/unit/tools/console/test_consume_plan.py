"""Where `kalda consume` starts, and which options contradict each other."""

import re

import pytest

from kalda.command.errors import ToolUsageError
from kalda.tools.console.consume_plan import ConsumePlan, Start, StartKind, parse_start


def plan(**changed: object) -> ConsumePlan:
    values: dict[str, object] = {
        "topics": ("flights",),
        "include": None,
        "partitions": (),
        "start": Start(StartKind.EARLIEST),
        "is_endless": False,
        "max_messages": None,
        "timeout_ms": None,
        "group": None,
        "isolation_level": None,
        "skips_errors": False,
    }
    return ConsumePlan(**{**values, **changed})  # type: ignore[arg-type]  # the tests give the fields' types


@pytest.mark.parametrize(
    ("start", "at_time", "expected"),
    [
        (Start(StartKind.EARLIEST), None, 10),
        (Start(StartKind.LATEST), None, 100),
        (Start(StartKind.OFFSET, 42), None, 42),
        (Start(StartKind.FROM_END, 5), None, 95),
        (Start(StartKind.FROM_END, 500), None, 10),
        (Start(StartKind.TIME, 1), 33, 33),
        (Start(StartKind.TIME, 1), None, 100),
    ],
)
def test_where_a_partition_starts(start: Start, at_time: int | None, expected: int) -> None:
    """The partition has offsets from 10 to 100."""
    assert expected == start.offset(10, 100, at_time)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Start(StartKind.EARLIEST)),
        ("latest", Start(StartKind.LATEST)),
        ("0", Start(StartKind.OFFSET, 0)),
        ("-10", Start(StartKind.FROM_END, 10)),
    ],
)
def test_offsets_of_the_command_line(text: str, expected: Start) -> None:
    assert expected == parse_start(text)


@pytest.mark.parametrize("text", ["", "-", "x", "1.5", "--1", "\u0661"])
def test_other_offsets_are_refused(text: str) -> None:
    with pytest.raises(ToolUsageError, match="is not allowed: it takes a number, earliest, latest"):
        parse_start(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (plan(topics=()), "name the topics"),
        (plan(include=re.compile("x")), "name the topics"),
        (plan(topics=("a", "b"), partitions=(0,)), "--partition needs exactly one topic"),
        (plan(start=Start(StartKind.OFFSET, 5)), "--offset with a number needs --partition"),
        (plan(group="g", partitions=(0,)), "--partition and --group exclude each other"),
        (plan(group="g", start=Start(StartKind.TIME, 5)), "kalda groups reset-offsets"),
    ],
)
def test_contradictions_are_refused(given: ConsumePlan, message: str) -> None:
    with pytest.raises(ToolUsageError, match=message):
        given.check()


def test_settings_of_the_consumer() -> None:
    """Without a group nothing is committed; a new group starts where the plan starts."""
    assert {"auto.offset.reset": "earliest", "enable.auto.commit": "false"} == plan().properties()
    given = plan(group="g", start=Start(StartKind.LATEST), isolation_level="read_committed")
    assert {
        "auto.offset.reset": "latest",
        "group.id": "g",
        "isolation.level": "read_committed",
    } == given.properties()
