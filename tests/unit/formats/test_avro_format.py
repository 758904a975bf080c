"""Decoding of Avro values."""

import io
import json
import pickle
import random
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

from kalda.formats import FormatError, FormatSpec, open_decoder, open_encoder
from kalda.formats.avro_format import _decode_each, decode_avro
from kalda.formats.avro_schema import AvroSchema, is_columnar, parse_avro

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": ["null", "int"], "default": None},
        {"name": "s", "type": ["string", "null"]},
        {"name": "x", "type": "double"},
        {"name": "f", "type": "float"},
        {"name": "b", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}},
        {"name": "hash", "type": {"type": "fixed", "name": "H", "size": 3}},
        {"name": "color", "type": {"type": "enum", "name": "C", "symbols": ["RED", "BLUE"]}},
        {
            "name": "at2",
            "type": [
                "null",
                {"type": "record", "name": "P", "fields": [{"name": "z", "type": ["null", "string"]}]},
            ],
        },
    ],
}
TAGGED = {
    "type": "record",
    "name": "Tagged",
    "fields": [
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "m", "type": {"type": "map", "values": "int"}},
    ],
}


def order(i: int) -> dict[str, object]:
    return {
        "id": (-1) ** i * (1 << (i % 63)),
        "n": i if i % 3 else None,
        "s": "é" * (i % 5) if i % 4 else None,
        "x": i / 7,
        "f": i / 8,
        "b": i % 2 == 0,
        "raw": bytes(range(i % 7)),
        "day": date(2026, 1, 1 + i % 28),
        "at": datetime(2026, 1, 1, 1, 2, i % 60, 345_000, UTC),
        "local": datetime(1969, 12, 31, 1, 2, 3, 4, UTC).replace(tzinfo=None) if i % 2 else None,
        "price": Decimal((-1) ** i * i * 10**12) / 1000,
        "hash": bytes([i % 256] * 3),
        "color": ("RED", "BLUE")[i % 2],
        "at2": {"z": "q" if i % 2 else None} if i % 5 else None,
    }


def written(schema: Mapping[str, object], row: object, head: bytes = b"") -> bytes:
    stream = io.BytesIO()
    stream.write(head)
    fastavro.schemaless_writer(stream, fastavro.parse_schema(dict(schema)), row)
    return stream.getvalue()


def parsed(schema: Mapping[str, object]) -> AvroSchema:
    return parse_avro(json.dumps(schema))


def binary(values: list[bytes | None]) -> pa.BinaryArray:
    return pa.array(values, pa.binary())


def test_columns_decode_as_fastavro_does() -> None:
    """Both ways have one meaning; the batch decides which one is taken."""
    schema = parsed(ORDER)
    values: list[bytes | None] = [written(ORDER, order(i)) for i in range(200)]
    values[7] = None
    assert is_columnar(schema.expanded)

    decoded = pickle.loads(pickle.dumps(open_decoder(FormatSpec("avro", json.dumps(ORDER))))).decode(
        binary(values)
    )

    assert () == decoded.errors
    assert [order(i) if i != 7 else None for i in range(200)] == decoded.columns.to_pylist()
    present = [value for value in values if value is not None]
    each = _decode_each(binary(list(present)), range(len(present)), len(present), schema, None, 0)
    assert each.columns.to_pylist() == [row for row in decoded.columns.to_pylist() if row is not None]


def test_damage_is_found_where_it_is() -> None:
    """Fuzz: no flip, cut or repeat crashes, shifts a row, or reads a neighbour's bytes."""
    rng = random.Random(3)
    schema = parsed(ORDER)
    for _ in range(15):
        values: list[bytes | None] = []
        damaged = set()
        for i in range(30):
            value = bytearray(written(ORDER, order(i)))
            if rng.random() < 0.3:
                damaged.add(i)
                match rng.randrange(3):
                    case 0:
                        value[rng.randrange(len(value))] = rng.randrange(256)
                    case 1:
                        del value[rng.randrange(len(value)) :]
                    case _:
                        value += bytes(rng.randrange(1, 9))
            values.append(bytes(value))
        decoded = decode_avro(binary(values), schema, None, 0)
        alone = [decode_avro(binary([value]), schema, None, 0) for value in values]
        assert [i for i, each in enumerate(alone) if each.errors] == [each.row for each in decoded.errors]
        assert {each.row for each in decoded.errors} <= damaged
        assert [repr(each.columns[0].as_py()) for each in alone] == [
            repr(row) for row in decoded.columns.to_pylist()
        ]
        decoded.columns.validate(full=True)


def test_values_with_arrays_and_maps_are_decoded() -> None:
    rows = [{"tags": ["a", "b"], "m": {"k": 1}}, {"tags": [], "m": {}}]
    values = [written(TAGGED, row) for row in rows]

    decoded = decode_avro(
        binary([values[0], b"\xff\xff\xff", values[1], values[1] + b"\0"]), parsed(TAGGED), None, 0
    )

    assert [1, 3] == [each.row for each in decoded.errors]
    assert [("k", 1)] == decoded.columns.to_pylist()[0]["m"]
    assert [] == decoded.columns.to_pylist()[2]["tags"]


LOGICAL = [
    ("int", "date", -1, date(1969, 12, 31)),
    ("int", "time-millis", 86_399_999, 86_399_999),
    ("long", "time-micros", 86_399_999_999, 86_399_999_999),
    ("long", "timestamp-millis", -1, datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
    ("long", "timestamp-micros", 1, datetime(1970, 1, 1, 0, 0, 0, 1, UTC)),
    ("long", "timestamp-nanos", 1_700_000_000_123_456_789, datetime(2023, 11, 14, 22, 13, 20, 123_456, UTC)),
    ("long", "timestamp-nanos", -1, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
    ("long", "local-timestamp-millis", 1, datetime(1970, 1, 1, 0, 0, 0, 1_000)),  # noqa: DTZ001
    ("long", "local-timestamp-micros", -1, datetime(1969, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001
    ("long", "local-timestamp-nanos", 2_999, datetime(1970, 1, 1, 0, 0, 0, 2)),  # noqa: DTZ001
    ("string", "uuid", "00112233-4455-6677-8899-aabbccddeeff", "00112233-4455-6677-8899-aabbccddeeff"),
    (
        {"type": "fixed", "name": "U", "size": 16},
        "uuid",
        bytes(range(16)),
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
    ),
    ({"type": "fixed", "name": "D", "size": 12}, "duration", b"d" * 12, b"d" * 12),
    ("bytes", "big-decimal", b"\x02\x07\x02", b"\x02\x07\x02"),
    ("long", "date", 5, 5),
    ("bytes", "decimal", b"\x07", b"\x07"),
    ("int", "no such type", 5, 5),
]


@pytest.mark.parametrize(("kind", "logical", "stored", "expected"), LOGICAL)
def test_logical_types_mean_the_same_in_every_place(
    kind: object, logical: str, stored: object, expected: object
) -> None:
    """A field, a nullable one and the item of an array take three ways through the decoder."""
    base = kind if isinstance(kind, dict) else {"type": kind}
    node = {**base, "logicalType": logical}
    for wrapped, value, wanted in (
        (node, stored, expected),
        (["null", node], stored, expected),
        (["null", node], None, None),
        ({"type": "array", "items": ["null", node]}, [stored, None], [expected, None]),
        ({"type": "map", "values": node}, {"k": stored}, [("k", expected)]),
    ):
        record = {"type": "record", "name": "R", "fields": [{"name": "v", "type": wrapped}]}
        bare = json.loads(json.dumps(record).replace("logicalType", "ignored"))

        decoded = decode_avro(binary([written(bare, {"v": value})]), parsed(record), None, 0)

        assert () == decoded.errors
        assert [{"v": wanted}] == decoded.columns.to_pylist()


@pytest.mark.parametrize("logical", ["timestamp-millis", "timestamp-micros", "timestamp-nanos"])
def test_moments_are_written_in_the_unit_of_the_schema(logical: str) -> None:
    """Also those that Python's dates do not reach."""
    node = {"type": "long", "logicalType": logical}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": ["null", node]},
            {"name": "l", "type": {"type": "array", "items": node}},
        ],
    }
    spec = FormatSpec("avro", json.dumps(schema))
    kind = pa.timestamp("us", tz="UTC")
    micros = [0, -1_000, 1_700_000_000_123_000, 9_000_000_000_000_000, None]
    if logical != "timestamp-nanos":
        micros.append(1_700_000_000_000_000_000)
    moments = pa.array(micros, pa.int64()).cast(kind)
    lists = pa.ListArray.from_arrays(pa.array(range(len(micros) + 1), pa.int32()), moments.fill_null(0))
    columns = pa.schema([("a", kind), ("l", pa.list_(kind))])
    rows = pa.StructArray.from_arrays([moments, lists], fields=list(columns))

    values = pickle.loads(pickle.dumps(open_encoder(spec, columns))).encode(rows)
    decoded = open_decoder(spec).decode(values)

    assert () == decoded.errors
    assert micros == decoded.columns.field("a").cast(pa.int64()).to_pylist()
    assert [each or 0 for each in micros] == decoded.columns.field("l").flatten().cast(pa.int64()).to_pylist()


def test_a_readers_schema_with_another_unit_has_the_same_moment() -> None:
    """The unit is that of the bytes; nothing else says what they count."""
    schemas = [
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "at", "type": {"type": "long", "logicalType": logical}}],
        }
        for logical in ("timestamp-millis", "timestamp-micros")
    ]
    value = binary([written(schemas[0], {"at": datetime(2026, 1, 1, tzinfo=UTC)})])

    decoded = decode_avro(value, parsed(schemas[0]), parsed(schemas[1]), 0)

    assert [{"at": datetime(2026, 1, 1, tzinfo=UTC)}] == decoded.columns.to_pylist()


def test_decimals_of_more_digits_than_a_column_are_read() -> None:
    """Kafka Connect writes every Decimal with a precision of 64 unless the schema says less."""
    fields = [
        {"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}},
        {"name": "b", "type": {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 40}},
    ]
    record = {"type": "record", "name": "R", "fields": fields}
    bare = json.loads(json.dumps(record).replace("logicalType", "ignored"))

    def value(a: int, b: int) -> bytes:
        return written(
            bare, {"a": a.to_bytes(30, "big", signed=True), "b": b.to_bytes(30, "big", signed=True)}
        )

    schema = parsed(record)
    decoded = decode_avro(
        binary([value(1999, 1), value(-(10**38) + 1, -(10**41)), value(10**38, 0)]), schema, None, 0
    )

    assert pa.struct([("a", pa.decimal128(38, 2)), ("b", pa.string())]) == schema.type
    assert [2] == [each.row for each in decoded.errors]
    assert [
        {"a": Decimal("19.99"), "b": "0." + "0" * 39 + "1"},
        {"a": Decimal("-999999999999999999999999999999999999.99"), "b": "-10." + "0" * 40},
        None,
    ] == decoded.columns.to_pylist()
    fields.pop()
    decoded = decode_avro(
        binary(
            [
                written(bare := {**bare, "fields": bare["fields"][:1]}, {"a": b"\x07\xcf"}),
                written(bare, {"a": b"\x7f" * 17}),
            ]
        ),
        parsed(record),
        None,
        0,
    )
    assert [1] == [each.row for each in decoded.errors]
    assert Decimal("19.99") == decoded.columns[0].as_py()["a"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (FormatSpec("avro"), "needs a schema"),
        (FormatSpec("avro", "{"), "no Avro schema"),
        (FormatSpec("avro", '{"type":"record","name":"R","fields":[{"name":"a","type":"nope"}]}'), "nope"),
        (
            FormatSpec("avro", '{"type":"record","name":"R","fields":[{"name":"a","type":["null","R"]}]}'),
            "recursive",
        ),
        (FormatSpec("avro", '["int","string"]'), "union of several types"),
        (FormatSpec("avro-sr"), "needs the option registry.url"),
        (FormatSpec("avro-sr", options={"registry.url": "x"}), "http://"),
        (
            FormatSpec("avro-sr", options={"registry.url": "http://a", "registry.user": "u"}),
            "belong together",
        ),
        (FormatSpec("avro-sr", '"int"', options={"registry.url": "http://a", "subject": "s"}), "give one"),
        (FormatSpec("avro-sr", options={"registry.url": "http://a", "registry.tries": "0"}), "from 1 to 20"),
    ],
)
def test_wrong_specs_are_refused(spec: FormatSpec, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        open_decoder(spec)

    assert message in str(caught.value)


def with_default(kind: object, default: object, *others: dict[str, object]) -> dict[str, object]:
    fields = [*others, {"name": "n", "type": kind, "default": default}]
    return {"type": "record", "name": "R", "fields": fields}


OLD: dict[str, object] = {"name": "a", "type": "int"}
LIST: dict[str, object] = {"name": "a", "type": {"type": "array", "items": "int"}}
MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
INNER = {
    "type": "record",
    "name": "I",
    "fields": [
        {"name": "at", "type": MOMENT},
        {"name": "raw", "type": "bytes", "default": "\u00fe"},
        {"name": "price", "type": CENTS, "default": "\u0001"},
    ],
}


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("bytes", "\u00ff", b"\xff"),
        (["bytes", "null"], "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u0001\u00fe", b"\x01\xfe"),
        (CENTS, "\u0001", Decimal("0.01")),
        ({**CENTS, "type": "fixed", "name": "F", "size": 2, "precision": 4}, "\u0001\u0000", Decimal("2.56")),
        ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
        ("double", "NaN", float("nan")),
        (
            INNER,
            {"at": 1000},
            {"at": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "raw": b"\xfe", "price": Decimal("0.01")},
        ),
    ],
)
def test_defaults_have_the_values_that_the_specification_gives_them(
    kind: object, default: object, expected: object
) -> None:
    """A default of bytes is a text whose code points are the bytes, and that of a record may lack fields."""
    for other in (OLD, LIST):
        writer: dict[str, object] = {"type": "record", "name": "R", "fields": [other]}
        values: list[bytes | None] = [written(writer, {"a": 1 if other is OLD else [1]})] * 3

        decoded = decode_avro(binary(values), parsed(writer), parsed(with_default(kind, default, other)), 0)

        assert () == decoded.errors
        found = [row["n"] for row in decoded.columns.to_pylist()]
        assert [expected] * 3 == found or repr([expected] * 3) == repr(found)  # NaN is not equal to itself


@pytest.mark.parametrize("logical", ["timestamp-micros", "timestamp-nanos", "timestamp-millis"])
def test_the_ends_of_the_range_are_good_by_either_way_of_decoding(logical: str) -> None:
    node = {"type": "long", "logicalType": logical}
    columnar: dict[str, object] = {"type": "record", "name": "R", "fields": [{"name": "v", "type": node}]}
    array: dict[str, object] = {"name": "l", "type": {"type": "array", "items": "int"}}
    each = {**columnar, "fields": [{"name": "v", "type": node}, array]}
    bare = json.loads(json.dumps(each).replace("logicalType", "ignored"))
    factor = 1000 if logical == "timestamp-millis" else 1
    numbers = [-(1 << 63) // factor + 1, ((1 << 63) - 1) // factor, 0]
    numbers += (
        [-(1 << 63), (1 << 63) - 1] if factor == 1 else [-(1 << 63) // factor - 2, (1 << 63) // factor + 2]
    )

    found = []
    for schema in (columnar, each):
        plain = {**bare, "fields": bare["fields"][: len(schema["fields"])]}  # type: ignore[arg-type]
        values = binary([written(plain, {"v": number, "l": []}) for number in numbers])
        decoded = decode_avro(values, parsed(schema), None, 0)
        moments = decoded.columns.field("v").cast(pa.int64()).to_pylist()
        found.append((moments, [failure.row for failure in decoded.errors]))

    assert found[0] == found[1]
    assert [3, 4] * (factor == 1000) == found[0][1]


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (["long", "double"], None),
        (["null", "long", "float"], None),
        ("long", "double"),
        ("long", ["null", "double"]),
        ("long", ["long", "double"]),
    ],
)
@pytest.mark.parametrize("more", [[], [{"name": "a", "type": {"type": "array", "items": "int"}}]])
def test_a_long_in_a_column_of_doubles_is_the_nearest_one(
    written: object, wanted: object, more: list[object]
) -> None:
    """As by Avro's promotion and as in JSON, whether or not another field takes fastavro."""

    def schema(kind: object) -> dict[str, object]:
        return {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}, *more]}

    numbers = [(1 << 53) + 1, 1, -(1 << 63), (1 << 63) - 1]
    values = []
    for number in numbers:
        target = io.BytesIO()
        row = {"x": number, "a": []} if more else {"x": number}
        fastavro.schemaless_writer(target, fastavro.parse_schema(schema(written)), row)
        values.append(target.getvalue())

    decoded = decode_avro(
        pa.array(values, pa.binary()),
        parse_avro(json.dumps(schema(written))),
        None if wanted is None else parse_avro(json.dumps(schema(wanted))),
        0,
    )

    assert () == decoded.errors
    assert list(map(float, numbers)) == decoded.columns.field("x").to_pylist()


def test_the_reason_of_a_cut_value_is_the_same_each_time() -> None:
    """fastavro names the address of its source, by which equal letters would not look equal."""
    schema = {**TAGGED, "fields": [*TAGGED["fields"], {"name": "x", "type": "double"}]}
    decoder = open_decoder(FormatSpec("avro", json.dumps(schema), None, {}))

    (failure,) = decoder.decode(pa.array([b"\0\0\0"], pa.binary())).errors

    assert "not a value of the Avro schema: EOFError cannot read double" == failure.message


DROPPED = {
    "at": ({"type": "long", "logicalType": "timestamp-millis"}, b"\xff" * 9 + b"\x01"),
    "price": (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        b"\x08\x7f\xff\xff\xff",
    ),
    "text": ("string", b"\x02\xff"),
    "color": ({"type": "enum", "name": "C", "symbols": ["RED"]}, b"\x0a"),
    "flag": (["null", "boolean"], b"\x02\x07"),
    "part": ({"type": "record", "name": "P", "fields": [{"name": "z", "type": "double"}]}, b"\0" * 8),
}


@pytest.mark.parametrize("name", DROPPED)
@pytest.mark.parametrize("more", [[], [{"name": "a", "type": {"type": "array", "items": "int"}}]])
def test_a_field_that_the_reader_lacks_makes_no_value_bad(name: str, more: list[object]) -> None:
    """Whether it fits its column is the matter of those who read it; a value that is cut in it stays bad."""
    kind, written = DROPPED[name]
    head = [{"name": "id", "type": "int"}, *more]
    writer = parse_avro(
        json.dumps({"type": "record", "name": "R", "fields": [*head, {"name": name, "type": kind}]})
    )
    reader = parse_avro(json.dumps({"type": "record", "name": "R", "fields": head}))
    value = b"\x0e" + (b"\0" if more else b"") + written

    decoded = decode_avro(pa.array([value, value[:-1]], pa.binary()), writer, reader, 0)

    assert [1] == [each.row for each in decoded.errors]
    assert [7, None] == decoded.columns.field("id").to_pylist()


@pytest.mark.parametrize("collection", ["array", "map"])
def test_items_that_take_hardly_any_bytes_are_refused(collection: str) -> None:
    """A value of kilobytes would become columns of gigabytes; a field without bytes is a column, too."""
    none = {"type": "record", "name": "None", "fields": []}
    fields = [{"name": "id", "type": "int"}, {"name": "none0", "type": none}]
    fields += [{"name": f"none{number}", "type": "None"} for number in range(1, 100)]
    item = {"type": "record", "name": "Item", "fields": fields}
    items = {"type": collection, "items" if collection == "array" else "values": item}
    with pytest.raises(FormatError, match=f"{collection} whose items take hardly any bytes"):
        parsed({"type": "record", "name": "R", "fields": [{"name": "items", "type": items}]})


ODD_BYTES = {
    "an enum's index below 0": ({"type": "enum", "name": "C", "symbols": ["RED", "BLUE"]}, b"\x01"),
    "a branch below 0": (["null", "int"], b"\x01\x02"),
    "a boolean of 7": ("boolean", b"\x07"),
    "a number of 13 bytes": ("long", b"\x81" * 12 + b"\x01"),
    "an int of 33 bits": ("int", b"\xfe\xff\xff\xff\x3f"),
    "a length of 13 bytes": ("string", b"\x82" + b"\x80" * 11 + b"\0a"),
    "fewer bytes than its length": ("bytes", b"\x04a"),
}


@pytest.mark.parametrize("case", ODD_BYTES)
@pytest.mark.parametrize("way", ["columns", "array beside", "array of", "map of", "renamed record"])
def test_what_the_specification_does_not_allow_is_bad_by_either_way_of_decoding(case: str, way: str) -> None:
    """fastavro reads some other value of these bytes: the last symbol, true, the lowest bits."""
    kind, odd = ODD_BYTES[case]
    reader: AvroSchema | None = None
    fields: list[dict[str, object]] = [{"name": "x", "type": kind}]
    value = odd
    match way:
        case "array beside":
            fields.append({"name": "l", "type": {"type": "array", "items": "int"}})
            value += b"\0"
        case "array of":
            fields = [{"name": "l", "type": {"type": "array", "items": kind}}]
            value = b"\x02" + odd + b"\0"
        case "map of":
            fields = [{"name": "m", "type": {"type": "map", "values": kind}}]
            value = b"\x02\x02k" + odd + b"\0"
        case "renamed record":
            reader = parsed({"type": "record", "name": "S", "aliases": ["R"], "fields": fields})
    writer = parsed({"type": "record", "name": "R", "fields": fields})

    decoded = decode_avro(binary([value]), writer, reader, 0)

    assert [0] == [each.row for each in decoded.errors]


def test_random_bytes_are_good_or_bad_by_either_way_of_decoding() -> None:
    """Fuzz: whether another field takes fastavro is no property of the value."""
    rng = random.Random(11)
    schema = parsed(ORDER)
    good = 0
    for i in range(600):
        value = bytearray(written(ORDER, order(i)))
        for _ in range(rng.randrange(4)):
            value[rng.randrange(len(value))] = rng.choice((0, 1, 2, 3, 127, 128, 255, rng.randrange(256)))
        one = binary([bytes(value)])
        by_columns = decode_avro(one, schema, None, 0)
        by_values = _decode_each(one, [0], 1, schema, None, 0)
        assert len(by_columns.errors) == len(by_values.errors), value.hex()
        assert repr(by_columns.columns.to_pylist()) == repr(by_values.columns.to_pylist()), value.hex()
        good += not by_columns.errors
    assert 0 < good < 600


def counted(logical: str, kind: str = "long") -> dict[str, str]:
    return {"type": kind, "logicalType": logical}


@pytest.mark.parametrize(
    ("writer", "reader", "number", "expected"),
    [
        (counted("date", "int"), counted("timestamp-millis"), 5, datetime(1970, 1, 6, tzinfo=UTC)),
        (counted("date", "int"), counted("timestamp-micros"), -1, datetime(1969, 12, 31, tzinfo=UTC)),
        (counted("time-millis", "int"), counted("time-micros"), 7, 7_000),
        (counted("date", "int"), "long", 5, 5),
        ("int", counted("timestamp-millis"), 5, datetime(1970, 1, 1, microsecond=5_000, tzinfo=UTC)),
    ],
)
@pytest.mark.parametrize("is_optional", [False, True])
def test_days_and_milliseconds_read_as_finer_units_mean_the_same(
    writer: object, reader: object, number: int, expected: object, is_optional: bool
) -> None:
    """Avro resolves the integers, whatever they count; a plain type has the number itself."""
    kinds = [["null", kind] if is_optional else kind for kind in (writer, reader)]
    schemas = [
        parsed({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}) for kind in kinds
    ]
    value = (b"\x02" if is_optional else b"") + written({"type": "long"}, number)

    decoded = decode_avro(binary([value]), schemas[0], schemas[1], 0)

    assert ((), [{"x": expected}]) == (decoded.errors, decoded.columns.to_pylist())


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (counted("date", "int"), counted("time-millis", "int")),
        (counted("time-millis", "int"), counted("timestamp-millis")),
        (counted("timestamp-millis"), counted("time-micros")),
    ],
)
def test_a_count_of_one_thing_is_not_read_as_one_of_another(writer: object, reader: object) -> None:
    schemas = [
        parsed(
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "x", "type": {"type": "array", "items": kind}}],
            }
        )
        for kind in (writer, reader)
    ]
    with pytest.raises(FormatError, match=r"x\[\] is written as .*, and cannot be read as "):
        decode_avro(binary([b"\0"]), schemas[0], schemas[1], 0)


@pytest.mark.parametrize(
    ("writer", "reader", "message"),
    [
        ("a", "b:a c:a", "written with a, which is both b and c"),
        ("a b", "b:a", "written with b and a, which are both b"),
        ("a", "a b:a", "written with a, which is both a and b"),
        ("p q", "x:p,q", "written with p and q, which are both x"),
        ("a b", "a b:a", None),
        ("b", "a b:a", None),
        ("a", "c b:a", None),
    ],
)
def test_a_field_that_two_fields_could_be_is_refused(writer: str, reader: str, message: str | None) -> None:
    """Which of them gets the value is nowhere specified, and the other one would have its default in
    silence."""

    def schema(fields: str) -> AvroSchema:
        made: list[object] = []
        for each in fields.split():
            name, _, aliases = each.partition(":")
            field = {"name": name, "type": "int", "default": 7, "aliases": aliases.split(",")}
            made.append(field if aliases else {"name": name, "type": "int", "default": 9})
        return parsed({"type": "record", "name": "R", "fields": made})

    value = binary([bytes(range(2, 2 + 2 * len(writer.split()), 2))])
    if message is not None:
        with pytest.raises(FormatError, match=message):
            decode_avro(value, schema(writer), schema(reader), 0)
    else:
        decoded = decode_avro(value, schema(writer), schema(reader), 0)
        expected = {"a b": {"a": 1, "b": 2}, "b": {"a": 9, "b": 1}, "a": {"c": 9, "b": 1}}[writer]
        assert ((), [expected]) == (decoded.errors, decoded.columns.to_pylist())
