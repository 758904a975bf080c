"""Pairs of JSON schemas, and which of them Confluent's registry takes as compatible.

``B`` says that the second schema reads what the first one wrote (BACKWARD), ``F`` the other way round
(FORWARD), ``BF`` both, and an empty text neither.
"""

from collections.abc import Mapping
from typing import Any, Final

Json = Any

S: Final = {"type": "string"}
I: Final = {"type": "integer"}  # noqa: E741
N: Final = {"type": "number"}
B: Final = {"type": "boolean"}
ARRAY: Final = {"type": "array"}


def obj(properties: Mapping[str, Json] | None = None, required: str = "", **more: Json) -> Json:
    """Return the schema of an object with an open content model."""
    schema: Json = {"type": "object", "properties": dict(properties or {})}
    return schema | ({"required": required.split()} if required else {}) | more


def closed(properties: Mapping[str, Json] | None = None, required: str = "", **more: Json) -> Json:
    """Return the schema of an object that allows no other properties."""
    return obj(properties, required, additionalProperties=False, **more)


def modern(schema: Json) -> Json:
    """Return a schema of draft 2020-12."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def draft_4(schema: Json) -> Json:
    """Return a schema of draft 4."""
    return {"$schema": "http://json-schema.org/draft-04/schema#", **schema}


def tuple_of(*items: Json, **more: Json) -> Json:
    """Return the schema of an array whose first items have schemas of their own."""
    return {"type": "array", "items": list(items), **more}


def prefix(*items: Json, **more: Json) -> Json:
    """Return the same in draft 2020-12."""
    return modern({"type": "array", "prefixItems": list(items), **more})


def one(*members: Json) -> Json:
    """Return a union of which exactly one member matches."""
    return {"oneOf": list(members)}


def some(*members: Json) -> Json:
    """Return a union."""
    return {"anyOf": list(members)}


def every(*members: Json) -> Json:
    """Return a product."""
    return {"allOf": list(members)}


def ref(target: Json, name: str = "definitions") -> Json:
    """Return an object whose property is defined elsewhere in the schema."""
    return obj({"a": {"$ref": f"#/{name}/T"}}) | {name: {"T": target}}


def tree(leaf: Json) -> Json:
    """Return a recursive schema."""
    return obj({"value": leaf, "children": {"type": "array", "items": {"$ref": "#"}}})


ANNOTATIONS: Final = [
    ("same", S, S, "BF"),
    ("title added", S, S | {"title": "t"}, "BF"),
    ("title changed", S | {"title": "t"}, S | {"title": "u"}, "BF"),
    ("description changed", S | {"description": "t"}, S | {"description": "u"}, "BF"),
    ("default added", S, S | {"default": "t"}, "BF"),
    ("default changed", I | {"default": 1}, I | {"default": 2}, "BF"),
    ("id changed", S | {"$id": "http://x/a"}, S | {"$id": "http://x/b"}, "BF"),
    ("format changed", S | {"format": "date"}, S | {"format": "time"}, "BF"),
    ("unknown keyword", S, S | {"x-owner": "me"}, "BF"),
    ("comment", S, S | {"$comment": "c"}, "BF"),
    ("examples", S, S | {"examples": ["a"]}, "BF"),
    ("read only", S, S | {"readOnly": True}, "BF"),
]
TYPES: Final = [
    ("string to integer", S, I, ""),
    ("integer to number", I, N, "B"),
    ("integer to string", I, S, ""),
    ("boolean to string", B, S, ""),
    ("null to string", {"type": "null"}, S, ""),
    ("array to object", ARRAY, obj(), ""),
    ("object to string", obj(), S, ""),
    ("anything to string", {}, S, "F"),
    ("true to string", True, S, "F"),
    ("false to string", False, S, "B"),
    ("true to empty", True, {}, "BF"),
    ("false to empty", False, {}, "B"),
    ("false to true", False, True, "B"),
    ("false to false", False, False, "BF"),
    ("bytes of connect", S | {"connect.type": "bytes"}, N | {"connect.type": "bytes"}, "BF"),
    ("bytes of connect on one side", S | {"connect.type": "bytes"}, N, ""),
    ("string to nullable", S, {"type": ["string", "null"]}, "B"),
    ("string to types without it", S, {"type": ["integer", "null"]}, ""),
    ("types in another order", {"type": ["string", "null"]}, {"type": ["null", "string"]}, "BF"),
    ("more types", {"type": ["string", "null"]}, {"type": ["string", "null", "integer"]}, "B"),
    ("other types", {"type": ["string", "null"]}, {"type": ["integer", "null"]}, ""),
    ("integer to number in types", {"type": ["integer", "null"]}, {"type": ["number", "null"]}, "B"),
    ("types of one", {"type": ["string"]}, S, "BF"),
]
STRINGS: Final = [
    ("maxLength added", S, S | {"maxLength": 5}, "F"),
    ("maxLength raised", S | {"maxLength": 5}, S | {"maxLength": 6}, "B"),
    ("maxLength same", S | {"maxLength": 5}, S | {"maxLength": 5}, "BF"),
    ("minLength added", S, S | {"minLength": 5}, "F"),
    ("minLength raised", S | {"minLength": 5}, S | {"minLength": 6}, "F"),
    ("minLength removed", S | {"minLength": 5}, S, "B"),
    ("pattern added", S, S | {"pattern": "a"}, "F"),
    ("pattern changed", S | {"pattern": "a"}, S | {"pattern": "a|b"}, ""),
    ("pattern same", S | {"pattern": "a"}, S | {"pattern": "a"}, "BF"),
    ("type of a keyword", {"maxLength": 5}, S | {"maxLength": 5}, "BF"),
    ("both limits wider", S | {"minLength": 2, "maxLength": 5}, S | {"minLength": 1, "maxLength": 6}, "B"),
    ("one wider, one not", S | {"minLength": 2, "maxLength": 5}, S | {"minLength": 3, "maxLength": 6}, ""),
]
NUMBERS: Final = [
    ("maximum added", I, I | {"maximum": 5}, "F"),
    ("maximum raised", I | {"maximum": 5}, I | {"maximum": 6}, "B"),
    ("maximum in another form", N | {"maximum": 5}, N | {"maximum": 5.0}, "BF"),
    ("minimum added", I, I | {"minimum": 5}, "F"),
    ("minimum raised", I | {"minimum": 5}, I | {"minimum": 6}, "F"),
    ("exclusiveMaximum added", I, I | {"exclusiveMaximum": 5}, "F"),
    ("exclusiveMaximum raised", I | {"exclusiveMaximum": 5}, I | {"exclusiveMaximum": 6}, "B"),
    ("exclusiveMinimum added", I, I | {"exclusiveMinimum": 5}, "F"),
    ("exclusiveMinimum raised", I | {"exclusiveMinimum": 5}, I | {"exclusiveMinimum": 6}, "F"),
    (
        "flag of draft 4",
        draft_4(I | {"minimum": 1}),
        draft_4(I | {"minimum": 1, "exclusiveMinimum": True}),
        "BF",
    ),
    ("multipleOf added", I, I | {"multipleOf": 5}, "F"),
    ("multipleOf expanded", I | {"multipleOf": 5}, I | {"multipleOf": 10}, "F"),
    ("multipleOf changed", I | {"multipleOf": 5}, I | {"multipleOf": 7}, ""),
    ("multipleOf fractions", N | {"multipleOf": 0.5}, N | {"multipleOf": 0.25}, "B"),
    ("multipleOf in another form", N | {"multipleOf": 5}, N | {"multipleOf": 5.0}, "BF"),
    ("limit of any type", {"maximum": 5}, {"maximum": 6}, "B"),
    ("huge limits", N | {"maximum": 1e300}, N | {"maximum": 10**400}, "B"),
    ("integer to number with a limit", I, N | {"maximum": 5}, ""),
]
ENUMS: Final = [
    ("enum extended", {"enum": ["a"]}, {"enum": ["a", "b"]}, "B"),
    ("enum in another order", {"enum": ["a", "b"]}, {"enum": ["b", "a"]}, "BF"),
    ("enum changed", {"enum": ["a"]}, {"enum": ["b"]}, ""),
    ("enum with a type extended", S | {"enum": ["a"]}, S | {"enum": ["a", "b"]}, "B"),
    ("enum with a type changed", S | {"enum": ["a", "c"]}, S | {"enum": ["a", "b"]}, ""),
    ("enum added to a type", S, S | {"enum": ["a"]}, "F"),
    ("enum to its type without one", {"enum": ["a"]}, S, ""),
    ("enum of objects", {"enum": [{"a": 1, "b": 2}]}, {"enum": [{"b": 2, "a": 1}]}, "BF"),
    ("enum of 1 and true", {"enum": [1]}, {"enum": [True]}, ""),
    ("enum of 1 and 1.0", {"enum": [1]}, {"enum": [1.0]}, ""),
    ("enum in draft 2020-12", modern(S | {"enum": ["a"]}), modern(S | {"enum": ["a", "b"]}), "B"),
    ("const same", {"const": "a"}, {"const": "a"}, "BF"),
    ("const changed", {"const": "a"}, {"const": "b"}, ""),
    ("const of null", {"const": None}, {"const": None}, "BF"),
    ("const to enum", {"const": "a"}, {"enum": ["a"]}, ""),
    ("const in draft 4 is no keyword", draft_4({"const": "a"}), draft_4({"const": "b"}), "BF"),
]
OBJECTS: Final = [
    ("optional property added, open", obj({"a": S}), obj({"a": S, "b": S}), "F"),
    ("required property added, open", obj({"a": S}), obj({"a": S, "b": S}, "b"), "F"),
    ("required with a default, open", obj({"a": S}), obj({"a": S, "b": S | {"default": ""}}, "b"), "F"),
    ("any property added, open", obj({"a": S}), obj({"a": S, "b": {}}), "BF"),
    ("true property added, open", obj({"a": S}), obj({"a": S, "b": True}), "BF"),
    ("optional property added, closed", closed({"a": S}), closed({"a": S, "b": S}), "B"),
    ("required property added, closed", closed({"a": S}), closed({"a": S, "b": S}, "b"), ""),
    (
        "required with a default, closed",
        closed({"a": S}),
        closed({"a": S, "b": S | {"default": ""}}, "b"),
        "B",
    ),
    ("false property added, closed", closed({"a": S}), closed({"a": S, "b": False}), "BF"),
    ("property retyped", obj({"a": S}), obj({"a": I}), ""),
    ("property widened", obj({"a": I}), obj({"a": N}), "B"),
    ("two properties swapped", obj({"a": S, "b": I}), obj({"b": I, "a": S}), "BF"),
    ("property renamed, open", obj({"a": S}), obj({"b": S}), ""),
    ("property renamed, closed", closed({"a": S}), closed({"b": S}), ""),
    ("one widened, one narrowed", obj({"a": I, "b": N}), obj({"a": N, "b": I}), ""),
    ("opened", closed({"a": S}), obj({"a": S}), "B"),
    ("opened with a property less", closed({"a": S, "b": S}), obj({"a": S}), "B"),
    ("opened with a property more", closed({"a": S}), obj({"a": S, "b": S}), "B"),
    ("required", obj({"a": S}), obj({"a": S}, "a"), "F"),
    ("required with a default", obj({"a": S | {"default": ""}}), obj({"a": S | {"default": ""}}, "a"), "BF"),
    ("required that is not named", obj(), obj(required="z"), "BF"),
    ("maxProperties added", obj(), obj(maxProperties=3), "F"),
    ("maxProperties raised", obj(maxProperties=3), obj(maxProperties=4), "B"),
    ("minProperties added", obj(), obj(minProperties=3), "F"),
    ("minProperties raised", obj(minProperties=3), obj(minProperties=4), "F"),
    ("names of properties", obj(), obj(propertyNames={"maxLength": 3}), "BF"),
    ("additional narrowed to a schema", obj(), obj(additionalProperties=S), "F"),
    ("additional opened to a schema", closed(), obj(additionalProperties=S), "B"),
    ("additional retyped", obj(additionalProperties=S), obj(additionalProperties=I), ""),
    ("additional widened", obj(additionalProperties=I), obj(additionalProperties=N), "B"),
    (
        "covered property added",
        obj(additionalProperties=S),
        obj({"a": S}, additionalProperties=S),
        "BF",
    ),
    (
        "property that is not covered added",
        obj(additionalProperties=S),
        obj({"a": I}, additionalProperties=S),
        "",
    ),
    (
        "narrower property than covered",
        obj(additionalProperties=N),
        obj({"a": I}, additionalProperties=N),
        "F",
    ),
    (
        "wider property than covered",
        obj(additionalProperties=I),
        obj({"a": N}, additionalProperties=I),
        "B",
    ),
    (
        "covered and required property added",
        obj(additionalProperties=S),
        obj({"a": S}, "a", additionalProperties=S),
        "F",
    ),
    (
        "property of a pattern added",
        closed(patternProperties={"^s_": S}),
        closed({"s_a": S}, patternProperties={"^s_": S}),
        "BF",
    ),
    (
        "property of a pattern with another type",
        closed(patternProperties={"^s_": S}),
        closed({"s_a": I}, patternProperties={"^s_": S}),
        "",
    ),
    (
        "property of no pattern",
        closed(patternProperties={"^s_": S}),
        closed({"a": I}, patternProperties={"^s_": S}),
        "B",
    ),
    ("nested retyped", obj({"a": obj({"b": S})}), obj({"a": obj({"b": I})}), ""),
    ("nested closed gains", obj({"a": closed({"b": S})}), obj({"a": closed({"b": S, "c": I})}), "B"),
    ("nested open gains", obj({"a": obj({"b": S})}), obj({"a": obj({"b": S, "c": I})}), "F"),
    ("keywords without the type", {"properties": {"a": I}}, {"properties": {"a": N}}, "B"),
    ("empty to keywords", {}, {"properties": {}}, "F"),
    ("a name with a slash", obj({"a/b": I}), obj({"a/b": N}), "B"),
    ("a name with a placeholder", obj({"%s": I}), obj({"%s": S}), ""),
]
DEPENDENCIES: Final = [
    ("added", obj(), obj(dependencies={"a": ["b"]}), "F"),
    ("extended", obj(dependencies={"a": ["b"]}), obj(dependencies={"a": ["b", "c"]}), "F"),
    ("changed", obj(dependencies={"a": ["b"]}), obj(dependencies={"a": ["c"]}), ""),
    ("reordered", obj(dependencies={"a": ["b", "c"]}), obj(dependencies={"a": ["c", "b"]}), "BF"),
    ("schema added", obj(), obj(dependencies={"a": obj({"b": S})}), "F"),
    ("schema widened", obj(dependencies={"a": obj({"b": I})}), obj(dependencies={"a": obj({"b": N})}), "B"),
    ("schema retyped", obj(dependencies={"a": obj({"b": I})}), obj(dependencies={"a": obj({"b": S})}), ""),
    ("dependentRequired added", modern(obj()), modern(obj(dependentRequired={"a": ["b"]})), "F"),
    ("dependentSchemas added", modern(obj()), modern(obj(dependentSchemas={"a": obj()})), "F"),
    ("dependencies is no modern keyword", modern(obj()), modern(obj(dependencies={"a": ["b"]})), "BF"),
]
UNEVALUATED: Final = [
    ("closed", modern(obj()), modern(obj(unevaluatedProperties=False)), "F"),
    ("true", modern(obj()), modern(obj(unevaluatedProperties=True)), "F"),
    ("schema", modern(obj()), modern(obj(unevaluatedProperties=S)), "F"),
    ("widened", modern(obj(unevaluatedProperties=I)), modern(obj(unevaluatedProperties=N)), "B"),
    (
        "closed to a schema",
        modern(obj(unevaluatedProperties=False)),
        modern(obj(unevaluatedProperties=N)),
        "B",
    ),
    (
        "covered property",
        modern(obj(unevaluatedProperties=S)),
        modern(obj({"a": S}, unevaluatedProperties=S)),
        "BF",
    ),
    (
        "property of a closed one",
        modern(obj(unevaluatedProperties=False)),
        modern(obj({"a": S}, unevaluatedProperties=False)),
        "B",
    ),
    ("items closed", modern(ARRAY), modern(ARRAY | {"unevaluatedItems": False}), "F"),
    ("items widened", modern(ARRAY | {"unevaluatedItems": I}), modern(ARRAY | {"unevaluatedItems": N}), "B"),
    ("item of closed ones", prefix(S, unevaluatedItems=False), prefix(S, I, unevaluatedItems=False), "B"),
]
ARRAYS: Final = [
    ("items added", ARRAY, ARRAY | {"items": S}, "F"),
    ("items widened", ARRAY | {"items": I}, ARRAY | {"items": N}, "B"),
    ("items retyped", ARRAY | {"items": I}, ARRAY | {"items": S}, ""),
    ("items of objects", ARRAY | {"items": closed()}, ARRAY | {"items": closed({"a": S})}, "B"),
    ("maxItems added", ARRAY, ARRAY | {"maxItems": 3}, "F"),
    ("maxItems raised", ARRAY | {"maxItems": 3}, ARRAY | {"maxItems": 4}, "B"),
    ("minItems added", ARRAY, ARRAY | {"minItems": 3}, "F"),
    ("minItems raised", ARRAY | {"minItems": 3}, ARRAY | {"minItems": 4}, "F"),
    ("uniqueItems added", ARRAY, ARRAY | {"uniqueItems": True}, "F"),
    ("uniqueItems said", ARRAY, ARRAY | {"uniqueItems": False}, "BF"),
    ("contains is not compared", ARRAY | {"contains": S}, ARRAY | {"contains": I}, "BF"),
    ("contains added", modern(ARRAY), modern(ARRAY | {"contains": I}), "F"),
    (
        "minContains raised",
        modern(ARRAY | {"contains": I, "minContains": 2}),
        modern(ARRAY | {"contains": I, "minContains": 3}),
        "F",
    ),
    (
        "maxContains raised",
        modern(ARRAY | {"contains": I, "maxContains": 2}),
        modern(ARRAY | {"contains": I, "maxContains": 3}),
        "B",
    ),
    ("tuple widened", tuple_of(I, S), tuple_of(N, S), "B"),
    ("tuple swapped", tuple_of(I, S), tuple_of(S, I), ""),
    ("item added, open", tuple_of(S), tuple_of(S, I), "F"),
    ("any item added, open", tuple_of(S), tuple_of(S, {}), "BF"),
    ("item added, closed", tuple_of(S, additionalItems=False), tuple_of(S, I, additionalItems=False), "B"),
    (
        "false item added, closed",
        tuple_of(S, additionalItems=False),
        tuple_of(S, False, additionalItems=False),
        "BF",
    ),
    ("covered item added", tuple_of(S, additionalItems=I), tuple_of(S, I, additionalItems=I), "BF"),
    ("item that is not covered added", tuple_of(S, additionalItems=I), tuple_of(S, S, additionalItems=I), ""),
    ("wider item than covered", tuple_of(S, additionalItems=I), tuple_of(S, N, additionalItems=I), "B"),
    ("additional items closed", tuple_of(S), tuple_of(S, additionalItems=False), "F"),
    ("additional items narrowed", tuple_of(S), tuple_of(S, additionalItems=I), "F"),
    ("additional items widened", tuple_of(S, additionalItems=I), tuple_of(S, additionalItems=N), "B"),
    ("list to tuple", ARRAY | {"items": S}, tuple_of(S), ""),
    ("prefix widened", prefix(I), prefix(N), "B"),
    ("prefix item added, open", prefix(I), prefix(I, I), "F"),
    ("prefix item added, closed", prefix(I, items=False), prefix(I, I, items=False), "B"),
    ("prefix item covered", prefix(I, items=S), prefix(I, S, items=S), "BF"),
    ("prefix closed", prefix(I), prefix(I, items=False), "F"),
    ("items widened, modern", modern(ARRAY | {"items": I}), modern(ARRAY | {"items": N}), "B"),
]
COMBINED: Final = [
    ("member added, oneOf", one(S), one(S, I), "B"),
    ("member added, anyOf", some(S), some(S, I), "B"),
    ("member added, allOf", every(S), every(S, {"maxLength": 3}), "F"),
    ("member widened", one(S, I), one(S, N), "B"),
    ("member replaced", one(S, B), one(S, obj()), ""),
    ("members in another order", one(S, B), one(B, S), "BF"),
    ("members that are the same", some(S, S, B), some(S, B), "BF"),
    ("type to union, oneOf", S, one(S, I), "B"),
    ("type to union, anyOf", S, some(S, I), "B"),
    ("type to union without it", B, some(S, I), ""),
    ("type to wider union", I, some(S, N), "B"),
    ("type to product", S, every(S, {"maxLength": 3}), "F"),
    ("type to union of one", S, one(S), "BF"),
    ("type to product of one", S, every(S), "BF"),
    ("oneOf to anyOf", one(S, I), some(S, I), "B"),
    ("oneOf to allOf", one(S, I), every(S, I), ""),
    ("allOf to anyOf", every(S, I), some(S, I), "B"),
    ("oneOf of one to anyOf of one", one(S), some(S), "BF"),
    ("anyOf of one to oneOf", some(S), one(S, I), "B"),
    ("allOf to oneOf of one", every(S, {"maxLength": 3}), one(S), "B"),
    ("objects in a union", one(closed({"a": S}), S), one(closed({"a": S, "b": I}), S), "B"),
    ("open objects in a union", one(obj({"a": S}), S), one(obj({"a": S, "b": I}), S), "F"),
    ("one member for two", one(I, I | {"maximum": 3}), one(N, S), ""),
    ("two members for two", one(I, I | {"maximum": 3}), one(N, N | {"maximum": 3}), "B"),
    ("nested unions", one(one(S, I), B), one(one(S, N), B), "B"),
    ("union in a property", obj({"a": one(S, I)}), obj({"a": one(S, I, B)}), "B"),
    ("nullable reference", obj({"a": one({"type": "null"}, S)}), obj({"a": one({"type": "null"}, I)}), ""),
    ("keywords beside a union", S | one({"maxLength": 3}), S | one({"maxLength": 4}), "B"),
    ("union, modern", modern(one(S, I)), modern(one(S, I, B)), "B"),
    ("product, modern", modern(every(obj({"a": S}))), modern(every(obj({"a": S}), obj({"b": S}))), "F"),
    (
        "enum in a union, modern",
        modern(some({"type": "null"}, S | {"enum": ["a"]})),
        modern(some({"type": "null"}, S | {"enum": ["a", "b"]})),
        "B",
    ),
    (
        "types with a limit, modern",
        modern({"type": ["string", "null"], "maxLength": 3}),
        modern({"type": ["string", "null"], "maxLength": 4}),
        "B",
    ),
    ("not narrowed", {"not": N}, {"not": I}, "B"),
    ("not changed", {"not": S}, {"not": I}, ""),
    ("not same", {"not": S}, {"not": S}, "BF"),
    ("not of anything", {"not": {}}, {"not": S}, "B"),
    (
        "conditions are not compared",
        {"if": S, "then": {"maxLength": 3}},
        {"if": I, "then": {"maximum": 3}},
        "BF",
    ),
    ("conditions beside a type", S | {"if": {"minLength": 3}, "else": False}, S, "B"),
]
REFERENCES: Final = [
    ("definition widened", ref(I), ref(N), "B"),
    ("definition retyped", ref(I), ref(S), ""),
    ("definition renamed", ref(S), ref(S, "other"), "BF"),
    ("definition instead of a type", obj({"a": S}), ref(S), "BF"),
    ("definition instead of another type", obj({"a": I}), ref(S), ""),
    ("definition that is not used", obj(definitions={"T": S}), obj(definitions={"T": I}), "BF"),
    ("$defs, modern", modern(ref(I, "$defs")), modern(ref(N, "$defs")), "B"),
    ("$defs in an older draft", ref(I, "$defs"), ref(N, "$defs"), "B"),
    ("definitions as $defs", {"$ref": "#/$defs/T", "definitions": {"T": I}}, N, "B"),
    (
        "reference to a reference",
        {"$ref": "#/definitions/U", "definitions": {"T": I, "U": {"$ref": "#/definitions/T"}}},
        {"$ref": "#/definitions/U", "definitions": {"T": S, "U": {"$ref": "#/definitions/T"}}},
        "",
    ),
    (
        "keywords beside it do not count",
        obj({"a": {"$ref": "#/definitions/T", "maximum": 3}}, definitions={"T": I}),
        ref(I),
        "BF",
    ),
    (
        "keywords beside it count, modern",
        modern(obj({"a": {"$ref": "#/$defs/T", "maximum": 3}}) | {"$defs": {"T": I}}),
        modern(ref(I, "$defs")),
        "B",
    ),
    (
        "a default beside it",
        closed(definitions={"T": S}),
        closed({"a": {"$ref": "#/definitions/T", "default": ""}}, "a", definitions={"T": S}),
        "B",
    ),
    ("recursive same", tree(S), tree(S), "BF"),
    ("recursive widened", tree(I), tree(N), "B"),
    ("recursive retyped", tree(I), tree(S), ""),
    ("recursive to one that is not", tree(S), obj({"value": S, "children": ARRAY}), "B"),
    (
        "by $id",
        obj({"a": {"$ref": "item"}}, definitions={"T": {"$id": "item", "type": "integer"}})
        | {"$id": "http://x/root"},
        obj({"a": N}) | {"$id": "http://x/root"},
        "B",
    ),
    (
        "by $anchor",
        modern(obj({"a": {"$ref": "#item"}}) | {"$defs": {"T": {"$anchor": "item"} | I}}),
        modern(obj({"a": N})),
        "B",
    ),
    (
        "by a pointer into properties",
        obj({"a": I, "b": {"$ref": "#/properties/a"}}),
        obj({"a": N, "b": N}),
        "B",
    ),
    ("by an escaped pointer", {"$ref": "#/definitions/a~1b%20c", "definitions": {"a/b c": I}}, N, "B"),
]
DRAFTS: Final = [
    ("7 to 2020-12", obj({"a": I}), modern(obj({"a": N})), "B"),
    ("4 to 7", draft_4(obj({"a": I})), obj({"a": N}), "B"),
    ("a draft that is not known is 7", {"$schema": "http://x/y"} | I, N, "B"),
    ("tuples of 7 and 2020-12", tuple_of(I), prefix(N), "B"),
    (
        "tuples of 2019-09",
        {"$schema": "https://json-schema.org/draft/2019-09/schema"} | tuple_of(I, additionalItems=False),
        {"$schema": "https://json-schema.org/draft/2019-09/schema"} | tuple_of(I, S, additionalItems=False),
        "B",
    ),
]
PAIRS: Final = [
    (f"{group}: {name}", old, new, answer)
    for group, pairs in (
        ("annotations", ANNOTATIONS),
        ("types", TYPES),
        ("strings", STRINGS),
        ("numbers", NUMBERS),
        ("enums", ENUMS),
        ("objects", OBJECTS),
        ("dependencies", DEPENDENCIES),
        ("unevaluated", UNEVALUATED),
        ("arrays", ARRAYS),
        ("combined", COMBINED),
        ("references", REFERENCES),
        ("drafts", DRAFTS),
    )
    for name, old, new, answer in pairs
]
