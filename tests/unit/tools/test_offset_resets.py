"""Where a reset puts a group."""

import pytest

from kalda.command.errors import ToolError, ToolUsageError
from kalda.common.types import TopicPartition
from kalda.tools.offset_resets import (
    LogRange,
    NewOffset,
    by_time,
    current,
    parse_reset_file,
    reset_file,
    shifted,
    within,
)

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
RANGES = {A: LogRange(10, 20), B: LogRange(0, 5)}


@pytest.mark.parametrize(
    ("asked", "expected"), [(9, 10), (10, 10), (15, 15), (20, 20), (21, 20), (-5, 10), (2**63 - 1, 20)]
)
def test_offsets_outside_the_log_are_moved_to_its_nearer_end(asked: int, expected: int) -> None:
    new = within({A: asked}, RANGES)[A]

    assert NewOffset(expected, asked) == new
    assert (asked != expected) is new.is_moved


def test_a_partition_without_ends_is_an_error() -> None:
    with pytest.raises(ToolError, match="the ends of c-0 are not known"):
        within({TopicPartition("c", 0): 1}, RANGES)


def test_shifting_needs_a_committed_offset() -> None:
    assert {A: 8, B: 1} == shifted([A, B], {A: 11, B: 4}, -3)
    with pytest.raises(ToolError, match="b-1 has none; use --to-earliest"):
        shifted([A, B], {A: 11}, -3)


def test_current_is_the_committed_offset_or_else_the_end() -> None:
    assert {A: 11, B: 5} == current([A, B], {A: 11}, RANGES)


def test_a_time_after_the_last_record_is_the_end() -> None:
    assert {A: 12, B: 5} == by_time({A: 12, B: None}, RANGES)


def test_plans_round_trip_with_and_without_the_group() -> None:
    one = {"g": {A: 1, TopicPartition("with,comma", 0): 2}}
    two = {**one, "h": {B: 3}}

    assert 'a,0,1\n"with,comma",0,2\n' == reset_file(one)
    assert 'g,a,0,1\ng,"with,comma",0,2\nh,b,1,3\n' == reset_file(two)
    assert one == parse_reset_file(reset_file(one), "file", ["g"])
    assert two == parse_reset_file(reset_file(two), "file", ["g", "h"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,0\n", r"file line 1: 'a,0' is not topic,partition,offset"),
        ("a,0,1\n\na,x,1\n", r"file line 3: 'g,a,x,1'"),
        ("h,a,0,1\n", "file has no plan for group g"),
    ],
)
def test_a_line_of_another_form_is_refused_with_its_number(text: str, expected: str) -> None:
    with pytest.raises(ToolUsageError, match=expected):
        parse_reset_file(text, "file", ["g"])
