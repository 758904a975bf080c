"""Log lines that a peer can cause are braked; lines of our own carry their context."""

import logging

import pytest

from kalda.common import logging as kalda_logging
from kalda.common.logging import LogContext, LogLimiter

logger = logging.getLogger("kalda.test")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(kalda_logging, "monotonic", lambda: now[0])
    return now


def test_lines_above_the_burst_are_counted_and_told(
    now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    limiter = LogLimiter(logger, burst=3, period_seconds=10)
    for number in range(8):
        limiter.log(logging.WARNING, "junk from %s", number)
    assert [record.message for record in caplog.records] == ["junk from 0", "junk from 1", "junk from 2"]
    now[0] += 10
    limiter.log(logging.WARNING, "junk from %s", 8)
    assert [record.message for record in caplog.records][3:] == [
        "5 more lines were left out like: junk from %s",
        "junk from 8",
    ]


def test_kinds_are_braked_apart(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    limiter = LogLimiter(logger, burst=1)
    for _ in range(3):
        limiter.log(logging.WARNING, "a")
        limiter.log(logging.WARNING, "b")
        limiter.log(logging.ERROR, "a")
    assert [record.message for record in caplog.records] == ["a", "b", "a"]


def test_quiet_period_tells_of_nothing_left_out(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    limiter = LogLimiter(logger, burst=2, period_seconds=10)
    for _ in range(3):
        limiter.log(logging.WARNING, "rare")
        now[0] += 60
    assert len(caplog.records) == 3


def test_line_below_the_level_uses_up_nothing(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    limiter = LogLimiter(logger, burst=1)
    with caplog.at_level(logging.WARNING):
        limiter.log(logging.DEBUG, "same text")
        limiter.log(logging.WARNING, "same text")
    assert len(caplog.records) == 1


def test_context_is_put_before_every_line(caplog: pytest.LogCaptureFixture) -> None:
    """A percent sign in a context, such as a topic's, must not be taken for a format."""
    log = LogContext(logger, "Partition 100%-0 broker=1")
    log.warning("shrinking to %s", [1, 2])
    log.warning("no arguments, 5% left")
    assert [record.message for record in caplog.records] == [
        "[Partition 100%-0 broker=1] shrinking to [1, 2]",
        "[Partition 100%-0 broker=1] no arguments, 5% left",
    ]
