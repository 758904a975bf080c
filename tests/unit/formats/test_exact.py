"""Rows are written with a declared schema as they are, or not at all."""

import datetime as dt
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from kalda.formats import EncodeError, FormatError, FormatSpec, open_decoder, open_encoder
from kalda.formats.exact import written

DAY = pa.array([5], pa.int32()).cast(pa.date32())
MOMENT = pa.array([5], pa.int64()).cast(pa.timestamp("us", "UTC"))
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
INNER = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}


def spec_of(kind: object) -> FormatSpec:
    fields = [{"name": "a", "type": kind}]
    return FormatSpec("avro", json.dumps({"type": "record", "name": "R", "fields": fields}))


def encoded(spec: FormatSpec, column: pa.Array) -> pa.BinaryArray:
    columns = pa.schema([("a", column.type)])
    rows = pa.StructArray.from_arrays([column], fields=list(columns))
    return open_encoder(spec, columns).encode(rows)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("boolean", pa.array([2])),
        ("boolean", pa.array(["false"])),
        ("double", pa.array(["5"])),
        ("double", pa.array([Decimal("1.5")])),
        ("int", DAY),
        ("long", MOMENT),
        (MILLIS, pa.array([1_700_000_000_000])),
        (MILLIS, DAY),
        ({"type": "int", "logicalType": "date"}, pa.array([5])),
        ("string", pa.array([5])),
        ({"type": "array", "items": "boolean"}, pa.array([[1]])),
        (INNER, pa.array([{"x": 1, "y": 2}])),
    ],
)
def test_a_column_of_another_kind_than_its_field_is_refused(kind: object, column: pa.Array) -> None:
    """Avro's writer makes something of each: 2 is true, and milliseconds are taken for microseconds."""
    with pytest.raises(FormatError, match="the schema has"):
        open_encoder(spec_of(kind), pa.schema([("a", column.type)]))


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("int", pa.array([1 << 40])),
        ("int", pa.array([1.5])),
        ("long", pa.array([Decimal("1.50")])),
        ("float", pa.array([1e300])),
        ("double", pa.array([(1 << 53) + 1])),
        ("boolean", pa.array([None], pa.bool_())),
        (CENTS, pa.array([Decimal("1.555")])),
        ({"type": "array", "items": "int"}, pa.array([[1, 1 << 40]])),
        ({"type": "array", "items": "boolean"}, pa.array([[True, None]])),
        ({"type": "map", "values": "int"}, pa.array([[("k", 1 << 40)]], pa.map_(pa.string(), pa.int64()))),
        (INNER, pa.array([{"x": 1 << 40}])),
    ],
)
def test_a_value_that_the_field_does_not_hold_is_refused(kind: object, column: pa.Array) -> None:
    """It would be another value in silence, or bytes that no reader takes."""
    with pytest.raises(EncodeError):
        encoded(spec_of(kind), column)


@pytest.mark.parametrize(
    ("kind", "column", "expected"),
    [
        ("int", pa.array([5, -1]), [5, -1]),
        ("long", pa.array([5.0]), [5]),
        ("float", pa.array([0.5]), [0.5]),
        (["null", "boolean"], pa.array([None, True]), [None, True]),
        (CENTS, pa.array([5]), [Decimal("5.00")]),
        ({"type": "int", "logicalType": "time-millis"}, pa.array([5], pa.time32("ms")), [5]),
        ("string", pa.array(["x"]).dictionary_encode(), ["x"]),
        ({"type": "array", "items": "int"}, pa.array([[5], []]), [[5], []]),
        (["null", INNER], pa.array([{"x": 5}, None]), [{"x": 5}, None]),
        (
            MILLIS,
            pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]),
            [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)],
        ),
    ],
)
def test_a_value_that_the_field_holds_is_written(
    kind: object, column: pa.Array, expected: list[object]
) -> None:
    decoded = open_decoder(spec_of(kind)).decode(encoded(spec_of(kind), column))

    assert () == decoded.errors
    assert expected == [row["a"] for row in decoded.columns.to_pylist()]


def test_what_a_null_hides_is_not_looked_at() -> None:
    """A tombstone is a null row over columns that may hold anything."""
    hidden = pa.StructArray.from_arrays([pa.array([1 << 40, 5])], ["x"], mask=pa.array([True, False]))

    assert [None, {"x": 5}] == written(hidden, pa.struct([("x", pa.int32())])).to_pylist()
    assert [{"x": 5}] == written(hidden.slice(1), pa.struct([("x", pa.int32())])).to_pylist()


@pytest.mark.parametrize(
    ("field", "column"),
    [("uint64", pa.array([Decimal("1.50")])), ("float", pa.array([1e300])), ("int32", pa.array([1.5]))],
)
def test_protobuf_fields_take_values_as_they_are(field: str, column: pa.Array) -> None:
    """A fraction would be cut off, and a large number be infinite."""
    pytest.importorskip("grpc_tools")
    spec = FormatSpec("protobuf", f'syntax = "proto3"; message A {{ {field} a = 1; }}')

    with pytest.raises(EncodeError, match="a value of the column a does not fit"):
        encoded(spec, column)
    with pytest.raises(FormatError, match="the column a is"):
        open_encoder(spec, pa.schema([("a", pa.date32())]))
