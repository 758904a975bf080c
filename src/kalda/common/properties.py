"""Parses Java's ``.properties`` files, the format of ``server.properties``.

Comments begin with ``#`` or ``!``. A name ends at the first ``=``, ``:`` or blank that is not escaped. A
backslash at the end of a line joins the next one, whose leading blanks are dropped. Of two lines with the
same name, the later one wins.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kalda.runtime.system.named_file import read_named_file

_BLANKS: Final = " \t\f"
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_NAME: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(ValueError):
    """A line cannot be read; the message names the line's number."""


def read_properties(path: Path) -> dict[str, str]:
    r"""Read a file; Java reads it as ISO-8859-1, with ``\uXXXX`` for the rest.

    Raises:
        OSError: the file cannot be read.
        PropertiesError: a line has a broken escape.
    """
    return parse_properties(read_named_file(str(path)).decode("iso-8859-1"))


def parse_properties(text: str) -> dict[str, str]:
    """Read the text of a properties file.

    Raises:
        PropertiesError: a line has a broken escape.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(re.split(r"\r\n|\r|\n", text)):
        name = _NAME.match(line)
        assert name is not None, "the pattern matches the empty string"
        separator = _SEPARATOR.match(line, name.end())
        assert separator is not None, "the pattern matches the empty string"
        try:
            properties[_unescape(name[0])] = _unescape(line[separator.end() :])
        except ValueError:
            raise PropertiesError(f"line {number} has a broken \\u escape: it takes 4 hex digits") from None
    return properties


def parse_assignments(assignments: Iterable[str]) -> dict[str, str]:
    """Read ``name=value`` words as they come from a command line.

    Raises:
        PropertiesError: a word has no ``=`` or no name.
    """
    properties = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name.strip():
            raise PropertiesError(f"{assignment!r} is not a setting: write name=value")
        properties[name.strip()] = value.strip()
    return properties


def _logical_lines(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Join continued lines and drop blank lines and comments; yields the number of the first line."""
    pending, start = "", 0
    for number, natural in enumerate(lines, 1):
        line = natural.lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            start = number
        line = pending + line
        trailing = len(line) - len(line.rstrip("\\"))
        if trailing % 2:
            # A marker keeps an empty continued line from looking like the start of a new one.
            pending = line[:-1] or " "
            continue
        pending = ""
        yield start, line.lstrip(_BLANKS)
    if pending.strip():
        yield start, pending


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        code, letter = match.groups()
        if code is not None:
            return chr(int(code, 16))
        if letter == "u":
            raise ValueError(text)
        return _LETTERS.get(letter, letter) if letter is not None else ""

    return _ESCAPE.sub(replace, text)
