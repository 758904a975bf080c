"""Decoding of JSON values."""

import json
import pickle
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from kalda.formats import Decoded, FormatError, FormatSpec, open_decoder, open_encoder
from kalda.formats.guarded_decoder import GuardedDecoder
from kalda.formats.json_format import JsonDecoder
from kalda.formats.merging import extended


def decode(values: Sequence[bytes | None], schema: str | None = None, **options: str) -> Decoded:
    decoder = pickle.loads(pickle.dumps(open_decoder(FormatSpec("json", schema, options=options))))
    decoded: Decoded = decoder.decode(pa.array(values, pa.binary()))
    return decoded


def classes(decoded: Decoded) -> list[tuple[int, str]]:
    return [(failure.row, failure.error_class) for failure in decoded.errors]


def test_columns_have_the_declared_types() -> None:
    """A pipeline's table has these columns."""
    schema = "id bigint, ok boolean, x double, d decimal(6,2), day date, at timestamp, s string"
    schema += ", b binary, n array<int>"
    value = (
        b'{"id":1,"ok":true,"x":1,"d":12.5,"day":"2026-11-22","at":"2026-11-22T10:00:00.5+01:00",'
        b'"s":"\xc3\xa9","b":"AAE=","n":[1,null]}'
    )

    decoded = decode([value], schema)

    expected = {
        "id": 1,
        "ok": True,
        "x": 1.0,
        "d": Decimal("12.50"),
        "day": date(2026, 11, 22),
        "at": datetime(2026, 11, 22, 9, 0, 0, 500_000, UTC),
        "s": "é",
        "b": b"\0\1",
        "n": [1, None],
    }
    assert [expected] == decoded.columns.to_pylist()
    assert () == decoded.errors


@pytest.mark.parametrize(
    ("bad", "error_class"),
    [
        (b"", "MalformedValue"),
        (b" ", "MalformedValue"),
        (b'{"a":1', "MalformedValue"),
        (b'{"a":1}{"a":2}', "MalformedValue"),
        (b'{"a":1}\n{"a":2}', "MalformedValue"),
        (b'{"a":1},{"a":2}', "MalformedValue"),
        (b'{"a":"}', "MalformedValue"),
        (b'{"a":{"b":1}', "MalformedValue"),
        (b'{"a":01}', "MalformedValue"),
        (b'{"a":Inf}', "MalformedValue"),
        (b'{"a":-NaN}', "MalformedValue"),
        (b'{"a":1}\0', "MalformedValue"),
        (b'{"s":"\xff"}', "InvalidText"),
        (b'{"s":"\\ud800"}', "InvalidText"),
        (b"[1]", "TypeMismatch"),
        (b"null", "TypeMismatch"),
        (b'{"a":"1"}', "TypeMismatch"),
        (b'{"a":1.0}', "TypeMismatch"),
        (b'{"a":99999999999999999999}', "TypeMismatch"),
        (b'{"a":true}', "TypeMismatch"),
        (b'{"x":1e999}', "TypeMismatch"),
        (b'{"d":123456.7}', "TypeMismatch"),
        (b'{"d":1.234}', "TypeMismatch"),
        (b'{"t":"2026-13-01"}', "TypeMismatch"),
        (b'{"t":1700000000000}', "TypeMismatch"),
        (b'{"n":{"m":1}}', "TypeMismatch"),
    ],
)
def test_a_bad_value_is_the_only_one_that_is_lost(bad: bytes, error_class: str) -> None:
    """Whatever the bytes, rows before and after keep their place."""
    schema = "a bigint, x double, d decimal(6,2), s string, t timestamp, n array<int>"
    values = [b'{"a":1}', bad, b'{"a":3}', None, bad, b'{"a":6}']

    decoded = decode(values, schema)

    assert [(1, error_class), (4, error_class)] == classes(decoded)
    rows = decoded.columns.to_pylist()
    assert [1, None, 3, None, None, 6] == [row and row["a"] for row in rows]


@pytest.mark.parametrize(
    ("kind", "number", "expected"),
    [
        ("decimal(20,3)", "99999999999999999999", None),
        ("decimal(5,2)", "1234.5", None),
        ("decimal(38,10)", "9e37", None),
        ("decimal(10,2)", "1e-77", None),
        ("decimal(10,2)", "1e-2147483647", None),
        ("decimal(10,2)", '"1\\u0065-2147483647"', None),
        ("decimal(10,2)", "125e-2", Decimal("1.25")),
        ("decimal(10,2)", '"+.5"', Decimal("0.50")),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("array<decimal(5,2)>", "[1234.5]", None),
        ("double", "1.7976931348623159e308", None),
        ("struct<x: double>", '{"x":1.7976931348623159e308}', None),
        ("float", "1e39", None),
        ("float", "0.5", 0.5),
        ("timestamp", '"0000-13-01"', None),
        ("date", '"10000-01-01"', None),
        ("timestamp", '"+294248-01-01"', None),
        ("date", '"+5881580-07-12"', None),
    ],
)
def test_a_number_is_what_was_written_or_bad(kind: str, number: str, expected: object) -> None:
    """Alone, and beside a value that Arrow's reader refuses; its parser of decimals may end the process."""
    value = b'{"a":%s}' % number.encode()

    for values in ([value], [value, b"nope"]):
        decoded = decode(values, f"a {kind}")

        assert (expected is None) == (0 in [each.row for each in decoded.errors])
        assert (None if expected is None else {"a": expected}) == decoded.columns[0].as_py()


@pytest.mark.parametrize("kind", ["double", "float", "array<double>", "struct<x: double>"])
@pytest.mark.parametrize(("number", "expected"), [("-0", "0.0"), ("-0.0", "-0.0"), ("-0e0", "-0.0")])
def test_the_sign_of_zero_does_not_depend_on_other_values(kind: str, number: str, expected: str) -> None:
    """A whole number has no negative zero, as in Spark; a number with a fraction does."""
    shape = {"array<double>": "[%s]", "struct<x: double>": '{"x":%s}'}.get(kind, "%s")
    value = b'{"a":%s}' % (shape % number).encode()

    for values in ([value], [value, b"nope"]):
        found = decode(values, f"a {kind}").columns.field("a")[0].as_py()
        if isinstance(found, dict):
            found = found["x"]
        assert expected == repr(found[0] if isinstance(found, list) else found)


def test_numbers_of_milliseconds_reach_as_far_as_64_bits() -> None:
    values = [b'{"t":9223372036854775}', b'{"t":-9223372036854775}', b'{"t":9223372036854776}']

    decoded = decode(values, "t timestamp", timestamp_format="epoch_ms")

    assert [2] == [each.row for each in decoded.errors]
    assert 9223372036854775000 == decoded.columns.field("t")[0].value


@pytest.mark.parametrize("name", ["json", "csv"])
def test_times_of_any_year_are_written_and_read(name: str) -> None:
    """As Java and Spark write them; the bounds are Arrow's."""
    micros = [253_402_300_800_000_000, -62_135_596_800_000_001, 2**63 - 1, -(2**63) + 1, 0, None]
    days = [2_932_897, -719_163, 2**31 - 1, -(2**31), 0, None]
    columns = [pa.array(micros, pa.timestamp("us", "UTC")), pa.array(days, pa.date32())]
    rows = pa.record_batch(columns, ["at", "day"])

    written = open_encoder(FormatSpec(name), rows.schema).encode(rows.to_struct_array())
    read = open_decoder(FormatSpec(name, "at timestamp, day date")).decode(written)

    assert b"+10000-01-01T00:00:00Z" in written[0].as_py()
    assert b"+294247-01-10T04:00:54.775807Z" in written[2].as_py()
    assert b"-5877641-06-23" in written[3].as_py()
    assert ((), rows.columns) == (read.errors, read.columns.flatten())


def test_nanoseconds_are_cut_off() -> None:
    """A Python step may make them; each row was a dead letter, though tables take them."""
    rows = pa.record_batch({"at": pa.array([1_001, None], pa.timestamp("ns", "UTC"))})

    written = open_encoder(FormatSpec("json"), rows.schema).encode(rows.to_struct_array())

    assert [b'{"at":"1970-01-01T00:00:00.000001Z"}', b"{}"] == written.to_pylist()


def test_times_in_lists_and_maps_are_written_and_read() -> None:
    """Those in a map failed the task; so did lists with a null behind the first rows of a batch."""
    far = 253_402_300_800_000_000
    columns = [
        pa.array([[], [far], None, [0]], pa.list_(pa.timestamp("us", "UTC"))),
        pa.array([[], [("a", far)], None, [("a", None)]], pa.map_(pa.string(), pa.timestamp("us", "UTC"))),
        pa.array([[], [("a", 2_932_897)], None, [("a", 0)]], pa.map_(pa.string(), pa.date32())),
    ]
    rows = pa.record_batch(columns, ["at", "by_name", "days"]).slice(1)

    written = open_encoder(FormatSpec("json"), rows.schema).encode(rows.to_struct_array())

    expected = (
        b'{"at":["+10000-01-01T00:00:00Z"],"by_name":{"a":"+10000-01-01T00:00:00Z"},'
        b'"days":{"a":"+10000-01-01"}}'
    )
    assert [expected, b"{}"] == written.to_pylist()[:2]
    schema = "at array<timestamp>, by_name map<string, timestamp>, days map<string, date>"
    read = open_decoder(FormatSpec("json", schema)).decode(written)
    assert ((), [True] * 3) == (
        read.errors,
        [one.equals(other.cast(one.type)) for one, other in zip(read.columns.flatten(), rows, strict=True)],
    )


def test_values_that_open_and_close_each_other_shift_no_row() -> None:
    """One value that is two rows and one that is none would otherwise cancel out."""
    values = [b'{"a":1}{"a":2}', b'{"b":"}', b'{"}', b'{"a":4}', b"{}"]

    decoded = decode(values, "a bigint")

    assert [0, 1, 2] == [failure.row for failure in decoded.errors]
    assert [None, None, None, {"a": 4}, {"a": None}] == decoded.columns.to_pylist()


def test_pretty_printed_and_nan_and_duplicate_keys_are_accepted() -> None:
    """Newlines between tokens are JSON; of two equal keys the last one counts, as in Spark."""
    values = [b'{\n "a": 1\r\n}', b' {"a":2} ', b'{"a":3,"a":4}', b'{"x":NaN}', b'{"x":-Infinity}']

    decoded = decode(values, "a bigint, x double")

    assert () == decoded.errors
    assert [1, 2, 4, None, None] == decoded.columns.field("a").to_pylist()
    assert "nan" == str(decoded.columns.field("x")[3])


def test_names_of_numbers_that_json_lacks_are_read_as_spark_reads_them() -> None:
    """A row that Spark or Kalda wrote comes back; other texts become no numbers."""
    values = [
        b'{"x":"NaN"}', b'{"x":"Infinity"}', b'{"x":"-Infinity"}', b'{"x":"+INF"}', b'{"x":"-INF"}',
        b'{"x":"+Infinity"}', b'{"x":"nan"}', b'{"x":"INF"}', b'{"x":"1.5"}',
    ]  # fmt: skip

    decoded = decode(values, "x double")

    assert [6, 7, 8] == [each.row for each in decoded.errors]
    assert "[nan, inf, -inf, inf, -inf, inf, None, None, None]" == repr(
        decoded.columns.field("x").to_pylist()
    )


def test_a_text_of_json_is_json_that_every_parser_reads() -> None:
    decoded = decode([b'{"s":{"a":[NaN,-Infinity]}}', b'{"s":NaN}'], "s string")

    assert ['{"a":["NaN","-Infinity"]}', "NaN"] == decoded.columns.field("s").to_pylist()


def test_a_string_takes_any_value_as_its_text() -> None:
    decoded = decode([b'{"s":{"k":[1,1.50,"\xc3\xa9",null]}}', b'{"s":7}', b'{"s":"t"}'], "s string")

    assert ['{"k":[1,1.50,"é",null]}', "7", "t"] == decoded.columns.field("s").to_pylist()


def test_not_null_is_enforced_also_in_nested_fields() -> None:
    """A row that lacks a required field is bad; the columns stay nullable because bad rows are null."""
    decoded = decode(
        [b'{"a":1}', b"{}", b'{"a":1,"n":{"b":null}}', b'{"a":1,"n":{"b":2}}'],
        "a bigint NOT NULL, n struct<b int NOT NULL>",
    )

    assert [(1, "NullField"), (2, "NullField")] == classes(decoded)
    assert "n.b is null; it is NOT NULL" == decoded.errors[1].message
    assert all(field.nullable for field in decoded.columns.type)


def test_maps_are_read() -> None:
    decoded = decode([b'{"m":{"k":1,"l":null}}', b'{"m":{"k":"x"}}'], "m map<string,int>")

    assert [{"m": [("k", 1), ("l", None)]}, None] == decoded.columns.to_pylist()
    assert 'm.k is "x"; a whole number of type int32 is expected' == decoded.errors[0].message


def test_timestamps_may_be_numbers() -> None:
    decoded = decode(
        [b'{"t":1500}', b'{"t":"x"}', b'{"t":9223372036854775807}'],
        "t timestamp",
        timestamp_format="epoch_ms",
    )

    assert datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC) == decoded.columns.field("t")[0].as_py()
    assert [(1, "TypeMismatch"), (2, "TypeMismatch")] == classes(decoded)


def test_nanoseconds_and_mixed_zones_are_read() -> None:
    """Java writes nanoseconds; Arrow's parser refuses them for microseconds."""
    decoded = decode(
        [b'{"t":"2026-01-01T00:00:00.123456789Z"}', b'{"t":"2026-01-01 00:00"}', b'{"t":"2026-01-01"}'],
        "t timestamp",
    )

    assert () == decoded.errors
    assert [123_456, 0, 0] == [t.microsecond for t in decoded.columns.field("t").to_pylist()]


def test_inferred_columns_follow_from_the_batch() -> None:
    """Texts that look like timestamps stay texts, so the next batch does not change the type."""
    value = (
        b'{"a":1,"t":"2026-01-01T00:00:00Z","n":null,"e":{"x":null},"l":[],"s":{"t":"2026-01-01","z":null}}'
    )

    decoded = decode([value, b'{"a":1.5}', None])

    assert {"a": "double", "t": "string", "s": "struct<t: string>"} == {
        field.name: str(field.type) for field in decoded.columns.type
    }
    assert [1.0, 1.5, None] == decoded.columns.field("a").to_pylist()


def test_inferred_columns_of_several_kinds_are_texts() -> None:
    decoded = decode([b'{"a":1,"l":[1,"x"]}', b'{"a":"k"}', b"{", b"{}", b"3"])

    assert ["1", "k", None, None, None] == decoded.columns.field("a").to_pylist()
    assert ["1", "x"] == decoded.columns.field("l")[0].as_py()
    assert [(2, "MalformedValue"), (4, "TypeMismatch")] == classes(decoded)


@pytest.mark.parametrize("values", [[], [None], [b"{}"], [b"{}", None], [b"x"]])
def test_batches_without_columns_have_rows(values: list[bytes | None]) -> None:
    """The number of rows is the number of values, with or without a schema."""
    assert len(values) == len(decode(values).columns)
    assert len(values) == len(decode(values, "a int").columns)


def test_a_slice_of_an_array_is_decoded() -> None:
    """Offsets of a slice do not start at 0."""
    values = pa.array([b"junk", b'{"a":1}', b'{"a":2}'], pa.large_binary()).slice(1)

    decoded = open_decoder(FormatSpec("json", "a int")).decode(values)

    assert [{"a": 1}, {"a": 2}] == decoded.columns.to_pylist()


def test_values_nested_deeply_do_not_crash() -> None:
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"

    assert 2 == len(decode([deep, b"{"]).columns)
    assert 2 == len(decode([deep, b"{"], "a string").columns)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (FormatSpec("jsn"), "'jsn' is not a format (did you mean 'json'?)"),
        (FormatSpec("json", options={"timestampformat": "x"}), "did you mean 'timestamp_format'?"),
        (
            FormatSpec("json", options={"timestamp_format": "x"}),
            "not one of iso, epoch_s, epoch_ms, epoch_us",
        ),
        (FormatSpec("json", "a bigit"), "'bigit' is not a type (did you mean 'bigint'?)"),
        (FormatSpec("json", "a map<int,int>"), "a is a map with keys of type int32"),
        (FormatSpec("json", schema_file="/nowhere/x"), "schema_file '/nowhere/x' cannot be read"),
        (FormatSpec("json", "a int", "/nowhere/x"), "give one"),
        (FormatSpec("raw", "a int"), "format raw takes no schema"),
    ],
)
def test_wrong_specs_name_what_is_allowed(spec: FormatSpec, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        open_decoder(spec)

    assert message in str(caught.value)


def test_texts_that_are_not_utf_8_are_bad() -> None:
    decoded = open_decoder(FormatSpec("string")).decode(pa.array([b"a", b"\xff", None], pa.binary()))

    assert [{"value": "a"}, None, None] == decoded.columns.to_pylist()
    assert [(1, "InvalidText")] == classes(decoded)


OBJECTS = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
LISTS = b'{"b":1,"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}"


@pytest.mark.parametrize("schema", [None, "b bigint", "b bigint, a string", "a map<string, string>"])
@pytest.mark.parametrize("deep", [OBJECTS, LISTS, OBJECTS[:2_000], LISTS[:2_000] + b'"' + LISTS])
def test_a_value_that_nests_deeply_is_bad_by_itself(schema: str | None, deep: bytes) -> None:
    """Arrow's reader recurses in C: such a value ended the process, and with it every pipeline."""
    decoded = decode([b'{"b":2}', deep, b'{"b":3}'], schema)

    assert [1] == [failure.row for failure in decoded.errors]


@pytest.mark.parametrize(
    "value",
    [
        b"{" + b",".join(b'"k%d":1' % each for each in range(20_000)) + b"}",
        b'{"l":[' + b",".join([b"{}"] * 40_000) + b"]}",
        b'{"x":1e999}',
        b'{"x":' + b"9" * 5_000 + b"}",
        b'{"\\ud800":1}',
    ],
)
def test_a_value_that_cannot_be_columns_is_bad_and_shows_none(value: bytes) -> None:
    decoded = decode([b'{"b":2}', value])

    assert [1] == [failure.row for failure in decoded.errors]
    assert ["b"] == [field.name for field in decoded.columns.type]


def test_an_object_with_thousands_of_keys_is_a_text() -> None:
    """It is a map, by user for example, and no table has a column for each user."""
    inner = b"{" + b",".join(b'"user%d":1' % each for each in range(2_000)) + b"}"

    decoded = decode([b'{"n":{"a":1}}', b'{"n":' + inner + b"}"])

    assert ['{"a":1}', inner.decode()] == decoded.columns.field("n").to_pylist()


def test_too_many_columns_are_refused_with_advice() -> None:
    names = [[b'"k%d":1' % (2_000 * each + number) for number in range(2_000)] for each in range(6)]
    values = [b"{" + b",".join(each) + b"}" for each in names]

    with pytest.raises(FormatError, match=r"12000 different fields.*declare a schema"):
        decode(values)


@pytest.mark.parametrize("text", ["2026-11-22T10", "2026-11-22 10", "2026-11-22T10Z", "2026-11-22T11+01:00"])
def test_a_time_of_hours_is_read_whatever_stands_beside_it(text: str) -> None:
    """Arrow's parser takes it, so that it was bad only beside a value that Arrow's parser refuses."""
    good, other = f'{{"at":"{text}"}}'.encode(), b'{"at":"2026-11-22T10:00:00.123456789Z"}'

    decoded = decode([good, other], "at timestamp")

    assert [] == classes(decoded)
    assert decode([good], "at timestamp").columns[0] == decoded.columns[0]
    assert datetime(2026, 11, 22, 10, tzinfo=UTC) == decoded.columns[0].as_py()["at"]


@pytest.mark.parametrize("place", ["s", "l"])
def test_an_object_of_too_many_fields_is_bad_beside_a_known_struct(place: str) -> None:
    """By itself it is a text; as a struct of the columns that others show, it would lose what it holds."""
    wide: dict[str, object] = {f"k{number}": number for number in range(1_001)}
    objects: list[dict[str, object]] = [{"a": 1}, wide, {"a": 2}]
    values = pa.array(
        [json.dumps({place: each if place == "s" else [{"a": 0}, each]}).encode() for each in objects],
        pa.binary(),
    )
    decoder = open_decoder(FormatSpec("json"))
    assert isinstance(decoder, GuardedDecoder)
    shown = pa.string() if place == "s" else pa.list_(pa.string())
    assert shown == decoder.columns(values).field(place).type

    decoded = decoder.with_columns(decoder.columns(values.slice(0, 1))).decode(values)

    path = "s" if place == "s" else "l[]"
    assert [(1, f"{path} has more than 1000 fields; declare a schema with those that you need")] == [
        (each.row, each.message) for each in decoded.errors
    ]
    assert [True, False, True] == decoded.columns.is_valid().to_pylist()


def decoded_beside(known: pa.StructType, values: Sequence[bytes], name: str = "json") -> Decoded:
    """Return a batch as decoded after batches that have shown columns."""
    array = pa.array(values, pa.binary())
    decoder = open_decoder(FormatSpec(name))
    assert isinstance(decoder, GuardedDecoder)
    return decoder.with_columns(extended(known, decoder.columns(array))).decode(array)


STRUCT = pa.struct([("a", pa.int64())])
MANY = [{f"k{each}-{number}": number for number in range(600)} for each in range(2)]


@pytest.mark.parametrize("count", [1, 4_000])
@pytest.mark.parametrize("place", ["s", "s[]", "s.t"])
def test_values_that_together_have_too_many_fields_lose_none(place: str, count: int) -> None:
    """By themselves they are a text; beside a known struct their fields were dropped without an error."""

    def within(inner: object) -> object:
        return {"s": inner, "s[]": [inner], "s.t": {"t": inner}}[place]

    kinds = {"s": STRUCT, "s[]": pa.list_(STRUCT), "s.t": pa.struct([("t", STRUCT)])}
    few = [{"a": 1, "b": None, "c": [{}, {"d": [None]}]}] * count

    decoded = decoded_beside(
        pa.struct([("s", kinds[place])]), [json.dumps({"s": within(each)}).encode() for each in [*MANY, *few]]
    )

    reason = "is no column: the values of a batch have more than 1000 fields there"
    assert [(row, "FieldWithoutColumn", f"{place}.k{row}-0 {reason}") for row in (0, 1)] == [
        (each.row, each.error_class, each.message.partition(";")[0]) for each in decoded.errors
    ]
    assert [None, None, *[{"s": within({"a": 1})}] * count] == decoded.columns.to_pylist()


def test_the_fields_of_debezium_rows_are_kept_and_those_of_envelopes_ignored() -> None:
    def event(row: object) -> bytes:
        return json.dumps({"op": "c", "after": {"s": row}, "source": {"name": "x", "lsn": 7}}).encode()

    values = [event(each) for each in [*MANY, {"a": 1, "b": None}]]

    decoded = decoded_beside(pa.struct([("s", STRUCT)]), values, "debezium-json")

    assert [(row, f"after.s.k{row}-0 is no column") for row in (0, 1)] == [
        (each.row, each.message.partition(":")[0]) for each in decoded.errors
    ]
    assert [None, None, {"s": {"a": 1}, "op": "c", "ts_ms": None, "lsn": 7}] == decoded.columns.to_pylist()


@pytest.mark.parametrize("is_read_at_once", [True, False])
def test_a_value_without_any_column_has_a_row(is_read_at_once: bool) -> None:
    values = [b'{"none":null}'] * 2 + ([] if is_read_at_once else [b"junk"])

    decoded = decoded_beside(pa.struct([]), values)

    assert [{}, {}] == decoded.columns.to_pylist()[:2]


def test_a_struct_keeps_the_order_of_its_columns_beside_fields_that_are_null() -> None:
    known = pa.struct([("s", pa.struct([("a", pa.int64()), ("b", pa.string())])), ("c", pa.float64())])
    value = b'{"x":null,"c":1,"s":{"y":[],"b":"B","z":{},"a":1}}'

    decoded = decoded_beside(known, [value] * 2)

    assert ([], [{"s": {"a": 1, "b": "B"}, "c": 1.0}] * 2) == (classes(decoded), decoded.columns.to_pylist())


def test_fields_that_are_null_in_all_values_leave_them_to_the_fast_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of many small objects, Arrow's reader finds further fields only in parts."""
    monkeypatch.setattr(JsonDecoder, "_decode_each", None)

    decoded = decoded_beside(pa.struct([]), [b'{"s":{"a":1,"b":null},"none":null}'] * 20_000)

    assert ([], 20_000) == (classes(decoded), decoded.columns.field("s").to_pylist().count({"a": 1}))


def test_fields_that_are_null_do_not_make_values_without_them_bad() -> None:
    """They are fields of Arrow's rows, and no columns."""
    known = pa.struct([("s", STRUCT)])
    values = [b'{"none":null,"s":{"a":1,"b":[]}}', b'{"s":null}', b'{"s":{"a":2}}']
    array = pa.array(values, pa.binary())
    decoder = open_decoder(FormatSpec("json"))
    assert isinstance(decoder, GuardedDecoder)
    bound = decoder.with_columns(extended(known, decoder.columns(array)))

    found = [bound.decode(array), bound.decode(array.slice(1)), bound.decode(array.slice(0, 1))]

    rows = [{"s": {"a": 1}}, {"s": None}, {"s": {"a": 2}}]
    assert [rows, rows[1:], rows[:1]] == [each.columns.to_pylist() for each in found]
    assert [[], [], []] == [classes(each) for each in found]


def test_a_value_of_too_many_fields_in_its_objects_is_bad_and_stops_no_other() -> None:
    wide = {f"s{each}": {f"c{number}": number for number in range(501)} for each in range(20)}

    decoded = decode([b'{"id":1}', json.dumps(wide).encode()])

    assert [(1, "ValueTooLarge")] == classes(decoded)
    assert ["id"] == decoded.columns.type.names
