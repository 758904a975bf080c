"""Parses and writes dates and timestamps as text: one definition for JSON, CSV and casts.

A timestamp is ISO 8601: ``2026-11-22T20:15:30.123456Z``, with ``T`` or a blank, with optional minutes and
seconds, a fraction of up to nine digits (what is finer than a microsecond is cut off) and an optional zone;
without one it is UTC. A year beyond 9999 or before 0 has a sign and up to seven digits, as Java and Spark
write it: ``+10000-01-01``.
"""

import re
from datetime import date
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_TIMESTAMP: Final = re.compile(
    r"(\d{4}|[+-]\d{4,7})-(\d\d)-(\d\d)"
    r"(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?)?(?:(Z)|([+-])(\d\d):?(\d\d)?)?)?",
    re.ASCII,
)
_DATE: Final = re.compile(r"(\d{4}|[+-]\d{4,7})-(\d\d)-(\d\d)", re.ASCII)
YEARS_SECONDS: Final = (-62_135_596_800, 253_402_300_799)
"""Seconds since 1970 of the years 1 to 9999, which Python has."""
_CYCLE_DAYS: Final = 146_097
"""Days of 400 years, after which the calendar repeats itself."""
_EPOCH_ORDINAL: Final = 719_163
_MICROS_END: Final = 1 << 63
_DAYS_END: Final = 1 << 31
"""The bounds of Arrow's timestamps and dates."""


def timestamp_micros(text: str) -> int | None:
    """Return the microseconds since 1970 of an ISO 8601 text, or None when it is not one."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, _, sign, zone_hours, zone_minutes = match.groups()
    days = _days(int(year), int(month), int(day))
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if days is None or hours > 23 or minutes > 59 or seconds > 59:
        return None
    micros = (days * 86_400 + hours * 3_600 + minutes * 60 + seconds) * 1_000_000
    if fraction:
        micros += int(fraction[:6].ljust(6, "0"))
    if sign:
        if int(zone_hours) > 23 or int(zone_minutes or 0) > 59:
            return None
        shift = (int(zone_hours) * 60 + int(zone_minutes or 0)) * 60_000_000
        micros += -shift if sign == "+" else shift
    return micros if -_MICROS_END <= micros < _MICROS_END else None


def date_days(text: str) -> int | None:
    """Return the days since 1970 of ``yyyy-mm-dd``, or None when the text is not a date."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    days = _days(int(match[1]), int(match[2]), int(match[3]))
    return days if days is not None and -_DAYS_END <= days < _DAYS_END else None


def _days(year: int, month: int, day: int) -> int | None:
    """Return the days since 1970 of a date in any year, or None when there is no such date."""
    cycles, within = divmod(year - 1, 400)
    try:
        return date(within + 1, month, day).toordinal() + cycles * _CYCLE_DAYS - _EPOCH_ORDINAL
    except ValueError:
        return None


def day_text(days: int) -> str:
    """Return the ISO 8601 text of a date in any year, given as days since 1970; `date_days` reads it."""
    text = far_day(days * 86_400)
    return f"+{text}" if days * 86_400 > YEARS_SECONDS[1] else text


def far_day(second: int) -> str:
    """Return the day of a second since 1970 as ``yyyy-mm-dd``, in any year."""
    cycles, days = divmod(second // 86_400 + _EPOCH_ORDINAL - 1, _CYCLE_DAYS)
    day = date.fromordinal(days + 1)
    year = day.year + 400 * cycles
    return f"{'-' if year < 0 else ''}{abs(year):04}-{day.month:02}-{day.day:02}"


def parse_temporal(texts: pa.StringArray, kind: pa.DataType) -> pa.Array | None:
    """Parse texts as dates or timestamps with Arrow, or return None if Arrow refuses any of them.

    The values equal those of `timestamp_micros` and `date_days`, which accept more forms.
    """
    try:
        if pa.types.is_date(kind):
            return texts.cast(kind)
        return texts.cast(pa.timestamp("us", tz="UTC")).cast(kind)
    except pa.ArrowInvalid:
        pass
    if pa.types.is_date(kind):
        return None
    try:
        return pc.assume_timezone(texts.cast(pa.timestamp("us")), "UTC").cast(kind)
    except pa.ArrowInvalid:
        return None
