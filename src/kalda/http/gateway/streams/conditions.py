"""Reads and evaluates the conditions of a stream: by key, by header, and by a path into a JSON value.

A path is a small part of JSONPath (RFC 9535): ``$``, names (``.name``, ``['any name']``), indexes (``[0]``,
``[-1]``) and, after it, one comparison with a JSON value: ``$.customer.country=="DE"``,
``$.items[0].price>=10``. A path alone asks whether the value has such a place. Texts and numbers compare with
their own kind only.
"""

import operator as operators
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kalda.common.received_json import loads_received
from kalda.http.gateway.parameters import InvalidParameterError
from kalda.records.record import Header

CONDITIONS_MAX: Final = 16
"""Conditions of one stream: each is evaluated for each record."""
TEXT_MAX: Final = 1_000
"""Characters of one condition."""

_MISSING: Final = object()
_STEP: Final = re.compile(
    r"""\.(?P<name>[A-Za-z_][A-Za-z0-9_-]*)|\[(?P<index>-?\d{1,9})\]|\['(?P<single>[^'\\]+)'\]|\["(?P<double>[^"\\]+)"\]"""
)
_ORDERINGS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<=": operators.le,
    ">=": operators.ge,
    "<": operators.lt,
    ">": operators.gt,
}
_OPERATORS: Final = ("==", "!=", *_ORDERINGS)
_WHERE: Final = 'a path and, after it, a comparison: $.name, $.a[0]["b c"]=="text", $.price>=10'


@dataclass(frozen=True, slots=True)
class JsonCondition:
    """A condition on the value at a path of a JSON value."""

    path: tuple[str | int, ...]
    operator: str | None
    """None asks only whether the place exists."""
    operand: object = None

    def matches(self, value: object) -> bool:
        """Return whether a parsed JSON value has the path and the value there meets the condition."""
        found: Any = value
        for step in self.path:
            if isinstance(step, str):
                found = found.get(step, _MISSING) if isinstance(found, dict) else _MISSING
            elif isinstance(found, list) and -len(found) <= step < len(found):
                found = found[step]
            else:
                found = _MISSING
            if found is _MISSING:
                return False
        return self.operator is None or _compare(found, self.operator, self.operand)


@dataclass(frozen=True, slots=True)
class Conditions:
    """All conditions of a stream; a record has to meet each of them."""

    keys: frozenset[bytes] = frozenset()
    """The keys of which the record must have one; none ask for nothing."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Headers that the record must have; None is any value."""
    values: tuple[JsonCondition, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.keys or self.headers or self.values)

    def match(self, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> bool:
        """Return whether a record meets all conditions. A value that is no JSON meets none about JSON."""
        if self.keys and key not in self.keys:
            return False
        for name, wanted in self.headers:
            if not any(each == name and (wanted is None or wanted == found) for each, found in headers):
                return False
        if not self.values:
            return True
        if value is None:
            return False
        try:
            parsed = loads_received(value.decode())
        except ValueError:
            return False
        return all(condition.matches(parsed) for condition in self.values)


def parse_conditions(keys: Sequence[str], headers: Sequence[str], where: Sequence[str]) -> Conditions:
    """Return the conditions of the parameters ``key``, ``header`` and ``where``.

    Raises:
        InvalidParameterError: one is no condition, or there are too many.
    """
    count = len(keys) + len(headers) + len(where)
    if count > CONDITIONS_MAX:
        raise InvalidParameterError("where", f"{count} conditions", f"at most {CONDITIONS_MAX}")
    return Conditions(
        frozenset(key.encode() for key in keys),
        tuple(_header(text) for text in headers),
        tuple(parse_json_condition(text) for text in where),
    )


def parse_json_condition(text: str) -> JsonCondition:
    """Parse the text of a condition.

    Raises:
        InvalidParameterError: it is none.
    """
    if len(text) > TEXT_MAX or not text.startswith("$"):
        raise InvalidParameterError("where", text, _WHERE)
    path: list[str | int] = []
    at = 1
    while step := _STEP.match(text, at):
        at = step.end()
        if step["index"] is not None:
            path.append(int(step["index"]))
        else:
            path.append(step["name"] or step["single"] or step["double"])
    rest = text[at:].strip()
    if not rest:
        return JsonCondition(tuple(path), None)
    operator = next((each for each in _OPERATORS if rest.startswith(each)), None)
    if operator is None:
        raise InvalidParameterError("where", text, _WHERE)
    try:
        operand = loads_received(rest[len(operator) :].strip())
    except ValueError:
        raise InvalidParameterError("where", text, f"a JSON value after {operator}") from None
    if isinstance(operand, dict | list):
        raise InvalidParameterError("where", text, f"a text, a number, true, false or null after {operator}")
    return JsonCondition(tuple(path), operator, operand)


def _header(text: str) -> tuple[str, bytes | None]:
    name, colon, value = text.partition(":")
    if not name:
        raise InvalidParameterError("header", text, "name, or name:value")
    return name, value.encode() if colon else None


def _compare(found: object, operator: str, operand: object) -> bool:
    # True is 1 to Python, and not to JSON.
    is_same_kind = type(found) is type(operand) or (
        type(found) in (int, float) and type(operand) in (int, float)
    )
    if operator == "==":
        return is_same_kind and found == operand
    if operator == "!=":
        return not (is_same_kind and found == operand)
    is_ordered = isinstance(found, int | float | str) and not isinstance(found, bool)
    return is_same_kind and is_ordered and _ORDERINGS[operator](found, operand)
