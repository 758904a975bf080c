"""Reads the values of keywords, and refuses those of a wrong type."""

from decimal import Decimal
from typing import Protocol, TypeAlias

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.json.dialects import Dialect
from kalda.schemas.json.nodes import Node, Number, Reference
from kalda.schemas.json.text import canonical

Json: TypeAlias = dict[str, object]


class Scope(Protocol):
    """The subschema that is loaded."""

    @property
    def dialect(self) -> Dialect:
        """The draft that it is written in."""

    def child(self, value: object) -> Node:
        """Return the node of a subschema of this one."""

    def reference(self, name: object) -> Reference:
        """Return the node of a ``$ref``."""


def number(value: Json, keyword: str) -> Number | None:
    """Return a number, or None if the keyword is not there."""
    found = value.get(keyword)
    if keyword not in value:
        return None
    if isinstance(found, bool) or not isinstance(found, int | Decimal):
        raise wrong(keyword, found, "a number")
    return found


def text(value: Json, keyword: str) -> str | None:
    """Return a text, or None if the keyword is not there."""
    found = value.get(keyword)
    if found is not None and not isinstance(found, str):
        raise wrong(keyword, found, "a text")
    return found


def flag(value: Json, keyword: str) -> bool:
    """Return true or false; false if the keyword is not there."""
    found = value.get(keyword, False)
    if not isinstance(found, bool):
        raise wrong(keyword, found, "true or false")
    return found


def elements(value: Json, keyword: str) -> list[object]:
    """Return an array; an empty one if the keyword is not there."""
    found = value.get(keyword, [])
    if not isinstance(found, list):
        raise wrong(keyword, found, "an array")
    return found


def texts(value: Json, keyword: str) -> list[str]:
    """Return an array of texts; an empty one if the keyword is not there."""
    return [as_text(keyword, each) for each in elements(value, keyword)]


def members(value: Json, keyword: str) -> Json:
    """Return an object; an empty one if the keyword is not there."""
    found = value.get(keyword, {})
    if not isinstance(found, dict):
        raise wrong(keyword, found, "an object")
    return found


def as_text(keyword: str, found: object) -> str:
    """Return an element of a keyword's array, which must be a text."""
    if not isinstance(found, str):
        raise wrong(keyword, found, "an array of texts")
    return found


def wrong(keyword: str, found: object, expected: str) -> InvalidSchemaError:
    """Return the error of a keyword with a value of a wrong type."""
    return InvalidSchemaError(f"the keyword {keyword} is {canonical(found):.100}; it must be {expected}")
