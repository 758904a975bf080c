"""Values of options that several tools share."""

from pathlib import Path

import pytest

from kalda.command.errors import ToolUsageError
from kalda.command.values import (
    distinct,
    parse_duration,
    parse_ids,
    parse_partitions,
    parse_settings,
    parse_time_ms,
    parse_topic_partitions,
    read_json,
    split_settings,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:01.250", 1250),
        ("1970-01-01T00:00:01.250Z", 1250),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("1970-01-01T00:00", 0),
    ],
)
def test_times_without_a_zone_are_utc(text: str, expected: int) -> None:
    """As in Kafka's tools; the zone of the machine would give another result on each."""
    assert expected == parse_time_ms("--to-datetime", text)


@pytest.mark.parametrize("text", ["yesterday", "1970-01-01", "0", ""])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(
        ToolUsageError, match=f"^--to-datetime={text} is not allowed: it takes a date and time"
    ):
        parse_time_ms("--to-datetime", text)


def test_durations_are_days_to_seconds() -> None:
    assert (604_800_000, 5_400_000) == (parse_duration("-", "P7D"), parse_duration("-", "PT1H30M"))
    for text in ("7d", "P1M", "-PT1S", "PT-1S"):
        with pytest.raises(ToolUsageError, match="P7D, PT1H30M or PT45S"):
            parse_duration("--by-duration", text)


def test_settings_are_split_outside_brackets() -> None:
    assert ["a=1", "b=x,y", "e="] == split_settings("a=1,b=[x,y],e=")
    assert {"a": "1=2"} == parse_settings("--config", ["a=1=2"])
    with pytest.raises(ToolUsageError, match="--config: 'a' is not a setting"):
        parse_settings("--config", ["a"])


def test_topics_have_partitions_or_mean_all_of_them() -> None:
    words = ["a", "b:0,2", "b:2,5", "c:1", "c"]

    assert {"a": None, "b": [0, 2, 5], "c": None} == parse_topic_partitions("--topic", words)
    with pytest.raises(ToolUsageError, match="--topic=a:x is not allowed: write a topic, or"):
        parse_topic_partitions("--topic", ["a:x"])


def test_partitions_are_a_list_of_numbers() -> None:
    assert [0, 3, 4] == parse_partitions("--partitions", "0,3,4")
    for text in ("0-3", "9999999999", "-1", "", "x", "0,"):
        with pytest.raises(ToolUsageError, match=f"--partitions={text} is not allowed: it takes partitions"):
            parse_partitions("--partitions", text)


def test_ids_are_numbers_without_duplicates() -> None:
    assert [3, 1] == parse_ids("--broker-list", "3,1")
    for text in ("1,1", "1,", "a"):
        with pytest.raises(ToolUsageError, match="--broker-list="):
            parse_ids("--broker-list", text)


def test_names_come_from_arguments_and_options() -> None:
    assert ["a", "b"] == distinct("--topic", ("a",), ("b", "a"))
    with pytest.raises(ToolUsageError, match="use --topic"):
        distinct("--topic", (), ())


def test_json_files_hold_objects(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    with pytest.raises(ToolUsageError, match=r"--file=.*plan.json: No such file"):
        read_json("--file", file)
    for text, expected in (("{", "is not JSON"), ("[]", "holds a list")):
        file.write_text(text)
        with pytest.raises(ToolUsageError, match=expected):
            read_json("--file", file)
    file.write_text('{"a": 1}')
    assert {"a": 1} == read_json("--file", file)
