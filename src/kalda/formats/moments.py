"""Parses the texts of dates and timestamps; one definition for JSON, CSV and casts.

A timestamp is ISO 8601: ``2026-11-22T20:15:30.123456Z``, with ``T`` or a blank, with optional seconds, a
fraction of up to nine digits (what is finer than a microsecond is cut off) and an optional zone; without one
it is UTC.
"""

import base64
import binascii
import re
from datetime import UTC, date, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:(Z)|([+-])(\d\d):?(\d\d)?)?)?",
    re.ASCII,
)
_DATE: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
YEARS_SECONDS: Final = (-62_135_596_800, 253_402_300_799)
"""Seconds since 1970 of the years 1 to 9999, which Python has."""
_CYCLE_DAYS: Final = 146_097
"""Days of 400 years, after which the calendar repeats itself."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp_micros(text: str) -> int | None:
    """Return the microseconds since 1970 of an ISO 8601 text, or None when it is not one."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, _, sign, zone_hours, zone_minutes = match.groups()
    try:
        moment = datetime(
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC
        )
    except ValueError:
        return None
    delta = moment - _EPOCH
    micros = (delta.days * 86_400 + delta.seconds) * 1_000_000
    if fraction:
        micros += int(fraction[:6].ljust(6, "0"))
    if sign:
        if int(zone_hours) > 23 or int(zone_minutes or 0) > 59:
            return None
        shift = (int(zone_hours) * 60 + int(zone_minutes or 0)) * 60_000_000
        micros += -shift if sign == "+" else shift
    return micros


def date_days(text: str) -> int | None:
    """Return the days since 1970 of ``yyyy-mm-dd``, or None when the text is not a date."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        return date(int(match[1]), int(match[2]), int(match[3])).toordinal() - 719_163
    except ValueError:
        return None


def far_day(second: int) -> str:
    """Return the day of a second since 1970 as ``yyyy-mm-dd``, in any year."""
    cycles, days = divmod(second // 86_400 + 719_162, _CYCLE_DAYS)
    day = date.fromordinal(days + 1)
    return f"{day.year + 400 * cycles:04}-{day.month:02}-{day.day:02}"


def base64_bytes(text: str) -> bytes | None:
    """Return the bytes of a base64 text, or None when it is not one."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def parse_moments(texts: pa.StringArray, kind: pa.DataType) -> pa.Array | None:
    """Return texts as dates or timestamps, or None when Arrow's parser does not take each of them.

    What this returns is what `timestamp_micros` and `date_days` return; these take more forms.
    """
    if pc.any(pc.starts_with(texts, "0000")).as_py():
        return None  # a year that only Arrow has
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
