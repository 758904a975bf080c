"""Defines the types of single values in a pipeline file: their allowed texts, and the parsed values.

Each type describes itself for messages and for the reference page. Pure functions of the text; where a value
stands in a file is the business of `kalda.pipelines.spec.nodes`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from enum import StrEnum
from typing import Final, Generic, TypeVar

from kalda.pipelines.spec.model import Trigger, TriggerKind
from kalda.spark.source.java_regex import UnsupportedPatternError, translate_java_regex
from kalda.spark.source.offsets import OffsetFormatError, parse_offsets

ValueT = TypeVar("ValueT")
ChoiceT = TypeVar("ChoiceT", bound=StrEnum)

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_UNITS_BYTES: Final = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_DURATION: Final = re.compile(r"(\d{1,12})\s*(ms|s|m|h|d|w)", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,12}(?:\.\d{1,3})?)\s*(B|KB|MB|GB|TB|)", re.ASCII | re.IGNORECASE)
_RELATIVE: Final = re.compile(r"-\d{1,9}(?:ms|s|m|h|d|w)", re.ASCII)
_SHARE: Final = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s*(%?)", re.ASCII)
_NAME: Final = re.compile(r"(?!\.+$)[A-Za-z0-9._-]{1,200}", re.ASCII)
"""Names become directories, so that one of dots alone would be another place."""
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", re.ASCII)
_DLQ_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,243}", re.ASCII)
_COLUMN: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_PARTITION: Final = re.compile(rf"{_COLUMN.pattern}|(?:year|month|day|hour)\({_COLUMN.pattern}\)")
_FUNCTION: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*")


class NotAllowedError(ValueError):
    """A text is not of a type; the message completes "<key>=<value> is not allowed: it takes ..."."""


@dataclass(frozen=True, slots=True)
class ValueType(Generic[ValueT]):
    """A type of values."""

    takes: str
    """Completes "it takes ..." in messages and in the reference."""
    read: Callable[[str], ValueT]
    """Returns the value; raises `NotAllowedError`, or `ValueError` where `takes` says everything."""
    placeholder: ValueT
    """Stands for a wrong value until all faults of the file are found; never leaves the parser."""
    words: tuple[str, ...] = ()
    """All values, where they are few."""
    pattern: str | None = None
    """Matches the whole of each value, also as a regular expression of JavaScript; for the JSON schema."""

    def parse(self, text: str) -> ValueT:
        """Return the value of a text.

        Raises:
            NotAllowedError: the text is not allowed.
        """
        try:
            return self.read(text)
        except NotAllowedError:
            raise
        except ValueError:
            raise NotAllowedError(self.takes) from None


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return " Did you mean ...?" for the nearest known word, or nothing."""
    near = get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]}?" if near else ""


def choice(kind: type[ChoiceT]) -> ValueType[ChoiceT]:
    """Return the type of the members of an enum, by value."""
    words = [each.value for each in kind]
    takes = " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]

    def read(text: str) -> ChoiceT:
        try:
            return kind(text)
        except ValueError:
            hint = suggestion(text, words)
            raise NotAllowedError(f"{takes}.{hint}" if hint else takes) from None

    return ValueType(takes, read, next(iter(kind)), words=tuple(words))


def _matching(pattern: re.Pattern[str]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise ValueError(text)
        return text

    return read


def _ascii_name(takes: str, pattern: re.Pattern[str]) -> ValueType[str]:
    return ValueType(takes, _matching(pattern), "", pattern=pattern.pattern)


def _text(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise ValueError(text)
    return text


def _master(text: str) -> str:
    if text.lower().startswith("sc://"):
        raise ValueError(text)
    return _text(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNITS_MS[match[2]]


def _size_bytes(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = 0 if match is None else int(float(match[1]) * _UNITS_BYTES[match[2].upper()])
    if size < 1:
        raise ValueError(text)
    return size


def _share(text: str) -> float:
    match = _SHARE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    share = float(match[1]) / (100 if match[2] else 1)
    if share > 1:
        raise ValueError(text)
    return share


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 12 and int(text) >= 1):
        raise ValueError(text)
    return int(text)


def _trigger(text: str) -> Trigger:
    words = text.split()
    if len(words) == 1 and words[0].lower() == "availablenow":
        return Trigger(kind=TriggerKind.AVAILABLE_NOW)
    kind = TriggerKind.EVERY if len(words) == 2 and words[0] == "every" else TriggerKind.INTERVAL
    if kind is TriggerKind.EVERY:
        words = words[1:]
    interval_ms = _duration_ms(" ".join(words))
    if kind is TriggerKind.EVERY and interval_ms < 1_000:
        raise ValueError(text)
    return Trigger(kind=kind, interval_ms=interval_ms)


def _pattern(text: str) -> str:
    if not text:
        raise ValueError(text)
    try:
        translate_java_regex(text)
    except UnsupportedPatternError as error:
        raise NotAllowedError(f"{PATTERN.takes}; {error}") from None
    return text


def _start(text: str) -> str:
    if text in ("earliest", "latest", "group") or _RELATIVE.fullmatch(text):
        return text
    if text.startswith("{"):
        try:
            parse_offsets(text)
        except OffsetFormatError as error:
            raise NotAllowedError(f"{START.takes}; {error}") from None
        return text
    if "T" not in text:
        raise ValueError(text)
    datetime.fromisoformat(text)
    return text


TEXT: Final = ValueType("text", _text, "")
BOOLEAN: Final = ValueType("true or false", _boolean, False, words=("true", "false"))
DURATION: Final = ValueType(
    "a duration such as 500ms, 5s, 10m, 1h or 3d",
    _duration_ms,
    1,
    pattern=rf"\s*(?:{_DURATION.pattern})\s*",
)
SIZE: Final = ValueType("a size such as 64MB or 1GB", _size_bytes, 1)
SHARE: Final = ValueType("a share such as 5% or 0.05, at most 100%", _share, 1.0)
COUNT: Final = ValueType("an int from 1 to 999999999999", _count, 1)
NAME: Final = _ascii_name("letters, digits, '.', '_' and '-', up to 200", _NAME)
TOPIC: Final = _ascii_name("the name of a topic: letters, digits, '.', '_' and '-', up to 249", _TOPIC)
DLQ_TOPIC: Final = _ascii_name(
    "the name of a topic, up to 243 characters: that of replayed records adds .retry", _DLQ_TOPIC
)
PATTERN: Final = ValueType("a regular expression in Java's syntax for whole names", _pattern, "")
COLUMN: Final = ValueType("the name of a column, with '.' inside structures", _matching(_COLUMN), "")
PARTITION: Final = ValueType(
    "the name of a column, or year, month, day or hour of one such as day(ts)", _matching(_PARTITION), ""
)
MASTER: Final = ValueType(
    "a master such as local[*], spark://HOST:PORT, k8s://... or yarn; Spark Connect (sc://) has no "
    "SparkContext, which pipelines need",
    _master,
    "local[*]",
)
FUNCTION: Final = ValueType("a function as package.module:name", _matching(_FUNCTION), "")
TRIGGER: Final = ValueType(
    "an interval such as 5s, availableNow, or `every 10m` of at least 1s", _trigger, Trigger()
)
START: Final = ValueType(
    "earliest, latest, group, a time ago such as -10m, a date and time such as 2026-11-22T14:30:00, "
    'or offsets as JSON such as {"orders":{"0":23}}',
    _start,
    "earliest",
)
