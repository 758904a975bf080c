"""Formats times by the patterns of java.text.SimpleDateFormat, which the old tools take as --date-format."""

import re
from datetime import datetime
from itertools import groupby
from typing import Final

from kalda.command.errors import ToolUsageError

DEFAULT_PATTERN: Final = "yyyy-MM-dd HH:mm:ss:SSS"
"""The default of the old tools."""

_LETTERS: Final = {
    "y": lambda at: at.year,
    "M": lambda at: at.month,
    "d": lambda at: at.day,
    "H": lambda at: at.hour,
    "m": lambda at: at.minute,
    "s": lambda at: at.second,
    "S": lambda at: at.microsecond // 1000,
}
_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'")


class SimpleDateFormat:
    """A pattern of the letters y, M, d, H, m, s and S, with other text between them or in quotes.

    >>> SimpleDateFormat("yyyy-MM-dd HH:mm:ss:SSS").format(datetime(2012, 8, 25, 9, 5, 7, 42_000))
    '2012-08-25 09:05:07:042'

    Raises:
        ToolUsageError: the pattern has another letter.
    """

    def __init__(self, pattern: str) -> None:
        self._parts: Final[list[tuple[str, int]]] = []
        """A letter with its count, or a text with 0."""
        for number, part in enumerate(_QUOTED.split(pattern)):
            if number % 2:
                self._parts.append((part.replace("''", "'") or "'", 0))
                continue
            for letter, same in groupby(part):
                count = len(list(same))
                if letter.isalpha() and letter not in _LETTERS:
                    raise ToolUsageError(
                        f"--date-format={pattern}: the letter {letter} is not supported, only "
                        f"{', '.join(_LETTERS)}; put text in quotes"
                    )
                self._parts.append((letter, count) if letter in _LETTERS else (letter * count, 0))

    def format(self, at: datetime) -> str:
        """Return the text of a time."""
        return "".join(_text(part, count, at) for part, count in self._parts)


def _text(part: str, count: int, at: datetime) -> str:
    if not count:
        return part
    if part == "y" and count == 2:
        return f"{at.year % 100:02}"
    if part == "M" and count > 2:
        return at.strftime("%b" if count == 3 else "%B")
    return f"{_LETTERS[part](at):0{count}}"
