"""Limits the log lines that a peer can cause.

`LogLimiter` is for code that serves peers: it logs a burst of lines for each kind of line and each address,
and counts and reports the suppressed ones. `FloodFilter` protects the whole process: it limits the lines of
every call site, including those of libraries.

Both hold a bounded number of counters, whatever peers send.
"""

import logging
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from kalda.runtime.system.clock import monotonic

LIMIT_BURST: Final = 10
LIMIT_SECONDS: Final = 10.0
"""Ten lines of one kind in ten seconds show an operator what is wrong; more of them add nothing."""

SOURCES_MAX: Final = 64
"""Kinds and addresses that one limiter counts apart. Above it all further addresses share one counter for
each kind of line, so that an attacker with many addresses does not multiply the lines."""

FLOOD_BURST: Final = 200
"""Lines of one call site in ten seconds that reach the log. A rebalance of a hundred groups stays below it,
and so does the creation of a hundred topics; a flood leaves at most 3 KB of log each second."""

FLOOD_KEYS_MAX: Final = 1000
"""Call sites are some hundreds; libraries that format before they log could make more."""


EXAMPLE_CHARACTERS_MAX: Final = 1000
"""Of a suppressed line that is kept until its period ends: what a peer named may have megabytes."""


class Suppressed(NamedTuple):
    """Lines that were not logged."""

    key: Hashable
    line_count: int
    example: str
    """The first of them."""


class _Period:
    __slots__ = ("example", "line_count", "started_at")

    def __init__(self, started_at: float) -> None:
        self.started_at = started_at
        self.line_count = 0
        self.example = ""


class LineBudget:
    """Counts lines by key and admits at most `burst` for each key and period."""

    def __init__(self, burst: int, period_seconds: float, keys_max: int) -> None:
        self.burst: Final = burst
        self.period_seconds: Final = period_seconds
        self._keys_max: Final = keys_max
        self._periods: dict[Hashable, _Period] = {}
        self._checked_at = 0.0

    def is_due(self, now: float) -> bool:
        """Return whether `take_ended` has not been called for a period."""
        return now - self._checked_at >= self.period_seconds

    def admit(self, key: Hashable, shared_key: Hashable, now: float, example: Callable[[], str]) -> bool:
        """Count a line and return whether it may be logged.

        `shared_key` counts the line instead if there are too many keys. `example` formats the line; it is
        called for the first line of a period that is not admitted.
        """
        period = self._periods.get(key)
        if period is None:
            if len(self._periods) >= self._keys_max:
                key = shared_key
            period = self._periods.setdefault(key, _Period(now))
        period.line_count += 1
        if period.line_count <= self.burst:
            return True
        if period.line_count == self.burst + 1:
            period.example = example()[:EXAMPLE_CHARACTERS_MAX]
        return False

    def take_ended(self, now: float) -> list[Suppressed]:
        """Return the lines that were suppressed in the periods that have ended, and forget those periods."""
        self._checked_at = now
        ended = [
            (key, period)
            for key, period in list(self._periods.items())
            if now - period.started_at >= self.period_seconds
        ]
        for key, _ in ended:
            self._periods.pop(key, None)
        return [
            Suppressed(key, period.line_count - self.burst, period.example)
            for key, period in ended
            if period.line_count > self.burst
        ]


class LogLimiter:
    """Logs through `logger`, at most `burst` lines for each kind, source and period.

    The kind of a line is its level and its format string. The source is the address that caused the line. The
    number of suppressed lines is logged after the period, by the next `log` or `report_suppressed`:

        9990 more lines from 127.0.0.1 in 10 s were suppressed, such as: request 7 from 127.0.0.1:5000 ...
    """

    def __init__(
        self, logger: logging.Logger, burst: int = LIMIT_BURST, period_seconds: float = LIMIT_SECONDS
    ) -> None:
        self._logger: Final = logger
        self._budget: Final = LineBudget(burst, period_seconds, SOURCES_MAX)

    def log(
        self,
        level: int,
        message: str,
        *args: object,
        source: str = "",
        exc_info: BaseException | None = None,
    ) -> None:
        """Log one line, or count it if there were too many of its kind from this source."""
        if not self._logger.isEnabledFor(level):
            return
        now = monotonic()
        if self._budget.is_due(now):
            self.report_suppressed()
        key = (level, message, source)
        shared = (level, message, "other addresses" if source else "")
        if self._budget.admit(key, shared, now, lambda: message % args if args else message):
            self._logger.log(level, message, *args, exc_info=exc_info)

    def report_suppressed(self) -> None:
        """Log how many lines were suppressed in the periods that are over; for a timer of the caller."""
        for key, count, example in self._budget.take_ended(monotonic()):
            assert isinstance(key, tuple), f"{key!r} is not a kind and a source"
            level, _, source = key
            origin = f" from {source}" if source else ""
            self._logger.log(
                level,
                "%d more lines%s in %g s were suppressed, such as: %s",
                count,
                origin,
                self._budget.period_seconds,
                example,
            )


class FloodFilter(logging.Filter):
    """Bounds the lines of each call site that reach a handler, and logs how many were suppressed."""

    def __init__(self, burst: int = FLOOD_BURST, period_seconds: float = LIMIT_SECONDS) -> None:
        super().__init__()
        self._budget: Final = LineBudget(burst, period_seconds, FLOOD_KEYS_MAX)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the handler may write the line."""
        now = monotonic()
        if self._budget.is_due(now):
            self._report()
        key = (record.name, record.levelno, record.msg if isinstance(record.msg, str) else None)
        shared = (record.name, record.levelno, None)
        return self._budget.admit(key, shared, now, record.getMessage)

    def _report(self) -> None:
        for key, count, example in self._budget.take_ended(monotonic()):
            assert isinstance(key, tuple), f"{key!r} is not a name, a level and a format"
            name, level, _ = key
            # Outside the handler's lock, which is taken after its filters; the line passes this filter too.
            logging.getLogger(name).log(
                level,
                "%d more lines in %g s were suppressed, such as: %s",
                count,
                self._budget.period_seconds,
                example,
            )
