"""Logs for programs: one JSON object a line, whatever the event holds."""

import json
import logging
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from kalda.common.logging import (
    LINE_CHARACTERS_MAX,
    JsonFormatter,
    LogFormat,
    LogLevel,
    configure,
    report_failure,
)


def formatted(message: str, *args: object, exc_info: bool = False) -> dict[str, str]:
    info = sys.exc_info() if exc_info else None
    record = logging.LogRecord("kalda.test", logging.WARNING, "test", 1, message, args, info)
    line = JsonFormatter("broker 1").format(record)
    assert line.isascii()
    assert 1 == len(line.splitlines())
    fields: dict[str, str] = json.loads(line)
    return fields


@pytest.fixture
def _logging_as_before() -> Iterator[None]:
    """`configure` is the process's, and so is what it hooks."""
    root, hooks = logging.getLogger(), (sys.excepthook, sys.unraisablehook)
    handlers, level = root.handlers[:], root.level
    # Taken out, so that `configure` does not close pytest's own.
    root.handlers[:] = []
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.excepthook, sys.unraisablehook = hooks
    logging.captureWarnings(False)


def test_an_event_has_its_fields() -> None:
    fields = formatted("group %s joins\n", "Käfer")
    timestamp = datetime.fromisoformat(fields.pop("timestamp"))
    assert timedelta() == timestamp.utcoffset()
    assert {
        "level": "WARNING",
        "logger": "kalda.test",
        "message": "group Käfer joins\n",
        "process": "broker 1",
    } == fields


def test_a_traceback_is_a_field() -> None:
    try:
        raise ValueError("a bug")
    except ValueError:
        fields = formatted("it failed", exc_info=True)
    assert "it failed" == fields["message"]
    assert fields["exception"].startswith("Traceback")
    assert fields["exception"].endswith("ValueError: a bug")


def test_a_message_has_an_end() -> None:
    message = formatted("reason: %s", "x" * 30_000)["message"]
    assert LINE_CHARACTERS_MAX + 40 > len(message)
    assert message.endswith("more characters)")


@pytest.mark.usefixtures("_logging_as_before")
def test_failures_and_uncaught_exceptions_are_events_too(capsys: pytest.CaptureFixture[str]) -> None:
    """A collector that parses stderr must not meet a line that is no JSON."""
    configure(LogLevel.ERROR, LogFormat.JSON, process="kalda start")
    logging.getLogger("kalda").warning("below the level")
    report_failure("`num.partitions`=0 is not allowed")
    error = ValueError("a bug")
    sys.excepthook(ValueError, error, None)
    failure, uncaught = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert ("ERROR", "kalda start") == (failure["level"], failure["process"])
    assert "`num.partitions`=0 is not allowed" == failure["message"]
    assert "CRITICAL" == uncaught["level"]
    assert "ValueError: a bug" in uncaught["exception"]


@pytest.mark.usefixtures("_logging_as_before")
def test_a_failure_in_text_is_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure(LogLevel.INFO, LogFormat.TEXT, process="broker 1", is_prefixed=True)
    logging.getLogger("kalda").info("it serves")
    report_failure("no such directory")
    event, failure = capsys.readouterr().err.splitlines()
    assert event.endswith("INFO [broker 1] it serves (kalda)")
    assert "kalda: no such directory" == failure
