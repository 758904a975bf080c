"""Finds and changes the tags inside a JSON schema.

A path names the keywords on the way, as Confluent's registry does: ``object.tags.array.object.name`` is the
property ``name`` of the objects in the array ``tags``. Members of ``allOf``, ``anyOf`` and ``oneOf`` have an
index, which counts them in the order of `_order`, whatever their order in the text. A schema with several
types, or with keywords side by side, has paths as if it were an ``anyOf`` or an ``allOf`` of its parts.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from kalda.schemas.tags import (
    Entity,
    EntityType,
    TagChange,
    UnknownEntityError,
    change_properties,
    listed_tags,
)

_Node: TypeAlias = dict[str, object]
_InOrder: TypeAlias = dict[int, dict[str, list[object]]]
"""The sorted members of schemas, by the schemas' ids: a change may have thousands of paths through one."""

_COMBINED: Final = {"allof": "allOf", "anyof": "anyOf", "oneof": "oneOf"}
_DEFINITIONS: Final = ("definitions", "$defs")
_CONDITIONS: Final = ("if", "then", "else")
_ORDERED: Final = (
    *("array", "boolean", "combined", "conditional", "const", "empty", "enum", "false", "not"),
    *("null", "number", "object", "$ref", "string", "true"),
)
"""The kinds of schemas in the order in which an index counts them."""


def tagged_entities(root: object) -> dict[Entity, list[str]]:
    """Return the tags of objects and properties; a ``$ref`` is not followed."""
    found: dict[Entity, list[str]] = {}
    for entity, node in _entities(root, "", in_field=False):
        tags = listed_tags(node)
        if tags:
            found[entity] = tags
    return found


def change_tags(root: object, change: TagChange) -> None:
    """Change the tags inside a schema in place.

    Raises:
        UnknownEntityError: It does not have an object or property of the change.
    """
    known = dict(_entities(root, "", in_field=False))
    in_order: _InOrder = {}
    for entity in change.entities():
        # The path of an entity wins over the one that may be read otherwise, as that of another part.
        found = known[entity] if entity in known else _find(root, entity.type, entity.names, in_order)
        if found is not None:
            change_properties(found, entity, change)
        elif not change.is_lenient:
            raise UnknownEntityError(entity)


def _entities(node: object, scope: str, *, in_field: bool) -> Iterator[tuple[Entity, _Node]]:
    if not isinstance(node, dict):
        return
    kinds = _kinds(node)
    types = _types(node)
    for index, kind in enumerate(kinds):
        inner = f"{scope}allof.{index}." if len(kinds) > 1 else scope
        if kind in ("array", "object") and len(types) > 1:
            inner += f"anyof.{types.index(kind)}."
        match kind:
            case "combined":
                for path, members in _members(node):
                    for place, member in enumerate(members):
                        yield from _entities(member, f"{inner}{path}.{place}.", in_field=False)
            case "conditional":
                for word in _CONDITIONS:
                    yield from _entities(node.get(word), f"{inner}conditional.{word}.", in_field=False)
            case "not":
                yield from _entities(node["not"], f"{inner}not.", in_field=False)
            case "array":
                yield from _entities(node.get("items"), f"{inner}array.", in_field=False)
            case "object":
                yield from _object(node, f"{inner}object", in_field=in_field)
    if "object" not in kinds:
        yield from _defined(node, f"{scope}object")


def _object(node: _Node, scope: str, *, in_field: bool) -> Iterator[tuple[Entity, _Node]]:
    if not in_field:
        yield Entity(scope, EntityType.RECORD), node
    for name, each in _named(node, "properties"):
        yield Entity(f"{scope}.{name}", EntityType.FIELD), each
        yield from _entities(each, f"{scope}.{name}.", in_field=True)
    yield from _defined(node, scope)


def _defined(node: _Node, scope: str) -> Iterator[tuple[Entity, _Node]]:
    for word in _DEFINITIONS:
        for name, each in _named(node, word):
            yield from _entities(each, f"{scope}.{word}.{name}.", in_field=False)


def _find(node: object, kind: EntityType, names: Sequence[str], in_order: _InOrder) -> _Node | None:
    left = list(names)
    while left and isinstance(node, dict):
        word = left.pop(0)
        if word == "object":
            if not left:
                return node if kind is EntityType.RECORD else None
            group = left.pop(0) if left[0] in _DEFINITIONS else "properties"
            node = _named_node(node.get(group), left)
            if not left:
                return node
        elif word == "array":
            node = node.get("items")
        elif word == "not":
            node = node.get("not")
        elif word == "conditional":
            node = node.get(left.pop(0)) if left and left[0] in _CONDITIONS else None
        elif word in _COMBINED and left:
            if id(node) not in in_order:
                in_order[id(node)] = dict(_members(node))
            members = in_order[id(node)].get(word)
            place = left.pop(0)
            # A schema with several types, or with parts side by side, is its own member.
            if members is not None:
                is_index = place.isdecimal() and len(place) < 10 and int(place) < len(members)
                node = members[int(place)] if is_index else None
        else:
            return None
    return None


def _named_node(group: object, left: list[str]) -> _Node | None:
    """Return a schema of a group, and drop its name, which may have dots, from the path."""
    if not isinstance(group, dict):
        return None
    name = ""
    while left:
        name = f"{name}.{left.pop(0)}" if name else left.pop(0)
        if name in group:
            found = group[name]
            return found if isinstance(found, dict) else None
    return None


def _kinds(node: _Node) -> list[str]:
    """Return the kinds of the parts of a schema that may have tags inside, in their order."""
    if "$ref" in node:
        return []
    kinds = []
    if any(isinstance(node.get(word), list) for word in _COMBINED.values()):
        kinds.append("combined")
    if "if" in node:
        kinds.append("conditional")
    if "not" in node:
        kinds.append("not")
    types = _types(node)
    if "array" in types or (not types and "items" in node):
        kinds.append("array")
    if "object" in types or (not types and any(word in node for word in ("properties", *_DEFINITIONS))):
        kinds.append("object")
    return sorted(kinds, key=_ORDERED.index)


def _types(node: _Node) -> list[str]:
    """Return the types of a schema, in their order."""
    given = node.get("type")
    named = given if isinstance(given, list) else [given]
    types = ["number" if each == "integer" else each for each in named]
    return sorted((str(each) for each in types if each in _ORDERED), key=_ORDERED.index)


def _members(node: _Node) -> Iterator[tuple[str, list[object]]]:
    for path, word in _COMBINED.items():
        members = node.get(word)
        if isinstance(members, list):
            yield path, sorted(members, key=_order)


def _order(node: object) -> tuple[object, ...]:
    """Return the place of a schema among others: by its kind, its texts and its properties."""
    if not isinstance(node, dict):
        return (_ORDERED.index("false" if node is False else "true"),)
    words = ("title", "description", "default")
    texts = [(node.get(word) is not None, str(node.get(word))) for word in words]
    names = sorted(name for name, _ in _named(node, "properties"))
    return (_ORDERED.index(_kind(node)), *texts, len(names), names)


def _kind(node: _Node) -> str:
    kinds, types = _kinds(node), _types(node)
    if "$ref" in node:
        return "$ref"
    if "enum" in node or "const" in node:
        return "enum" if "enum" in node else "const"
    if len(kinds) > 1 or len(types) > 1:
        return "combined"
    return next(iter((*kinds, *types)), "empty")


def _named(node: _Node, word: str) -> list[tuple[str, _Node]]:
    group = node.get(word)
    if not isinstance(group, dict):
        return []
    return [(name, each) for name, each in group.items() if isinstance(each, dict)]
