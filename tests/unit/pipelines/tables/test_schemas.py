"""Which Arrow types a table has, and how they may change."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.pipelines.spec.model import Evolve, TableFormat
from kalda.pipelines.tables.errors import SchemaRefusedError
from kalda.pipelines.tables.schemas import (
    EvolutionRules,
    conform,
    evolve,
    may_lose_digits,
    renamed,
    table_schema,
    table_type,
    wider_type,
)

KINDS = DELTA, ICEBERG, PARQUET = TableFormat.DELTA, TableFormat.ICEBERG, TableFormat.PARQUET
NUMBERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(10, 2),
    pa.decimal128(38, 0),
    pa.decimal128(12, 7),
    pa.string(),
    pa.bool_(),
]
numbers = st.sampled_from(NUMBERS)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.decimal128(20, 0)),
        (pa.float16(), pa.float32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.binary(7), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ns", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.decimal256(38, 3), pa.decimal128(38, 3)),
        (pa.decimal256(39, 3), None),
        (pa.duration("s"), None),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (pa.large_list(pa.uint8()), pa.list_(pa.field("element", pa.int16()))),
        (pa.list_(pa.int8(), 3), pa.list_(pa.field("element", pa.int8()))),
        (pa.map_(pa.large_string(), pa.uint8()), pa.map_(pa.string(), pa.int16())),
        (pa.struct([("a", pa.int8()), ("A", pa.string())]), pa.struct([("a", pa.int8())])),
        (pa.struct([("a", pa.duration("s"))]), None),
        (pa.struct([]), None),
        (pa.list_(pa.duration("s")), None),
    ],
)
def test_types_become_those_that_all_engines_share(source: pa.DataType, expected: pa.DataType | None) -> None:
    assert expected == table_type(source, DELTA) == table_type(source, PARQUET)


def test_formats_differ_where_they_must() -> None:
    assert [pa.int8(), pa.int32(), pa.int8()] == [table_type(pa.int8(), kind) for kind in KINDS]
    assert [None, pa.time64("us"), pa.time64("us")] == [table_type(pa.time32("s"), kind) for kind in KINDS]


def test_a_schema_leaves_out_columns_without_a_type_and_names_what_it_refuses() -> None:
    incoming = pa.schema(
        [("id", pa.int64()), ("ID", pa.int64()), ("gone", pa.null()), ("wait", pa.duration("s"))]
    )
    with pytest.raises(SchemaRefusedError, match="refuses 2 column") as refused:
        table_schema(incoming, DELTA, "lake.t")
    assert ("ID", "wait") == refused.value.columns
    assert "'ID': it differs from another column by case alone" in str(refused.value)
    assert "'wait': duration[s] has no counterpart in delta" in str(refused.value)
    assert ["id"] == table_schema(incoming, DELTA, "lake.t", is_strict=False).names


@given(numbers, numbers)
def test_the_wider_of_two_types_is_the_same_both_ways_and_holds_both(
    one: pa.DataType, other: pa.DataType
) -> None:
    wider = wider_type(one, other)
    if pa.types.is_decimal(one) == pa.types.is_decimal(other):
        assert wider == wider_type(other, one)
    if wider is None:
        return
    assert wider == wider_type(wider, one) == wider_type(wider, wider)
    if not pa.types.is_decimal(other):
        assert wider == wider_type(wider, other)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=4), st.sampled_from(list(Evolve)))
def test_no_column_becomes_narrower_or_another(
    columns: list[tuple[pa.DataType, pa.DataType]], policy: Evolve
) -> None:
    current = pa.schema([(f"c{number}", own) for number, (own, _) in enumerate(columns)])
    incoming = pa.schema([(f"C{number}", other) for number, (_, other) in enumerate(columns)])
    rules = EvolutionRules(policy, DELTA, is_strict=False)
    evolution = evolve(current, incoming, rules, "lake.t")
    assert current.names == evolution.schema.names, "a column that differs by case is the table's own"
    for before, after in zip(current, evolution.schema, strict=True):
        assert after.type in (before.type, wider_type(before.type, after.type))
        assert (after.type != before.type) == (after.name in evolution.widened)
    if policy is not Evolve.WIDEN:
        assert current == evolution.schema
    again = evolve(evolution.schema, incoming, rules, "lake.t")
    assert (evolution.schema, (), ()) == (again.schema, again.added, again.widened)


def test_parts_of_a_column_evolve_as_columns_do() -> None:
    own = pa.schema([("s", pa.struct([("a", pa.int32()), ("l", pa.list_(pa.field("element", pa.int8())))]))])
    inner = [("A", pa.int64()), ("b", pa.string()), ("l", pa.list_(pa.field("element", pa.int16())))]
    rows = pa.schema([("s", pa.struct(inner))])
    widened = evolve(own, rows, EvolutionRules(Evolve.WIDEN, DELTA), "lake.t")
    expected = [("a", pa.int64()), ("l", pa.list_(pa.field("element", pa.int16()))), ("b", pa.string())]
    assert pa.schema([("s", pa.struct(expected))]) == widened.schema
    assert (("s",), ()) == (widened.widened, widened.added)
    with pytest.raises(SchemaRefusedError, match="its field 'b' is new"):
        evolve(own, rows, EvolutionRules(Evolve.NONE, DELTA), "lake.t")
    with pytest.raises(SchemaRefusedError, match="int64 is wider than the table's int32"):
        evolve(own, rows, EvolutionRules(Evolve.ADD, DELTA), "lake.t")


def test_a_format_and_a_table_may_refuse_to_widen() -> None:
    own = pa.schema([("n", pa.int64()), ("d", pa.decimal128(6, 2))])
    rows = pa.schema([("n", pa.float64()), ("d", pa.decimal128(9, 4))])
    with pytest.raises(SchemaRefusedError, match="Iceberg makes no floating-point numbers") as refused:
        evolve(own, rows, EvolutionRules(Evolve.WIDEN, ICEBERG), "lake.t")
    assert "Iceberg keeps the scale of a decimal" in str(refused.value)
    fixed = EvolutionRules(Evolve.WIDEN, DELTA, fixed={"n": "it has great integers"}, is_strict=False)
    assert ("d",) == evolve(own, rows, fixed, "lake.t").widened
    nested = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.int64()))]))
    floats = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.float64()))]))
    assert may_lose_digits(nested, floats)
    assert not may_lose_digits(nested, nested)


def test_rows_get_the_table_s_columns() -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    rows = pa.record_batch({"id": pa.array([1, 2], pa.int8()), "gone": pa.nulls(2)})
    assert [{"id": 1, "name": None}, {"id": 2, "name": None}] == conform(rows, schema).to_pylist()
    with pytest.raises(SchemaRefusedError, match=r"rows have the column\(s\) more"):
        conform(rows.append_column("more", pa.array([1, 2])), schema)
    with pytest.raises(pa.ArrowInvalid, match="column id, row 1"):
        conform(pa.record_batch({"id": [1.0, 1.5]}), schema)
    physical = pa.schema([("col-1", pa.int64()), ("col-2", pa.string())])
    assert ["col-1", "col-2"] == renamed(conform(rows, schema), physical).schema.names
