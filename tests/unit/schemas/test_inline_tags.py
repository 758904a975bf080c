"""The tags inside schemas: where they are found, and what a change makes of the text."""

import json

import pytest

from kalda.schemas.json import tags
from kalda.schemas.model import ParsedSchema, Schema, SchemaType
from kalda.schemas.parsing import parse
from kalda.schemas.tags import Entity, EntityType, TagChange, Tags, UnknownEntityError


def record(path: str) -> Entity:
    return Entity(path, EntityType.RECORD)


def field(path: str) -> Entity:
    return Entity(path, EntityType.FIELD)


def parsed(kind: SchemaType, text: str) -> ParsedSchema:
    return parse(Schema(kind, text))


def changed(before: ParsedSchema, added: Tags, removed: Tags | None = None) -> ParsedSchema:
    return parsed(before.type, before.with_tags(TagChange(added, removed or {})))


AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "string", "confluent:tags": ["KEY"]},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Line",
                        "namespace": "shop.parts",
                        "fields": [{"name": "price", "type": ["null", "double"], "default": None}],
                    },
                },
            },
            {"name": "next", "type": ["null", "Order"], "default": None},
        ],
    }
)
JSON = json.dumps(
    {
        "type": "object",
        "properties": {
            "lines": {
                "type": "array",
                "items": {"type": "object", "properties": {"price": {"type": "number"}}},
            },
            "either": {
                "oneOf": [{"type": "string"}, {"type": "object", "properties": {"a.b": {"type": "string"}}}]
            },
            "never": {"not": {"type": "object", "properties": {"x": {}}}},
            "maybe": {"type": ["null", "object"], "properties": {"y": {"type": "string"}}},
            "other": {"$ref": "#/definitions/Address"},
        },
        "definitions": {"Address": {"type": "object", "properties": {"street": {"type": "string"}}}},
    }
)
JSON_SIDE_BY_SIDE = json.dumps(
    {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}},
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
        ],
        "properties": {
            "a": {"type": "string"},
            "c": {
                "type": ["object", "array"],
                "anyOf": [{"type": "object", "properties": {"d": {}}}],
                "items": {"type": "object", "properties": {"d": {}}},
                "properties": {"d": {}},
            },
        },
    }
)
JSON_REFERENCE = json.dumps(
    {
        "$ref": "#/definitions/Address",
        "definitions": {"Address": {"type": "object", "properties": {"street": {"type": "string"}}}},
    }
)
JSON_ARRAY = json.dumps(
    {
        "type": "array",
        "items": {"$ref": "#/$defs/Address"},
        "$defs": {"Address": {"type": "object", "properties": {"street": {"type": "string"}}}},
    }
)
PROTOBUF = """syntax = "proto3";
package shop;

import "confluent/meta.proto";

message Order {
  option (confluent.message_meta).tags = "OTHER";

  int32 id = 1 [
    (confluent.field_meta).tags = "KEY",
    (confluent.field_meta).tags = "PRIVATE"
  ];
  Line line = 2 [(confluent.field_meta) = {
    doc: "the line"
  }];

  oneof either {
    string text = 3;
  }

  message Line {
    double price = 1;
  }
}
"""


@pytest.mark.parametrize(
    ("kind", "text", "entities"),
    [
        (
            SchemaType.AVRO,
            AVRO,
            [record("shop.Order"), field("shop.Order.next"), record("shop.parts.Line")],
        ),
        (
            SchemaType.JSON,
            JSON,
            [
                record("object"),
                field("object.lines"),
                record("object.lines.array.object"),
                field("object.lines.array.object.price"),
                # An object comes before a text, whatever their order in the schema.
                record("object.either.oneof.0.object"),
                field("object.either.oneof.0.object.a.b"),
                field("object.never.not.object.x"),
                field("object.maybe.anyof.1.object.y"),
                field("object.other"),
                record("object.definitions.Address.object"),
                field("object.definitions.Address.object.street"),
            ],
        ),
        (
            SchemaType.JSON,
            JSON_SIDE_BY_SIDE,
            [
                record("allof.0.allof.1.object"),
                field("allof.0.allof.0.object.a"),
                field("allof.0.allof.1.object.b"),
                field("allof.1.object.a"),
                field("allof.1.object.c.allof.0.anyof.0.array.object.d"),
                field("allof.1.object.c.allof.1.anyof.0.object.d"),
                field("allof.1.object.c.allof.2.anyof.1.object.d"),
            ],
        ),
        (
            SchemaType.JSON,
            JSON_REFERENCE,
            [record("object.definitions.Address.object"), field("object.definitions.Address.object.street")],
        ),
        (SchemaType.JSON, JSON_ARRAY, [field("object.$defs.Address.object.street")]),
        (
            SchemaType.PROTOBUF,
            PROTOBUF,
            [record("Order.Line"), field("Order.text"), field("Order.line"), field("Order.Line.price")],
        ),
    ],
)
def test_what_is_tagged_is_found_and_loses_its_tags_again(
    kind: SchemaType, text: str, entities: list[Entity]
) -> None:
    before = parsed(kind, text)
    tags = {each: ["PII"] for each in entities}
    tagged = changed(before, tags)

    assert before.tagged_entities() | tags == tagged.tagged_entities()
    assert before.tagged_entities() == changed(tagged, {}, tags).tagged_entities()
    if kind is not SchemaType.PROTOBUF:
        assert before.canonical() == changed(tagged, {}, tags).canonical()


def test_avro_tags_stand_behind_the_other_properties() -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"f1","type":"string"}]}'
    tagged = changed(parsed(SchemaType.AVRO, text), {record("R"): ["TAG1", "TAG2"]})

    assert text[:-1] + ',"confluent:tags":["TAG1","TAG2"]}' == tagged.canonical()


def test_a_path_without_a_namespace_stands_for_a_record_in_any() -> None:
    tagged = changed(parsed(SchemaType.AVRO, AVRO), {field("Line.price"): ["PII"], record(".Order"): ["A"]})

    assert ["PII"] == tagged.tagged_entities()[field("shop.parts.Line.price")]
    assert ["A"] == tagged.tagged_entities()[record("shop.Order")]


def test_protobuf_options_are_merged() -> None:
    """As in Confluent's registry, whose test has these texts."""
    tagged = changed(
        parsed(SchemaType.PROTOBUF, PROTOBUF),
        {
            record(".Order"): ["PII"],
            field(".Order.id"): ["PII"],
            field(".Order.line"): ["PII"],
            field("Order.either.text"): ["PII"],
        },
        {field("Order.id"): ["KEY"]},
    )

    expected = """message Order {
  option (confluent.message_meta) = {
    tags: [
      "OTHER",
      "PII"
    ]
  };

  int32 id = 1 [(confluent.field_meta) = {
    tags: [
      "PRIVATE",
      "PII"
    ]
  }];
  Line line = 2 [(confluent.field_meta) = {
    doc: "the line",
    tags: [
      "PII"
    ]
  }];

  oneof either {
    string text = 3 [(confluent.field_meta) = {
      tags: [
        "PII"
      ]
    }];
  }
"""
    assert expected in tagged.canonical()


def test_a_tag_that_is_added_and_removed_is_removed() -> None:
    tagged = changed(
        parsed(SchemaType.AVRO, AVRO),
        {field("shop.Order.id"): ["NEW", "BOTH", "NEW"]},
        {field("shop.Order.id"): ["KEY", "BOTH"]},
    )

    assert {field("shop.Order.id"): ["NEW"]} == tagged.tagged_entities()


@pytest.mark.parametrize(
    ("kind", "text", "path"),
    [
        (kind, text, path)
        for kind, text, paths in (
            (SchemaType.AVRO, AVRO, ("shop.Order.missing", "other.Order.id", "id", "", "...")),
            (
                SchemaType.JSON,
                JSON,
                (
                    "object",
                    "object.missing",
                    "object.either.oneof.9.object.x",
                    "object.either.oneof.x",
                    "object.either.oneof",
                    f"object.either.oneof.{'9' * 5_000}.object",
                    "object.lines.array",
                    "not",
                    "conditional",
                    "",
                    "object.definitions",
                ),
            ),
            (SchemaType.PROTOBUF, PROTOBUF, ("shop.Order.id", "Order.missing", "Order", "")),
        )
        for path in paths
    ],
)
def test_tags_for_what_a_schema_does_not_have_are_an_error(kind: SchemaType, text: str, path: str) -> None:
    before = parsed(kind, text)

    with pytest.raises(UnknownEntityError, match="No matching path"):
        before.with_tags(TagChange({field(path): ["PII"]}, {}))
    assert (
        before.canonical()
        == parsed(kind, before.with_tags(TagChange({field(path): ["PII"]}, {}, is_lenient=True))).canonical()
    )


def test_members_are_sorted_once_for_all_paths_through_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may send thousands of paths, and each of them leads through the same thousands of members."""
    count = 200
    before = {"oneOf": [{"type": "object", "title": str(number)} for number in range(count)]}
    unknown = {field(f"oneof.{number}.object.none"): ["PII"] for number in range(count)}
    sorted_members = 0

    def order(node: object) -> tuple[object, ...]:
        nonlocal sorted_members
        sorted_members += 1
        return (0,)

    monkeypatch.setattr(tags, "_order", order)
    tags.change_tags(before, TagChange(unknown, {}, is_lenient=True))
    # Once to list what there is, and once to follow the paths.
    assert 2 * count == sorted_members
