"""The normal form of options: full names, one order, and one entry for an option that is set in parts."""

from collections.abc import Sequence
from typing import Final

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.protobuf.elements import FieldElement, MessageElement, Option, Word
from kalda.schemas.protobuf.resolution import Types

PARTS_MAX: Final = 1_000
"""Statements that set one option."""
DIGITS_MAX: Final = 100
"""Numbers with more digits stay as they are written."""


def normal_options(options: Sequence[Option], types: Types, scope: Sequence[str]) -> list[Option]:
    """Return options in their normal form.

    Args:
        options: As written.
        types: What their names can mean.
        scope: The messages around them.
    """
    form = _Form(types, scope)
    merged: dict[tuple[str, bool], list[Option]] = {}
    for each in options:
        made = form.named(each)
        merged.setdefault((made.name, made.is_parenthesized), []).append(made)
    found: list[Option] = []
    for (name, is_parenthesized), parts in sorted(merged.items()):
        field = types.extensions.get(name) if is_parenthesized else None
        if field is not None and field.label != "repeated":
            parts = [form.merged(field, parts)]
        found += [Option(each.name, form.value(each.value), is_parenthesized) for each in parts]
    return found


class _Form:
    def __init__(self, types: Types, scope: Sequence[str]) -> None:
        self._types: Final = types
        self._scope: Final = scope

    def named(self, option: Option) -> Option:
        """Return an option with its full name, and ``(a).b = 1`` as ``(a) = {b: 1}``."""
        if not option.is_parenthesized:
            return option
        found = self._types.find_extension(option.name, self._scope)
        if found is None:
            return option
        value = _as_map(option.value) if isinstance(option.value, Option) else option.value
        return Option(found[0], value, is_parenthesized=True)

    def merged(self, field: FieldElement, parts: Sequence[Option]) -> Option:
        """Return one option for all parts; where both have a value, the last one counts."""
        if len(parts) > PARTS_MAX:
            raise InvalidSchemaError(f"the option {field.name} is set in more than {PARTS_MAX} places")
        first = parts[0]
        for each in parts[1:]:
            if isinstance(first.value, dict) and isinstance(each.value, dict):
                first = Option(each.name, self._merged_maps(field, first.value, each.value), True)
            else:
                first = each
        return first

    def _merged_maps(
        self, field: FieldElement | None, first: dict[str, object], second: dict[str, object]
    ) -> dict[str, object]:
        made = dict(first)
        message = self._message(field)
        for key, value in second.items():
            inner = _field(message, key)
            if key not in made:
                made[key] = value
            elif inner is not None and inner.label != "repeated":
                known = made[key]
                is_message = isinstance(known, dict) and isinstance(value, dict) and self._message(inner)
                if is_message:
                    assert isinstance(known, dict)
                    assert isinstance(value, dict)
                    value = self._merged_maps(inner, known, value)
                made[key] = value
            else:
                made[key] = _union(made[key], value)
        return made

    def _message(self, field: FieldElement | None) -> MessageElement | None:
        found = None if field is None else self._types.find(field.type, ())
        element = None if found is None else found.element
        return element if isinstance(element, MessageElement) else None

    def value(self, value: object) -> "str | Word | list[object] | dict[str, object] | Option":
        """Return a value with sorted keys, full names and plain numbers."""
        match value:
            case Word():
                return Word(_plain_number(value.text)) if value.is_number else value
            case list():
                return [self._inner(each) for each in value]
            case dict():
                kept = {key: each for key, each in value.items() if each != []}
                return {
                    key: self._inner(each)
                    for key, each in sorted((self._key(key), each) for key, each in kept.items())
                }
            case Option():
                return Option(value.name, self.value(value.value), value.is_parenthesized)
        assert isinstance(value, str), value
        return value

    def _inner(self, value: object) -> object:
        made = self.value(value)
        return made[0] if isinstance(made, list) and len(made) == 1 else made

    def _key(self, key: str) -> str:
        if not key.startswith("["):
            return key
        found = self._types.find_extension(key[1:-1], self._scope)
        return key if found is None else f"[{found[0]}]"


def _as_map(option: Option) -> dict[str, object]:
    value = _as_map(option.value) if isinstance(option.value, Option) else option.value
    return {option.name: value}


def _field(message: MessageElement | None, name: str) -> FieldElement | None:
    if message is None:
        return None
    fields = [*message.fields, *(field for oneof in message.oneofs for field in oneof.fields)]
    return next((each for each in fields if each.name == name), None)


def _union(first: object, second: object) -> list[object]:
    made = list(first) if isinstance(first, list) else [first]
    for each in second if isinstance(second, list) else [second]:
        if each not in made:
            made.append(each)
    return made


def _plain_number(text: str) -> str:
    if len(text) > DIGITS_MAX:
        return text
    try:
        return str(int(text, 16 if text.lower().lstrip("-").startswith("0x") else 10))
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
