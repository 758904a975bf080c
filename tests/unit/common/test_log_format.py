"""Lines of the log: one for each event, whatever peers put into it."""

import logging
import sys

from kalda.common.logging import LINE_CHARACTERS_MAX, OneLineFormatter


def formatted(message: str, *args: object, exc_info: bool = False) -> str:
    info = sys.exc_info() if exc_info else None
    record = logging.LogRecord("kalda.test", logging.INFO, "test", 1, message, args, info)
    return OneLineFormatter("%(levelname)s %(message)s (%(name)s)").format(record)


def test_ordinary_text_stays_as_it_is() -> None:
    assert "INFO group Käfer joins (kalda.test)" == formatted("group %s joins", "K\u00e4fer")


def test_a_peer_cannot_write_lines_of_its_own() -> None:
    line = formatted("group %s joins", "a\n2026 ERROR broken\r\x1b[2J\u2028")
    assert "INFO group a\\n2026 ERROR broken\\r\\x1b[2J\\u2028 joins (kalda.test)" == line


def test_a_line_has_an_end() -> None:
    line = formatted("reason: %s", "x" * 30_000)
    assert LINE_CHARACTERS_MAX + 40 > len(line)
    assert line.startswith("INFO reason: xxx")
    assert line.endswith("more characters)")


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("a bug")
    except ValueError:
        text = formatted("it failed", exc_info=True)
    first, *rest = text.splitlines()
    assert "INFO it failed (kalda.test)" == first
    assert "ValueError: a bug" == rest[-1]
