"""Configures logging: one line for each event, with a context prefix and with the text of peers escaped.

`LogContext` puts one prefix before every line of a component, as Kafka's `LogContext` does.
`OneLineFormatter` escapes line breaks, so that text from a peer cannot imitate a log line. `JsonFormatter`
writes one JSON object a line, for programs that collect logs. `configure` sets up the process;
`report_failure` uses the same format. `kalda.common.log_limiter` limits the number of lines.
"""

import json
import logging
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, Final

from kalda.common.log_limiter import FloodFilter

LINE_CHARACTERS_MAX: Final = 4000
"""A screenful; the beginning of a line is the part worth reading."""

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


class LogFormat(StrEnum):
    """How a process writes its log."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least level that a process logs; the names are those of the command line."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The level as `logging` numbers it."""
        return logging.getLevelNamesMapping()[self.name]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The logging options of a command line; None stands for an option that was not given."""

    level: LogLevel | None = None
    form: LogFormat | None = None


class JsonFormatter(logging.Formatter):
    """Writes every event as one JSON object on one line of ASCII.

    Fields: ``timestamp`` (ISO 8601, UTC, milliseconds), ``level``, ``logger``, ``message``, ``process`` (the
    name given to `configure`, where there is one) and ``exception`` (the traceback, where there is one).
    """

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process: Final = process

    def format(self, record: logging.LogRecord) -> str:
        """Format one event."""
        message = record.getMessage()
        if len(message) > LINE_CHARACTERS_MAX:
            cut = len(message) - LINE_CHARACTERS_MAX
            message = f"{message[:LINE_CHARACTERS_MAX]}... ({cut} more characters)"
        timestamp = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {
            "timestamp": timestamp.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": message,
        }
        if self._process:
            fields["process"] = self._process
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            fields["exception"] = record.exc_text
        return json.dumps(fields)


_process_logger: Final = logging.getLogger("kalda")


def configure(
    level: LogLevel = LogLevel.INFO,
    form: LogFormat = LogFormat.TEXT,
    *,
    process: str = "",
    is_prefixed: bool = False,
) -> None:
    """Send the logs of the whole process to stderr, one line an event. A later call replaces an earlier one.

    `process` names the process, e.g. "broker 1": in every event in JSON, and with `is_prefixed` also before
    every message in text, for processes that share a terminal.
    """
    handler = logging.StreamHandler()
    if form is LogFormat.JSON:
        handler.setFormatter(JsonFormatter(process))
        # What Python itself would print: uncaught exceptions, of threads and finalizers too, and warnings.
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_of_thread
        sys.unraisablehook = _log_unraisable
        logging.captureWarnings(True)
    else:
        text = FORMAT.replace("%(message)s", f"[{process}] %(message)s") if is_prefixed else FORMAT
        handler.setFormatter(OneLineFormatter(text))
    handler.addFilter(FloodFilter())
    logging.basicConfig(level=level.number, handlers=[handler], force=True)


def report_failure(message: str) -> None:
    """Write one line to stderr with the reason why the command ends.

    In text the line is ``kalda: MESSAGE``, without a timestamp, as commands do; in JSON it is an event as all
    others, of level ERROR.
    """
    handlers = logging.getLogger().handlers
    if any(isinstance(handler.formatter, JsonFormatter) for handler in handlers):
        _process_logger.error("%s", message)
    else:
        print(f"kalda: {message}", file=sys.stderr)


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _process_logger.critical("an exception was not caught", exc_info=(kind, error, trace))


def _log_uncaught_of_thread(caught: threading.ExceptHookArgs) -> None:
    error = caught.exc_value if caught.exc_value is not None else caught.exc_type()
    name = caught.thread.name if caught.thread is not None else "unknown"
    _process_logger.critical(
        "an exception ended thread %s", name, exc_info=(caught.exc_type, error, caught.exc_traceback)
    )


def _log_unraisable(caught: "sys.UnraisableHookArgs") -> None:
    error = caught.exc_value if caught.exc_value is not None else caught.exc_type()
    _process_logger.error(
        "%s: %r",
        caught.err_msg or "Exception ignored in",
        caught.object,
        exc_info=(caught.exc_type, error, caught.exc_traceback),
    )
