"""Pairs of Protobuf schemas, by the rules that Confluent's registry documents for changes of messages."""

from tests.schema_pairs import Pair

KIND, SCALAR, NAMED = "FIELD_KIND_CHANGED", "FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"
LABEL, REMOVED, PACKAGE = "FIELD_NUMERIC_LABEL_CHANGED", "MESSAGE_REMOVED", "PACKAGE_CHANGED"
ADDED_REQUIRED, REMOVED_REQUIRED = "REQUIRED_FIELD_ADDED", "REQUIRED_FIELD_REMOVED"
LOST_MEMBER, MOVED, MOVED_MANY = (
    "ONEOF_FIELD_REMOVED",
    "FIELD_MOVED_TO_EXISTING_ONEOF",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF",
)
GROUPS = (
    ("int32", "int64", "uint32", "uint64", "bool"),
    ("sint32", "sint64"),
    ("string", "bytes"),
    ("fixed32", "sfixed32"),
    ("fixed64", "sfixed64"),
    ("float",),
    ("double",),
)
GROUP_OF = {kind: group for group in GROUPS for kind in group}
OTHER = "message O { string x = 1; }"
MORE = f"{OTHER} enum E {{ Z = 0; Y = 1; }}"


def proto3(text: str) -> str:
    return f'syntax = "proto3"; {text}'


def message(body: str, more: str = MORE) -> str:
    return proto3(f"message M {{ {body} }} {more}")


def message2(body: str) -> str:
    return f'syntax = "proto2"; message M {{ {body} }}'


def field(
    name: str, old: str, new: str, backward: tuple[str, ...] = (), forward: tuple[str, ...] = ()
) -> Pair:
    return Pair(name, message(old), message(new), backward, forward)


SCALAR_PAIRS = [
    field(
        f"{old} becomes {new}", f"{old} a = 1;", f"{new} a = 1;", *(() if is_same else ((SCALAR,), (SCALAR,)))
    )
    for old in GROUP_OF
    for new in GROUP_OF
    for is_same in [GROUP_OF[old] == GROUP_OF[new]]
]
BOTH = ((KIND,), (KIND,))
TYPE_PAIRS = [
    field("int32 becomes an enum", "int32 a = 1;", "E a = 1;"),
    field("bool becomes an enum", "bool a = 1;", "E a = 1;"),
    field("sint32 becomes an enum", "sint32 a = 1;", "E a = 1;", (SCALAR,), (SCALAR,)),
    field("an enum becomes string", "E a = 1;", "string a = 1;", (SCALAR,), (SCALAR,)),
    field("string becomes a message", "string a = 1;", "O a = 1;", *BOTH),
    field("bytes becomes a message", "bytes a = 1;", "O a = 1;", *BOTH),
    field("an enum field becomes a message", "E a = 1;", "O a = 1;", *BOTH),
    field("a message becomes a map", "O a = 1;", "map<string, string> a = 1;", *BOTH),
    field("a string becomes a map", "string a = 1;", "map<string, string> a = 1;", *BOTH),
    field("a map's value changes within its group", "map<string, int32> a = 1;", "map<string, int64> a = 1;"),
    field(
        "a map's value changes",
        "map<string, int32> a = 1;",
        "map<string, double> a = 1;",
        (SCALAR,),
        (SCALAR,),
    ),
    field(
        "a map's key changes", "map<string, int32> a = 1;", "map<int32, int32> a = 1;", (SCALAR,), (SCALAR,)
    ),
    field(
        "a map's key and value change",
        "map<string, int32> a = 1;",
        "map<int32, string> a = 1;",
        (SCALAR,) * 2,
        (SCALAR,) * 2,
    ),
    field("a map's value becomes a message", "map<string, int32> a = 1;", "map<string, O> a = 1;", *BOTH),
    field("a message by its full name", "O a = 1;", ".O a = 1;"),
    Pair(
        "a message of another name",
        message("O a = 1;"),
        message("P a = 1;", f"{MORE} message P {{ string x = 1; }}"),
        (NAMED,),
        (NAMED, REMOVED),
    ),
    Pair(
        "a message of another name, which both have",
        message("O a = 1;", "message O {} message P {}"),
        message("P a = 1;", "message O {} message P {}"),
        (NAMED,),
        (NAMED,),
    ),
    Pair(
        "a known type becomes another",
        proto3('import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp t = 1; }'),
        proto3('import "google/protobuf/duration.proto"; message M { google.protobuf.Duration t = 1; }'),
        (NAMED,),
        (NAMED,),
    ),
    Pair(
        "a known type becomes one's own of the same shape",
        proto3('import "google/protobuf/empty.proto"; message M { google.protobuf.Empty t = 1; }'),
        proto3("message Empty {} message M { Empty t = 1; }"),
        (),
        (REMOVED,),
    ),
]
FIELD_PAIRS = [
    field("nothing changes", "string a = 1;", "string a = 1;"),
    field("a field is added", "string a = 1;", "string a = 1; int32 b = 2;"),
    field("a field is removed", "string a = 1; O b = 2;", "string a = 1;"),
    field("all fields are removed", "string a = 1; O b = 2;", ""),
    field("a field is renamed", "string a = 1;", "string b = 1;"),
    field("a field gets another number", "string a = 1;", "string a = 2;"),
    field("fields swap numbers of one kind", "string a = 1; bytes b = 2;", "bytes b = 1; string a = 2;"),
    field(
        "fields swap numbers",
        "string a = 1; int32 b = 2;",
        "string a = 2; int32 b = 1;",
        (SCALAR,) * 2,
        (SCALAR,) * 2,
    ),
    field("a number is reused", "int32 a = 1;", "string z = 1;", (SCALAR,), (SCALAR,)),
    field("a removed number is reserved", "string a = 1; int32 b = 2;", "reserved 2; string a = 1;"),
    field("fields in another order", "string a = 1; int32 b = 2;", "int32 b = 2; string a = 1;"),
    field("an option is added", "string a = 1;", "string a = 1 [deprecated = true];"),
    field("a json name is added", "string a = 1;", 'string a = 1 [json_name = "z"];'),
    field("no label becomes optional", "int32 a = 1;", "optional int32 a = 1;"),
    field("no label becomes repeated", "int32 a = 1;", "repeated int32 a = 1;"),
    field(
        "an optional number becomes repeated",
        "optional int32 a = 1;",
        "repeated int32 a = 1;",
        (LABEL,),
        (LABEL,),
    ),
    field(
        "an optional double becomes repeated",
        "optional double a = 1;",
        "repeated double a = 1;",
        (LABEL,),
        (LABEL,),
    ),
    field("an optional enum becomes repeated", "optional E a = 1;", "repeated E a = 1;", (LABEL,), (LABEL,)),
    field("an optional text becomes repeated", "optional string a = 1;", "repeated string a = 1;"),
    field("optional bytes become repeated text", "optional bytes a = 1;", "repeated string a = 1;"),
    field("an optional message becomes repeated", "optional O a = 1;", "repeated O a = 1;"),
    field(
        "a repeated number changes its kind",
        "repeated int32 a = 1;",
        "repeated float a = 1;",
        (SCALAR,),
        (SCALAR,),
    ),
    Pair(
        "required is added",
        message2("optional int32 a = 1;"),
        message2("optional int32 a = 1; required int32 b = 2;"),
        (ADDED_REQUIRED,),
        (REMOVED_REQUIRED,),
    ),
    Pair(
        "required is removed",
        message2("required int32 a = 1;"),
        message2(""),
        (REMOVED_REQUIRED,),
        (ADDED_REQUIRED,),
    ),
    Pair(
        "required becomes optional",
        message2("required int32 a = 1;"),
        message2("optional int32 a = 1;"),
        (LABEL,),
        (LABEL,),
    ),
    Pair(
        "required text becomes optional",
        message2("required string a = 1;"),
        message2("optional string a = 1;"),
    ),
    Pair(
        "a default changes",
        message2("optional int32 a = 1 [default = 1];"),
        message2("optional int32 a = 1 [default = 2];"),
    ),
    Pair("the syntax changes", message2("optional int32 a = 1;"), message("int32 a = 1;", "")),
]
ONEOF_PAIRS = [
    field("a field moves into a new oneof", "string a = 1;", "oneof o { string a = 1; }"),
    field(
        "a field with a new one moves into a oneof",
        "string a = 1;",
        "oneof o { string a = 1; int32 b = 2; }",
        (),
        (LOST_MEMBER,),
    ),
    field(
        "two fields move into a oneof",
        "string a = 1; int32 b = 2;",
        "oneof o { string a = 1; int32 b = 2; }",
        (MOVED_MANY,),
    ),
    field(
        "three fields move into a oneof",
        "string a = 1; int32 b = 2; bool c = 3;",
        "bool c = 3; oneof o { string a = 1; int32 b = 2; }",
        (MOVED_MANY,),
    ),
    field(
        "a field moves into a known oneof",
        "string a = 1; oneof o { int32 b = 2; }",
        "oneof o { string a = 1; int32 b = 2; }",
        (MOVED,),
    ),
    field(
        "a oneof gets a field",
        "oneof o { int32 b = 2; }",
        "oneof o { int32 b = 2; int32 c = 3; }",
        (),
        (LOST_MEMBER,),
    ),
    field(
        "a oneof loses a field",
        "oneof o { int32 b = 2; int32 c = 3; }",
        "oneof o { int32 b = 2; }",
        (LOST_MEMBER,),
    ),
    field("a oneof is removed", "string z = 9; oneof o { int32 b = 2; int32 c = 3; }", "string z = 9;"),
    field(
        "a oneof is renamed", "oneof o { int32 b = 2; int32 c = 3; }", "oneof p { int32 b = 2; int32 c = 3; }"
    ),
    field(
        "a oneof is renamed and loses a field",
        "oneof o { int32 b = 2; int32 c = 3; }",
        "oneof p { int32 b = 2; }",
        (LOST_MEMBER,),
    ),
    field(
        "a member changes its kind",
        "oneof o { int32 b = 2; }",
        "oneof o { string b = 2; }",
        (SCALAR,),
        (SCALAR,),
    ),
    field(
        "a member changes its kind in a renamed oneof",
        "oneof o { int32 b = 2; }",
        "oneof p { string b = 2; }",
        (SCALAR,),
        (SCALAR,),
    ),
    field(
        "a member moves to the message",
        "oneof o { int32 b = 2; int32 c = 3; }",
        "int32 b = 2; oneof o { int32 c = 3; }",
        (),
        (MOVED,),
    ),
    field(
        "all members move to the message",
        "oneof o { int32 b = 2; int32 c = 3; }",
        "int32 b = 2; int32 c = 3;",
        (),
        (MOVED_MANY,),
    ),
    field(
        "a member moves to another oneof",
        "oneof o { int32 b = 2; int32 c = 3; } oneof p { int32 d = 4; }",
        "oneof o { int32 c = 3; } oneof p { int32 b = 2; int32 d = 4; }",
        (MOVED,),
        (MOVED,),
    ),
    field(
        "a member moves to a new oneof",
        "oneof o { int32 b = 2; int32 c = 3; }",
        "oneof o { int32 c = 3; } oneof p { int32 b = 2; }",
        (),
        (MOVED,),
    ),
    field(
        "two oneofs become one",
        "oneof o { int32 b = 2; } oneof p { int32 c = 3; }",
        "oneof q { int32 b = 2; int32 c = 3; }",
        (MOVED,),
    ),
]
FILE_PAIRS = [
    Pair(
        "a package is added", message(""), proto3(f"package a; message M {{}} {MORE}"), (PACKAGE,), (PACKAGE,)
    ),
    Pair(
        "the package changes",
        proto3("package a; message M {}"),
        proto3("package b; message M {}"),
        (PACKAGE,),
        (PACKAGE,),
    ),
    Pair(
        "the package changes, names in it too",
        proto3("package a; message M { .a.N n = 1; } message N {}"),
        proto3("package b; message M { N n = 1; } message N {}"),
        (PACKAGE,),
        (PACKAGE,),
    ),
    Pair("a message is added", message(""), message("", f"{MORE} message N {{}}"), (), (REMOVED,)),
    Pair("a message is removed", message(""), message("", "enum E { Z = 0; }"), (REMOVED,)),
    Pair("a message is renamed", proto3("message A {}"), proto3("message B {}"), (REMOVED,), (REMOVED,)),
    Pair(
        "messages in another order", proto3("message A {} message B {}"), proto3("message B {} message A {}")
    ),
    Pair("an enum is added", proto3("message A {}"), proto3("message A {} enum E { Z = 0; }")),
    Pair(
        "an enum becomes a message",
        proto3("message A {} enum E { Z = 0; }"),
        proto3("message A {} message E {}"),
        (),
        (REMOVED,),
    ),
    Pair(
        "a constant is added",
        message("E e = 1;"),
        message("E e = 1;", f"{OTHER} enum E {{ Z = 0; Y = 1; W = 2; }}"),
    ),
    Pair("a constant is removed", message("E e = 1;"), message("E e = 1;", f"{OTHER} enum E {{ Z = 0; }}")),
    Pair(
        "a constant is renamed",
        message("E e = 1;"),
        message("E e = 1;", f"{OTHER} enum E {{ Z = 0; X = 1; }}"),
    ),
    Pair(
        "a used message changes",
        message("O o = 1;"),
        message("O o = 1;", "message O { int32 x = 1; } enum E { Z = 0; }"),
        (SCALAR,),
        (SCALAR,),
    ),
    Pair(
        "a used message gets a field",
        message("O o = 1;"),
        message("O o = 1;", "message O { string x = 1; string y = 2; } enum E { Z = 0; }"),
    ),
    field("an inner message is added", "", "message I { string x = 1; }", (), (REMOVED,)),
    field(
        "an inner message changes",
        "message I { string x = 1; }",
        "message I { float x = 1; }",
        (SCALAR,),
        (SCALAR,),
    ),
    field("an inner message is removed, and another", "message I {} message J {}", "", (REMOVED,) * 2),
    field(
        "an inner message hides an outer one",
        "O o = 1;",
        "O o = 1; message O { string x = 1; }",
        (NAMED,),
        (NAMED, REMOVED),
    ),
    field("an inner enum is added", "int32 e = 1;", "F e = 1; enum F { ZERO = 0; }"),
    Pair(
        "a service is removed",
        proto3("message A {} service S { rpc R (A) returns (A); }"),
        proto3("message A {}"),
    ),
    Pair("a file option changes", proto3('option java_package = "a"; message A {}'), proto3("message A {}")),
    Pair(
        "a message contains itself",
        proto3("message A { A a = 1; }"),
        proto3("message A { A a = 1; int32 b = 2; }"),
    ),
    Pair(
        "a message contains itself and changes",
        proto3("message A { A a = 1; int32 b = 2; }"),
        proto3("message A { A a = 1; float b = 2; }"),
        (SCALAR,),
        (SCALAR,),
    ),
]

PAIRS = [*SCALAR_PAIRS, *TYPE_PAIRS, *FIELD_PAIRS, *ONEOF_PAIRS, *FILE_PAIRS]
