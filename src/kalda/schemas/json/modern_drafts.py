"""Builds the nodes of drafts 2019-09 and 2020-12.

Each keyword makes a node, and those of one kind become one node. What is left side by side is a generated
``allOf``. ``$ref`` is a keyword as any other.
"""

from kalda.schemas.json.dialects import Dialect
from kalda.schemas.json.keywords import Json, Scope, elements, flag, members, number, text, texts, wrong
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
    Nothing,
    Null,
    Numeric,
    Object,
    String,
)
from kalda.schemas.json.text import normalized


def build_modern(value: Json, scope: Scope) -> Node:
    """Return the node of a subschema."""
    parts: list[Node] = []
    for keyword in value:
        part = _part(keyword, value, scope)
        if part is not None:
            _join(parts, part)
    for part in _late_parts(value, scope):
        _join(parts, part)
    if not parts:
        return Anything()
    if len(parts) == 1:
        return parts[0]
    return Combined(criterion=Criterion.ALL, members=parts, is_generated=True)


def _part(keyword: str, value: Json, scope: Scope) -> Node | None:
    """Return what a keyword says; None if it constrains nothing, or another keyword reads it."""
    match keyword:
        case "$ref" | "$dynamicRef":
            return scope.reference(value[keyword])
        case "$recursiveRef":
            return scope.reference("#")
        case "type":
            return _types(value)
        case "enum":
            return Enumeration(values=frozenset(map(normalized, elements(value, keyword))))
        case "const":
            return Constant(value=normalized(value[keyword]))
        case "not":
            return Not(schema=scope.child(value[keyword]))
        case "allOf" | "anyOf" | "oneOf":
            return _combined(value, Criterion(keyword), scope)
        case "if":
            conditions = [each for each in ("if", "then", "else") if each in value]
            return Conditional(parts=[scope.child(value[each]) for each in conditions])
        case "maxLength":
            return String(max_length=number(value, keyword))
        case "minLength":
            return String(min_length=number(value, keyword))
        case "pattern":
            return String(pattern=text(value, keyword))
        case "maximum":
            return Numeric(maximum=number(value, keyword))
        case "minimum":
            return Numeric(minimum=number(value, keyword))
        case "exclusiveMaximum":
            return Numeric(exclusive_maximum=number(value, keyword))
        case "exclusiveMinimum":
            return Numeric(exclusive_minimum=number(value, keyword))
        case "multipleOf":
            return Numeric(multiple_of=number(value, keyword))
    return _array_part(keyword, value, scope) or _object_part(keyword, value, scope)


def _array_part(keyword: str, value: Json, scope: Scope) -> Array | None:
    match keyword:
        case "items":
            return _items(value, scope)
        case "prefixItems":
            return Array(prefix=[scope.child(each) for each in elements(value, keyword)])
        case "contains":
            least = number(value, "minContains")
            return Array(
                min_contains=1 if least is None else least, max_contains=number(value, "maxContains")
            )
        case "maxItems":
            return Array(max_items=number(value, keyword))
        case "minItems":
            return Array(min_items=number(value, keyword))
        case "uniqueItems":
            return Array(is_unique=flag(value, keyword))
    return None


def _items(value: Json, scope: Scope) -> Array:
    items = value["items"]
    if isinstance(items, list) and scope.dialect is Dialect.DRAFT_2019_09:
        array = Array(prefix=[scope.child(each) for each in items])
        rest = scope.child(value.get("additionalItems", True))
    elif elements(value, "prefixItems"):
        array = Array()
        rest = scope.child(items)
    else:
        array = Array()
        node = scope.child(items)
        if items is not True and items is not False:
            array.items = node
        array.allows_additional = items is not False
        return array
    array.allows_additional = not isinstance(rest, Nothing)
    if rest.source not in (True, False):
        array.additional = rest
    return array


def _object_part(keyword: str, value: Json, scope: Scope) -> Object | None:
    match keyword:
        case "additionalProperties":
            found = value[keyword]
            if isinstance(found, bool):
                return Object(allows_additional=found)
            return Object(additional=scope.child(found))
        case "required":
            return Object(required=set(texts(value, keyword)))
        case "dependentRequired":
            dependents = members(value, keyword)
            return Object(required_with={name: frozenset(texts(dependents, name)) for name in dependents})
        case "dependentSchemas":
            schemas = members(value, keyword)
            return Object(schema_with={name: scope.child(each) for name, each in schemas.items()})
        case "maxProperties":
            return Object(max_properties=number(value, keyword))
        case "minProperties":
            return Object(min_properties=number(value, keyword))
        case "propertyNames":
            return Object()
    return None


def _late_parts(value: Json, scope: Scope) -> list[Node]:
    """Return what comes after all other keywords, wherever it stands."""
    parts: list[Node] = []
    properties = {name: scope.child(each) for name, each in members(value, "properties").items()}
    if properties:
        parts.append(Object(properties=properties))
    patterns = {name: scope.child(each) for name, each in members(value, "patternProperties").items()}
    if patterns:
        parts.append(Object(patterns=patterns))
    if "unevaluatedItems" in value:
        parts.append(Array(unevaluated=scope.child(value["unevaluatedItems"])))
    if "unevaluatedProperties" in value:
        parts.append(Object(unevaluated=scope.child(value["unevaluatedProperties"])))
    return parts


def _types(value: Json) -> Node:
    found = value["type"]
    if isinstance(found, str):
        return _of_type(found)
    kinds = [_of_type(each) for each in texts(value, "type")]
    return Combined(criterion=Criterion.ANY, members=kinds, is_generated=True)


def _of_type(name: str) -> Node:
    match name:
        case "string":
            return String()
        case "integer":
            return Numeric(is_integer=True)
        case "number":
            return Numeric()
        case "boolean":
            return Boolean()
        case "null":
            return Null()
        case "array":
            return Array()
        case "object":
            return Object()
    raise wrong("type", name, "array, boolean, integer, null, number, object or string")


def _combined(value: Json, criterion: Criterion, scope: Scope) -> Combined:
    """Return a union or product; what stands side by side in a member counts as several members of it."""
    found: list[Node] = []
    for each in elements(value, criterion.value):
        node = scope.child(each)
        if isinstance(node, Combined) and node.is_generated and node.criterion is Criterion.ALL:
            found += node.members
        else:
            found.append(node)
    return Combined(criterion=criterion, members=found)


def _join(parts: list[Node], part: Node) -> None:
    """Add what a keyword says to what others say: to the node of its kind, if there is one."""
    if _is_union(part):
        parts[:] = [each for each in parts if not _add_to_union(part, each)]
    for each in parts:
        if _is_union(each) and _add_to_union(each, part):
            return
        if type(each) is type(part) and isinstance(each, String | Numeric | Array | Object):
            _merge(each, part)
            return
    parts.append(part)


def _is_union(node: Node) -> bool:
    return isinstance(node, Combined) and node.is_generated


def _add_to_union(union: Node, part: Node) -> bool:
    """Add a keyword to the member of several types that it constrains, if there is one."""
    assert isinstance(union, Combined)
    for each in union.members:
        if type(each) is type(part) and isinstance(each, String | Numeric | Array | Object):
            _merge(each, part)
            return True
    return False


def _merge(into: Node, part: Node) -> None:
    """Take over what a node of the same kind says."""
    for name in type(part).__dataclass_fields__:
        found = getattr(part, name)
        present = getattr(into, name)
        match found:
            case None | False if name != "allows_additional":
                continue
            case True if name == "allows_additional":
                continue
            case list():
                present += found
            case dict() | set():
                present.update(found)
            case _:
                setattr(into, name, found)
