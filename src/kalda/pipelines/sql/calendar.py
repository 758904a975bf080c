"""Computes parts, texts and truncations of dates and timestamps as Spark does, in their whole range.

Arrow's kernels keep years in 16 bits, and write something else for a year that has not four digits. They
are right from year 1 to 9999, so they serve a batch that lies within; every other batch is computed here, in
the proleptic Gregorian calendar with a year 0.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kalda.pipelines.sql.nodes import SqlError
from kalda.pipelines.sql.values import TIMESTAMP

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
_Number = TypeVar("_Number", int, Ints)

DAY_MICROS: Final = 86_400_000_000
_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896
"""0001-01-01 and 9999-12-31."""
_TIME_UNITS: Final = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_CIVIL_KERNELS: Final[Mapping[str, Callable[[pa.Array], pa.Array]]] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "day": pc.day,
    "dayofyear": pc.day_of_year,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
}


def days_of(year: _Number, month: _Number, day: _Number) -> _Number:
    """Return the days since 1970 of a date, which must exist."""
    year = year - (month <= 2)
    era = year // 400
    year_of_era = year - era * 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days: _Number = (
        era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468
    )
    return days


def date_of(days: _Number) -> tuple[_Number, _Number, _Number]:
    """Return year, month and day of days since 1970."""
    days = days + 719_468
    era = days // 146_097
    day_of_era = days - era * 146_097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = (shifted + 2) % 12 + 1
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def is_plain(values: pa.Array) -> bool:
    """Return whether all dates or timestamps lie in the years 1 to 9999."""
    bounds = pc.min_max(values)
    if not bounds["min"].is_valid:
        return True
    factor = 1 if pa.types.is_date(values.type) else DAY_MICROS
    low, high = bounds["min"].value, bounds["max"].value
    return bool(_FIRST_DAY * factor <= low and high < (_LAST_DAY + 1) * factor)


def part(name: str, values: pa.Array) -> pa.Array:
    """Return a part of dates or timestamps as int: year, quarter, month, day, dayofyear, hour, …"""
    if is_plain(values):
        return _CIVIL_KERNELS[name](values).cast(pa.int32())
    if name in _TIME_UNITS:
        rest = numbers(values) % DAY_MICROS
        return _array(rest // _TIME_UNITS[name] % (24 if name == "hour" else 60), values, pa.int32())
    days = _days(values)
    year, month, day = date_of(days)
    match name:
        case "year":
            found = year
        case "month":
            found = month
        case "quarter":
            found = (month + 2) // 3
        case "day":
            found = day
        case _:
            one = np.ones_like(days)
            found = days - days_of(year, one, one) + 1
    return _array(found, values, pa.int32())


def truncated(values: pa.Array, unit: str) -> pa.Array:
    """Return timestamps rounded down to a unit.

    Raises:
        SqlError: The beginning of the unit is no timestamp.
    """
    if is_plain(values):
        return pc.floor_temporal(values, unit=unit)
    micros = numbers(values)
    if unit in _TIME_UNITS:
        floor = micros // _TIME_UNITS[unit] * _TIME_UNITS[unit]
    else:
        days = _days(values)
        year, month, _ = date_of(days)
        one = np.ones_like(days)
        match unit:
            case "year":
                days = days_of(year, one, one)
            case "quarter":
                days = days_of(year, (month - 1) // 3 * 3 + 1, one)
            case "month":
                days = days_of(year, month, one)
            case "week":
                days = days - (days + 3) % 7
        floor = days * DAY_MICROS
    if bool(np.any(floor > micros)):  # the product has wrapped around
        raise SqlError(f"date_trunc: the beginning of the {unit} is before the first timestamp")
    return _array(floor, values, TIMESTAMP)


def floor_divided(values: pa.Array, divisor: int) -> pa.Array:
    """Return timestamps as a count of units since 1970."""
    return _array(numbers(values) // divisor, values, pa.int64())


def formatted(values: pa.Array, pattern: str) -> pa.Array:
    """Return timestamps by a pattern of %Y, %m, %d, %H and %M."""
    if is_plain(values):
        return pc.strftime(values, format=pattern)
    return _texts(values, lambda micros: _formatted(micros, pattern))


def text(values: pa.Array) -> pa.Array:
    """Return dates or timestamps as Spark's texts."""
    if pa.types.is_date(values.type):
        if is_plain(values):
            return values.cast(pa.string())
        return _texts(values, lambda days: _formatted(days * DAY_MICROS, "%Y-%m-%d"))
    if is_plain(values):
        texts = values.cast(pa.timestamp("us")).cast(pa.string())
        return pc.replace_substring_regex(pc.utf8_rtrim(texts, "0"), r"(:\d)?\.$", r"\1")
    return _texts(values, _moment_text)


def timestamps_of(dates: pa.Array) -> pa.Array:
    """Return the beginnings of dates.

    Raises:
        SqlError: A date has no timestamp.
    """
    try:
        return pc.multiply_checked(dates.cast(pa.int32()).cast(pa.int64()), DAY_MICROS).cast(TIMESTAMP)
    except pa.ArrowInvalid as error:
        raise SqlError("a date lies outside the range of timestamps") from error


def dates_of(timestamps: pa.Array) -> pa.Array:
    """Return the dates of timestamps."""
    return _array(_days(timestamps), timestamps, pa.int32()).cast(pa.date32())


def numbers(values: pa.Array) -> Ints:
    """Return dates or timestamps as numbers since 1970; a null is 0."""
    plain = values.cast(pa.int32() if pa.types.is_date(values.type) else pa.int64())
    found: Ints = pc.fill_null(plain, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def dates_from(days: Ints, mask: pa.BooleanArray) -> pa.Array:
    """Return days since 1970 as dates, null where the mask is true; an overflow wraps around, as in Java."""
    return pa.array(days.astype(np.int32), pa.int32(), mask=mask.to_numpy(zero_copy_only=False)).cast(
        pa.date32()
    )


def _days(values: pa.Array) -> Ints:
    return numbers(values) if pa.types.is_date(values.type) else numbers(values) // DAY_MICROS


def _array(found: Ints, values: pa.Array, kind: pa.DataType) -> pa.Array:
    number = pa.int32() if pa.types.is_int32(kind) else pa.int64()
    mask = values.is_null().to_numpy(zero_copy_only=False)
    return pa.array(found, number, mask=mask).cast(kind)


def _texts(values: pa.Array, write: Callable[[int], str]) -> pa.Array:
    found = [
        write(number) if valid else None
        for number, valid in zip(numbers(values).tolist(), values.is_valid().to_pylist(), strict=True)
    ]
    return pa.array(found, pa.string())


def _formatted(micros: int, pattern: str) -> str:
    days, rest = divmod(micros, DAY_MICROS)
    year, month, day = date_of(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    minutes = rest // 60_000_000
    parts = {
        "%Y": f"{sign}{abs(year):04}",
        "%m": f"{month:02}",
        "%d": f"{day:02}",
        "%H": f"{minutes // 60:02}",
        "%M": f"{minutes % 60:02}",
    }
    for name, shown in parts.items():
        pattern = pattern.replace(name, shown)
    return pattern


def _moment_text(micros: int) -> str:
    fraction = f".{micros % 1_000_000:06}".rstrip("0").rstrip(".")
    return f"{_formatted(micros, '%Y-%m-%d %H:%M')}:{micros // 1_000_000 % 60:02}{fraction}"
