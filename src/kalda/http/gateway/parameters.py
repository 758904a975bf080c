"""Defines the error of a request's parameter, and reads numbers and words from parameters."""

from collections.abc import Collection
from typing import Final

from kalda.common.nearest import did_you_mean

_SHOWN_MAX: Final = 80
"""How much of a wrong value a message repeats."""


class InvalidParameterError(ValueError):
    """A parameter of a request is not allowed; the message has its name, the value and what is allowed."""

    def __init__(self, name: str, found: object, allowed: str) -> None:
        self.name: Final = name
        text = str(found)
        shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
        super().__init__(f"{name}={shown!r} is not allowed: {allowed}")


def read_int(name: str, text: str, low: int, high: int) -> int:
    """Return the whole number of a parameter.

    Raises:
        InvalidParameterError: it is no number from `low` to `high`.
    """
    allowed = f"a whole number from {low} to {high}"
    # More digits than any bound has, and signs, spaces, underscores and other digits, which int() takes.
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 20):
        raise InvalidParameterError(name, text, allowed)
    value = int(text)
    if not low <= value <= high:
        raise InvalidParameterError(name, text, allowed)
    return value


def read_word(name: str, text: str, words: Collection[str]) -> str:
    """Return a parameter that is one of some words.

    Raises:
        InvalidParameterError: it is another one.
    """
    if text not in words:
        raise InvalidParameterError(name, text, f"one of {', '.join(words)}{did_you_mean(text, words)}")
    return text
