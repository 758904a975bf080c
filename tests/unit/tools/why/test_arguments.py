"""What `kalda why` makes of arguments that name nothing."""

import time

import pytest

from kalda.command.errors import ToolUsageError
from kalda.tools.why.answers import since_ms_of, time_text
from kalda.tools.why.command import parse_partition, parse_record

DIGITS = "9" * 5_000


@pytest.mark.parametrize(
    "text", ["", "-1", "orders", "orders-", "orders-²", "orders-٣", f"orders-{DIGITS}", "o-2147483648"]
)
def test_what_has_no_number_of_a_partition_is_none(text: str) -> None:
    with pytest.raises(ToolUsageError):
        parse_partition(text)


@pytest.mark.parametrize(
    "text", ["@", "o-1", "o-1@", "o-1@²", "o-1@-1", f"o-1@{DIGITS}", "o-1@9223372036854775808"]
)
def test_what_has_no_offset_is_no_record(text: str) -> None:
    with pytest.raises(ToolUsageError):
        parse_record(text)


@pytest.mark.parametrize("text", ["", "T", "h", f"P{DIGITS}D", "2026-13-01T00:00", DIGITS])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ToolUsageError):
        since_ms_of(text)


@pytest.mark.parametrize("text", ["2h", "PT2H", "120m"])
def test_since_takes_what_the_history_takes(text: str) -> None:
    """An operator goes from one to the other."""
    assert abs(since_ms_of(text) - (time.time() * 1000 - 7_200_000)) < 60_000


@pytest.mark.parametrize("text", ["P99999999999D", "0001-01-01T00:00+23:59"])
def test_times_before_1970_are_its_beginning(text: str) -> None:
    """A request carries 64 bits."""
    assert 0 == since_ms_of(text)


@pytest.mark.parametrize("time_ms", [-(10**17), -1, 10**30])
def test_what_is_no_date_is_shown_as_a_number(time_ms: int) -> None:
    assert f"{time_ms} ms" == time_text(time_ms)
