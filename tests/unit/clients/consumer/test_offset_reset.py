"""`auto.offset.reset`, with the durations of KIP-1106."""

import pytest

from kalda.clients.consumer.offset_reset import EARLIEST, LATEST, NONE, parse_offset_reset, to_time

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "reset", "timestamp"),
    [("earliest", EARLIEST, -2), ("LATEST", LATEST, -1), (" earliest ", EARLIEST, -2)],
)
def test_the_ends_of_the_log_are_special_timestamps(text: str, reset: object, timestamp: int) -> None:
    parsed = parse_offset_reset(text)
    assert reset == parsed
    assert timestamp == parsed.timestamp(NOW_MS)


def test_none_is_a_value_of_its_own() -> None:
    assert NONE == parse_offset_reset("none")


@pytest.mark.parametrize(
    ("duration", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("P1D", 86_400_000),
        ("P2DT3H4M5.678S", 2 * 86_400_000 + 3 * 3_600_000 + 4 * 60_000 + 5_678),
        ("pt0.5s", 500),
        ("PT0S", 0),
        ("PT1M-1S", 59_000),
        ("PT2M-0.5S", 119_500),
        ("P-1DT25H", 3_600_000),
    ],
)
def test_durations_are_read_as_java_reads_them(duration: str, milliseconds: int) -> None:
    """Each value was read by java.time.Duration.parse as well."""
    parsed = parse_offset_reset(f"by_duration:{duration}")
    assert milliseconds == parsed.duration_ms
    assert NOW_MS - milliseconds == parsed.timestamp(NOW_MS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "by_duration",
        "by_duration:",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:P1DT",
        "by_duration:1H",
        "by_duration:P1M",
        "by_duration:P1Y",
        "by_duration:-PT1H",
        "by_duration:PT-1H",
        "by_duration:PT٣S",
        "smallest",
        "earlies",
    ],
)
def test_other_values_are_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"auto\.offset\.reset.*it takes earliest, latest, none"):
        parse_offset_reset(text)


def test_a_duration_longer_than_time_itself_starts_at_the_epoch() -> None:
    assert 0 == parse_offset_reset("by_duration:P99999999D").timestamp(NOW_MS)


def test_a_seek_to_a_time_asks_for_that_time() -> None:
    """However often the look-up is repeated, it does not move with the clock."""
    assert 1_234 == to_time(1_234).timestamp(NOW_MS)
    assert 1_234 == to_time(1_234).timestamp(NOW_MS + 60_000)
    assert "timestamp 1234" == str(to_time(1_234))
    assert to_time(1_234) != to_time(1_235)
