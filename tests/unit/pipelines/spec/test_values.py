"""The types of single values in a pipeline file."""

import re
from typing import Any

import pytest

from kalda.pipelines.spec import values
from kalda.pipelines.spec.model import TableFormat, Trigger, TriggerKind
from kalda.pipelines.spec.values import NotAllowedError, ValueType, choice

ALLOWED: list[tuple[ValueType[Any], str, object]] = [
    (values.BOOLEAN, "True", True),
    (values.BOOLEAN, "false", False),
    (values.DURATION, "500ms", 500),
    (values.DURATION, " 10 m ", 600_000),
    (values.DURATION, "2w", 2 * 7 * 86_400_000),
    (values.DURATION, "0s", 0),
    (values.SIZE, "1", 1),
    (values.SIZE, "1.5kb", 1536),
    (values.SIZE, "64 MB", 64 << 20),
    (values.SHARE, "5%", 0.05),
    (values.SHARE, "1", 1.0),
    (values.SHARE, "0", 0.0),
    (values.COUNT, "7", 7),
    (values.NAME, "a.b-c_1", "a.b-c_1"),
    (values.TOPIC, "a" * 249, "a" * 249),
    (values.DLQ_TOPIC, "a" * 243, "a" * 243),
    (values.PATTERN, r"orders-\d+", r"orders-\d+"),
    (values.COLUMN, "s.größe", "s.größe"),
    (values.PARTITION, "day(s.ts)", "day(s.ts)"),
    (values.FUNCTION, "steps.a:mark", "steps.a:mark"),
    (values.MASTER, "local[2]", "local[2]"),
    (values.TRIGGER, "5s", Trigger(kind=TriggerKind.INTERVAL, interval_ms=5_000)),
    (values.TRIGGER, "every 10m", Trigger(kind=TriggerKind.EVERY, interval_ms=600_000)),
    (values.TRIGGER, "availableNow", Trigger(kind=TriggerKind.AVAILABLE_NOW)),
    (values.START, "group", "group"),
    (values.START, "-10m", "-10m"),
    (values.START, "2026-11-22T14:30:00+01:00", "2026-11-22T14:30:00+01:00"),
    (values.START, '{"orders":{"0":23}}', '{"orders":{"0":23}}'),
]
REFUSED: list[tuple[ValueType[Any], str]] = [
    (values.TEXT, " "),
    (values.TEXT, "a\0b"),
    (values.BOOLEAN, "yes"),
    (values.DURATION, "5"),
    (values.DURATION, "-5s"),
    (values.DURATION, "1.5s"),
    (values.DURATION, "٣s"),
    (values.DURATION, "1" * 13 + "s"),
    (values.SIZE, "0"),
    (values.SIZE, "0.0001KB"),
    (values.SIZE, "1PB"),
    (values.SHARE, "101%"),
    (values.SHARE, "1.1"),
    (values.SHARE, "-1%"),
    (values.COUNT, "0"),
    (values.COUNT, "٣"),
    (values.COUNT, "1" * 13),
    (values.NAME, ".."),
    (values.NAME, "a/b"),
    (values.NAME, "a" * 201),
    (values.NAME, "a\n"),
    (values.TOPIC, "."),
    (values.TOPIC, "a" * 250),
    (values.DLQ_TOPIC, "a" * 244),
    (values.PATTERN, ""),
    (values.PATTERN, "("),
    (values.COLUMN, "a-b"),
    (values.COLUMN, "1a"),
    (values.PARTITION, "week(ts)"),
    (values.FUNCTION, "steps.mark"),
    (values.MASTER, "SC://host"),
    (values.TRIGGER, "every 500ms"),
    (values.TRIGGER, "each 5s"),
    (values.TRIGGER, "every"),
    (values.TRIGGER, ""),
    (values.START, "soon"),
    (values.START, "2026-11-22"),
    (values.START, '{"orders":'),
]


@pytest.mark.parametrize(("kind", "text", "expected"), ALLOWED)
def test_a_value_is_read(kind: ValueType[Any], text: str, expected: object) -> None:
    assert expected == kind.parse(text)
    if kind.pattern is not None:
        assert re.fullmatch(kind.pattern, text)


@pytest.mark.parametrize(("kind", "text"), REFUSED)
def test_a_wrong_value_says_what_is_taken(kind: ValueType[Any], text: str) -> None:
    with pytest.raises(NotAllowedError) as refused:
        kind.parse(text)
    assert str(refused.value).startswith(kind.takes)
    if kind.pattern is not None:
        assert re.fullmatch(kind.pattern, text, re.ASCII) is None


def test_a_choice_suggests_the_nearest_word() -> None:
    kind = choice(TableFormat)
    assert TableFormat.DELTA is kind.parse("delta")
    with pytest.raises(NotAllowedError, match=r"^delta, iceberg or parquet. Did you mean parquet\?$"):
        kind.parse("parket")
    with pytest.raises(NotAllowedError, match=r"^delta, iceberg or parquet$"):
        kind.parse("xyz")
