"""Dates and timestamps: a far year in a batch changes nothing for the others, and the calendar repeats."""

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.pipelines.sql.calendar import (
    DAY_MICROS,
    date_of,
    dates_of,
    days_of,
    floor_divided,
    formatted,
    is_plain,
    numbers,
    part,
    text,
    timestamps_of,
    truncated,
)
from kalda.pipelines.sql.nodes import SqlError
from kalda.pipelines.sql.values import TIMESTAMP

CYCLE_DAYS = 146_097
"""Days of 400 years, after which the Gregorian calendar repeats, the days of the week too."""
FAR_MICROS = 250_000 * 365 * DAY_MICROS
FAR_DAYS = 2_000_000_000
PARTS = ("year", "quarter", "month", "day", "dayofyear")
TIME_PARTS = ("hour", "minute", "second")
moments = st.lists(st.none() | st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)), max_size=6)  # noqa: DTZ001 - UTC's wall clock
dates = st.lists(st.none() | st.dates(), max_size=6)


def timestamps(values: list[dt.datetime | None], *far: int) -> pa.Array:
    plain = pa.array(values, pa.timestamp("us")).cast(pa.int64()).to_pylist()
    return pa.array([*plain, *far], pa.int64()).cast(TIMESTAMP)


def days(values: list[dt.date | None], *far: int) -> pa.Array:
    plain = pa.array(values, pa.date32()).cast(pa.int32()).to_pylist()
    return pa.array([*plain, *far], pa.int32()).cast(pa.date32())


@given(moments, st.sampled_from([FAR_MICROS, -FAR_MICROS]))
def test_a_far_timestamp_changes_nothing_for_the_others(values: list[dt.datetime | None], far: int) -> None:
    """The kernels of Arrow serve a batch of plain years, Kalda's own any other."""
    plain, mixed = timestamps(values), timestamps(values, far)
    assert is_plain(plain)
    assert not is_plain(mixed)
    count = len(values)
    for name in (*PARTS, *TIME_PARTS):
        assert (name, part(name, plain)) == (name, part(name, mixed).slice(0, count))
    for unit in ("year", "quarter", "month", "week", "day", "hour", "minute", "second"):
        assert (unit, truncated(plain, unit)) == (unit, truncated(mixed, unit).slice(0, count))
    assert text(plain) == text(mixed).slice(0, count)
    for pattern in ("%Y-%m-%d %H:%M", "%Y%m%d", "%H"):
        assert formatted(plain, pattern).cast(pa.string()) == formatted(mixed, pattern).slice(0, count)
    assert dates_of(plain) == dates_of(mixed).slice(0, count)


@given(dates, st.sampled_from([FAR_DAYS, -FAR_DAYS]))
def test_a_far_date_changes_nothing_for_the_others(values: list[dt.date | None], far: int) -> None:
    plain, mixed = days(values), days(values, far)
    assert is_plain(plain)
    assert not is_plain(mixed)
    for name in PARTS:
        assert (name, part(name, plain)) == (name, part(name, mixed).slice(0, len(values)))
    assert text(plain) == text(mixed).slice(0, len(values))


@given(st.dates(), st.integers(-10_000, 10_000))
def test_the_calendar_repeats_after_400_years(date: dt.date, cycles: int) -> None:
    here = (date - dt.date(1970, 1, 1)).days
    assert (date.year, date.month, date.day) == date_of(here)
    year, month, day = date_of(here + cycles * CYCLE_DAYS)
    assert (date.year + 400 * cycles, date.month, date.day) == (year, month, day)
    assert here + cycles * CYCLE_DAYS == days_of(year, month, day)


@given(st.integers(-(2**31), 2**31 - 1))
def test_each_day_is_the_day_of_its_date(day: int) -> None:
    assert day == days_of(*date_of(day))


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6))
def test_a_truncation_is_the_last_begin_before_a_moment(values: list[int | None]) -> None:
    moments = pa.array(values, pa.int64()).cast(TIMESTAMP)
    for unit in ("year", "month", "week", "day", "hour", "second"):
        try:
            floor = truncated(moments, unit)
        except SqlError:
            # The begin of the unit is before the first timestamp there is.
            assert min(value for value in values if value is not None) < -(2**63) + 366 * DAY_MICROS
            continue
        assert floor == truncated(floor, unit)
        for low, high in zip(numbers(floor).tolist(), numbers(moments).tolist(), strict=True):
            assert low <= high < low + 366 * DAY_MICROS


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=6))
def test_dates_and_counts_round_down(values: list[int | None]) -> None:
    moments = pa.array(values, pa.int64()).cast(TIMESTAMP)
    expected = [None if value is None else value // DAY_MICROS for value in values]
    assert expected == dates_of(moments).cast(pa.int32()).to_pylist()
    assert [None if value is None else value // 1_000_000 for value in values] == floor_divided(
        moments, 1_000_000
    ).to_pylist()


def test_a_date_without_a_timestamp_is_an_error() -> None:
    """Days have a range 20 times as wide."""
    last = (2**63 - 1) // DAY_MICROS
    assert [last * DAY_MICROS] == timestamps_of(days([], last)).cast(pa.int64()).to_pylist()
    for day in (last + 1, -last - 2):
        with pytest.raises(SqlError, match="outside the range of timestamps"):
            timestamps_of(days([], day))
