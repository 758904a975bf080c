"""Logging with context, and a brake for lines that a peer can cause.

`LogContext` puts one prefix before every line of a component, as Kafka's does. `LogLimiter` lets a burst
through and then counts: a peer that sends junk in a loop gets a handful of lines, not a full disk.
`OneLineFormatter` keeps what peers say from looking like lines of our own.
"""

import logging
from time import monotonic
from typing import Any, Final

LIMIT_BURST: Final = 10
LIMIT_SECONDS: Final = 10.0
"""Ten lines of one kind in ten seconds tell an operator what is wrong; more of them tell nothing more."""

LINE_CHARACTERS_MAX: Final = 4000
"""A screenful; what is worth reading in a line stands in front."""

FORMAT: Final = "%(asctime)s %(levelname)s %(message)s (%(name)s)"


class LogContext(logging.LoggerAdapter[logging.Logger]):
    """A logger that begins every line with a context.

    ``LogContext(logger, "ReplicaManager broker=1")`` logs ``[ReplicaManager broker=1] ...``.
    """

    def __init__(self, logger: logging.Logger, context: str) -> None:
        super().__init__(logger, {})
        self._prefix: Final = f"[{context}] "
        self._format_prefix: Final = self._prefix.replace("%", "%%")

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log the message behind the context."""
        if self.isEnabledFor(level):
            # `logging` formats only where there are arguments, so only then is a percent sign special.
            prefix = self._format_prefix if args else self._prefix
            message = f"{prefix}{msg}"
            self.logger.log(level, message, *args, **kwargs)


class LogLimiter:
    """Logs through `logger`, at most `burst` lines of one format per period; then says how many it left out.

    The kind of a line is its level and its format string, so there are few more kinds than call sites.
    """

    def __init__(
        self, logger: logging.Logger, burst: int = LIMIT_BURST, period_seconds: float = LIMIT_SECONDS
    ) -> None:
        self._logger: Final = logger
        self._burst: Final = burst
        self._period_seconds: Final = period_seconds
        # Level and format -> [start of the period, lines in it].
        self._kinds: dict[tuple[int, str], list[float]] = {}

    def log(self, level: int, message: str, *args: object, exc_info: bool = False) -> None:
        """Log one line, or count it if there were too many of its kind."""
        if not self._logger.isEnabledFor(level):
            return
        now = monotonic()
        period = self._kinds.setdefault((level, message), [now, 0])
        if now - period[0] >= self._period_seconds:
            suppressed = int(period[1]) - self._burst
            period[0], period[1] = now, 0
            if suppressed > 0:
                self._logger.log(level, "%d more lines were left out like: %s", suppressed, message)
        period[1] += 1
        if period[1] <= self._burst:
            self._logger.log(level, message, *args, exc_info=exc_info)


class OneLineFormatter(logging.Formatter):
    """Keeps every event on one line of bounded length; a traceback comes behind it as it is.

    Names of groups, client ids and reasons come from peers: with a line break in one, a peer could write
    lines of its own, and one of 30,000 characters would bury the others.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the name is logging's)
        """Format one event."""
        line = super().formatMessage(record)
        if len(line) > LINE_CHARACTERS_MAX:
            line = f"{line[:LINE_CHARACTERS_MAX]}... ({len(line) - LINE_CHARACTERS_MAX} more characters)"
        if line.isprintable():
            return line
        return "".join(
            each if each.isprintable() else each.encode("unicode_escape").decode() for each in line
        )


def configure(level: int = logging.INFO, *, context: str = "") -> None:
    """Send the logs of the whole process to stderr, one line an event, each with the context if one is given.

    The context tells the processes apart that share a terminal.
    """
    form = FORMAT.replace("%(message)s", f"[{context}] %(message)s") if context else FORMAT
    handler = logging.StreamHandler()
    handler.setFormatter(OneLineFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])
