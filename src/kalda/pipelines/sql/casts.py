"""Converts values between types as Spark does in ANSI mode, with the session's time zone UTC.

What cannot be converted raises `SqlError`, or is null in ``try_cast``. Conversions whose texts differ between
Java and Arrow (a double as text) are refused when the expression is compiled.
"""

import math
import re
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from kalda.formats.decimals import as_floats, of_integers
from kalda.pipelines.sql import calendar
from kalda.pipelines.sql.nodes import SqlError, UnsupportedSqlError
from kalda.pipelines.sql.values import FLOATS, INTEGERS, TIMESTAMP, Compiled, applied, constant, type_name

_INTEGER: Final = re.compile(r"[+-]?\d+", re.ASCII)
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|Infinity|Inf)|NaN", re.ASCII | re.I
)
_HEXADECIMAL: Final = re.compile(
    r"[+-]?0x(?:[0-9a-f]+\.?|[0-9a-f]*\.[0-9a-f]+)p[+-]?\d+", re.ASCII | re.IGNORECASE
)
_BEHIND_FLOAT: Final = (1 << 28) - 1
"""The bits of a double behind those of a float and behind the half of its last one."""
_TRUE: Final = frozenset(("t", "true", "y", "yes", "1"))
_FALSE: Final = frozenset(("f", "false", "n", "no", "0"))
_DATE: Final = re.compile(r"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_MOMENT: Final = re.compile(
    r"([+-]?)(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2})"
    r"(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?(\D.*)?)?)?)?)?)?",
    re.ASCII,
)
_TIME: Final = re.compile(
    r"(?:T(\d{1,2})|(\d{1,2})(?=:))(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?(\D.*)?)?)?", re.ASCII
)
"""A time without a date, which stands for the current day."""
_SPECIAL: Final = re.compile(r"now|(epoch|yesterday|today|tomorrow)\s*(.*)", re.ASCII | re.I)
"""What Spark takes for a moment in constants, and only there; a zone may follow."""
_OFFSET: Final = re.compile(
    r"(?:UTC|GMT|UT)?(?:([+-])(?:(\d\d?)(?::(\d\d?)(?::(\d\d))?)?|(\d\d)(\d\d)(\d\d)?))?", re.ASCII
)
_SHORT_ZONES: Final = {"EST": "-05:00", "MST": "-07:00", "HST": "-10:00"}
_REGIONS: Final = frozenset(
    (
        "Africa",
        "America",
        "Antarctica",
        "Arctic",
        "Asia",
        "Atlantic",
        "Australia",
        "Europe",
        "Indian",
        "Pacific",
    )
)
_ZONE_SECONDS_MAX: Final = 18 * 3600
_JAVA_BLANKS: Final = "".join(map(chr, range(33)))
BLANKS: Final = f"{_JAVA_BLANKS}\x7f"
"""What Spark removes around a text before it is read; Java alone reads floating-point numbers."""

Convert = Callable[[str], object | None]


def cast(argument: Compiled, kind: pa.DataType, lenient: bool) -> Compiled:
    """Return an expression converted to a type.

    Raises:
        UnsupportedSqlError: Kalda does not convert between these types.
    """
    source = argument.type
    if source == kind:
        return argument
    if pa.types.is_null(source):
        return constant(pa.scalar(None, kind))
    function = _conversion(source, kind, lenient)
    if lenient:
        function = _null_where_it_fails(function, kind)
    if argument.constant is not None:
        if kind in (pa.date32(), TIMESTAMP) and _depends_on_today(argument.constant, kind):
            raise UnsupportedSqlError(
                f"the moment of {argument.constant.as_py()!r} depends on the day, which is left to Spark"
            )
        with suppress(SqlError):  # it fails only when rows are evaluated
            return constant(function(pa.array([argument.constant], source))[0])
    return applied(kind, function, argument, fails=not lenient)


def _depends_on_today(value: pa.Scalar, kind: pa.DataType) -> bool:
    if not pa.types.is_string(value.type) or not value.is_valid:
        return False
    text = value.as_py().strip(BLANKS)
    return is_special_moment(text) or (kind == TIMESTAMP and _TIME.fullmatch(text) is not None)


def is_special_moment(text: str) -> bool:
    """Return whether a constant text names a moment in Spark, such as ``today`` or ``epoch UTC``."""
    match = _SPECIAL.fullmatch(text)
    return match is not None and (not match[2] or _zone_seconds(match[2].strip(BLANKS), 0) is not None)


def _conversion(source: pa.DataType, kind: pa.DataType, lenient: bool) -> Callable[[pa.Array], pa.Array]:
    types = pa.types
    if types.is_string(source):
        return _from_string(kind, lenient)
    if source in INTEGERS and kind in INTEGERS:
        return _checked(kind, lambda values: values.cast(kind))
    if source in INTEGERS and types.is_decimal128(kind):
        return _checked(kind, lambda values: of_integers(values, kind))
    if (source in INTEGERS and kind in FLOATS) or (source in FLOATS and kind in FLOATS):
        return lambda values: values.cast(kind, safe=False)
    if source in FLOATS and kind in INTEGERS:
        return _truncated(kind)
    if types.is_decimal128(source) and kind in FLOATS:
        return lambda values: as_floats(values, kind)
    if types.is_decimal128(source) and types.is_decimal128(kind) and source.scale <= kind.scale:
        return _checked(kind, lambda values: values.cast(kind))
    if types.is_boolean(source) and kind in INTEGERS:
        return lambda values: values.cast(kind)
    if types.is_boolean(kind) and source in INTEGERS:
        return lambda values: pc.not_equal(values, pa.scalar(0, source))
    if types.is_string(kind):
        return _to_string(source)
    if types.is_binary(kind) and types.is_string(source):
        return lambda values: values.cast(kind)
    if source == pa.date32() and kind == TIMESTAMP:
        return calendar.timestamps_of
    if source == TIMESTAMP and kind == pa.date32():
        return calendar.dates_of
    if source == TIMESTAMP and kind == pa.int64():
        return lambda values: calendar.floor_divided(values, 1_000_000)
    if source in INTEGERS and kind == TIMESTAMP:
        return _from_seconds
    raise UnsupportedSqlError(f"cast from {type_name(source)} to {type_name(kind)} is not evaluated by Kalda")


def _checked(kind: pa.DataType, function: Callable[[pa.Array], pa.Array]) -> Callable[[pa.Array], pa.Array]:
    def convert(values: pa.Array) -> pa.Array:
        try:
            return function(values)
        except pa.ArrowInvalid as error:
            raise SqlError(f"a value does not fit {type_name(kind)}: {error}") from error

    return convert


def _null_where_it_fails(
    function: Callable[[pa.Array], pa.Array], kind: pa.DataType
) -> Callable[[pa.Array], pa.Array]:
    def convert(values: pa.Array) -> pa.Array:
        try:
            return function(values)
        except SqlError:
            if len(values) == 1:
                return pa.nulls(1, kind)
        half = len(values) // 2
        return pa.concat_arrays([convert(values.slice(0, half)), convert(values.slice(half))])

    return convert


def _truncated(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    bound = float(1 << (kind.bit_width - 1))

    def convert(values: pa.Array) -> pa.Array:
        whole = pc.trunc(values.cast(pa.float64()))
        # Java compares with the largest bigint as a double, which is 2^63.
        is_last = pc.equal(whole, bound) if kind == pa.int64() else pa.scalar(False)
        fits = pc.and_(pc.greater_equal(whole, -bound), pc.or_(pc.less(whole, bound), is_last))
        if pc.all(fits, skip_nulls=True).as_py() is False:
            bad = whole.filter(pc.invert(fits))[0]
            raise SqlError(f"{bad} does not fit {type_name(kind)}")
        if kind != pa.int64():
            return whole.cast(kind, safe=False)
        return pc.if_else(is_last, (1 << 63) - 1, pc.if_else(is_last, 0.0, whole).cast(kind, safe=False))

    return convert


def _to_string(source: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    if source in INTEGERS or pa.types.is_boolean(source):
        return lambda values: values.cast(pa.string())
    if source in (pa.date32(), TIMESTAMP):
        return calendar.text
    if source == pa.binary():

        def decode(values: pa.Array) -> pa.Array:
            try:
                return values.cast(pa.string())
            except pa.ArrowInvalid as error:
                raise SqlError(f"bytes are not UTF-8 text: {error}") from error

        return decode
    raise UnsupportedSqlError(f"{type_name(source)} as text is not evaluated by Kalda")


def _from_seconds(values: pa.Array) -> pa.Array:
    """Return seconds since 1970 as timestamps; what is too far is the first or the last one, as in Spark."""
    limit = (1 << 63) // 1_000_000
    seconds = values.cast(pa.int64())
    micros = pc.multiply(pc.max_element_wise(pc.min_element_wise(seconds, limit), -limit), 1_000_000)
    micros = pc.if_else(pc.greater(seconds, limit), (1 << 63) - 1, micros)
    return pc.if_else(pc.less(seconds, -limit), -(1 << 63), micros).cast(TIMESTAMP)


def _from_string(kind: pa.DataType, lenient: bool) -> Callable[[pa.Array], pa.Array]:
    types = pa.types
    if kind == pa.binary():
        return lambda values: values.cast(kind)
    converters: dict[pa.DataType, Convert] = {
        pa.bool_(): _boolean,
        pa.float64(): _double,
        pa.float32(): _float,
        pa.date32(): date_of_text,
        TIMESTAMP: timestamp_of_text,
    }
    each = _whole(kind) if kind in INTEGERS else converters.get(kind)
    if each is None:
        raise UnsupportedSqlError(f"cast from string to {type_name(kind)} is not evaluated by Kalda")

    blanks = _JAVA_BLANKS if kind in FLOATS else BLANKS

    def convert(values: pa.Array) -> pa.Array:
        quick = None if not types.is_integer(kind) else _quick(values, kind)
        if quick is not None:
            return quick
        found: list[object] = []
        for text in values.to_pylist():
            value = None if text is None else each(text.strip(blanks))
            if value is None and text is not None and not lenient:
                raise SqlError(f"{text[:60]!r} cannot be cast to {type_name(kind)}")
            found.append(value)
        return pa.array(found, kind)

    return convert


def _quick(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    if not pc.all(pc.match_substring_regex(values, r"^-?\d+$"), skip_nulls=True).as_py():
        return None
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        return None


def _whole(kind: pa.DataType) -> Convert:
    bound = 1 << (kind.bit_width - 1)

    def convert(text: str) -> object | None:
        if not _INTEGER.fullmatch(text):
            return None
        digits = text.lstrip("+-").lstrip("0")
        if len(digits) > 20:
            return None
        number = int(digits or "0") * (-1 if text.startswith("-") else 1)
        return number if -bound <= number < bound else None

    return convert


def _double(text: str) -> float | None:
    body = text[:-1] if text[-1:] in ("d", "D", "f", "F") and text[:-1][-1:].isdigit() else text
    if _DOUBLE.fullmatch(body):
        return float(body)
    if not _HEXADECIMAL.fullmatch(body):
        return None
    try:
        return float.fromhex(body)
    except OverflowError:
        return -math.inf if body.startswith("-") else math.inf


def _float(text: str) -> float | None:
    """Return the double that a float is rounded from once, as Java rounds the text."""
    number = _double(text)
    if number is None or not math.isfinite(number):
        return number
    (bits,) = struct.unpack("<q", struct.pack("<d", number))
    if bits & _BEHIND_FLOAT or "x" in text.lower():
        return number
    # The double may lie halfway between two floats, and the text beside it.
    try:
        exact, found = Decimal(text.rstrip("dDfF")), Decimal(number)
    except InvalidOperation:
        # The exponent is beyond what a decimal has: the number is 0, and no float lies beside it.
        return number
    return number if exact == found else math.nextafter(number, math.inf if exact > found else -math.inf)


def _boolean(text: str) -> object | None:
    word = text.lower()
    return True if word in _TRUE else False if word in _FALSE else None


def timestamp_of_text(text: str) -> int | None:
    """Return the microseconds since 1970 of a text without blanks around it; None when it is no timestamp.

    A time without a date is one of the current day in its zone.
    """
    match = _MOMENT.fullmatch(text)
    if match is not None:
        sign, year, month, day, hour, minute, second, fraction, zone = match.groups()
        days = _days(sign, year, month, day)
    else:
        match = _TIME.fullmatch(text)
        if match is None:
            return None
        hour, other, minute, second, fraction, zone = match.groups()
        hour, days = hour or other, 0
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if days is None or hours > 23 or minutes > 59 or seconds > 59:
        return None
    if match.re is _TIME:
        days = _today(zone)
    local = days * 86_400 + hours * 3600 + minutes * 60 + seconds
    offset = 0 if zone is None else _zone_seconds(zone.strip(BLANKS), local)
    if offset is None:
        return None
    micros = (local - offset) * 1_000_000 + int((fraction or "")[:6].ljust(6, "0"))
    return micros if -(1 << 63) <= micros < 1 << 63 else None


def _today(zone: str | None) -> int:
    """Return the days since 1970 of the date that is now in a zone; in UTC where there is no such zone."""
    now = time.time_ns() // 1_000_000_000
    ahead = None if zone is None else _zone_seconds(zone.strip(BLANKS), now)
    return (now + (ahead or 0)) // 86_400


def _zone_seconds(zone: str, local: int) -> int | None:
    """Return how much the local time of a zone is ahead of UTC; None for no zone."""
    zone = _SHORT_ZONES.get(zone, zone)
    match = _OFFSET.fullmatch("" if zone == "Z" else zone)
    if match is None:
        if zone.partition("/")[0] not in _REGIONS:
            return None
        try:
            there = datetime(1970, 1, 1) + timedelta(seconds=local)  # noqa: DTZ001  # the zone comes next
            delta = there.replace(tzinfo=ZoneInfo(zone)).utcoffset()
        except (ValueError, OSError, OverflowError, ZoneInfoNotFoundError):
            return None
        return None if delta is None else delta.days * 86_400 + delta.seconds
    sign, *parts = match.groups()
    hours, minutes, seconds = (
        int(one or other or 0) for one, other in zip(parts[:3], parts[3:], strict=True)
    )
    total = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _ZONE_SECONDS_MAX:
        return None
    return -total if sign == "-" else total


def date_of_text(text: str) -> int | None:
    """Return the days since 1970 of a text without blanks around it; None when it is no date."""
    match = _DATE.fullmatch(text)
    days = None if match is None else _days(*match.groups())
    return days if days is not None and -(1 << 31) <= days < 1 << 31 else None


def _days(sign: str, year: str, month: str | None, day: str | None) -> int | None:
    """Return the days since 1970 of a date; None when there is no such day."""
    whole = (-1 if sign == "-" else 1) * int(year), int(month or 1), int(day or 1)
    if not (1 <= whole[1] <= 12 and 1 <= whole[2] <= 31):
        return None
    days = calendar.days_of(*whole)
    return days if calendar.date_of(days) == whole else None
