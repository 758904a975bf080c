"""What is a Protobuf schema, the text that a registry stores of it, and its normal form."""

import base64
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.model import ParsedSchema, Reference, Schema, SchemaType
from kalda.schemas.parsing import parse
from kalda.schemas.protobuf.parsing import ProtobufSchema

P3 = 'syntax = "proto3";\n'


def proto(text: str, *, is_new: bool = True) -> ParsedSchema:
    return parse(Schema(SchemaType.PROTOBUF, text), is_new=is_new)


ALL = """// comment
syntax = "proto3"; package a.b; import "google/protobuf/timestamp.proto"; import public "x.proto";
option java_package = "x\\ty"; option (confluent.file_meta).doc = "q";
option (confluent.file_meta).tags = "z";
message M { reserved 4, 5 to 7, 9 to max; reserved "q"; option deprecated = true; /* hi */;
  oneof one { int32 i = 10; google.protobuf.Timestamp t = 11; }
  optional string s = 1 [json_name="S", deprecated=true]; N . O n = 2; map < string , N > m = 3;
  enum E { B = 1; A = 0; } E e = 12; }
enum Z { option allow_alias = true; Z0 = 0; Z1 = 0; }
message N { message O { bytes b = 0x1; } }
service S { rpc R (M) returns (stream N) { option deprecated = true; } rpc Q (stream M) returns (N); }
extend google.protobuf.FieldOptions { string tag = 50001; }
"""
CANONICAL = """syntax = "proto3";
package a.b;

import "google/protobuf/timestamp.proto";
import public "x.proto";

option java_package = "x\\ty";
option (confluent.file_meta).doc = "q";
option (confluent.file_meta).tags = "z";

message M {
  reserved 4, 5 to 7, 9 to max;
  reserved "q";

  option deprecated = true;

  optional string s = 1 [
    deprecated = true,
    json_name = "S"
  ];
  N.O n = 2;
  map<string, N> m = 3;
  E e = 12;

  oneof one {
    int32 i = 10;
    google.protobuf.Timestamp t = 11;
  }

  enum E {
    B = 1;
    A = 0;
  }
}
message N {
  message O {
    bytes b = 1;
  }
}
enum Z {
  option allow_alias = true;
  Z0 = 0;
  Z1 = 0;
}

extend google.protobuf.FieldOptions {
  string tag = 50001;
}

service S {
  rpc R (M) returns (stream N) {
    option deprecated = true;
  };
  rpc Q (stream M) returns (N);
}
"""
NORMAL = """syntax = "proto3";
package a.b;

import "google/protobuf/timestamp.proto";
import public "x.proto";

option (confluent.file_meta) = {
  doc: "q",
  tags: "z"
};
option java_package = "x\\ty";

message M {
  reserved 4;
  reserved 5 to 7;
  reserved 9 to max;
  reserved "q";

  option deprecated = true;

  optional string s = 1 [
    deprecated = true,
    json_name = "S"
  ];
  .a.b.N.O n = 2;
  map<string, .a.b.N> m = 3;
  .a.b.M.E e = 12;

  oneof one {
    int32 i = 10;
    .google.protobuf.Timestamp t = 11;
  }

  enum E {
    A = 0;
    B = 1;
  }
}
message N {
  message O {
    bytes b = 1;
  }
}
enum Z {
  option allow_alias = true;
  Z0 = 0;
  Z1 = 0;
}

extend .google.protobuf.FieldOptions {
  string tag = 50001;
}

service S {
  rpc R (.a.b.M) returns (stream .a.b.N) {
    option deprecated = true;
  };
  rpc Q (stream .a.b.M) returns (.a.b.N);
}
"""


def test_the_canonical_text_has_confluents_form() -> None:
    parsed = proto(ALL, is_new=False)
    assert CANONICAL == parsed.canonical()
    assert CANONICAL == proto(CANONICAL, is_new=False).canonical()
    assert "a.b.M" == parsed.name


def test_the_normal_form_has_full_names_in_order() -> None:
    assert NORMAL == proto(ALL, is_new=False).normalized()
    assert NORMAL == proto(NORMAL, is_new=False).normalized()


def test_extensions_can_be_left_out() -> None:
    text = proto(ALL, is_new=False).formatted("ignore_extensions")
    assert "extend" not in text
    assert "confluent.file_meta" in text


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (";;", ""),
        (P3 + "message M {}", P3 + "\nmessage M {}\n"),
        ('package a;', "package a;\n"),
        (
            "message M { optional group G = 1 { optional int32 x = 1; } }",
            "\nmessage M {\n  optional group G = 1 {\n    optional int32 x = 1;\n  }\n}\n",
        ),
        (
            "message M {extensions 100 to 199, 500; optional double d = 1 [default = -1e-5, packed=true]; }",
            ("\nmessage M {\n  optional double d = 1 [\n    packed = true,\n    default = -1e-5\n  ];\n\n"
            "  extensions 100 to 199, 500;\n}\n"),
        ),
        (
            'message M { optional string d = 1 [default = "a\\"b" \'c\']; }',
            '\nmessage M {\n  optional string d = 1 [default = "a\\"bc"];\n}\n',
        ),
        (
            P3 + 'message M { string s = 1 [(a.b).c.(d.e) = { x: 1, y { z: [true, A] } w: "q" w: "r" }]; }',
            P3 + "\nmessage M {\n  string s = 1 [(a.b).c.(d.e) = {\n    x: 1,\n    y: {\n      z: [\n"
            '        true,\n        A\n      ]\n    },\n    w: [\n      "q",\n      "r"\n    ]\n  }];\n}\n',
        ),
        ("enum E {}", "\nenum E {}\n"),
        ("message M { message I { message J {} } }",
         "\nmessage M {\n  message I {\n    message J {}\n  }\n}\n"),
    ],
)  # fmt: skip
def test_more_canonical_texts(text: str, canonical: str) -> None:
    assert canonical == proto(text, is_new=False).canonical()
    assert canonical == proto(canonical, is_new=False).canonical()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("xx", "Syntax error in :1:1: unexpected label: xx"),
        ("message M {\n  string a = 1;\n}", "Syntax error in :2:3: unexpected label: string"),
        (P3 + "message M { required int32 a = 1; }", "'required' label forbidden in proto3"),
        (P3 + "message M { string a 1; }", "expected '=' but was '1'"),
        (P3 + "message M { string a = x; }", "expected an integer but was x"),
        (P3 + "message M { string a = 99999999999; }", "expected an integer but was 99999999999"),
        (P3 + "message M { string 1a = 1; }", "cannot start with a digit"),
        (P3 + "message M { string a = 1", "unexpected end of file"),
        (P3 + "message M { map<Foo, int32> a = 1; }", "Could not resolve type: Foo"),
        (P3 + "message M { map<bytes, int32> a = 1; }", "map key must be non-byte"),
        (P3 + "message M { repeated map<int32, int32> a = 1; }", "'map' type cannot have label"),
        (P3 + "message M { reserved 5 to 4; }", "the range 5 to 4 ends before it starts"),
        (P3 + "message M {} message M {}", "M is already defined"),
        (P3 + "service S {} service T {} service S {}", "S is already defined"),
        (P3 + "message M{" * 60 + "message N{} message O{int32 a=1;}" * 5_000 + "}" * 60, "with its lines"),
        (P3 + "message M { X a = 1; }", "Could not resolve type: X"),
        (P3 + "message M {} service S { rpc R (X) returns (M); }", "Could not resolve type: X"),
        ('syntax = "proto4";', "unexpected syntax: proto4"),
        ('package a; syntax = "proto3";', "'syntax' element must be the first declaration in a file"),
        ('edition = "2023";', "edition is not currently supported"),
        ('option a = "x', "unterminated string"),
        ("message M { /* x", "unterminated comment"),
        (P3 + "message M { string a = 1; int32 b = 1; }", "not consistent: duplicate field number (1)"),
        (P3 + "message M { string a = 1; int32 a = 2; }", "not consistent: duplicate field name (a)"),
        (P3 + "message M { string a = 0; }", "invalid field number (0)"),
        (P3 + "enum E { A = 1; }", "the first value must be zero"),
        (P3 + "message M {" * 100, "messages nest deeper than 64"),
        (P3 + "option (x) = " + "{a:" * 100, "options nest deeper than 64"),
        (P3 + "message M { string a = 1 [json_name = '\ud800']; }", "half of a surrogate pair"),
        (P3 + f"package {'a.' * 100}a; message M {{}}", "more than 100 parts between dots"),
        (P3 + f"message {'M' * 2_000} {{}}", "has more than 1000 characters"),
        (P3 + f"message {'M' * 900} {{ message {'N' * 200} {{}} }}", "has more than 1000 characters"),
        ("AAAA", "it is no FileDescriptorProto"),
    ],
)  # fmt: skip
def test_a_bad_schema_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchemaError) as caught:
        proto(text)
    assert reason in caught.value.reason


@pytest.mark.parametrize("path", ["/etc/passwd", "../../etc/passwd", "x.proto"])
def test_an_import_reads_no_file(path: str) -> None:
    """What defines only options may be missing, as in Confluent's registry."""
    assert f'import "{path}";' in proto(f'{P3} import "{path}"; message M {{}}').canonical()


def test_a_serialized_descriptor_is_read_and_written() -> None:
    text = (
        P3
        + 'package p; import "google/protobuf/timestamp.proto"; message M { map<int32, M> m = 1; '
        + ("oneof o { string s = 2; google.protobuf.Timestamp t = 3; } optional E e = 4; enum E { A = 0; } }")
    )
    serialized = proto(text).formatted("serialized")
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized))
    assert ["google/protobuf/timestamp.proto"] == list(file.dependency)
    assert ["o", "_e"] == [each.name for each in file.message_type[0].oneof_decl]
    read = proto(serialized)
    assert proto(text).normalized() == read.normalized()
    assert "map_entry = true" in read.canonical()


META = """syntax = "proto3";

option (confluent.file_meta) = {
  doc: "d"
};

message M {
  bytes a = 1 [(confluent.field_meta) = {
    params: [
      {
        value: "9",
        key: "precision"
      },
      {
        key: "k",
        value: "v"
      }
    ],
    tags: [
      "PII",
      "x"
    ],
    rules: [
      {
        name: "r",
        expr: "true"
      }
    ]
  }];
}
"""


@pytest.mark.parametrize(
    ("found", "put"), [(b"first", b"f\xffrst"), (b"first", b"f rst"), (b"x.proto", b'x"proto')]
)
def test_a_descriptor_with_names_that_are_none_is_refused(found: bytes, put: bytes) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", syntax="proto3", dependency=["x.proto"])
    file.message_type.add(name="M").field.add(name="first", number=1, type=9, label=1)
    data = file.SerializeToString()
    assert "string first = 1;" in proto(base64.b64encode(data).decode()).canonical()
    with pytest.raises(InvalidSchemaError, match="Could not parse Protobuf"):
        proto(base64.b64encode(data.replace(found, put)).decode())


def test_confluents_options_are_in_descriptors() -> None:
    assert META == proto(META).canonical()
    assert META == proto(proto(META).formatted("serialized")).canonical()


def test_confluents_options_are_read_where_their_classes_are_loaded() -> None:
    pytest.importorskip("confluent_kafka.schema_registry.protobuf")
    assert META == proto(proto(META).formatted("serialized")).canonical()


def test_the_descriptor_set_is_what_payloads_need() -> None:
    schema = Schema(
        SchemaType.PROTOBUF,
        P3 + 'package p; import "n.proto"; message M { q.N n = 1; google.protobuf.Timestamp t = 2; }',
        (Reference("n.proto", "n", 1),),
    )
    parsed = parse(schema, {"n.proto": P3 + "package q; message N { int32 x = 1; }"})
    assert isinstance(parsed, ProtobufSchema)
    files = descriptor_pb2.FileDescriptorSet.FromString(parsed.descriptor_set()).file
    assert ["n.proto", "google/protobuf/timestamp.proto", "default"] == [each.name for each in files]
    pool = descriptor_pool.DescriptorPool()
    for each in files:
        pool.Add(each)
    fields = pool.FindMessageTypeByName("p.M").fields_by_name
    assert "q.N" == fields["n"].message_type.full_name
    assert timestamp_pb2.DESCRIPTOR.message_types_by_name["Timestamp"].full_name == (
        fields["t"].message_type.full_name
    )


def test_a_file_with_one_public_import_stands_for_it() -> None:
    text = P3 + 'import public "n.proto";'
    schema = Schema(SchemaType.PROTOBUF, text, (Reference("n.proto", "n", 1),))
    assert "q.N" == parse(schema, {"n.proto": P3 + "package q; message N {}"}).name


ORDERED = """
syntax = "proto3";
package shop;
message Order {
  int64 id = 1;
  message First { string z = 1; }
  map<string, First> first_items = 2;
  oneof kind { string word = 3; int32 number = 4; }
  optional string name = 5;
  message Last { map<int32, bool> flags = 1; int32 n = 2; }
  repeated Last lasts = 6;
}
"""


def test_descriptors_are_in_the_order_of_protoc(tmp_path: Path) -> None:
    """Message indexes in values count inner messages, those of maps included, and columns are fields."""
    protoc = pytest.importorskip("grpc_tools.protoc")
    from google.protobuf import descriptor_pb2

    (tmp_path / "order.proto").write_text(ORDERED)
    out = tmp_path / "out"
    assert 0 == protoc.main(["protoc", f"-I{tmp_path}", f"--descriptor_set_out={out}", "order.proto"])
    theirs = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
    parsed = proto(ORDERED)
    assert isinstance(parsed, ProtobufSchema)
    ours = descriptor_pb2.FileDescriptorSet.FromString(parsed.descriptor_set()).file[-1]

    def plain(file: descriptor_pb2.FileDescriptorProto) -> str:
        text = [line for line in str(file).splitlines() if "json_name" not in line and line[:5] != "name:"]
        return "\n".join(text)

    assert plain(theirs) == plain(ours)


def test_many_services_are_read_in_one_pass() -> None:
    """40 s for 300 KB: each name was compared with all before it."""
    text = P3 + "".join(f"service S{number} {{}}" for number in range(20_000))

    assert 20_000 == proto(text).canonical().count("service S")
