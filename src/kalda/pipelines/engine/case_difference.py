"""Says how what a pipeline made differs from what a test expects, in lines for people.

Rows are aligned by the longest common subsequence, so that one row too many is one line. What is left between
rows that agree is compared in pairs, column by column.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Final

from kalda.pipelines.engine.trial import DeadRecord, Trial, shown
from kalda.pipelines.spec.cases import Case, ExpectedLetter, Plain

_FLOAT_TOLERANCE: Final = 1e-9
"""Relative; a sum of decimal fractions is rarely the written one."""
_SHOWN_CHARACTERS_MAX: Final = 300
_PAIRS_MAX: Final = 1_000_000
"""More pairs of rows are compared in order, without looking for a better alignment."""

Row = Mapping[str, object]


def differences_of(case: Case, found: Trial) -> Iterator[str]:
    """Yield a line for each difference."""
    if case.columns and found.rows and list(case.columns) != list(found.columns):
        yield f"columns: expected {', '.join(case.columns)}, got {', '.join(found.columns)}"
    yield from _row_differences(case.rows, found.rows)
    yield from _letter_differences(case, found.dead)
    if case.filtered is not None and case.filtered != found.filtered:
        yield f"filtered: expected {case.filtered}, got {found.filtered}"


def agrees(expected: Plain, actual: object) -> bool:
    """Return whether a value is what a test expects.

    Numbers are compared by value, times in UTC, and of a structure only the fields that the test names.
    """
    match actual:
        case None:
            return expected is None
        case bool():
            return expected is actual
        case int() | float() | Decimal():
            return _is_number(expected, actual)
        case datetime() | date():
            return isinstance(expected, str) and _moment(expected) == _utc(actual)
        case Mapping():
            return isinstance(expected, Mapping) and _disagreeing(expected, actual) == []
        case list():
            return (
                isinstance(expected, list)
                and len(expected) == len(actual)
                and all(agrees(*each) for each in zip(expected, actual, strict=True))
            )
        case tuple():  # an entry of a map
            return agrees(expected, list(actual))
    return expected == shown(actual)


def _is_number(expected: Plain, actual: float | Decimal) -> bool:
    if isinstance(expected, bool) or not isinstance(expected, int | float | str):
        return False
    if isinstance(actual, int) and isinstance(expected, str):
        return False
    try:
        if isinstance(actual, Decimal):
            return Decimal(str(expected)) == actual
        number = float(expected)
    except (InvalidOperation, ValueError):
        return False
    if isinstance(actual, int):
        return expected == actual
    both_nan = math.isnan(number) and math.isnan(actual)
    return both_nan or math.isclose(number, actual, rel_tol=_FLOAT_TOLERANCE)


def _moment(text: str) -> datetime | None:
    try:
        return _utc(datetime.fromisoformat(text))
    except ValueError:
        return None


def _utc(moment: date) -> datetime:
    if not isinstance(moment, datetime):
        moment = datetime.combine(moment, time())
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _disagreeing(expected: Mapping[str, Plain], actual: Row) -> list[str]:
    """Return the names that a test expects with another value."""
    return [name for name, value in expected.items() if name not in actual or not agrees(value, actual[name])]


def _row_differences(expected: Sequence[dict[str, Plain]], rows: Sequence[Row]) -> Iterator[str]:
    if len(expected) != len(rows):
        yield f"rows: expected {len(expected)}, got {len(rows)}"
    at, next_at = 0, 0
    for place, row in [*_aligned(expected, rows), (len(expected), len(rows))]:
        pairs = min(place - at, row - next_at)
        for index in range(pairs):
            yield from _cells(next_at + index, expected[at + index], rows[next_at + index])
        for each in expected[at + pairs : place]:
            yield f"row missing: {_text(each)}"
        for number in range(next_at + pairs, row):
            yield f"row {number + 1} not expected: {_text(shown(rows[number]))}"
        at, next_at = place + 1, row + 1


def _cells(number: int, expected: dict[str, Plain], row: Row) -> Iterator[str]:
    for name in _disagreeing(expected, row):
        got = _text(shown(row[name])) if name in row else f"no such column; it has {', '.join(row)}"
        yield f"row {number + 1}: {name}: expected {_text(expected[name])}, got {got}"


def _aligned(expected: Sequence[dict[str, Plain]], rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Return the indices of expected rows and rows that agree, in order, as many as possible."""
    if len(expected) * len(rows) > _PAIRS_MAX:
        pairs = zip(range(len(expected)), range(len(rows)), strict=False)
        return [pair for pair in pairs if not _disagreeing(expected[pair[0]], rows[pair[1]])]
    # lengths[i][j]: of the longest common subsequence of expected[i:] and rows[j:].
    lengths = [[0] * (len(rows) + 1) for _ in range(len(expected) + 1)]
    same = [[not _disagreeing(each, row) for row in rows] for each in expected]
    for i in reversed(range(len(expected))):
        for j in reversed(range(len(rows))):
            longer = max(lengths[i + 1][j], lengths[i][j + 1])
            lengths[i][j] = max(longer, lengths[i + 1][j + 1] + 1) if same[i][j] else longer
    found, i, j = [], 0, 0
    while i < len(expected) and j < len(rows):
        if same[i][j] and lengths[i][j] == lengths[i + 1][j + 1] + 1:
            found.append((i, j))
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return found


def _letter_differences(case: Case, dead: Sequence[DeadRecord]) -> Iterator[str]:
    places = {(each.topic, each.partition, each.offset): index for index, each in enumerate(case.records)}
    found = {
        places[each.topic_partition.topic, each.topic_partition.partition, each.offset]: each for each in dead
    }
    expected = {each.record: each for each in case.letters}
    for record in sorted(expected.keys() | found.keys()):
        letter, wanted = found.get(record), expected.get(record)
        if letter is None:
            yield f"record {record + 1}: expected a dead letter, and it is none"
        elif wanted is None:
            yield (
                f"record {record + 1} is a dead letter and not expected to be: {letter.stage}, "
                f"{letter.error_class}: {letter.message}"
            )
        else:
            yield from _letter(wanted, letter)


def _letter(wanted: ExpectedLetter, letter: DeadRecord) -> Iterator[str]:
    number = wanted.record + 1
    if wanted.stage is not None and wanted.stage != letter.stage:
        yield f"dead letter of record {number}: stage: expected {wanted.stage}, got {letter.stage}"
    if wanted.cause is not None and wanted.cause != letter.error_class:
        yield f"dead letter of record {number}: cause: expected {wanted.cause}, got {letter.error_class}"
    if wanted.message is not None and wanted.message not in letter.message:
        yield (
            f"dead letter of record {number}: message: expected {_text(wanted.message)} in it, "
            f"got {_text(letter.message)}"
        )


def _text(value: Plain) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."
