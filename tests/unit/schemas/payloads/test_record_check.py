"""Which keys and values of a batch are refused, and with which words."""

import json

import pytest

from kalda.schemas.payloads.checks import make_check
from kalda.schemas.payloads.errors import UnusableSchemaError
from kalda.schemas.payloads.framing import framed
from kalda.schemas.payloads.record_check import FieldCheck, Findings, KnownSchema, ValidationMode, Wanted
from kalda.schemas.payloads.subjects import SubjectNameStrategy

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
            {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "boolean"}}},
        ],
    }
)
JSON = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "lines": {"type": "array", "items": {"type": "object", "required": ["sku"]}},
        },
        "required": ["id"],
    }
)
PROTOBUF = """
syntax = "proto3";
package shop;
message Order { int32 id = 1; string note = 2; repeated Line lines = 3; message Line { bool paid = 1; } }
message Other { string a = 1; }
"""

AVRO_ID, JSON_ID, PROTOBUF_ID, FOREIGN_ID = 1, 2, 3, 4
GOOD_AVRO = b"\x02\x00\x02\x00"


class Registry:
    """Knows three schemas of the subject ``orders-value``, and one of another subject."""

    def __init__(self) -> None:
        subjects = frozenset({"orders-value", "shop.Order", "orders-shop.Order", "orders-key", "Order"})
        self.schemas = {
            AVRO_ID: KnownSchema(AVRO_ID, subjects, make_check("AVRO", AVRO, {})),
            JSON_ID: KnownSchema(JSON_ID, subjects, make_check("JSON", JSON, {})),
            PROTOBUF_ID: KnownSchema(PROTOBUF_ID, subjects, make_check("PROTOBUF", PROTOBUF, {})),
            FOREIGN_ID: KnownSchema(FOREIGN_ID, frozenset({"users-value"}), make_check("AVRO", AVRO, {})),
        }
        self.denied = {(99, ""), (2**32 - 1, ""), (FOREIGN_ID, "orders-value")}

    def find(self, schema_id: int) -> KnownSchema | None:
        return self.schemas.get(schema_id)

    def is_denied(self, wanted: Wanted) -> bool:
        return wanted in self.denied


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


def found(
    registry: Registry,
    *values: bytes | None,
    mode: str = "full",
    strategy: str = "topic",
    is_key: bool = False,
) -> Findings:
    findings = Findings()
    check = FieldCheck("orders", ValidationMode(mode), SubjectNameStrategy(strategy), is_key=is_key)
    check.check(values, registry, findings)
    return findings


INVALID = {
    "empty value": (b"", "value: the value is empty; a framed value begins with 00"),
    "no magic byte": (b'{"id":1}', "value: the first byte is 7b; a framed value begins with 00"),
    "truncated id": (b"\x00\x00\x01", "value: the schema id is truncated: 2 of 4 bytes"),
    "unknown id": (framed(99, b""), "value: the registry has no schema with the id 99"),
    "id beyond 31 bits": (framed(2**32 - 1, b""), "value: the registry has no schema with the id 4294967295"),
    "id of another subject": (
        framed(FOREIGN_ID, GOOD_AVRO),
        "value: the schema 4 is not registered under the subject 'orders-value'",
    ),
    "truncated avro": (framed(AVRO_ID, b"\x02\x02\x0aab"), "value: note: the value ends inside this field"),
    "trailing bytes": (framed(AVRO_ID, GOOD_AVRO + b"x"), "value: 1 bytes follow the end of the value"),
    "enum index out of range": (
        framed(AVRO_ID, b"\x02\x00\x04\x00"),
        "value: state: the index of an enum is 2; it has 2 symbols",
    ),
    "negative enum index": (framed(AVRO_ID, b"\x02\x00\x01\x00"), "value: state: the index of an enum is -1"),
    "union branch out of range": (
        framed(AVRO_ID, b"\x02\x04\x02\x00"),
        "value: note: the branch of a union is 2; it has 2 branches",
    ),
    "text that is not utf-8": (
        framed(AVRO_ID, b"\x02\x02\x02\xff\x02\x00"),
        "value: note: a text is not UTF-8",
    ),
    "int of 64 bits": (
        framed(AVRO_ID, b"\x80\x80\x80\x80\x80\x01\x00\x02\x00"),
        "value: id: an int is 17179869184, which has more than 32 bits",
    ),
    "boolean in a map in an array": (
        framed(AVRO_ID, b"\x02\x00\x02\x02\x02\x02k\x07\x00\x00"),
        "value: lines[0]['k']: a boolean is the byte 07",
    ),
    "wrong json type": (framed(JSON_ID, b'{"id":"x"}'), 'value: id: "x" is not of type "integer"'),
    "missing json property": (
        framed(JSON_ID, b'{"id":1,"lines":[{"sku":1},{}]}'),
        'value: lines[1]: "sku" is a required property',
    ),
    "json that does not parse": (framed(JSON_ID, b'{"id":1'), "value: the value is not JSON: "),
    "json beside json": (framed(JSON_ID, b'{"id":1} {"id":1}'), "value: the value is not JSON: Extra data"),
    "not a number": (
        framed(JSON_ID, b'{"id":NaN}'),
        "value: the value is not JSON: NaN is no number of JSON",
    ),
    "json of a thousand levels": (framed(JSON_ID, b"[" * 10_000), "value: the value nests too deeply"),
    "protobuf wire type": (
        framed(PROTOBUF_ID, b"\x0d\x01\x02\x03\x04", [0]),
        "value: id: its wire type is 32 bits; expected varint",
    ),
    "protobuf wire type inside": (
        framed(PROTOBUF_ID, b"\x1a\x02\x0a\x00", [0]),
        "value: lines.paid: its wire type is length and bytes; expected varint",
    ),
    "protobuf message index": (
        framed(PROTOBUF_ID, b"", [7]),
        "value: the message indexes are [7]; the schema has no such message",
    ),
    "protobuf indexes cut": (
        framed(PROTOBUF_ID, b"\x04\x00"),
        "value: the value ends inside its message indexes",
    ),
    "truncated protobuf": (
        framed(PROTOBUF_ID, b"\x12\x05ab", [0]),
        "value: note: it has 5 bytes; 2 are left",
    ),
}


@pytest.mark.parametrize("kind", INVALID)
def test_invalid_values_are_named(registry: Registry, kind: str) -> None:
    value, expected = INVALID[kind]

    findings = found(registry, None, value)

    assert [1] == list(findings.faults)
    assert findings.faults[1].startswith(expected)
    assert not findings.wanted


GOOD = (
    framed(AVRO_ID, GOOD_AVRO),
    framed(AVRO_ID, b"\x02\x00\x02\x01\x0c\x01\x06\x02k\x01\x00\x00"),  # blocks that say their size
    framed(JSON_ID, b' {"id": 1}\n'),
    framed(PROTOBUF_ID, b"\x08\x01\x1a\x02\x08\x01", [0]),
    framed(PROTOBUF_ID, b"\x08\x01", [0, 0]),
    framed(PROTOBUF_ID, b"\x98\x06\x01", [0]),  # a field of a later version
    None,
)


def test_valid_values_of_all_formats_pass_together(registry: Registry) -> None:
    assert Findings() == found(registry, *GOOD)


def test_fields_of_messages_may_have_the_names_of_methods() -> None:
    names = ("IsInitialized", "ByteSize", "DiscardUnknownFields", "ParseFromString")
    fields = "".join(f"optional int32 {name} = {number};" for number, name in enumerate(names, 1))
    check = make_check("PROTOBUF", f'syntax = "proto2"; message M {{ {fields} }}', {})
    assert [] == check.check([framed(PROTOBUF_ID, b"\x08\x01", [0])])
    ((index, _),) = check.check([framed(PROTOBUF_ID, b"\x0d\x01\x02\x03\x04", [0])])
    assert 0 == index


def test_faults_keep_their_places(registry: Registry) -> None:
    values = [*GOOD, b"", *GOOD, framed(AVRO_ID, b"")]

    findings = found(registry, *values)

    assert [len(GOOD), len(values) - 1] == sorted(findings.faults)


def test_the_mode_id_does_not_look_at_payloads(registry: Registry) -> None:
    assert Findings() == found(registry, framed(AVRO_ID, b"anything"), mode="id")


def test_what_nobody_denied_must_be_looked_up(registry: Registry) -> None:
    """A schema may have been registered, or got another subject, since the registry was asked."""
    assert Findings({}, {(50, "")}) == found(registry, framed(50, b""))
    assert Findings({}, {(FOREIGN_ID, "orders-key")}) == found(registry, framed(FOREIGN_ID, b""), is_key=True)


@pytest.mark.parametrize(
    ("strategy", "value", "expected"),
    [
        ("record", framed(AVRO_ID, GOOD_AVRO), set()),
        ("topic_record", framed(AVRO_ID, GOOD_AVRO), set()),
        ("record", framed(JSON_ID, b'{"id":1}'), set()),
        ("record", framed(PROTOBUF_ID, b"\x08\x01", [0]), set()),
        ("record", framed(PROTOBUF_ID, b"", [1]), {(PROTOBUF_ID, "shop.Other")}),
        ("topic_record", framed(PROTOBUF_ID, b"", [1]), {(PROTOBUF_ID, "orders-shop.Other")}),
    ],
)
def test_subjects_follow_the_strategy(
    registry: Registry, strategy: str, value: bytes, expected: set[Wanted]
) -> None:
    assert Findings({}, expected) == found(registry, value, strategy=strategy)


def test_schemas_without_a_name_have_no_subject(registry: Registry) -> None:
    registry.schemas[9] = KnownSchema(9, frozenset({"x"}), make_check("AVRO", '"string"', {}))

    findings = found(registry, framed(9, b"\x00"), strategy="record")

    assert "value: its schema has no record name, which the strategy record needs" == findings.faults[0]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("AVRO", "{", "the Avro schema is no JSON"),
        ("AVRO", '{"type": "record", "name": "a"}', "the type 'a' of the Avro schema is malformed"),
        ("AVRO", '["null", "Missing"]', "the Avro schema uses the type 'Missing', which is not defined"),
        ("JSON", "{", "the JSON schema is no JSON"),
        ("JSON", '{"type": 5}', "the JSON schema cannot be used"),
        ("JSON", '{"$ref": "http://127.0.0.1:1/other"}', "no schema is registered under the name"),
        ("PROTOBUF", "message {", "the Protobuf schema does not compile"),
        ("XML", "", "it is of the type 'XML'; AVRO, JSON and PROTOBUF are known"),
    ],
)
def test_unusable_schemas_say_why(kind: str, text: str, expected: str) -> None:
    with pytest.raises(UnusableSchemaError) as raised:
        make_check(kind, text, {})

    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "text", "dependencies", "value"),
    [
        (
            "AVRO",
            '{"type": "record", "name": "B", "fields": [{"name": "a", "type": "x.A"}]}',
            {"x.A": '{"type": "fixed", "namespace": "x", "name": "A", "size": 2}'},
            b"ab",
        ),
        (
            "JSON",
            '{"properties": {"a": {"$ref": "a.json"}}}',
            {"a.json": '{"type": "string"}'},
            b'{"a": "x"}',
        ),
        (
            "JSON",
            '{"$id": "http://shop.invalid/b.json", "properties": {"a": {"$ref": "a.json"}}}',
            {"a.json": '{"type": "string"}'},
            b'{"a": "x"}',
        ),
        (
            "PROTOBUF",
            'syntax = "proto3"; import "a.proto"; message B { A a = 1; }',
            {"a.proto": 'syntax = "proto3"; message A { bool x = 1; }'},
            b"\x00\x0a\x02\x08\x01",
        ),
    ],
)
def test_references_are_used(kind: str, text: str, dependencies: dict[str, str], value: bytes) -> None:
    check = make_check(kind, text, dependencies)

    assert [] == check.check([framed(1, value)])
    assert [0] == [index for index, _ in check.check([framed(1, value[:-1])])]


def test_recursive_avro_nests_no_deeper_than_the_limit() -> None:
    text = '{"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}'
    check = make_check("AVRO", text, {})

    assert [] == check.check([framed(1, b"\x02" * 50 + b"\x00")])
    ((_, error),) = check.check([framed(1, b"\x02" * 100_000 + b"\x00")])
    assert "nests deeper than" in str(error)


def test_items_without_bytes_are_bounded() -> None:
    """The count of an array of nulls is the only bound of a loop over them."""
    check = make_check("AVRO", '{"type": "array", "items": "null"}', {})

    assert [] == check.check([framed(1, b"\x06\x00")])
    ((_, error),) = check.check([framed(1, b"\xfe\xff\xff\xff\xff\xff\xff\x7f\x00")])
    assert "items, and 1 bytes are left" in str(error)
