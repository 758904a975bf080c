"""Subscription by regular expression, in RE2's syntax as KIP-848 says: none takes more than linear time.

An expression must match the whole of a topic's name. Matching a whole cluster's names takes a while: it
is done in slices, each short enough for the event loop.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.regex import RegexError, compile_regex

__all__ = ["RegexResolution", "check_regex"]

SLICE: Final = 1000
"""Names per slice at most; there are expressions that take a millisecond for one name."""


def check_regex(regex: str) -> None:
    """Check that an expression can be used.

    Raises:
        ApiError: INVALID_REGULAR_EXPRESSION.
    """
    try:
        compile_regex(regex)
    except RegexError as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from None


class RegexResolution:
    """Finds the topics of some expressions; `step` until it is done."""

    def __init__(self, regexes: Iterable[str], names: Collection[str], generation: int) -> None:
        self.generation: Final = generation
        """Of the topics whose names these are."""
        self._found: Final[dict[str, set[str]]] = {regex: set() for regex in regexes}
        self._patterns: Final = [(compile_regex(regex), found) for regex, found in self._found.items()]
        self._names: Final = list(names)
        self._next = 0

    def step(self, is_time_up: Callable[[], bool] = lambda: False) -> bool:
        """Match some more names, one at least; whether all are done."""
        end = min(self._next + SLICE, len(self._names))
        while self._next < end:
            name = self._names[self._next]
            self._next += 1
            for pattern, found in self._patterns:
                if pattern.fullmatch(name) is not None:
                    found.add(name)
            if is_time_up():
                break
        return self._next >= len(self._names)

    @property
    def found(self) -> dict[str, frozenset[str]]:
        """The topics of each expression."""
        return {regex: frozenset(names) for regex, names in self._found.items()}
