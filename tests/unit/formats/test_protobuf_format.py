"""Decoding of Protobuf messages."""

import base64
import pickle
import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("grpc_tools")

from kalda.formats import EncodeError, FormatError, FormatSpec, open_decoder, open_encoder
from kalda.formats.protobuf_format import _indexes
from kalda.formats.protobuf_schema import ProtobufSchema, compile_proto

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Order {
  int64 id = 1;
  optional string name = 2;
  double x = 3;
  repeated int32 tags = 4;
  map<string, Item> items = 5;
  enum Color { RED = 0; BLUE = 1; }
  Color color = 6;
  google.protobuf.Timestamp at = 7;
  Item item = 8;
  google.protobuf.Int64Value wrapped = 9;
  uint64 big = 10;
  bytes raw = 11;
  oneof kind { string word = 12; int32 number = 13; }
  message Item { string z = 1; }
}
message Other { int32 a = 1; }
"""
ROW: dict[str, object] = {
    "id": -5,
    "name": "",
    "x": 1.5,
    "tags": [1, 2],
    "items": [("k", {"z": "q"})],
    "color": "BLUE",
    "at": datetime(2026, 1, 1, 0, 0, 0, 5, UTC),
    "item": {"z": "é"},
    "wrapped": 0,
    "big": Decimal(2**64 - 1),
    "raw": b"\xff",
    "word": None,
    "number": 0,
}
EMPTY: dict[str, object] = {
    "id": 0,
    "name": None,
    "x": 0.0,
    "tags": [],
    "items": [],
    "color": "RED",
    "at": None,
    "item": None,
    "wrapped": None,
    "big": Decimal(0),
    "raw": b"",
    "word": None,
    "number": None,
}


@pytest.fixture(scope="module")
def descriptors() -> str:
    """The compiled schema as the text of a spec."""
    return "base64:" + base64.b64encode(compile_proto(PROTO)).decode()


def test_messages_are_rows(descriptors: str) -> None:
    """Fields with presence are null when unset, others have their default."""
    decoder = pickle.loads(pickle.dumps(open_decoder(FormatSpec("protobuf", descriptors))))
    rows = pa.array([ROW, None, EMPTY], pa.struct(list(decoder.schema())))
    encoder = pickle.loads(pickle.dumps(open_encoder(FormatSpec("protobuf", descriptors), decoder.schema())))

    values = encoder.encode(rows)
    decoded = decoder.decode(values)

    assert b"" == values[2].as_py()
    assert [ROW, None, EMPTY] == decoded.columns.to_pylist()


def test_broken_messages_are_named(descriptors: str) -> None:
    """Fuzz: whatever the bytes, the other rows keep their place."""
    decoder = open_decoder(FormatSpec("protobuf", descriptors))
    schema = decoder.schema()
    assert schema is not None
    good = (
        open_encoder(FormatSpec("protobuf", descriptors), schema)
        .encode(pa.array([ROW], pa.struct(list(schema))))[0]
        .as_py()
    )
    rng = random.Random(2)
    for _ in range(50):
        values = [good, bytes(rng.randrange(256) for _ in range(rng.randrange(30))), good, good[:-1]]
        decoded = decoder.decode(pa.array(values, pa.binary()))
        assert 4 == len(decoded.columns)
        assert [ROW, ROW] == [decoded.columns[0].as_py(), decoded.columns[2].as_py()]
        assert {failure.row for failure in decoded.errors} <= {1, 3}
        assert 3 in {failure.row for failure in decoded.errors}


def test_a_message_is_chosen_by_name_or_by_the_indexes_of_the_framing(descriptors: str) -> None:
    schema = ProtobufSchema(base64.b64decode(descriptors.removeprefix("base64:")))
    other = open_decoder(FormatSpec("protobuf", descriptors, options={"message": "shop.Other"})).schema()

    assert other is not None
    assert ["a"] == other.names
    assert "shop.Other" == schema.message_at([1]).full_name
    assert "shop.Order.Item" == schema.message_at([0, 1]).full_name
    head = b"\0\0\0\0\1"
    assert ((0,), 6) == _indexes(head + b"\0xyz")
    assert ((1,), 7) == _indexes(head + b"\x02\x02xyz")
    assert ((0, 1), 8) == _indexes(head + b"\x04\x00\x02xyz")
    assert [None, None, None] == [_indexes(head + tail) for tail in (b"", b"\x04\x00", b"\xff" * 9)]


def test_a_compiled_schema_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "order.desc"
    file.write_bytes(compile_proto(PROTO))

    schema = open_decoder(FormatSpec("protobuf", schema_file=str(file))).schema()

    assert schema is not None
    assert ROW.keys() == set(schema.names)


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (None, {}, "needs a schema"),
        (
            "message {",
            {},
            "does not compile: Could not parse Protobuf - Syntax error in :1:9: expected",
        ),
        ('syntax = "proto3";', {}, "no message"),
        ("base64:!", {}, "not base64"),
        ('syntax = "proto3"; message R { R r = 1; }', {}, "contains itself"),
        ('syntax = "proto3"; message R {}', {"message": "S"}, "no message 'S'; it has R"),
    ],
)
def test_wrong_schemas_are_refused(schema: str | None, options: dict[str, str], message: str) -> None:
    with pytest.raises(FormatError) as caught:
        open_decoder(FormatSpec("protobuf", schema, options=options))

    assert message in str(caught.value)


OLD = """
syntax = "proto2";
message A {
  required int32 id = 1;
  optional State state = 2;
  enum State { option allow_alias = true; NEW = 0; CREATED = 0; OLD = 1; }
  repeated B parts = 3;
  message B { required string name = 1; }
}
"""


def test_a_message_without_a_required_field_is_bad() -> None:
    """Parsers of Java and C++ refuse it; here the field would be null in silence."""
    decoded = open_decoder(FormatSpec("protobuf", OLD)).decode(
        pa.array([b"\x08\x01", b"", b"\x08\x01\x1a\x00", b"\x08\x02\x1a\x02\x0a\x00"], pa.binary())
    )

    assert [1, 2] == [failure.row for failure in decoded.errors]
    assert "required fields are missing: parts[0].name" == decoded.errors[1].message
    assert [1, 2] == [row["id"] for row in decoded.columns.to_pylist() if row is not None]


def test_fields_may_have_the_names_of_methods() -> None:
    names = ("HasField", "ListFields", "IsInitialized", "SerializeToString", "DESCRIPTOR", "ByteSize")
    fields = "".join(f"optional int32 {name} = {number};" for number, name in enumerate(names, 1))
    proto = f'syntax = "proto2"; message M {{ {fields} }}'
    spec = FormatSpec("protobuf", "base64:" + base64.b64encode(compile_proto(proto)).decode())
    decoder = open_decoder(spec)
    decoded = decoder.decode(pa.array([b"\x08\x05"], pa.binary()))
    assert not decoded.errors
    assert {**dict.fromkeys(names), "HasField": 5} == decoded.columns[0].as_py()
    encoder = open_encoder(spec, decoder.schema())
    rows = pa.array([dict.fromkeys(names, 3)], pa.struct([(name, pa.int32()) for name in names]))
    assert rows.to_pylist() == decoder.decode(encoder.encode(rows)).columns.to_pylist()


def test_of_several_names_of_a_number_the_first_one_counts() -> None:
    decoded = open_decoder(FormatSpec("protobuf", OLD)).decode(pa.array([b"\x08\x01\x10\x00"], pa.binary()))

    assert "NEW" == decoded.columns[0].as_py()["state"]


PART = pa.struct([("name", pa.string())])


@pytest.mark.parametrize(
    "row", [{"id": None, "parts": []}, {"id": 1, "parts": [None]}, {"id": 1, "parts": [{"name": None}]}]
)
def test_a_row_that_is_no_message_is_refused_by_itself(row: dict[str, object]) -> None:
    """Any other error would stop the pipeline instead of making a dead letter."""
    columns = pa.schema([("id", pa.int32()), ("parts", pa.list_(PART))])
    encoder = open_encoder(FormatSpec("protobuf", OLD), columns)

    with pytest.raises(EncodeError, match="row 1 does not fit the Protobuf message"):
        encoder.encode(pa.array([{"id": 1, "parts": [{"name": "x"}]}, row], pa.struct(list(columns))))


CLOSED = """
syntax = "proto2";
message M {
  optional E single = 1;
  repeated E listed = 2;
  repeated E packed = 3 [packed = true];
  map<string, E> mapped = 4;
  optional N inner = 5;
  repeated N inners = 6;
  map<string, N> named = 7;
  oneof one { E chosen = 8; int32 number = 9; }
  optional string text = 10;
  optional google.protobuf.Timestamp at = 11;
  enum E { A = 0; B = 1; }
  message N { optional E e = 1; }
}
"""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"\x08\x07", "M.single has the number 7, which its enum lacks"),
        (b"\x08\x01\x08\x07", "M.single has the number 7, which its enum lacks"),
        (b"\x10\x01\x10\x07", "M.listed has the number 7, which its enum lacks"),
        (b"\x1a\x02\x01\x07", "M.packed has the number 7, which its enum lacks"),
        (b"\x22\x05\x0a\x01k\x10\x07", "M.mapped has bytes of another type, or a number that its enum lacks"),
        (b"\x2a\x02\x08\x07", "M.N.e has the number 7, which its enum lacks"),
        (b"\x32\x02\x08\x01\x32\x02\x08\x07", "M.N.e has the number 7, which its enum lacks"),
        (b"\x3a\x07\x0a\x01k\x12\x02\x08\x07", "M.N.e has the number 7, which its enum lacks"),
        (b"\x40\x07", "M.chosen has the number 7, which its enum lacks"),
        (b"\x50\x05", "M.text has bytes of another type, or a number that its enum lacks"),
        (b"\x5a\x02\x0a\x00", "Timestamp.seconds has bytes of another type, or a number that its enum lacks"),
        (b"\x08\x01\x60\x07", None),  # a field that the schema does not have
    ],
)
def test_what_a_field_of_the_schema_cannot_hold_is_bad(value: bytes, message: str | None) -> None:
    """The parser puts it among the unknown fields: the column would be null, the list shorter, in silence."""
    proto = CLOSED.replace("message M", 'import "google/protobuf/timestamp.proto";\nmessage M', 1)
    decoder = open_decoder(
        FormatSpec("protobuf", "base64:" + base64.b64encode(compile_proto(proto)).decode())
    )

    decoded = decoder.decode(pa.array([b"\x08\x01", value], pa.binary()))

    assert ([] if message is None else [(1, "TypeMismatch")]) == [
        (each.row, each.error_class) for each in decoded.errors
    ]
    if message is not None:
        assert message in decoded.errors[0].message
    assert "B" == decoded.columns[0].as_py()["single"]
