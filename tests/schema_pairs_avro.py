"""Pairs of Avro schemas, by the rules of schema resolution in Avro's specification."""

import json
from collections.abc import Mapping

from tests.schema_pairs import Pair

TYPE, BRANCH, DEFAULT = "TYPE_MISMATCH", "MISSING_UNION_BRANCH", "READER_FIELD_MISSING_DEFAULT_VALUE"
NAME, SYMBOLS, SIZE = "NAME_MISMATCH", "MISSING_ENUM_SYMBOLS", "FIXED_SIZE_MISMATCH"
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}

Json = object


def field(name: str, kind: Json, **more: Json) -> dict[str, Json]:
    return {"name": name, "type": kind, **more}


def record(*fields: Mapping[str, Json], name: str = "R", **more: Json) -> dict[str, Json]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def enum(*symbols: str, name: str = "E", **more: Json) -> dict[str, Json]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Json) -> dict[str, Json]:
    return {"type": "fixed", "name": name, "size": size, **more}


def pair(
    name: str, old: Json, new: Json, backward: tuple[str, ...] = (), forward: tuple[str, ...] = ()
) -> Pair:
    return Pair(name, json.dumps(old), json.dumps(new), backward, forward)


def _reads(reader: str, writer: str) -> tuple[str, ...]:
    return () if reader == writer or reader in PROMOTIONS.get(writer, ()) else (TYPE,)


PRIMITIVE_PAIRS = [
    pair(f"{old} becomes {new}", old, new, _reads(new, old), _reads(old, new))
    for old in PRIMITIVES
    for new in PRIMITIVES
]

# Of a type alone; each also stands in a field, an array and a map.
TYPES: list[tuple[str, Json, Json, tuple[str, ...], tuple[str, ...]]] = [
    ("int becomes long", "int", "long", (), (TYPE,)),
    ("double becomes float", "double", "float", (TYPE,), ()),
    ("string becomes bytes", "string", "bytes", (), ()),
    ("string becomes int", "string", "int", (TYPE,), (TYPE,)),
    ("string becomes nullable", "string", ["null", "string"], (), (TYPE,)),
    ("nullable becomes string", ["null", "string"], "string", (TYPE,), ()),
    ("union gets a branch", ["null", "string"], ["null", "string", "int"], (), (BRANCH,)),
    ("union loses a branch", ["null", "string", "int"], ["null", "string"], (BRANCH,), ()),
    ("union loses two branches", ["null", "string", "int"], ["null"], (BRANCH, BRANCH), ()),
    ("union in another order", ["null", "string", "int"], ["int", "null", "string"], (), ()),
    ("branch is promoted", ["null", "int"], ["null", "long"], (), (BRANCH,)),
    ("int becomes nullable long", "int", ["null", "long"], (), (TYPE, TYPE)),
    ("long becomes nullable int", "long", ["null", "int"], (BRANCH,), (TYPE,)),
    ("union of one", ["int"], "int", (), ()),
    ("other branches", ["int", "string"], ["boolean", "null"], (BRANCH, BRANCH), (BRANCH, BRANCH)),
    ("enum gets a symbol", enum("A"), enum("A", "B"), (), (SYMBOLS,)),
    ("enum loses a symbol", enum("A", "B"), enum("A"), (SYMBOLS,), ()),
    ("enum with default gets a symbol", enum("A", default="A"), enum("A", "B", default="A"), (), ()),
    ("enum with default loses a symbol", enum("A", "B"), enum("A", default="A"), (), ()),
    ("enum in another order", enum("A", "B"), enum("B", "A"), (), ()),
    ("enum is renamed", enum("A"), enum("A", name="G"), (NAME,), (NAME,)),
    ("enum is renamed, symbols too", enum("A"), enum("B", name="G"), (NAME, SYMBOLS), (NAME, SYMBOLS)),
    ("enum is renamed with an alias", enum("A"), enum("A", name="G", aliases=["E"]), (), (NAME,)),
    ("enum in another namespace", enum("A", name="a.E"), enum("A", name="b.E"), (), ()),
    ("enum becomes string", enum("A"), "string", (TYPE,), (TYPE,)),
    ("fixed grows", fixed(4), fixed(8), (SIZE,), (SIZE,)),
    ("fixed is renamed", fixed(4), fixed(4, "G"), (NAME,), (NAME,)),
    ("fixed is renamed and grows", fixed(4), fixed(5, "G"), (NAME, SIZE), (NAME, SIZE)),
    ("fixed is renamed with an alias", fixed(4), fixed(4, "G", aliases=["F"]), (), (NAME,)),
    ("fixed becomes bytes", fixed(4), "bytes", (TYPE,), (TYPE,)),
    ("array of int becomes array of long", {"type": "array", "items": "int"},
     {"type": "array", "items": "long"}, (), (TYPE,)),
    ("map of long becomes map of int", {"type": "map", "values": "long"},
     {"type": "map", "values": "int"}, (TYPE,), ()),
    ("array becomes map", {"type": "array", "items": "int"}, {"type": "map", "values": "int"},
     (TYPE,), (TYPE,)),
    ("array becomes its items", {"type": "array", "items": "int"}, "int", (TYPE,), (TYPE,)),
    ("date becomes int", {"type": "int", "logicalType": "date"}, "int", (), ()),
    ("date becomes timestamp", {"type": "int", "logicalType": "date"},
     {"type": "long", "logicalType": "timestamp-millis"}, (), (TYPE,)),
    ("decimal of another precision", {"type": "bytes", "logicalType": "decimal", "precision": 4},
     {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, (), ()),
    ("record becomes string", record(name="I"), "string", (TYPE,), (TYPE,)),
    ("inner record gets a field", record(name="I"), record(field("x", "int"), name="I"), (DEFAULT,), ()),
    ("inner record loses a field", record(field("x", "int"), name="I"), record(name="I"), (), (DEFAULT,)),
    ("inner record is renamed", record(name="I"), record(name="J"), (NAME,), (NAME,)),
    ("record in a union gets a field", ["null", record(name="I")],
     ["null", record(field("x", "int"), name="I")], (BRANCH,), ()),
    ("record in a union gets a default", ["null", record(name="I")],
     ["null", record(field("x", "int", default=1), name="I")], (), ()),
]  # fmt: skip

TYPE_PAIRS = [
    pair(f"{name}, {place}", shape(old), shape(new), backward, forward)
    for place, shape in (
        ("alone", lambda kind: kind),
        ("in a field", lambda kind: record(field("a", "int"), field("b", kind))),
        ("in an array", lambda kind: {"type": "array", "items": kind}),
        ("in a map", lambda kind: record(field("m", {"type": "map", "values": kind}))),
    )
    for name, old, new, backward, forward in TYPES
    if not (place == "alone" and isinstance(old, str) and isinstance(new, str))
]

A = field("a", "int")
RECORD_PAIRS = [
    pair("nothing changes", record(A), record(A)),
    pair("a field with a default is added", record(A), record(A, field("b", "int", default=0))),
    pair("a field is added", record(A), record(A, field("b", "int")), (DEFAULT,)),
    pair(
        "two fields are added", record(A), record(field("c", "int"), A, field("b", "int")), (DEFAULT, DEFAULT)
    ),
    pair("a nullable field is added", record(A), record(A, field("b", ["null", "int"])), (DEFAULT,)),
    pair(
        "a nullable field with a default is added",
        record(A),
        record(A, field("b", ["null", "int"], default=None)),
    ),
    pair("a field is removed", record(A, field("b", "int")), record(A), (), (DEFAULT,)),
    pair("a field with a default is removed", record(A, field("b", "int", default=0)), record(A)),
    pair("all fields are removed", record(A, field("b", "int")), record(), (), (DEFAULT, DEFAULT)),
    pair("a field is renamed", record(A), record(field("b", "int")), (DEFAULT,), (DEFAULT,)),
    pair(
        "a field is renamed with an alias",
        record(A),
        record(field("b", "int", aliases=["a"])),
        (),
        (DEFAULT,),
    ),
    pair(
        "a field is renamed with alias and default",
        record(field("a", "int", default=1)),
        record(field("b", "int", default=1, aliases=["a"])),
    ),
    pair(
        "a field is renamed with its type",
        record(A),
        record(field("b", "long", aliases=["a"])),
        (),
        (DEFAULT,),
    ),
    pair("fields swap", record(A, field("b", "string")), record(field("b", "string"), A)),
    pair("a default is added", record(A), record(field("a", "int", default=3))),
    pair("a default is removed", record(field("a", "int", default=3)), record(A)),
    pair("a default changes", record(field("a", "int", default=3)), record(field("a", "int", default=4))),
    pair("a doc changes", record(field("a", "int", doc="x")), record(field("a", "int", doc="y"), doc="z")),
    pair("an order changes", record(A), record(field("a", "int", order="descending"))),
    pair("a property changes", record(A, p=1), record(field("a", "int", q=2), p=2)),
    pair("the record is renamed", record(A), record(A, name="S"), (NAME,), (NAME,)),
    pair("the record is renamed with an alias", record(A), record(A, name="S", aliases=["R"]), (), (NAME,)),
    pair(
        "the record is renamed with an alias of another namespace",
        record(A, name="x.R"),
        record(A, name="y.S", aliases=["x.R"]),
        (),
        (NAME,),
    ),
    pair(
        "the alias misses its namespace",
        record(A, name="x.R"),
        record(A, name="y.S", aliases=["R"]),
        (NAME,),
        (NAME,),
    ),
    pair("the namespace changes", record(A, namespace="a"), record(A, namespace="b")),
    pair("a record becomes an error", record(A), {**record(A), "type": "error"}),
    pair(
        "the record is renamed, a field added",
        record(A),
        record(A, field("b", "int"), name="S"),
        (NAME, DEFAULT),
        (NAME,),
    ),
    pair(
        "a list of its own kind gets a field",
        record(field("next", ["null", "R"], default=None)),
        record(field("next", ["null", "R"], default=None), field("v", "int")),
        (DEFAULT,),
    ),
    pair(
        "a list of its own kind gets a field with a default",
        record(field("next", ["null", "R"], default=None)),
        record(field("next", ["null", "R"], default=None), field("v", "int", default=0)),
    ),
    pair(
        "a type that two fields use changes",
        record(field("x", fixed(2)), field("y", "F")),
        record(field("x", fixed(3)), field("y", "F")),
        (SIZE, SIZE),
        (SIZE, SIZE),
    ),
    pair(
        "an enum with its own default is added",
        record(A),
        record(A, field("e", enum("X", default="X"))),
        (TYPE,),
    ),
    pair(
        "two aliases fit",
        record(A, field("b", "int")),
        record(field("c", "int", aliases=["a", "b"])),
        ("",),
        (DEFAULT, DEFAULT),
    ),
    pair("a record becomes a union of it", record(A), [record(A)]),
    pair(
        "a record becomes a union with another", record(A), [record(A), record(name="S")], (), (NAME, DEFAULT)
    ),
    pair("the record becomes a map", record(A), {"type": "map", "values": "int"}, (TYPE,), (TYPE,)),
]

PAIRS = [*PRIMITIVE_PAIRS, *TYPE_PAIRS, *RECORD_PAIRS]
