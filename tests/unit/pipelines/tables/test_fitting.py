"""What becomes of the rows that a table does not take."""

import datetime as dt
import pickle
from decimal import Decimal

import pyarrow as pa
import pytest

from kalda.pipelines.spec.model import TableFormat
from kalda.pipelines.sql.row_query import RowCondition
from kalda.pipelines.tables.fitting import Fitted, RowFit, convert
from kalda.pipelines.tables.partitions import HIVE_NULL, parse_fields
from kalda.pipelines.tables.schemas import table_schema
from kalda.pipelines.tables.upsert import DELETE, OFFSET, PARTITION

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
ELEMENT = pa.field("element", pa.struct([("c", pa.float64())]))
NESTED = pa.struct([("a", pa.int64()), ("b", pa.list_(ELEMENT))])


def fitted(rules: RowFit, rows: list[dict[str, object]], schema: pa.Schema) -> Fitted:
    """Return what becomes of rows in a task: the rules come pickled."""
    loaded: RowFit = pickle.loads(pickle.dumps(rules))
    return loaded.fit(pa.RecordBatch.from_pylist(rows, schema))


def reasons_of(found: Fitted) -> dict[int, tuple[str, str]]:
    return {each.row: (each.error_class, each.message) for each in found.misfits}


@pytest.mark.parametrize(
    ("source", "kind", "values", "expected"),
    [
        (pa.float64(), pa.int64(), [1.0, 1.5, None, float("nan")], [1, "bad", None, "bad"]),
        (pa.int64(), pa.float64(), [1, (1 << 53) + 1], [1.0, "bad"]),
        (pa.int64(), pa.int32(), [1, 1 << 40], [1, "bad"]),
        (pa.float64(), pa.float32(), [0.5, 0.1], [0.5, "bad"]),
        (pa.string(), pa.int64(), ["1", None], ["bad", None]),
        (pa.int64(), pa.string(), [1, None], ["bad", None]),
        (pa.int64(), pa.decimal128(4, 2), [12, 123], [Decimal("12.00"), "bad"]),
        (pa.int64(), pa.decimal128(38, 30), [2, 1 << 40], [Decimal(2), "bad"]),
        (pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC"), [0, 253_402_300_800], [EPOCH, "bad"]),
        (pa.date32(), pa.date32(), [0, 2_932_897], [dt.date(1970, 1, 1), "bad"]),
        (pa.null(), NESTED, [None], [None]),
        (
            pa.struct([("b", pa.list_(pa.struct([("c", pa.int64())]))), ("a", pa.float64())]),
            NESTED,
            [{"a": 1.0, "b": [{"c": 2}, None]}, None, {"a": 1.5, "b": []}, {"a": None, "b": None}],
            [{"a": 1, "b": [{"c": 2.0}, None]}, None, "bad", {"a": None, "b": None}],
        ),
        (
            pa.list_(pa.struct([("c", pa.int64()), ("d", pa.int64())])),
            pa.list_(pa.struct([("c", pa.int64())])),
            [[{"c": 1, "d": None}], [{"c": 1, "d": 2}], None, []],
            [[{"c": 1}], "bad", None, []],
        ),
        (
            pa.map_(pa.string(), pa.float64()),
            pa.map_(pa.string(), pa.int64()),
            [[("x", 1.0)], [("x", 1.0), ("y", 1.5)], None, []],
            [[("x", 1)], "bad", None, []],
        ),
    ],
    ids=lambda each: str(each) if isinstance(each, pa.DataType) else "",
)
def test_a_value_is_kept_or_its_row_is_named(
    source: pa.DataType, kind: pa.DataType, values: list[object], expected: list[object]
) -> None:
    """Also in a slice, whose offsets do not begin at 0."""
    for column, wanted in (
        (pa.array(values, source), expected),
        (pa.array(values, source)[1:], expected[1:]),
    ):
        made, reasons = convert(column, kind)
        assert kind == made.type
        assert [row for row, each in enumerate(wanted) if each == "bad"] == sorted(reasons)
        good = [(each, made[row].as_py()) for row, each in enumerate(wanted) if each != "bad"]
        assert [each for each, _ in good] == [each for _, each in good]


def test_columns_are_matched_by_name_whatever_their_case() -> None:
    rules = RowFit("lake.t", pa.schema([("id", pa.int64()), ("v", pa.string())]), policy="none")
    schema = pa.schema([("ID", pa.int64()), ("extra", pa.int64()), ("id", pa.int64()), ("none", pa.null())])
    found = fitted(rules, [{"id": 1}, {"ID": 2}, {"id": 3, "ID": 4}, {"id": 5, "extra": 6}, {}], schema)

    assert [{"id": 1, "v": None}, {"id": 2, "v": None}, {"id": None, "v": None}] == found.rows.to_pylist()
    reasons = reasons_of(found)
    assert {2, 3} == set(reasons)
    assert "column ID=4: the row also has id, which differs by case alone" in reasons[2][1]
    assert (
        "UnknownColumn",
        "column extra=6: the table lake.t has no such column, and schema.evolve=none adds none",
    ) == reasons[3]


def test_values_that_must_be_there() -> None:
    item = pa.field("element", pa.int64(), nullable=False)
    required = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("s", pa.struct([pa.field("x", pa.int64(), nullable=False)])),
            pa.field("l", pa.list_(item)),
        ]
    )
    structure = pa.struct([("x", pa.int64())])
    given = pa.schema([("id", pa.int64()), ("s", structure), ("l", pa.list_(pa.int64()))])
    rows: list[dict[str, object]] = [
        {"id": 1, "s": {"x": 1}, "l": [1]},
        {"id": None},
        {"id": 2, "s": {"x": None}},
        {"id": 3, "s": None, "l": [1, None]},
        {"id": 4, "s": None, "l": None},
    ]
    found = fitted(RowFit("lake.t", required), rows, given)

    assert [1, 4] == found.rows.column("id").to_pylist()
    assert {
        1: ("NullValue", "column id=None: the column is NOT NULL"),
        2: ("NullValue", "column s=None: the column is NOT NULL"),
        3: ("NullValue", "column l=None: the column is NOT NULL"),
    } == reasons_of(found)


def test_conditions_must_be_true() -> None:
    """Null is not true, as for Delta's own writers; a condition that fails concerns its row alone."""
    schema = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
    checks = (("positive", RowCondition("10 / amount > 0")),)
    rows: list[dict[str, object]] = [
        {"id": number, "amount": amount} for number, amount in enumerate((1, -1, 0, None, 5), 1)
    ]
    found = fitted(RowFit("lake.t", schema, checks=checks), rows, schema)

    assert [1, 5] == found.rows.column("id").to_pylist()
    assert [1, 2, 3] == [each.row for each in found.misfits]
    assert {"CheckFailed"} == {each.error_class for each in found.misfits}
    assert "the constraint positive of the table lake.t, 10 / amount > 0, is not true for {'id': 2," in (
        found.misfits[0].message
    )
    assert "division by zero" in found.misfits[1].message


def test_a_row_that_deletes_needs_its_keys_alone() -> None:
    table = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64(), nullable=False)])
    hidden = [(PARTITION, pa.int32()), (OFFSET, pa.int64()), (DELETE, pa.bool_())]
    schema = pa.schema([("id", pa.int64()), ("v", pa.float64()), *hidden])
    rows: list[dict[str, object]] = [
        {"id": 1, "v": None, DELETE: True},
        {"id": None, "v": 1.0, DELETE: False},
        {"id": None, "v": None, DELETE: True},
        {"id": 2, "v": 1.5, DELETE: True},
    ]
    rules = RowFit("lake.t", table, keys=("id",), checks=(("c", RowCondition("v > 0")),))
    found = fitted(rules, rows, schema)

    assert [1, 2] == found.rows.column("id").to_pylist()
    assert ["id", "v", PARTITION, OFFSET, DELETE] == found.rows.schema.names
    assert dict.fromkeys((1, 2), ("NullValue", "column id=None: it is a key")) == reasons_of(found)


def test_a_partition_has_a_name_that_file_systems_take() -> None:
    schema = pa.schema([("dt", pa.string())])
    rules = RowFit("lake.t", schema, fields=parse_fields(("dt",)), has_directories=True)
    found = fitted(rules, [{"dt": "x" * 252}, {"dt": "x" * 253}, {"dt": "/" * 85}, {"dt": None}], schema)

    assert ["x" * 252, None] == found.rows.column("dt").to_pylist()
    assert [1, 2] == [each.row for each in found.misfits]


def test_a_moment_that_python_lacks_is_named() -> None:
    """The message that names such a value must not fail by it."""
    kinds = {"at": pa.timestamp("us", tz="UTC"), "local": pa.timestamp("us"), "day": pa.date32()}
    schema = pa.schema(list(kinds.items()))
    far = 253_402_300_800_000_000
    columns = [pa.array([0, far], pa.int64()).cast(kinds[name]) for name in ("at", "local")]
    columns.append(pa.array([0, 2_932_897], pa.int32()).cast(pa.date32()))

    for index, name in enumerate(kinds):
        rows = pa.RecordBatch.from_arrays([columns[index]], names=[name])

        found = RowFit("orders", pa.schema([schema.field(name)])).fit(rows)

        assert 1 == found.rows.num_rows
        assert [1] == [each.row for each in found.misfits]
        assert "outside the years 1 to 9999" in found.misfits[0].message
        assert ("+10000-01-01" in found.misfits[0].message) == (name != "local")


def test_a_moment_inside_of_a_structure_is_named() -> None:
    """A column of the table's own type is looked into: one such moment stops readers of the whole file."""
    times = pa.array([0, 253_402_300_800_000_000], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    ends = pa.array([0, 1, 2], pa.int32())
    columns = [
        pa.StructArray.from_arrays([times], names=["at"]),
        pa.ListArray.from_arrays(ends, times),
        pa.MapArray.from_arrays(ends, pa.array(["a", "b"]), times),
    ]

    for column in columns:
        rows = pa.RecordBatch.from_arrays([column], names=["c"])

        found = RowFit("orders", pa.schema([("c", column.type)])).fit(rows)

        assert [1] == [each.row for each in found.misfits]
        assert column[:1].to_pylist() == found.rows.column("c").to_pylist()


def test_fields_of_structures_are_matched_by_name_whatever_their_case() -> None:
    """Delta refuses a structure with two such fields, which stopped the pipeline."""
    given = pa.schema([("c", pa.struct([("b", pa.int64()), ("B", pa.int64())]))])
    rows: list[dict[str, object]] = [
        {"c": {"b": 1, "B": None}}, {"c": {"b": 1, "B": 2}}, {"c": {"B": 9}}, {"c": None},
    ]  # fmt: skip
    schema = table_schema(given, TableFormat.DELTA, "lake.t")

    found = fitted(RowFit("lake.t", schema), rows, given)

    assert pa.schema([("c", pa.struct([("b", pa.int64())]))]) == schema
    assert [{"b": 1}, {"b": 9}, None] == found.rows.column("c").to_pylist()
    assert [(1, "ValueMisfit")] == [(each.row, each.error_class) for each in found.misfits]
    assert "it has the fields b and B, for which the table has one" in found.misfits[0].message


def test_a_text_that_means_null_as_a_directory_is_put_aside() -> None:
    """Every reader of Hive's directories would take it for null."""
    schema = pa.schema([("dt", pa.string()), ("n", pa.int64())])
    rows = pa.RecordBatch.from_pydict({"dt": [HIVE_NULL, "a", None, ""], "n": [1, 2, 3, 4]}, schema)

    fitted = RowFit("lake.t", schema, fields=parse_fields(("dt",)), has_directories=True).fit(rows)

    assert [2, 3, 4] == fitted.rows.column("n").to_pylist()
    (misfit,) = fitted.misfits
    assert (
        "column dt='__HIVE_DEFAULT_PARTITION__': the directory of that name stands for null" == misfit.message
    )
    assert () == RowFit("lake.t", schema, fields=parse_fields(("dt",))).fit(rows).misfits
