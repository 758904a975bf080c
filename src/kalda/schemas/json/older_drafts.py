"""Builds the nodes of drafts 4, 6 and 7.

The type decides which keywords belong together; keywords for other types become nodes beside it. Where
``$ref`` stands, nothing else counts.
"""

from typing import Final

from kalda.schemas.json.dialects import Dialect
from kalda.schemas.json.keywords import (
    Json,
    Scope,
    elements,
    flag,
    members,
    number,
    text,
    texts,
    wrong,
)
from kalda.schemas.json.nodes import (
    Anything,
    Array,
    Boolean,
    Combined,
    Conditional,
    Constant,
    Criterion,
    Enumeration,
    Node,
    Not,
    Null,
    Numeric,
    Object,
    String,
)
from kalda.schemas.json.text import normalized

_OF_ARRAYS: Final = ("items", "additionalItems", "minItems", "maxItems", "uniqueItems")
_OF_OBJECTS: Final = (
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "dependencies",
    "patternProperties",
    "additionalProperties",
)
_OF_NUMBERS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_OF_STRINGS: Final = ("minLength", "maxLength", "pattern", "format")
_CONDITIONS: Final = ("if", "then", "else")


def build_older(value: Json, scope: Scope) -> Node:
    """Return the node of a subschema."""
    if "$ref" in value:
        return scope.reference(value["$ref"])
    nodes: list[Node] = []
    if "enum" in value:
        nodes.append(Enumeration(values=frozenset(map(normalized, elements(value, "enum")))))
    nodes += [_combined(value, criterion, scope) for criterion in Criterion if criterion.value in value]
    if "not" in value:
        nodes.append(Not(schema=scope.child(value["not"])))
    if "const" in value and scope.dialect is not Dialect.DRAFT_4:
        nodes.append(Constant(value=normalized(value["const"])))
    types = _types(value)
    typed = [_of_type(name, value, scope) for name in types]
    if isinstance(value.get("type"), list):
        nodes.append(Combined(criterion=Criterion.ANY, members=typed))
    else:
        nodes += typed
    nodes += _of_other_types(value, set(types), scope)
    if not nodes:
        return Anything()
    return nodes[0] if len(nodes) == 1 else Combined(criterion=Criterion.ALL, members=nodes)


def _combined(value: Json, criterion: Criterion, scope: Scope) -> Combined:
    parts = [scope.child(each) for each in elements(value, criterion.value)]
    return Combined(criterion=criterion, members=parts)


def _types(value: Json) -> list[str]:
    found = value.get("type")
    if found is None:
        return []
    return [found] if isinstance(found, str) else texts(value, "type")


def _of_type(name: str, value: Json, scope: Scope) -> Node:
    match name:
        case "string":
            return _string(value)
        case "integer":
            numeric = _numeric(value, scope)
            numeric.is_integer = True
            return numeric
        case "number":
            return _numeric(value, scope)
        case "boolean":
            return Boolean()
        case "null":
            return Null()
        case "array":
            return _array(value, scope)
        case "object":
            return _object(value, scope)
    raise wrong("type", name, "array, boolean, integer, null, number, object or string")


def _of_other_types(value: Json, types: set[str], scope: Scope) -> list[Node]:
    """Return the nodes of keywords for types that the schema does not name."""
    is_draft_4 = scope.dialect is Dialect.DRAFT_4
    nodes: list[Node] = []
    if "array" not in types and _has_any(value, _OF_ARRAYS if is_draft_4 else (*_OF_ARRAYS, "contains")):
        nodes.append(_array(value, scope))
    if "object" not in types and _has_any(
        value, _OF_OBJECTS if is_draft_4 else (*_OF_OBJECTS, "propertyNames")
    ):
        nodes.append(_object(value, scope))
    if not types & {"number", "integer"} and _has_any(value, _OF_NUMBERS):
        nodes.append(_numeric(value, scope))
    if "string" not in types and _has_any(value, _OF_STRINGS):
        nodes.append(_string(value))
    if scope.dialect is Dialect.DRAFT_7 and _has_any(value, _CONDITIONS):
        parts = [scope.child(value[keyword]) for keyword in _CONDITIONS if keyword in value]
        nodes.append(Conditional(parts=parts))
    return nodes


def _has_any(value: Json, keywords: tuple[str, ...]) -> bool:
    return any(keyword in value for keyword in keywords)


def _string(value: Json) -> String:
    return String(
        max_length=number(value, "maxLength"),
        min_length=number(value, "minLength"),
        pattern=text(value, "pattern"),
    )


def _numeric(value: Json, scope: Scope) -> Numeric:
    node = Numeric(
        maximum=number(value, "maximum"),
        minimum=number(value, "minimum"),
        multiple_of=number(value, "multipleOf"),
    )
    if scope.dialect is Dialect.DRAFT_4:
        # Flags of the limits there, which Confluent's registry does not compare.
        flag(value, "exclusiveMaximum")
        flag(value, "exclusiveMinimum")
    else:
        node.exclusive_maximum = number(value, "exclusiveMaximum")
        node.exclusive_minimum = number(value, "exclusiveMinimum")
    return node


def _array(value: Json, scope: Scope) -> Array:
    node = Array(
        max_items=number(value, "maxItems"),
        min_items=number(value, "minItems"),
        is_unique=flag(value, "uniqueItems"),
    )
    items = value.get("items")
    if isinstance(items, list):
        node.prefix = [scope.child(each) for each in items]
    elif "items" in value:
        node.items = scope.child(items)
    node.allows_additional, node.additional = _additional(value, "additionalItems", scope)
    return node


def _object(value: Json, scope: Scope) -> Object:
    node = Object(
        required=set(texts(value, "required")),
        max_properties=number(value, "maxProperties"),
        min_properties=number(value, "minProperties"),
    )
    node.properties = {
        name: scope.child(each)
        for name, each in members(value, "properties").items()
        # Some put an identity there by mistake; Confluent's registry takes no notice of it.
        if name != scope.dialect.id_keyword or isinstance(each, dict)
    }
    node.patterns = {
        pattern: scope.child(each) for pattern, each in members(value, "patternProperties").items()
    }
    node.allows_additional, node.additional = _additional(value, "additionalProperties", scope)
    dependencies = members(value, "dependencies")
    for name, each in dependencies.items():
        if isinstance(each, list):
            node.required_with[name] = frozenset(texts(dependencies, name))
        else:
            node.schema_with[name] = scope.child(each)
    return node


def _additional(value: Json, keyword: str, scope: Scope) -> tuple[bool, Node | None]:
    found = value.get(keyword, True)
    if isinstance(found, bool):
        return found, None
    return True, scope.child(found)
