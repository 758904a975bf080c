"""Avro's rules of compatibility, pair by pair and level by level."""

import json

import pytest

from kalda.schemas.compatibility import CompatibilityLevel, check, incompatibilities
from kalda.schemas.model import ParsedSchema, Schema, SchemaType
from kalda.schemas.parsing import parse
from tests.schema_pairs import Pair, ids
from tests.schema_pairs_avro import PAIRS, enum, field, fixed, record


def avro(text: str) -> ParsedSchema:
    return parse(Schema(SchemaType.AVRO, text))


def test_there_are_as_many_pairs_as_promised() -> None:
    assert len(PAIRS) >= 200


@pytest.mark.parametrize("pair", PAIRS, ids=ids(PAIRS))
def test_a_pair_has_its_reasons_at_each_level(pair: Pair) -> None:
    old, new = avro(pair.old), avro(pair.new)
    for level in CompatibilityLevel:
        assert pair.reasons(level) == tuple(each.type for each in check(level, new, [old])), level


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        ("int", "string", "/", "reader type: STRING not compatible with writer type: INT"),
        (record(name="R"), record(name="S"), "/name", "expected: R"),
        (record(), record(field("a", "int")), "/fields/0", "a"),
        (
            record(field("a", "int")),
            record(field("x", "int", default=1), field("a", {"type": "array", "items": "int"})),
            "/fields/1/type",
            "reader type: ARRAY not compatible with writer type: INT",
        ),
        (
            record(field("a", {"type": "map", "values": enum("A", "C", "B")})),
            record(field("a", {"type": "map", "values": enum("A")})),
            "/fields/0/type/values/symbols",
            "[B, C]",
        ),
        (fixed(4), fixed(8), "/size", "expected: 4, found: 8"),
        (["null", "int"], ["null"], "/1", "reader union lacking writer type: INT"),
        (record(field("a", "int")), ["null"], "/", "reader union lacking writer type: RECORD"),
        (
            ["null", record(name="a.R")],
            record(name="S"),
            "/0",
            "reader type: RECORD not compatible with writer type: NULL",
        ),
    ],
)
def test_a_reason_names_its_place(old: object, new: object, path: str, message: str) -> None:
    found = incompatibilities(avro(json.dumps(new)), avro(json.dumps(old)))
    assert (path, message) == (found[0].path, found[0].message)


def test_references_are_compared_with_what_they_define() -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"f","type":"x.F"}]}'

    def parsed(size: int) -> ParsedSchema:
        return parse(Schema(SchemaType.AVRO, text), {"x.F": json.dumps(fixed(size, "x.F"))})

    assert [] == incompatibilities(parsed(2), parsed(2))
    assert ["/fields/0/type/size"] == [each.path for each in incompatibilities(parsed(2), parsed(3))]


def test_a_type_with_exponentially_many_uses_is_compared_once() -> None:
    """Each record uses the next one twice: 2**40 ways lead to the last."""

    def chain(last: str) -> str:
        levels = [record(field("v", last), name="R0")]
        for level in range(1, 41):
            inner = f"R{level - 1}"
            levels.append(record(field("a", inner), field("b", inner), name=f"R{level}"))
        return json.dumps(levels)

    found = incompatibilities(avro(chain("int")), avro(chain("string")))
    assert found
    assert len(found) <= 100


def test_two_circles_of_records_are_compared_without_recursion() -> None:
    """A circle of 41 records against one of 37: the pairs repeat after 1,517 steps."""

    def circle(count: int) -> str:
        return json.dumps(
            [
                record(field("next", ["null", f"R{(index + 1) % count}"]), name=f"R{index}", aliases=ALL)
                for index in range(count)
            ]
        )

    assert [] == incompatibilities(avro(circle(41)), avro(circle(37)))


ALL = [f"R{index}" for index in range(41)]
