"""Log lines that a peer can cause are limited; lines of our own carry their context."""

import io
import logging
from collections.abc import Iterator

import pytest

from kalda.common import log_limiter
from kalda.common.log_limiter import SOURCES_MAX, FloodFilter, LogLimiter
from kalda.common.logging import LogContext

logger = logging.getLogger("kalda.test")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(log_limiter, "monotonic", lambda: now[0])
    return now


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    taken = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return taken


def test_lines_above_the_burst_are_counted_and_reported(
    now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    limiter = LogLimiter(logger, burst=3, period_seconds=10)
    for number in range(8):
        limiter.log(logging.WARNING, "junk %d", number, source="192.0.2.1")
    assert ["junk 0", "junk 1", "junk 2"] == messages(caplog)
    now[0] += 10
    limiter.log(logging.WARNING, "junk %d", 8, source="192.0.2.1")
    assert [
        "5 more lines from 192.0.2.1 in 10 s were suppressed, such as: junk 3",
        "junk 8",
    ] == messages(caplog)


def test_count_is_reported_without_another_line(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    """A flood that has ended must not keep its size to itself."""
    limiter = LogLimiter(logger, burst=1, period_seconds=10)
    for _ in range(3):
        limiter.log(logging.WARNING, "junk")
    limiter.report_suppressed()
    assert ["junk"] == messages(caplog)
    now[0] += 10
    limiter.report_suppressed()
    limiter.report_suppressed()
    assert ["2 more lines in 10 s were suppressed, such as: junk"] == messages(caplog)


def test_kinds_and_sources_are_limited_apart(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    """One peer's flood must not hide what another peer causes."""
    limiter = LogLimiter(logger, burst=1)
    for _ in range(3):
        limiter.log(logging.WARNING, "a", source="192.0.2.1")
        limiter.log(logging.WARNING, "b", source="192.0.2.1")
        limiter.log(logging.ERROR, "a", source="192.0.2.1")
        limiter.log(logging.WARNING, "a", source="192.0.2.2")
    assert ["a", "b", "a", "a"] == messages(caplog)


def test_many_sources_share_one_limit(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    """An attacker with a /64 of IPv6 must not get a burst for each address, nor our memory."""
    limiter = LogLimiter(logger, burst=2, period_seconds=10)
    for number in range(10_000):
        limiter.log(logging.WARNING, "junk from %d", number, source=str(number))
    assert SOURCES_MAX + 2 == len(messages(caplog))
    now[0] += 10
    limiter.report_suppressed()
    (summary,) = messages(caplog)
    assert summary.startswith(
        f"{10_000 - SOURCES_MAX - 2} more lines from other addresses in 10 s were suppressed, such as: junk"
    )


def test_quiet_period_reports_nothing(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    limiter = LogLimiter(logger, burst=2, period_seconds=10)
    for _ in range(3):
        limiter.log(logging.WARNING, "rare")
        now[0] += 60
    assert 3 == len(caplog.records)


def test_line_below_the_level_uses_up_nothing(now: list[float], caplog: pytest.LogCaptureFixture) -> None:
    limiter = LogLimiter(logger, burst=1)
    with caplog.at_level(logging.WARNING):
        limiter.log(logging.DEBUG, "same text")
        limiter.log(logging.WARNING, "same text")
    assert 1 == len(caplog.records)


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a handler with a flood filter writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(FloodFilter(burst=2, period_seconds=10))
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


def test_flood_of_one_call_site_is_suppressed(now: list[float], written: io.StringIO) -> None:
    for number in range(5):
        logger.warning("member %d joins", number)
    logger.warning("something else")
    now[0] += 10
    logger.warning("member %d joins", 5)
    assert [
        "member 0 joins",
        "member 1 joins",
        "something else",
        "3 more lines in 10 s were suppressed, such as: member 2 joins",
        "member 5 joins",
    ] == written.getvalue().splitlines()


def test_flood_of_ready_made_lines_is_suppressed(
    now: list[float], written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that formats before it logs makes each line look like a call site of its own."""
    monkeypatch.setattr(log_limiter, "FLOOD_KEYS_MAX", 3)
    handler = logging.StreamHandler(stream := io.StringIO())
    handler.addFilter(FloodFilter(burst=2, period_seconds=10))
    logger.addHandler(handler)
    for number in range(100):
        logger.warning(f"line {number}")  # noqa: G004
    logger.removeHandler(handler)
    assert 3 + 2 == len(stream.getvalue().splitlines())


def test_context_is_put_before_every_line(caplog: pytest.LogCaptureFixture) -> None:
    """A percent sign in a context, such as a topic's, must not be taken for a format."""
    log = LogContext(logger, "Partition 100%-0 broker=1")
    log.warning("shrinking to %s", [1, 2])
    log.warning("no arguments, 5% left")
    assert [
        "[Partition 100%-0 broker=1] shrinking to [1, 2]",
        "[Partition 100%-0 broker=1] no arguments, 5% left",
    ] == [record.getMessage() for record in caplog.records if record.name == logger.name]
