"""Reads the values of options that Kafka's tools share: times, settings, topics with partitions, JSON files.

Everything here is a pure function except those that read files; errors are `ToolUsageError`, with the
option's name.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kalda.command.errors import ToolUsageError
from kalda.command.option_types import INT32_MAX
from kalda.command.output import Json
from kalda.common.iso_duration import parse_duration_ms
from kalda.common.properties import PropertiesError, parse_assignments, read_properties
from kalda.common.types import TopicPartition

_AGO: Final = re.compile(r"([0-9]{1,12})([smhd])")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999; what is later is no time."""


def parse_time_ms(option: str, text: str) -> int:
    """Return a point in time in milliseconds; a time without a zone is UTC, as in Kafka's tools.

    Raises:
        ToolUsageError: the text is not an ISO-8601 date with a time.
    """
    try:
        if "T" not in text:
            raise ValueError(text)
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ToolUsageError(
            f"{option}={text} is not allowed: it takes a date and time such as 2026-11-22T14:30:00.000, in "
            "UTC, or with a zone as in 2026-11-22T14:30:00.000+01:00"
        ) from None
    return round((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_duration(option: str, text: str) -> int:
    """Return a duration in milliseconds.

    Raises:
        ToolUsageError: the text is not an ISO-8601 duration of days, hours, minutes and seconds.
    """
    duration_ms = parse_duration_ms(text)
    if duration_ms is None or duration_ms < 0:
        raise ToolUsageError(
            f"{option}={text} is not allowed: it takes a duration such as P7D, PT1H30M or PT45S (ISO 8601)"
        )
    return duration_ms


def parse_time_or_age_ms(option: str, text: str, now_ms: int) -> int:
    """Return a time in milliseconds: a number of them, a date and time, or a duration before now.

    A time before 1970 is the beginning of 1970.

    Raises:
        ToolUsageError: the text is none of these.
    """
    if text.isascii() and text.isdecimal():
        if len(text) > len(str(_TIME_MAX)):
            raise ToolUsageError(f"{option}={text} is not allowed: the year would be later than 9999")
        return min(int(text), _TIME_MAX)
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]])
    if text.startswith("P"):
        return max(0, now_ms - parse_duration(option, text))
    return min(max(0, parse_time_ms(option, text)), _TIME_MAX)


def parse_settings(option: str, assignments: Iterable[str]) -> dict[str, str]:
    """Return settings from repeated ``name=value`` options.

    Raises:
        ToolUsageError: a word is no setting.
    """
    try:
        return parse_assignments(assignments)
    except PropertiesError as error:
        raise ToolUsageError(f"{option}: {error}") from error


def read_settings(option: str, path: Path | None) -> dict[str, str]:
    """Return the settings of a properties file; none without a file.

    Raises:
        ToolUsageError: the file cannot be read, or is no properties file.
    """
    if path is None:
        return {}
    try:
        return read_properties(path)
    except OSError as error:
        raise ToolUsageError(f"{option}={path}: {error.strerror}") from error
    except PropertiesError as error:
        raise ToolUsageError(f"{option}={path}: {error}") from error


def split_settings(text: str) -> list[str]:
    """Split Kafka's ``--add-config`` at commas, except in brackets: ``a=1,b=[x,y]`` is ``a=1`` and ``b=x,y``.

    >>> split_settings("retention.ms=1000,cleanup.policy=[compact,delete]")
    ['retention.ms=1000', 'cleanup.policy=compact,delete']
    """
    parts = [""]
    depth = 0
    for character in text:
        if character == "[" and (depth or parts[-1].endswith("=")):
            depth += 1
        elif character == "]" and depth:
            depth -= 1
        elif character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]


def parse_topic_partitions(option: str, words: Iterable[str]) -> dict[str, list[int] | None]:
    """Return topics with partitions, from Kafka's ``topic`` and ``topic:0,1,5``.

    A topic without partitions, which has None, stands for all of them.

    Raises:
        ToolUsageError: a partition is no number.
    """
    topics: dict[str, list[int] | None] = {}
    for word in words:
        topic, colon, numbers = word.rpartition(":")
        if not colon:
            topics[word] = None
            continue
        known = topics.get(topic, [])
        if known is not None:
            topics[topic] = list(dict.fromkeys([*known, *_numbers(option, word, numbers)]))
    return topics


def parse_partitions(option: str, text: str) -> list[int]:
    """Return partitions from a list with commas.

    Raises:
        ToolUsageError: something is no number, or none of a partition.
    """
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if not all(0 <= number <= INT32_MAX for number in numbers):
        raise ToolUsageError(f"{option}={text} is not allowed: it takes partitions such as 0,1")
    return numbers


def _numbers(option: str, word: str, text: str) -> list[int]:
    try:
        return parse_partitions(option, text)
    except ToolUsageError:
        raise ToolUsageError(
            f"{option}={word} is not allowed: write a topic, or a topic with partitions as in flights:0,1"
        ) from None


def parse_ids(option: str, text: str) -> list[int]:
    """Return broker ids from a list with commas, without duplicates.

    Raises:
        ToolUsageError: one is no number, or there is a duplicate.
    """
    try:
        ids = [int(each) for each in text.split(",")]
    except ValueError:
        raise ToolUsageError(f"{option}={text} is not allowed: it takes broker ids such as 0,1,2") from None
    if len(set(ids)) < len(ids):
        raise ToolUsageError(f"{option}={text} names a broker twice")
    return ids


def distinct(option: str, *groups: Sequence[str]) -> list[str]:
    """Return the names that were given as arguments and by an option, in order.

    Raises:
        ToolUsageError: there is none.
    """
    names = list(dict.fromkeys(name for group in groups for name in group))
    if not names:
        raise ToolUsageError(f"no name was given: write it behind the command, or use {option}")
    return names


def read_json(option: str, path: Path) -> Mapping[str, Json]:
    """Read a file that holds one JSON object.

    Raises:
        ToolUsageError: the file cannot be read or holds something else.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ToolUsageError(f"{option}={path}: {error.strerror}") from error
    except ValueError as error:
        raise ToolUsageError(f"{option}={path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ToolUsageError(f"{option}={path} holds a {type(document).__name__}; it must hold a JSON object")
    return document


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions for a message: sorted, as Kafka writes them."""
    return ", ".join(map(str, sorted(partitions)))
