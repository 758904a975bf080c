"""Reads single option values: numbers, booleans, choices and times. It knows no option of the source.

Every failure is an `OptionError` of one line, which names the option, the value and what is allowed. It is
all that a user sees of a mistake.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, TypeVar

from kalda.common.iso_duration import parse_duration_ms
from kalda.spark.source.offsets import OffsetFormatError

T = TypeVar("T")
EnumT = TypeVar("EnumT", bound=Enum)


class OptionError(ValueError):
    """An option is missing, malformed, forbidden or at odds with another; the message names it.

    The message is one line, also where it quotes a value or a schema that has several.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(line.strip() for line in message.splitlines()))


Lowered = Mapping[str, str]
"""Options with their names in lower case."""

_BOOLEANS: Final = {"true": True, "false": False}
_LONG_MAX: Final = 2**63 - 1

_SPARK_TIME: Final = re.compile(r"(?P<count>[0-9]{1,18})(?P<unit>[a-z]+)?")
_SPARK_UNITS_MS: Final = {
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_SPAN: Final = re.compile(r"\s*(?P<count>[0-9]{1,12})\s*(?P<unit>[a-z]+)")
_SPAN_UNITS_MS: Final = {
    name: unit_ms
    for names, unit_ms in (
        (("ms", "millisecond", "milliseconds"), 1),
        (("s", "sec", "second", "seconds"), 1000),
        (("m", "min", "minute", "minutes"), 60_000),
        (("h", "hour", "hours"), 3_600_000),
        (("d", "day", "days"), 86_400_000),
        (("w", "week", "weeks"), 604_800_000),
    )
    for name in names
}


def lower_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options with their names in lower case: names do not depend on case."""
    return {name.lower(): value for name, value in options.items()}


def parse_boolean(lowered: Lowered, name: str, *, default: bool) -> bool:
    """Read ``true`` or ``false``, in any case."""
    text = lowered.get(name.lower())
    if text is None:
        return default
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise OptionError(f"`{name}`={text!r} is neither true nor false")
    return value


def parse_number(lowered: Lowered, name: str, *, least: int = 1) -> int | None:
    """Read a whole number of at least `least`; None if the option is not set."""
    text = lowered.get(name.lower())
    if text is None:
        return None
    text = text.strip()
    if not (text.isascii() and text.isdigit() and least <= int(text) <= _LONG_MAX):
        expected = "a positive whole number" if least == 1 else f"a whole number of at least {least}"
        raise OptionError(f"`{name}`={text!r} is not {expected}")
    return int(text)


def parse_choice(lowered: Lowered, name: str, default: EnumT) -> EnumT:
    """Read a member of an enumeration by its value, in any case."""
    text = lowered.get(name.lower())
    if text is None:
        return default
    try:
        return type(default)(text.strip().lower())
    except ValueError:
        values = [each.value for each in type(default)]
        allowed = (
            f"neither {values[0]} nor {values[1]}" if len(values) == 2 else f"none of {', '.join(values)}"
        )
        raise OptionError(f"`{name}`={text!r} is {allowed}") from None


def parse_spark_time_ms(lowered: Lowered, name: str, default: str) -> int:
    """Read a time as Spark's settings have it: ``15m``, ``90s``, ``500ms``; without a unit, milliseconds."""
    text = lowered.get(name.lower(), default).strip().lower()
    found = _SPARK_TIME.fullmatch(text)
    unit_ms = None if found is None else _SPARK_UNITS_MS.get(found["unit"] or "ms")
    if found is None or unit_ms is None:
        units = ", ".join(_SPARK_UNITS_MS)
        raise OptionError(f"`{name}`={text!r} is not a time such as 15m or 90s (units: {units})")
    return int(int(found["count"]) * unit_ms)


def parse_span_ms(text: str) -> int | None:
    """Return the milliseconds of a span of time, or None if the text is none.

    Args:
        text: As in Spark's intervals (``10m``, ``1h 30m``, ``10 minutes``) or in ISO-8601 (``PT10M``).
    """
    text = text.strip()
    if text[:1] in ("P", "p"):
        return parse_duration_ms(text)
    position = total = 0
    lowered = text.lower()
    while position < len(lowered):
        found = _SPAN.match(lowered, position)
        if found is None or found["unit"] not in _SPAN_UNITS_MS:
            return None
        total += int(found["count"]) * _SPAN_UNITS_MS[found["unit"]]
        position = found.end()
    return total if position else None


def parse_json(name: str, text: str, parse: Callable[[str], T]) -> T:
    """Read an option that holds JSON with one of the functions of `offsets`."""
    try:
        return parse(text)
    except OffsetFormatError as error:
        raise OptionError(f"`{name}`: {error}") from None
