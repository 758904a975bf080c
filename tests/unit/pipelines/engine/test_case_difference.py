"""How the difference between expected and made rows reads."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("sqlglot")

from kalda.common.types import TopicPartition
from kalda.pipelines.engine.case_difference import agrees, differences_of
from kalda.pipelines.engine.trial import DeadRecord, Trial
from kalda.pipelines.spec.cases import ExpectedLetter


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (None, None),
        (1, 1),
        (1.0, 1),
        (0.3, 0.1 + 0.2),
        ("NaN", math.nan),
        (1.5, Decimal("1.50")),
        ("1.50", Decimal("1.5")),
        ("2026-01-02", date(2026, 1, 2)),
        ("2026-01-02T01:00:00+01:00", datetime(2026, 1, 2, tzinfo=UTC)),
        ("2026-01-02 00:00:00", datetime(2026, 1, 2)),  # noqa: DTZ001 (a column without a zone)
        ("a", b"a"),
        ("/w==", b"\xff"),
        ({"a": 1}, {"a": 1, "b": 2}),
        ([1, {"a": "x"}], [1, {"a": "x", "b": 2}]),
        ([["k", 1]], [("k", 1)]),
        ([], []),
    ],
)
def test_values_agree_by_what_they_mean(expected: Any, actual: object) -> None:
    assert agrees(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (None, 0),
        (0, None),
        (True, 1),
        (1, True),
        ("1", 1),
        (1, "1"),
        (2, 1.5),
        ("x", 1.5),
        ("x", Decimal(1)),
        ("yesterday", date(2026, 1, 2)),
        (5, date(2026, 1, 2)),
        ({"c": None}, {"a": 1}),
        ([1], [1, 2]),
        ({}, [1]),
    ],
)
def test_values_disagree(expected: Any, actual: object) -> None:
    assert not agrees(expected, actual)


def lines(
    expected: list[Any], rows: list[Any], *, letters: Any = (), dead: Any = (), **more: Any
) -> list[str]:
    records = [SimpleNamespace(topic="t", partition=0, offset=10 + number) for number in range(3)]
    case: Any = SimpleNamespace(
        records=records, rows=expected, letters=letters, columns=(), filtered=None, **more
    )
    found = Trial(
        pipeline="p", records=3, filtered=1, columns=("a", "b"), rows=rows, dead=list(dead), note=None
    )
    return list(differences_of(case, found))


def rows_of(*numbers: int) -> list[dict[str, object]]:
    return [{"a": each, "b": 0} for each in numbers]


@pytest.mark.parametrize(
    ("expected", "made", "found"),
    [
        ((1, 2), (1, 2), []),
        ((1, 2), (1, 9), ["row 2: a: expected 2, got 9"]),
        ((1, 2, 3), (1, 3), ["rows: expected 3, got 2", 'row missing: {"a": 2}']),
        ((1, 3), (1, 2, 3), ["rows: expected 2, got 3", 'row 2 not expected: {"a": 2, "b": 0}']),
        ((1, 2, 3), (9, 2, 8, 3), ["rows: expected 3, got 4", "row 1: a: expected 1, got 9"]),
        ((), (1,), ["rows: expected 0, got 1", 'row 1 not expected: {"a": 1, "b": 0}']),
    ],
)
def test_one_row_too_many_is_one_line(
    expected: tuple[int, ...], made: tuple[int, ...], found: list[str]
) -> None:
    """Compared by their number, all rows behind it would differ."""
    assert found == lines([{"a": each} for each in expected], rows_of(*made))[: len(found)]
    assert bool(found) == bool(lines([{"a": each} for each in expected], rows_of(*made)))


def test_a_missing_column_is_named() -> None:
    assert ["row 1: c: expected 1, got no such column; it has a, b"] == lines([{"c": 1}], rows_of(1))


def test_columns_and_filtered_are_compared_if_given() -> None:
    case: Any = SimpleNamespace(records=[], rows=[{"a": 1}], letters=(), columns=("b", "a"), filtered=0)
    found = Trial(
        pipeline="p", records=3, filtered=1, columns=("a", "b"), rows=rows_of(1), dead=[], note=None
    )
    assert [
        "columns: expected b, a, got a, b",
        "filtered: expected 0, got 1",
    ] == list(differences_of(case, found))


def test_dead_letters_are_compared_by_their_record() -> None:
    def dead(offset: int) -> DeadRecord:
        return DeadRecord(TopicPartition("t", 0), offset, None, b"v", "decode", "Malformed", "not JSON: x")

    assert [] == lines(
        [], [], letters=[ExpectedLetter(1, "decode", "Malformed", "not JSON")], dead=[dead(11)]
    )
    assert [
        "record 1: expected a dead letter, and it is none",
        "dead letter of record 2: stage: expected expect, got decode",
        "dead letter of record 2: cause: expected Other, got Malformed",
        'dead letter of record 2: message: expected "Avro" in it, got "not JSON: x"',
        "record 3 is a dead letter and not expected to be: decode, Malformed: not JSON: x",
    ] == lines(
        [],
        [],
        letters=[ExpectedLetter(0, None, None, None), ExpectedLetter(1, "expect", "Other", "Avro")],
        dead=[dead(11), dead(12)],
    )
