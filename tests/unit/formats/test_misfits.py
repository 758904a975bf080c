"""Rows of a registry's schemas become rows of the columns that earlier batches have made."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kalda.formats import Decoded, FormatSpec, open_decoder
from kalda.formats.guarded_decoder import GuardedDecoder
from kalda.formats.merging import ColumnsChangedError, converted, extended, text_places
from kalda.formats.misfits import fitted
from kalda.pipelines.direct.columns_job import ShownColumns
from kalda.pipelines.direct.row_plan import RowPlan
from tests.integration.formats.registry_server import RegistryServer, registry_server

MOMENT = datetime(2026, 1, 2, 3, tzinfo=UTC)
MOMENTS = pa.timestamp("us", tz="UTC")


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def rows(kind: pa.DataType, values: list[object]) -> Decoded:
    return Decoded(pa.array([{"id": 0, "c": each} for each in values], row_type(kind)), ())


def row_type(kind: pa.DataType) -> pa.StructType:
    return pa.struct([("id", pa.int64()), ("c", kind)])


def within(place: str, value: Any, is_type: bool = False) -> Any:
    """Return a value, or a type, as it stands within others."""
    match place:
        case "c":
            return value
        case "c[]":
            return pa.list_(value) if is_type else [value]
        case "c.f":
            return pa.struct([("f", value)]) if is_type else {"f": value}
    return pa.map_(pa.string(), value) if is_type else [("k", value)]


@pytest.mark.parametrize("place", ["c", "c[]", "c.f", "c{}"])
@pytest.mark.parametrize(
    ("own", "value", "kind"),
    [
        (pa.int64(), 5, MOMENTS),
        (MOMENTS, MOMENT, pa.int64()),
        (MOMENTS, MOMENT, pa.date32()),
        (pa.date32(), date(2026, 1, 2), MOMENTS),
        (pa.timestamp("us"), MOMENT.replace(tzinfo=None), MOMENTS),
        (pa.int32(), 5, pa.date32()),
        (pa.int64(), 5, pa.bool_()),
        (pa.bool_(), True, pa.int64()),
        (pa.string(), "5", pa.int64()),
        (pa.string(), "5", pa.struct([("a", pa.int64())])),
        (pa.list_(pa.int64()), [1], pa.struct([("a", pa.int64())])),
        (pa.map_(pa.int64(), pa.int64()), [(1, 1)], pa.map_(pa.string(), pa.int64())),
    ],
)
def test_a_value_of_another_type_is_bad_and_null_is_not(
    place: str, own: pa.DataType, value: object, kind: pa.DataType
) -> None:
    """A cast would make a moment of a number, and drop the time of a moment, without a word."""
    assert extended(row_type(kind), row_type(own)) == row_type(kind)
    decoded = rows(within(place, own, is_type=True), [None, within(place, value), within(place, None)])

    found = fitted(decoded, row_type(within(place, kind, is_type=True)))

    assert [(1, "TypeMismatch")] == [(each.row, each.error_class) for each in found.errors]
    expected = [{"id": 0, "c": None}, None, {"id": 0, "c": within(place, None)}]
    assert expected == found.columns.to_pylist()


def test_numbers_widen_and_texts_are_texts() -> None:
    own = pa.struct([("i", pa.int32()), ("d", pa.decimal128(4, 2)), ("t", pa.int64()), ("b", pa.string())])
    kind = pa.struct([("i", pa.int64()), ("d", pa.float64()), ("t", pa.string()), ("b", pa.binary())])
    row = pa.array([{"i": 1, "d": 2, "t": 3, "b": "é"}], own)

    assert Decoded(pa.array([{"i": 1, "d": 2.0, "t": "3", "b": "é".encode()}], kind), ()) == fitted(
        Decoded(row, ()), kind
    )


def test_the_field_of_a_value_that_is_no_column_asks_for_the_columns_again() -> None:
    """Each field of a value is a column, unless the registry has got its schema only since then."""
    with pytest.raises(ColumnsChangedError, match="'c'"):
        fitted(rows(pa.int64(), [1]), pa.struct([("id", pa.int64())]))


def test_nulls_and_what_is_empty_need_no_column() -> None:
    own = pa.struct([("a", pa.int64()), ("n", pa.int64()), ("l", pa.list_(pa.struct([("x", pa.int64())])))])
    decoded = rows(own, [{"a": 1, "n": None, "l": [{"x": None}]}, {"a": 2, "l": [{}, {"x": 1}]}, None])

    for start in range(3):
        part = Decoded(decoded.columns.slice(start), ())
        found = fitted(part, row_type(pa.struct([("a", pa.int64())])))
        good = [{"id": 0, "c": {"a": 1}}, None, {"id": 0, "c": None}]
        assert good[start:] == found.columns.to_pylist()
        assert [(1 - start, "FieldWithoutColumn")] * (start < 2) == [
            (each.row, each.error_class) for each in found.errors
        ]


def avro(registry: RegistryServer, schema: Any, row: Any) -> bytes:
    """Return a value with the framing of its schema."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return b"\0" + registry.register("avro", json.dumps(schema)).to_bytes(4, "big") + stream.getvalue()


def record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    made = [{"name": field, "type": kind} for field, kind in fields]
    return {"type": "record", "name": name, "fields": made}


def decoded_beside(known: list[bytes], batch: list[bytes], name: str, url: str) -> Decoded:
    """Return a batch as decoded after another one."""
    decoder = open_decoder(FormatSpec(name, options={"registry.url": url}))
    assert isinstance(decoder, GuardedDecoder)
    first, values = (pa.array(each, pa.binary()) for each in (known, batch))
    shown = decoder.columns(values)
    columns = extended(decoder.columns(first), shown)
    return decoder.with_columns(columns, list(text_places(columns, shown))).decode(values)


def test_a_nested_field_that_the_search_could_not_see_asks_for_the_columns_again(
    registry: RegistryServer,
) -> None:
    """Another process had not got the schema from the registry, and the value was a dead letter."""
    known, value = (
        avro(registry, record("R", ("s", record("S", *((name, "long") for name in names)))), {"s": row})
        for names, row in (("a", {"a": 1}), ("ab", {"a": 2, "b": 3}))
    )
    decoder = open_decoder(FormatSpec("avro-sr", options={"registry.url": registry.url}))
    assert isinstance(decoder, GuardedDecoder)
    columns = decoder.columns(pa.array([known], pa.binary()))
    values = pa.array([known, value], pa.binary())

    for texts in ([], ["t", "s.a", "ss"]):
        with pytest.raises(ColumnsChangedError, match=r"'s\.b'"):
            decoder.with_columns(columns, texts).decode(values)
    errors = decoder.with_columns(columns, ["s"]).decode(values).errors
    assert [(1, "FieldWithoutColumn", "s.b")] == [(each.row, each.error_class, each.lost) for each in errors]


def test_a_text_beside_a_nested_column_has_a_place() -> None:
    number, wide = pa.int64(), pa.string()
    for place in ("c", "c[]", "c.f", "c{}"):
        name = place.replace("{}", "[]")
        found = [
            list(text_places(row_type(within(place, kind, True)), row_type(within(place, shown, True))))
            for kind, shown in (
                (pa.struct([("a", number)]), wide),
                (pa.struct([("a", number)]), pa.dense_union([pa.field("0", number), pa.field("1", wide)])),
                (pa.list_(number), wide),
                (pa.struct([("a", number)]), number),
                (number, wide),
                (wide, wide),
            )
        ]
        assert [[name], [name], [name], [], [], []] == found


@pytest.mark.parametrize("place", ["c", "c[]", "c.f", "c{}"])
@pytest.mark.parametrize(
    ("own", "value", "kind"),
    [
        (pa.list_(pa.int64()), [], pa.struct([("a", pa.int64())])),
        (pa.list_(pa.int64()), [None], pa.int64()),
        (pa.struct([("a", pa.int64())]), {"a": None}, pa.int64()),
        (pa.map_(pa.int64(), pa.int64()), [], pa.map_(pa.string(), pa.int64())),
        (pa.map_(pa.int64(), pa.int64()), [], pa.int64()),
    ],
)
def test_what_is_empty_is_null_of_another_type(
    place: str, own: pa.DataType, value: object, kind: pa.DataType
) -> None:
    decoded = rows(within(place, own, is_type=True), [within(place, value), None])

    found = fitted(decoded, row_type(within(place, kind, is_type=True)))

    assert () == found.errors
    assert [{"id": 0, "c": within(place, None)}, {"id": 0, "c": None}] == found.columns.to_pylist()


def test_a_map_without_entries_needs_no_column() -> None:
    own = pa.struct([("a", pa.int64()), ("m", pa.map_(pa.string(), pa.int64()))])
    decoded = rows(own, [{"a": 1, "m": []}, {"a": 2, "m": [("k", None)]}])

    found = fitted(decoded, row_type(pa.struct([("a", pa.int64())])))

    assert [(1, "FieldWithoutColumn")] == [(each.row, each.error_class) for each in found.errors]
    assert [{"id": 0, "c": {"a": 1}}, None] == found.columns.to_pylist()


def test_a_row_has_its_first_failure_alone() -> None:
    own = pa.struct([("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64())])
    decoded = rows(own, [{"b": 1, "c": 1}, {"a": 1}, {"c": 1}, {"b": 1}])

    found = fitted(decoded, row_type(pa.struct([("a", pa.int64())])))

    assert [(0, "c.b"), (2, "c.c"), (3, "c.b")] == [(each.row, each.lost) for each in found.errors]


def test_items_in_front_of_a_list_belong_to_none() -> None:
    items = pa.array([{"a": 1}, {"b": MOMENT}], pa.struct([("a", pa.int64()), ("b", MOMENTS)]))
    kind = pa.struct([("b", MOMENTS)])
    lists = pa.ListArray.from_arrays(pa.array([1, 2], pa.int32()), items)
    maps = pa.MapArray.from_arrays(pa.array([1, 2], pa.int32()), pa.array(["j", "k"]), items)

    assert [[{"b": MOMENT}]] == converted(lists, pa.list_(kind)).to_pylist()
    assert [[("k", {"b": MOMENT})]] == converted(maps, pa.map_(pa.string(), kind)).to_pylist()


@pytest.mark.parametrize("name", ["avro-sr", "debezium-avro-sr", "protobuf-sr"])
def test_schemas_that_have_too_many_fields_together_stop_nothing(registry: RegistryServer, name: str) -> None:
    """The batch was tried again for ever: each time the fields were found to be no columns."""

    def value(*fields: str) -> bytes:
        if name == "protobuf-sr":
            lines = "".join(f"optional int64 {field} = {number};" for number, field in enumerate(fields, 1))
            text = f'syntax = "proto3"; message A {{ S s = 1; message S {{ {lines} }} }}'
            body = bytes((8, 7)) if fields else b""
            number = registry.register("proto", text, "PROTOBUF")
            return b"\0" + number.to_bytes(4, "big") + bytes((0, 10, len(body))) + body
        row = record("S", *((field, "long") for field in fields))
        schema: Any = record("R", ("s", row))
        made: Any = {"s": dict.fromkeys(fields, 7)}
        if name.startswith("debezium"):
            schema = record("E", ("after", schema), ("op", "string"))
            made = {"after": made, "op": "c"}
        return avro(registry, schema, made)

    wide = [value(*(f"k{part}x{number}" for number in range(600))) for part in range(2)]
    few = value("a")

    decoded = decoded_beside([few], [wide[0], few, wide[1], few], name, registry.url)

    reason = "is no column: the values of a batch have more than 1000 fields there"
    assert [(2 * part, "FieldWithoutColumn", f"s.k{part}x0 {reason}") for part in range(2)] == [
        (each.row, each.error_class, each.message.partition(";")[0]) for each in decoded.errors
    ]
    assert [None, {"a": 7}, None, {"a": 7}] == decoded.columns.field("s").to_pylist()


def test_a_number_is_no_moment_although_earlier_values_were_moments(registry: RegistryServer) -> None:
    """Milliseconds in a field that had become a plain long were read as microseconds."""
    moment = record("R", ("at", {"type": "long", "logicalType": "timestamp-micros"}))
    number = record("R", ("at", ["null", "long"]))
    values = [avro(registry, moment, {"at": MOMENT}), avro(registry, number, {"at": 1_700_000_000_000})]

    batch = [*values, avro(registry, number, {"at": None})]
    decoded = decoded_beside(values[:1], batch, "avro-sr", registry.url)

    assert [{"at": MOMENT}, None, {"at": None}] == decoded.columns.to_pylist()
    message = "at is int64; timestamp[us, tz=UTC] is expected, as earlier values had it"
    assert [(1, "TypeMismatch", message)] == [
        (each.row, each.error_class, each.message) for each in decoded.errors
    ]


@pytest.mark.parametrize("place", ["c[]", "c{}"])
@pytest.mark.parametrize("is_nested", [False, True])
def test_items_count_for_their_own_value_alone(place: str, is_nested: bool) -> None:
    """An array may begin and end within its items, and have some below a null."""
    own = within(place, pa.struct([("a", pa.int64()), ("b", MOMENTS)]), is_type=True)
    kind = within(place, pa.struct([("b", MOMENTS)]), is_type=True)
    good, bad = within(place, {"b": MOMENT}), within(place, {"a": 1})
    values: list[object] = [good, bad, None, good, within(place, None), bad]
    if is_nested:
        own, kind = within("c.f", own, is_type=True), within("c.f", kind, is_type=True)
        values = [within("c.f", each) for each in values]
    whole = rows(own, values).columns
    masked = pa.StructArray.from_arrays(whole.flatten(), fields=list(whole.type), mask=pa.array([False] * 6))
    hidden = pa.StructArray.from_arrays(
        whole.flatten(), fields=list(whole.type), mask=pa.array([False, True, False, False, False, False])
    )
    expected = [{"id": 0, "c": each} for each in values]

    for array, lost in ((whole, {1, 5}), (masked, {1, 5}), (hidden, {5})):
        for start in range(6):
            for end in range(start + 1, 7):
                found = fitted(Decoded(array.slice(start, end - start), ()), row_type(kind))
                assert [row - start for row in sorted(lost) if start <= row < end] == [
                    each.row for each in found.errors
                ]
                shown = [None if row in (1, 5) else expected[row] for row in range(start, end)]
                assert without_a(shown) == found.columns.to_pylist()


def without_a(value: Any) -> Any:
    """Return a value without the field a of its structures."""
    if isinstance(value, dict):
        return {name: without_a(each) for name, each in value.items() if name != "a"}
    if isinstance(value, list | tuple):
        return type(value)(map(without_a, value))
    return value


def test_a_batch_with_too_many_fields_ends_wherever_it_is_cut(registry: RegistryServer) -> None:
    """A part alone has few fields; asking for the columns again would find the same ones, for ever."""

    def value(*fields: str) -> bytes:
        row = record("S", *((field, "long") for field in fields))
        return avro(registry, record("R", ("s", row)), {"s": dict.fromkeys(fields, 7)})

    wide = [value(*(f"w{part}x{number}" for number in range(600))) for part in range(2)]
    values = pa.array([wide[0], value("a"), wide[1]], pa.binary())
    plan = RowPlan((), open_decoder(FormatSpec("avro-sr", options={"registry.url": registry.url})))
    known = plan.columns_of(values.slice(1, 1))
    for ends in ([3], [1, 2, 3]):
        parts = [values.slice(start, end - start) for start, end in pairwise([0, *ends])]
        kinds = [plan.columns_of(part) for part in parts]
        good = [plan.good_columns_of(part, known, kind) for part, kind in zip(parts, kinds, strict=True)]
        shown = ShownColumns.together(map(ShownColumns, good, kinds))
        columns = shown.beside(known)
        decoder = plan.with_columns(columns, shown.texts_beside(columns)).decoder
        assert decoder is not None
        errors = [each for part in parts for each in decoder.decode(part).errors]
        assert ["FieldWithoutColumn"] * 2 == [each.error_class for each in errors]
