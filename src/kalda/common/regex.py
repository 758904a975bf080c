"""Compiles regular expressions that clients send, in RE2's syntax; matching takes linear time at most."""

from typing import Final, Protocol, cast

import re2

_PROGRAM_BYTES_MAX: Final = 1 << 20
"""Bound of one compiled expression, an eighth of RE2's own: the broker keeps none, but compiles many."""


class RegexError(Exception):
    """The expression is not valid; the message says why."""


class Pattern(Protocol):
    """A compiled expression."""

    def fullmatch(self, text: str, /) -> object | None:
        """Return a match if the whole text matches, else None."""
        ...

    def search(self, text: str, /) -> object | None:
        """Return a match if any part of the text matches, else None."""
        ...


def compile_regex(regex: str) -> Pattern:
    """Compile an expression.

    Raises:
        RegexError: it is not valid, or too large.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PROGRAM_BYTES_MAX
    try:
        return cast(Pattern, re2.compile(regex, options))
    except re2.error as error:
        reason = error.args[0] if error.args else "unknown reason"
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise RegexError(str(reason)) from None
