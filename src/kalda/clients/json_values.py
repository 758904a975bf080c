"""Makes JSON of Python's values, and values of a dataclass's types of JSON.

Errors name the field by its path, such as ``lines[2].price``, and the value found there.
"""

import dataclasses
import json
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from reprlib import repr as short_repr
from typing import Any, Final, Literal, Union

from kalda.clients.errors import ClientConfigError
from kalda.common.types import UUID

Read = Callable[[Any], Any]
"""Makes a value of a type from parsed JSON; raises `MismatchError`."""

_AS_TEXT: Final[dict[type, Read]] = {
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    UUID: UUID,
    Decimal: Decimal,
}
"""Types whose JSON is a string, with what reads it."""
_SEQUENCES: Final[dict[object, Callable[[Iterable[Any]], Any]]] = {
    list: list,
    Sequence: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}


_PATH_STEPS_MAX: Final = 20
"""A path in an error is readable up to some such length, and a list that holds itself has no end."""


class MismatchError(ValueError):
    """A value of the JSON is not of the type that is expected there."""

    def __init__(self, found: object, expected: str) -> None:
        super().__init__(found, expected)
        self._text: Final = f"is {short_repr(found)}, not {expected}"
        self._path = ""

    def inside(self, step: str) -> "MismatchError":
        """Return this error, as one of the value that holds the one found."""
        self._path = step + ("." if self._path and not self._path.startswith("[") else "") + self._path
        return self

    def __str__(self) -> str:
        return f"field `{self._path}` {self._text}" if self._path else f"the JSON {self._text}"


def write(value: object) -> bytes:
    """Return the JSON of a value: what `json` writes, dataclasses, enums, sets, dates, UUIDs and decimals.

    Raises:
        ValueError: a value has no JSON form.
    """
    try:
        return _dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        path, found = _unwritable(value)
        where = f"field `{path}` is" if path else "it is"
        raise ValueError(f"{where} {short_repr(found)}, which has no JSON form: {error}") from error


def parse(data: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{short_repr(data)} is not JSON: {error}") from error


def reader(kind: Any) -> Read:
    """Return the function that makes a value of a type from parsed JSON.

    Raises:
        ClientConfigError: the type, or that of a field, is not one that JSON can be read into.
    """
    return _Readers().of(kind)


class _Readers:
    """Makes the readers of a type and its parts; each dataclass once, since one may hold itself."""

    def __init__(self) -> None:
        self._of_dataclass: Final[dict[type, Read]] = {}

    def of(self, kind: Any) -> Read:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind is Any or kind is object:
            return _unchanged
        if kind is None or kind is type(None):
            return _literal((None,))
        if origin is Literal:
            return _literal(arguments)
        if origin is Union or origin is types.UnionType:
            return self._union(arguments)
        if (origin or kind) in _SEQUENCES:
            return self._sequence(origin or kind, arguments)
        if (origin or kind) in (dict, Mapping) and (not arguments or arguments[0] is str):
            return self._mapping(arguments[1] if arguments else Any)
        if isinstance(kind, type):
            return self._class(kind)
        raise ClientConfigError(f"{kind} is no type that JSON can be read into; use json() without a type")

    def _class(self, kind: type) -> Read:
        if kind is float:
            return _float
        if kind in (bool, int, str):
            return _exactly(kind)
        if kind in _AS_TEXT:
            return _parsed(kind, _AS_TEXT[kind], (str, int, float) if kind is Decimal else (str,))
        if issubclass(kind, Enum):
            return _parsed(kind, kind, (str, int, float))
        if dataclasses.is_dataclass(kind):
            return self._dataclass(kind)
        raise ClientConfigError(
            f"{kind.__qualname__} is no type that JSON can be read into: it takes a dataclass, a pydantic "
            "model, a msgspec Struct, or the types of their fields"
        )

    def _union(self, kinds: Sequence[Any]) -> Read:
        readers = [self.of(kind) for kind in kinds]

        def read(value: Any) -> Any:
            errors = []
            for each in readers:
                try:
                    return each(value)
                except MismatchError as error:
                    errors.append(error)
            # For an optional object, the field inside says more than the whole.
            deep = [error for error in errors if error._path]
            raise deep[0] if len(deep) == 1 else MismatchError(value, " or ".join(map(_name, kinds)))

        return read

    def _sequence(self, kind: object, kinds: Sequence[Any]) -> Read:
        build = _SEQUENCES[kind]
        if kind is tuple and not (len(kinds) == 2 and kinds[1] is Ellipsis) and kinds:
            fixed: list[Read] | None = [self.of(each) for each in kinds]
        else:
            fixed = None
        item = self.of(kinds[0]) if kinds and fixed is None else _unchanged

        def read(value: Any) -> Any:
            if not isinstance(value, list) or (fixed is not None and len(value) != len(fixed)):
                raise MismatchError(value, "a list" if fixed is None else f"a list of {len(fixed)}")
            items = []
            for index, each in enumerate(value):
                try:
                    items.append((item if fixed is None else fixed[index])(each))
                except MismatchError as error:
                    raise error.inside(f"[{index}]") from None
            return build(items)

        return read

    def _mapping(self, kind: Any) -> Read:
        item = self.of(kind)

        def read(value: Any) -> dict[str, Any]:
            return {name: _inside(name, item, each) for name, each in _object(value).items()}

        return read

    def _dataclass(self, kind: type[Any]) -> Read:
        if kind in self._of_dataclass:
            return self._of_dataclass[kind]
        readers: dict[str, Read] = {}
        needed: list[str] = []

        def read(value: Any) -> Any:
            given = _object(value)
            for name in needed:
                if name not in given:
                    raise MismatchError(value, f"complete: field `{name}` is missing")
            return kind(
                **{name: _inside(name, each, given[name]) for name, each in readers.items() if name in given}
            )

        self._of_dataclass[kind] = read
        try:
            hints = typing.get_type_hints(kind)
        except NameError as error:
            raise ClientConfigError(
                f"the types of {kind.__qualname__}'s fields are unknown: {error}"
            ) from error
        for field in dataclasses.fields(kind):
            if field.init:
                readers[field.name] = self.of(hints[field.name])
                if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                    needed.append(field.name)
        return read


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MismatchError(value, "an object")
    return value


def _inside(name: str, read: Read, value: Any) -> Any:
    try:
        return read(value)
    except MismatchError as error:
        raise error.inside(name) from None


def _unchanged(value: Any) -> Any:
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MismatchError(value, "a float")
    return float(value)


def _exactly(kind: type) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise MismatchError(value, f"{'an' if kind is int else 'a'} {kind.__name__}")
        return value

    return read


def _literal(allowed: tuple[Any, ...]) -> Read:
    def read(value: Any) -> Any:
        for each in allowed:
            if type(value) is type(each) and value == each:
                return each
        raise MismatchError(value, " or ".join(map(repr, allowed)))

    return read


def _parsed(kind: type, parse_text: Read, forms: tuple[type, ...]) -> Read:
    def read(value: Any) -> Any:
        if isinstance(value, forms) and not isinstance(value, bool):
            try:
                return parse_text(str(value) if kind is Decimal else value)
            except (ValueError, ArithmeticError):
                pass
        raise MismatchError(value, f"a {kind.__name__}")

    return read


def _name(kind: Any) -> str:
    return "None" if kind is type(None) else getattr(kind, "__name__", str(kind))


def _dumps(value: object) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: object) -> object:
    """Return the JSON form of a value that `json` does not know."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return list(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a type of JSON")


def _unwritable(value: object) -> tuple[str, object]:
    """Return the path and the value of the innermost part that cannot be written."""
    path = ""
    for _ in range(_PATH_STEPS_MAX):
        for step, part in _parts(value):
            try:
                _dumps(part)
            except (TypeError, ValueError, RecursionError):
                path += step if step.startswith("[") or not path else f".{step}"
                value = part
                break
        else:
            break
    return path, value


def _parts(value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, Mapping):
        return ((str(key), part) for key, part in value.items())
    if isinstance(value, list | tuple):
        return ((f"[{index}]", part) for index, part in enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    return ()
