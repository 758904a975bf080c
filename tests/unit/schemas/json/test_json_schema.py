"""JSON Schema: the stored text, messages, references, and what hostile schemas do."""

import json
from collections.abc import Mapping

import pytest

from kalda.schemas.compatibility import CompatibilityLevel, CompatibilityPolicy, check, check_messages
from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.json.comparison import differences
from kalda.schemas.json.differences import COMPATIBLE, Difference, Kind
from kalda.schemas.json.matching import largest_matching
from kalda.schemas.json.parsing import JsonSchema
from kalda.schemas.model import ParsedSchema, Schema, SchemaType
from kalda.schemas.parsing import parse

DEPENDENCIES = {"address.json": '{"type":"object","properties":{"city":{"type":"string"}}}'}


def parsed(
    value: object, dependencies: Mapping[str, str] | None = None, *, is_new: bool = True
) -> ParsedSchema:
    text = value if isinstance(value, str) else json.dumps(value)
    return parse(Schema(SchemaType.JSON, text), dependencies, is_new=is_new)


def kinds(old: object, new: object) -> list[Kind]:
    writer, reader = parsed(old), parsed(new)
    assert isinstance(writer, JsonSchema)
    assert isinstance(reader, JsonSchema)
    return [each.kind for each in differences(writer.root, reader.root, COMPATIBLE)]


def chain(length: int, leaf: str) -> object:
    """Return definitions that use the next one twice each, so that the last is used 2^length times."""
    next_one = [{"$ref": f"#/definitions/d{index + 1}"} for index in range(length)]
    definitions: dict[str, object] = {
        f"d{index}": {"type": "object", "properties": {"a": each, "b": each}}
        for index, each in enumerate(next_one)
    }
    definitions[f"d{length}"] = {"type": leaf}
    return {"$ref": "#/definitions/d0", "definitions": definitions}


def unions(count: int, leaf: str) -> object:
    """Return types that refer to all others by a union each."""
    union = {"oneOf": [{"$ref": f"#/definitions/d{index}"} for index in range(count)]}
    return union | {
        "definitions": {
            f"d{index}": {"type": "object", "properties": {"kind": {"type": leaf}, "next": union}}
            for index in range(count)
        }
    }


@pytest.mark.parametrize(
    ("text", "canonical", "normalized"),
    [
        ('{ "type" : "string" }', '{"type":"string"}', '{"type":"string"}'),
        ('{"type":"string","a":1}', '{"type":"string","a":1}', '{"a":1,"type":"string"}'),
        ('{"x":{"b":1,"a":[2,1]}}', '{"x":{"b":1,"a":[2,1]}}', '{"x":{"a":[2,1],"b":1}}'),
        (
            '{"maximum":1.50,"minimum":1e2}',
            '{"maximum":1.50,"minimum":1E+2}',
            '{"maximum":1.50,"minimum":1E+2}',
        ),
        ('{"default":-0.0}', '{"default":0.0}', '{"default":0.0}'),
        ('{"title":"\\u00e9\\u001f\\/"}', '{"title":"é\\u001F/"}', '{"title":"é\\u001F/"}'),
        ('{"title":"a","title":"b"}', '{"title":"b"}', '{"title":"b"}'),
        ('{"\uff61":1,"\U0001f600":2}', '{"\uff61":1,"\U0001f600":2}', '{"\U0001f600":2,"\uff61":1}'),
        ("true", "true", "true"),
        ('{"default":null}', '{"default":null}', '{"default":null}'),
    ],
)
def test_the_stored_text_is_jacksons(text: str, canonical: str, normalized: str) -> None:
    schema = parsed(text)
    assert canonical == schema.canonical()
    assert normalized == schema.normalized()
    assert canonical == parsed(canonical).canonical()
    assert normalized == parsed(normalized).normalized()


def test_messages_are_those_of_confluent() -> None:
    old, new = (
        {"type": "object", "properties": {"a": {"type": "string"}}},
        {"type": "object", "maxProperties": 3},
    )
    new = new | {"properties": {"a": {"type": "integer"}}}
    assert [
        (
            '{errorType:"TYPE_CHANGED", description:"A type at path \'#/properties/a\' is different between '
            'the new schema and the old schema"}'
        ),
        (
            '{errorType:"MAX_PROPERTIES_ADDED", description:"The keyword at path \'#/maxProperties\' in the '
            'new schema is not present in the old schema"}'
        ),
        "{oldSchemaVersion: 1}",
        f"{{oldSchema: '{parsed(old).canonical()}'}}",
    ] == check_messages(CompatibilityLevel.BACKWARD, parsed(new), [(1, parsed(old))])


@pytest.mark.parametrize("kind", sorted(set(Kind) - COMPATIBLE))
def test_every_kind_that_is_not_compatible_has_a_description(kind: Kind) -> None:
    found = Difference.at(kind, "properties", "%s").incompatibility
    assert "#/properties/%s" == found.path
    assert "'#/properties/%25s'" in found.description
    assert 2 == found.description.count("%s")


@pytest.mark.parametrize(
    ("old", "new", "is_compatible"),
    [
        ({"properties": {}}, {"properties": {"a": {"type": "string"}}}, True),
        ({"properties": {}}, {"properties": {"a": {"type": "string"}}, "required": ["a"]}, False),
        ({"properties": {"a": {}}}, {"properties": {"a": {}}, "additionalProperties": False}, True),
        ({"properties": {"a": {}}}, {"properties": {}, "additionalProperties": False}, True),
        ({"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"type": "integer"}}}, False),
    ],
)
def test_the_lenient_policy_counts_on_named_properties_only(
    old: object, new: object, is_compatible: bool
) -> None:
    level, policy = CompatibilityLevel.BACKWARD, CompatibilityPolicy.LENIENT
    assert is_compatible == (not check(level, parsed(new), [parsed(old)], policy))
    assert check(level, parsed(new), [parsed(old)])


def test_a_reference_is_found_by_its_name() -> None:
    schema = {"type": "object", "properties": {"home": {"$ref": "address.json"}}}
    inline = {"type": "object", "properties": {"home": json.loads(DEPENDENCIES["address.json"])}}
    assert [] == check(CompatibilityLevel.FULL, parsed(schema, DEPENDENCIES), [parsed(inline)])


@pytest.mark.parametrize(
    "reference", ["address.json", "./address.json", "address.json#", "http://example.com/a/address.json"]
)
def test_a_reference_resolves_against_the_id(reference: str) -> None:
    schema = {"$id": "http://example.com/a/person.json", "properties": {"home": {"$ref": reference}}}
    other = {"properties": {"home": json.loads(DEPENDENCIES["address.json"])}}
    assert [] == [
        each
        for each in check(CompatibilityLevel.FULL, parsed(schema, DEPENDENCIES), [parsed(other)])
        if each.type != "ID_CHANGED"
    ]


@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest",
        "https://example.com/a.json",
        "file:///etc/passwd",
        "../../secret",
        "//x/y",
    ],
)
def test_nothing_is_fetched(address: str) -> None:
    """A schema names addresses of the network where the registry runs."""
    for schema in ({"$ref": address}, {"$id": "http://example.com/x", "items": {"$ref": f"{address}#/a"}}):
        with pytest.raises(InvalidSchemaError, match=r"the \$ref .* no reference has this name"):
            parsed(schema)
    assert "string" in parsed({"$schema": address, "type": "string"}).canonical()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("", "it is not JSON"),
        ("{} {}", "it is not JSON"),
        ("null", "a JSON schema is an object, true or false"),
        ("[]", "a JSON schema is an object, true or false"),
        ('{"type":"text"}', "at #/type"),
        ('{"minLength":-1}', "at #/minLength"),
        ('{"multipleOf":0}', "at #/multipleOf"),
        ('{"pattern":"["}', "at #/pattern"),
        ('{"properties":{"a":{"required":"b"}}}', "at #/properties/a/required"),
        ('{"$ref":"#/definitions/T"}', r"the \$ref '#/definitions/T' of the schema refers to nothing"),
        ('{"$ref":"#"}', "refers to itself"),
        ('{"$ref":"#/a","a":{"$ref":"#/b"},"b":{"$ref":"#/a"}}', "refers to itself"),
        ('{"$ref":"#/title","title":"t"}', "refers to no schema"),
        ('{"title":"\\ud800"}', "half of a surrogate pair"),
        ('{"maximum":NaN}', "NaN is not JSON"),
        ('{"maximum":1e99999}', "the exponent of the number 1e99999 is above 10000"),
        ('{"maximum":' + "9" * 2_000 + "}", "has 2000 digits"),
        ('{"not":' * 101 + "{}" + "}" * 101, "nested more than 100 levels deep"),
        ("[" * 100_000, "nested more than 100 levels deep"),
    ],
)
def test_what_is_no_schema_is_named(schema: str, message: str) -> None:
    with pytest.raises(InvalidSchemaError, match=message):
        parsed(schema)


def test_a_stored_schema_that_is_not_valid_still_has_its_text() -> None:
    stored = parsed('{"minLength":"3"}', is_new=False)
    assert '{"minLength":"3"}' == stored.canonical()
    with pytest.raises(InvalidSchemaError, match='minLength is "3"; it must be a number'):
        check(CompatibilityLevel.BACKWARD, parsed({}), [stored])


def test_a_definition_that_is_used_in_2_to_the_500_ways_is_compared_once() -> None:
    found = check(CompatibilityLevel.BACKWARD, parsed(chain(500, "integer")), [parsed(chain(500, "string"))])
    assert {"TYPE_CHANGED"} == {each.type for each in found}
    assert 100 == len(found)
    assert [] == check(CompatibilityLevel.FULL, parsed(chain(500, "string")), [parsed(chain(500, "string"))])


def test_types_that_refer_to_each_other_by_unions_are_compared() -> None:
    assert [] == check(CompatibilityLevel.FULL, parsed(unions(30, "string")), [parsed(unions(30, "string"))])
    assert check(CompatibilityLevel.BACKWARD, parsed(unions(30, "integer")), [parsed(unions(30, "string"))])


def test_an_incompatible_type_behind_a_cycle_is_not_masked() -> None:
    """T0 and T2 refer to each other, so that (T0, T0) is first taken to be compatible within itself."""

    def schema(first: str, second: str) -> object:
        def type_of(kind: str, target: str) -> object:
            reference = {"oneOf": [{"$ref": f"#/definitions/{target}"}]}
            return {"type": "object", "properties": {"id": {"type": kind}, "ref": reference}}

        root = {"oneOf": [{"$ref": "#/definitions/T0"}, {"$ref": "#/definitions/T1"}]}
        return {"type": "object", "properties": {"root": root}} | {
            "definitions": {
                "T0": type_of(first, "T2"),
                "T1": type_of(second, "T2"),
                "T2": type_of("integer", "T0"),
            }
        }

    old, new = parsed(schema("integer", "boolean")), parsed(schema("boolean", "number"))
    assert check(CompatibilityLevel.BACKWARD, new, [old])


def test_a_comparison_that_takes_too_many_steps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kalda.schemas.json.comparison.STEPS_MAX", 1_000)
    with pytest.raises(InvalidSchemaError, match="more than 1000 steps"):
        check(CompatibilityLevel.BACKWARD, parsed(unions(30, "string")), [parsed(unions(30, "string"))])


@pytest.mark.parametrize("pattern", ["(a+)+$", "(?=(a+)+$)b", "(a{1000}){1000}", "(a|a)*\\1b"])
def test_a_pattern_that_backtracks_ends(pattern: str) -> None:
    """A property is looked up in the patterns of the other schema; one that runs too long matches nothing."""
    old = {"patternProperties": {pattern: {"type": "string"}}, "additionalProperties": False}
    new = {"properties": {"a" * 5_000 + "!": {"type": "integer"}}, "additionalProperties": False}
    assert "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL" in {
        each.type for each in check(CompatibilityLevel.FORWARD, parsed(new), [parsed(old)])
    } | {each.type for each in check(CompatibilityLevel.BACKWARD, parsed(old), [parsed(new)])}


def test_differences_that_do_not_matter_are_named_too() -> None:
    assert [Kind.TITLE_CHANGED, Kind.REQUIRED_ATTRIBUTE_REMOVED, Kind.TYPE_EXTENDED] == kinds(
        {"title": "a", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        {"title": "b", "properties": {"n": {"type": "number"}}},
    )


@pytest.mark.parametrize(
    ("edges", "size"),
    [
        ([], 0),
        ([[]], 0),
        ([[0], [0]], 1),
        ([[0, 1], [0]], 2),
        ([[0], [0, 1], [1, 2]], 3),
        ([[0, 1], [0, 1], [0, 1]], 2),
        ([[1, 2], [0], [0, 1]], 3),
    ],
)
def test_the_matching_is_the_largest(edges: list[list[int]], size: int) -> None:
    found = largest_matching(edges)
    assert size == len(found) == len(set(found.values()))
    assert all(right in edges[left] for left, right in found.items())
