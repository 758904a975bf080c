"""Splits the text of a .proto file into words, quoted texts and signs."""

import re
from typing import Final, NoReturn

from kalda.schemas.errors import InvalidSchemaError

# What is not closed runs to the end of the text: a pattern that failed there would be tried again and again.
_SKIPPED: Final = re.compile(r"(?:[ \t\r\n\f\v\ufeff]+|//[^\n]*|/\*.*?(?:\*/|(?P<open>\Z)))+", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z0-9_.\-]+(?:(?<=[0-9][eE])\+[0-9]+)?")
_QUOTED: Final = {quote: re.compile(rf"[^\\{quote}]*(?:\\.[^\\{quote}]*)*", re.DOTALL) for quote in "\"'"}
_ESCAPE: Final = re.compile(r"\\(?:[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Tokens:
    """A cursor in the text of a file. Each method raises `InvalidSchemaError` for what it does not expect."""

    def __init__(self, text: str) -> None:
        self._text: Final = text
        self._at = 0
        self._skip()

    @property
    def is_at_end(self) -> bool:
        """Whether nothing but space and comments is left."""
        return self._at == len(self._text)

    def peek(self) -> str:
        """Return the next character."""
        if self.is_at_end:
            self.fail("unexpected end of file")
        return self._text[self._at]

    def take(self, sign: str) -> bool:
        """Return whether the next character is `sign`, and go behind it if so."""
        if self.peek() != sign:
            return False
        self._at += 1
        self._skip()
        return True

    def require(self, sign: str) -> None:
        """Go behind a sign that has to be here."""
        if not self.take(sign):
            self.fail(f"expected '{sign}' but was '{self.peek()}'")

    def word(self) -> str:
        """Return a word: letters, digits, and ``_ - .``."""
        found = _WORD.match(self._text, self._at)
        if found is None:
            self.fail("expected a word")
        self._at = found.end()
        self._skip()
        return found.group()

    def name(self) -> str:
        """Return the name of a field or a constant."""
        start = self._at
        found = self.word()
        if found[0].isdigit():
            self.fail("field and constant names cannot start with a digit", start)
        return found

    def integer(self) -> int:
        """Return a number of at most 32 bits, which may be hexadecimal."""
        start = self._at
        found = self.word()
        digits = found.lower().removeprefix("-")
        try:
            value = int(digits, 16) if digits.startswith("0x") else int(digits)
        except ValueError:
            self.fail(f"expected an integer but was {found:.100}", start)
        value = -value if found.startswith("-") else value
        if not -(1 << 31) <= value < 1 << 31:
            self.fail(f"expected an integer but was {found:.100}", start)
        return value

    def is_at_quote(self) -> bool:
        """Return whether a quoted text is next."""
        return self.peek() in "\"'"

    def quoted(self) -> str:
        """Return a quoted text; several after each other are one."""
        if not self.is_at_quote():
            self.fail("expected quoted string")
        parts = []
        while not self.is_at_end and self.is_at_quote():
            quote, start = self.peek(), self._at
            found = _QUOTED[quote].match(self._text, start + 1)
            if found is None or self._text[found.end() : found.end() + 1] != quote:
                self.fail("unterminated string", start)
            parts.append(_ESCAPE.sub(_unescaped, found.group()))
            self._at = found.end() + 1
            self._skip()
        return "".join(parts)

    def position(self) -> int:
        """Return where the cursor is, for `fail`."""
        return self._at

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        """Raise `InvalidSchemaError` with the line and the column of a position."""
        at = self._at if position is None else position
        line = self._text.count("\n", 0, at) + 1
        column = at - self._text.rfind("\n", 0, at)
        raise InvalidSchemaError(f"Could not parse Protobuf - Syntax error in :{line}:{column}: {message}")

    def _skip(self) -> None:
        found = _SKIPPED.match(self._text, self._at)
        if found is not None:
            if found.group("open") is not None:
                self.fail("unterminated comment")
            self._at = found.end()


def _unescaped(found: re.Match[str]) -> str:
    hexadecimal, octal, other = found.groups()
    if hexadecimal is not None:
        return chr(int(hexadecimal, 16))
    if octal is not None:
        return chr(int(octal, 8))
    return _ESCAPED.get(other, other)
