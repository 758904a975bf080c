"""Logging with context, one line for each event.

`LogContext` puts one prefix before every line of a component, as Kafka's does. `OneLineFormatter` keeps what
peers say from looking like lines of our own. `FloodFilter`, in `kalda.common.log_limiter`, bounds the number
of lines.
"""

import logging
from typing import Any, Final

from kalda.common.log_limiter import FloodFilter

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
    handler.addFilter(FloodFilter())
    logging.basicConfig(level=level, handlers=[handler])
