"""What holds for every JSON schema and pair of them, on generated ones."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.schemas.compatibility import CompatibilityLevel, check
from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.model import ParsedSchema, Schema, SchemaType
from kalda.schemas.parsing import parse

NAMES = st.sampled_from(["a", "b", "c", "a/b", "%s"])
LEAVES = st.one_of(
    st.booleans(),
    st.just({}),
    st.sampled_from([{"$ref": "#/definitions/T"}, {"$ref": "#"}]),
    st.builds(
        lambda kind: {"type": kind}, st.sampled_from(["string", "integer", "number", "boolean", "null"])
    ),
    st.builds(
        lambda low, kind: {"minLength": low} | kind,
        st.integers(0, 3),
        st.sampled_from([{}, {"type": "string"}]),
    ),
    st.builds(lambda values: {"enum": values}, st.lists(st.integers(0, 3), min_size=1, unique=True)),
    st.builds(lambda number: {"multipleOf": number, "maximum": number}, st.sampled_from([1, 2, 0.5, 1e30])),
)


def _grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.builds(
        lambda properties, required, rest: (
            {"type": "object", "properties": properties, "required": required} | rest
        ),
        st.dictionaries(NAMES, inner, max_size=3),
        st.lists(NAMES, unique=True, max_size=2),
        st.one_of(
            st.just({}),
            st.builds(lambda each: {"additionalProperties": each}, inner),
            st.builds(lambda each: {"patternProperties": {"^a": each}}, inner),
        ),
    )
    arrays = st.builds(
        lambda items, more: {"type": "array", "items": items, "additionalItems": more},
        st.one_of(inner, st.lists(inner, min_size=1, max_size=3)),
        inner,
    )
    unions = st.builds(
        lambda keyword, members: {keyword: members},
        st.sampled_from(["oneOf", "anyOf", "allOf"]),
        st.lists(inner, min_size=1, max_size=3),
    )
    return st.one_of(objects, arrays, unions, st.builds(lambda each: {"not": each}, inner))


ADDRESSES = st.sampled_from(
    ["http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-06/schema#"]
)
SCHEMAS = st.builds(
    lambda address, root, definition: {
        "$schema": address,
        "properties": {"root": root},
        "definitions": {"T": definition},
    },
    ADDRESSES,
    st.recursive(LEAVES, _grown, max_leaves=8),
    st.recursive(LEAVES, _grown, max_leaves=4),
)


def parsed(value: Any) -> ParsedSchema | None:
    """Return a schema, or None for one whose references only refer to each other."""
    try:
        return parse(Schema(SchemaType.JSON, json.dumps(value)))
    except InvalidSchemaError as error:
        if "refers to itself" in error.reason:
            return None
        raise


@settings(max_examples=300, deadline=None)
@given(SCHEMAS)
def test_a_schema_is_compatible_with_itself(value: Any) -> None:
    one, other = parsed(value), parsed(value)
    if one is not None and other is not None:
        assert [] == check(CompatibilityLevel.FULL, one, [other])


@settings(max_examples=300, deadline=None)
@given(SCHEMAS, SCHEMAS)
def test_forward_is_backward_the_other_way_round(one_value: Any, other_value: Any) -> None:
    one, other = parsed(one_value), parsed(other_value)
    if one is not None and other is not None:
        backward = check(CompatibilityLevel.BACKWARD, one, [other])
        forward = check(CompatibilityLevel.FORWARD, other, [one])
        assert [(each.type, each.path) for each in backward] == [(each.type, each.path) for each in forward]


@settings(max_examples=200, deadline=None)
@given(SCHEMAS)
def test_the_stored_text_stays_what_it_is(value: Any) -> None:
    schema = parsed(value)
    if schema is None:
        return
    for text in (schema.canonical(), schema.normalized()):
        assert json.loads(text) == value
        again = parse(Schema(SchemaType.JSON, text))
        assert text in (again.canonical(), again.normalized())
        assert schema.normalized() == again.normalized()
