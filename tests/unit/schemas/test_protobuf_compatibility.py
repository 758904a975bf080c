"""Protobuf's rules of compatibility, pair by pair and level by level."""

from collections.abc import Mapping

import pytest

from kalda.schemas.compatibility import CompatibilityLevel, check, check_messages, incompatibilities
from kalda.schemas.model import ParsedSchema, Reference, Schema, SchemaType
from kalda.schemas.parsing import parse
from tests.schema_pairs import Pair, ids
from tests.schema_pairs_protobuf import PAIRS


def proto(
    text: str, references: tuple[Reference, ...] = (), dependencies: Mapping[str, str] | None = None
) -> ParsedSchema:
    return parse(Schema(SchemaType.PROTOBUF, text, references), dependencies)


def test_there_are_as_many_pairs_as_promised() -> None:
    assert len(PAIRS) >= 200


@pytest.mark.parametrize("pair", PAIRS, ids=ids(PAIRS))
def test_a_pair_has_its_reasons_at_each_level(pair: Pair) -> None:
    old, new = proto(pair.old), proto(pair.new)
    for level in CompatibilityLevel:
        assert pair.reasons(level) == tuple(each.type for each in check(level, new, [old])), level


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("package a; message M {}", "package b; message M {}", "#/"),
        ("message M { int32 a = 7; }", "message M { string a = 7; }", "#/M/7"),
        ("message M { message N { int32 a = 7; } }", "message M { message N { M a = 7; } }", "#/M/N/7"),
        (
            "message M { oneof x { int32 a = 1; int32 b = 2; } }",
            "message M { oneof x { int32 a = 1; } }",
            "#/M/x/2",
        ),
        (
            "message M { int32 a = 1; int32 b = 2; }",
            "message M { oneof y { int32 a = 1; int32 b = 2; } }",
            "#/M/y",
        ),
        ("message M { message N {} }", "message M {}", "#/M/N"),
    ],
)
def test_a_reason_names_its_place(old: str, new: str, path: str) -> None:
    found = incompatibilities(proto(f'syntax = "proto3"; {new}'), proto(f'syntax = "proto3"; {old}'))
    assert [path] == [each.path for each in found]


def test_the_messages_are_those_of_confluent() -> None:
    old = 'syntax = "proto3";\n\nmessage M {\n  int32 a = 1;\n}\n'
    reason = (
        '{errorType:"FIELD_SCALAR_KIND_CHANGED", description:"The kind of a SCALAR field at path '
        "'#/M/1' in the new schema does not match its kind in the old schema\"}"
    )
    new = proto(old.replace("int32", "string"))
    assert [
        reason,
        "{oldSchemaVersion: 2}",
        f"{{oldSchema: '{old}'}}",
    ] == check_messages(CompatibilityLevel.BACKWARD, new, [(2, proto(old))])


USES = 'syntax = "proto3"; import "n.proto"; message M { N n = 1; }'


def using(text: str, version: int) -> ParsedSchema:
    reference = Reference("n.proto", "n", version)
    return proto(USES, (reference,), {"n.proto": f'syntax = "proto3"; {text}'})


def test_types_of_other_versions_of_a_reference_are_compared() -> None:
    old = using("message N { int32 a = 1; }", 1)
    assert [] == incompatibilities(using("message N { int64 a = 1; }", 2), old)
    assert [
        ("FIELD_SCALAR_KIND_CHANGED", "#/N/1"),
        ("FIELD_NAMED_TYPE_CHANGED", "#/M/1"),
    ] == [(each.type, each.path) for each in incompatibilities(using("message N { string a = 1; }", 2), old)]


def test_types_of_the_same_version_are_not_compared() -> None:
    assert [] == incompatibilities(using("message N {}", 1), using("message N {}", 1))


def test_types_that_use_each_other_often_are_compared_once() -> None:
    """Each message of the reference uses the next one twice: 2**40 ways lead to the last."""

    def chain(last: str, version: int) -> ParsedSchema:
        levels = [f"message N{level} {{ N{level + 1} a = 1; N{level + 1} b = 2; }}" for level in range(1, 40)]
        text = f"message N {{ N1 a = 1; N1 b = 2; }} {' '.join(levels)} message N40 {{ {last} z = 1; }}"
        return using(text, version)

    assert [] == incompatibilities(chain("int32", 1), chain("int64", 2))
    found = incompatibilities(chain("int32", 1), chain("string", 2))
    assert 1 < len(found) <= 100
