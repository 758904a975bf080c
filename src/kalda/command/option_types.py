"""Types of option values whose errors name the option, the value and what is allowed."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import click
from click.shell_completion import CompletionItem

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)


INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
"""The greatest numbers of the protocol's types: a request cannot carry a greater one."""

_TYPE_BOUNDS: Final = (INT16_MAX, INT32_MAX, INT64_MAX)


class OptionValueError(click.UsageError):
    """The value of an option is not allowed; the message is complete."""


def not_allowed(
    value: object, allowed: str, parameter: click.Parameter | None, context: click.Context | None
) -> OptionValueError:
    """Return the error for a value of an option or argument; `allowed` completes "it takes ...".

    >>> str(not_allowed("x", "an int, at least 1", click.Option(["--brokers"]), None))
    '--brokers=x is not allowed: it takes an int, at least 1'
    """
    return OptionValueError(f"{_name(parameter)}={value} is not allowed: it takes {allowed}", context)


def _name(parameter: click.Parameter | None) -> str:
    if parameter is None:
        return "the value"
    return parameter.opts[0] if isinstance(parameter, click.Option) else parameter.human_readable_name


class EnumType(click.ParamType, Generic[ChoiceT]):  # type: ignore[type-arg]  # generic in newer clicks only
    """A member of a `StrEnum`, by value, in any case."""

    name = "choice"

    def __init__(self, choices: type[ChoiceT]) -> None:
        self._choices: Final = choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ChoiceT:
        """Return the member."""
        try:
            return self._choices(str(value).lower())
        except ValueError:
            raise not_allowed(value, one_of(list(self._choices)), param, ctx) from None

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return the members for the help."""
        return "|".join(self._choices)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the members that begin with `incomplete`."""
        return [CompletionItem(each.value) for each in self._choices if each.value.startswith(incomplete)]


class Integer(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """An integer between bounds, which are those of a Java long unless given."""

    name = "integer"

    def __init__(self, least: int = -INT64_MAX - 1, most: int = INT64_MAX) -> None:
        self._least: Final = least
        self._most: Final = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        try:
            number = int(value)
        except ValueError:
            raise not_allowed(value, self._allowed(), param, ctx) from None
        if number > self._most and self._most in _TYPE_BOUNDS:
            raise not_allowed(value, f"an int, at most {self._most}", param, ctx)
        if not self._least <= number <= self._most:
            raise not_allowed(value, self._allowed(), param, ctx)
        return number

    def _allowed(self) -> str:
        if self._most not in _TYPE_BOUNDS:
            return f"an int, {self._least} to {self._most}"
        return "an int" if -self._least - 1 in _TYPE_BOUNDS else f"an int, at least {self._least}"


def one_of(words: Sequence[str]) -> str:
    """Return words as a list in a sentence: ``a, b or c``."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last
