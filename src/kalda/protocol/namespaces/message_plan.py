"""Applies the kinds of names to decoded messages: `to_stored` and `to_plain`.

The fields to visit are looked up once for each message class and version: a field that a version does not
carry has a default, which must stay.
"""

from functools import cache
from typing import Any, Final, NamedTuple

from kalda.common.api_keys import ApiKey
from kalda.protocol.namespaces.kinds import FOREIGN, NameKind, TopicNames
from kalda.protocol.namespaces.names import names_of
from kalda.protocol.namespaces.namespace import Namespace
from kalda.protocol.registry import spec
from kalda.protocol.schema import Message, Struct

_ARRAY: Final = "[]"


class _Step(NamedTuple):
    """The translation of one field of a struct: by its kind of name, or by steps for nested structs."""

    attribute: str
    is_array: bool
    kind: NameKind | None
    steps: "tuple[_Step, ...]"


def to_stored(space: Namespace, topics: TopicNames, request: Message, version: int) -> None:
    """Change the names in a client's request into those that the broker knows."""
    _store(space, topics, request, _steps(request.SCHEMA.api_key, True, version))


def to_plain(space: Namespace, topics: TopicNames, response: Message, version: int) -> None:
    """Change the names in a response into those that the client knows; leave out what is not its own."""
    _plain(space, topics, response, _steps(response.SCHEMA.api_key, False, version))


def translates(api_key: ApiKey) -> tuple[bool, bool]:
    """Return whether an API's requests, and whether its responses, name anything."""
    names = names_of(api_key)
    return (False, False) if names is None else (bool(names.request), bool(names.response))


@cache
def _steps(api_key: ApiKey | None, is_request: bool, version: int) -> tuple[_Step, ...]:
    assert api_key is not None, "only requests and responses have names"
    names, api = names_of(api_key), spec(api_key)
    assert names is not None, f"{api_key.title} is refused"
    paths = names.request if is_request else names.response
    return _level(
        api.request_class if is_request else api.response_class,
        [(path.split("."), kind) for path, kind in paths.items()],
        version,
    )


def _level(struct_class: Any, paths: list[tuple[list[str], NameKind]], version: int) -> tuple[_Step, ...]:
    steps = []
    for field in struct_class.FIELDS:
        if not field.versions.includes(version):
            continue
        for name, is_array in ((field.name, False), (field.name + _ARRAY, True)):
            under = [(path[1:], kind) for path, kind in paths if path[0] == name]
            if not under:
                continue
            kind = next((kind for path, kind in under if not path), None)
            element = field.kind.element if is_array else field.kind
            inner = () if kind is not None else _level(element, under, version)
            if kind is not None or inner:
                steps.append(_Step(field.name, is_array, kind, inner))
    return tuple(steps)


def _store(space: Namespace, topics: TopicNames, struct: Struct, steps: tuple[_Step, ...]) -> None:
    for attribute, is_array, kind, inner in steps:
        value = getattr(struct, attribute)
        if kind is not None and not is_array:
            setattr(struct, attribute, kind.stored(space, topics, value, struct))
        elif value is None:
            continue
        elif kind is not None:
            setattr(struct, attribute, [kind.stored(space, topics, each, struct) for each in value])
        else:
            for each in value if is_array else (value,):
                _store(space, topics, each, inner)


def _plain(space: Namespace, topics: TopicNames, struct: Struct, steps: tuple[_Step, ...]) -> bool:
    """Change the names in a struct; return whether it belongs to the namespace."""
    for attribute, is_array, kind, inner in steps:
        value = getattr(struct, attribute)
        if kind is not None and not is_array:
            plain = kind.plain(space, topics, value, struct)
            if plain is FOREIGN:
                return False
            setattr(struct, attribute, plain)
        elif value is None:
            continue
        elif kind is not None:
            found = [kind.plain(space, topics, each, struct) for each in value]
            setattr(struct, attribute, [each for each in found if each is not FOREIGN])
        elif is_array:
            kept = [each for each in value if _plain(space, topics, each, inner)]
            if len(kept) < len(value) and any(
                step.kind is not None and step.kind.is_of_whole for step in inner
            ):
                return False
            setattr(struct, attribute, kept)
        elif not _plain(space, topics, value, inner):
            setattr(struct, attribute, None)
    return True
