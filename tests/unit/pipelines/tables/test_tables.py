"""What all formats of tables have in common."""

import datetime as dt
import decimal
import pickle
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from kalda.pipelines.spec.model import Evolve, TableFormat
from kalda.pipelines.tables import (
    CompactPolicy,
    SchemaRefusedError,
    Table,
    TableSpecError,
    TaskId,
    open_table,
)
from tests.unit.pipelines.tables.table_cases import QUERY, account, append, ids_of, orders, rows_of, spec_of

Opener = Callable[..., Table]


@pytest.fixture(params=list(TableFormat), ids=lambda kind: kind.value)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Return a function that opens the same table with options of the spec."""
    return lambda **options: open_table(spec_of(tmp_path, request.param, **options))


def test_batches_are_appended_once(opened: Opener) -> None:
    """The batch is the unit: a replay, with other files even, changes nothing."""
    table = opened(partition_by=("country",))
    assert table.committed_batch(QUERY) is None
    append(table, 0, orders(0, 10), orders(10, 10))
    append(table, 3, orders(20, 10))
    append(opened(partition_by=("country",)), 3, orders(20, 10))
    append(opened(partition_by=("country",)), 0, orders(0, 10))
    append(table, 0, orders(100, 2), query_id="another")

    table = opened(partition_by=("country",))
    assert [*range(30), 100, 101] == ids_of(table)
    assert (3, 0, None) == tuple(table.committed_batch(query) for query in (QUERY, "another", "none"))
    assert {"id": 1, "name": "name 1", "country": "fr"} == rows_of(table)[1]
    assert {"id": 2, "name": "name 2", "country": None} == rows_of(table)[2]


def test_a_batch_without_rows_is_committed_too(opened: Opener) -> None:
    """Its offsets are done, and its number must not be taken for a replay's."""
    table = opened()
    table.prepare_schema(orders(0, 1).schema)
    result = table.commit(account(0, 0), [])
    assert result.committed
    assert 0 == opened().committed_batch(QUERY)


def test_two_drivers_commit_a_batch_once(opened: Opener) -> None:
    """A driver that was thought dead and its successor meet in the same commit."""
    first, second = opened(), opened()
    first.prepare_schema(orders(0, 1).schema)
    files = [
        table.writer(orders(0, 1).schema).write([orders(0, 5)], TaskId(QUERY, 0, 0))
        for table in (first, second)
    ]
    assert first.committed_batch(QUERY) is second.committed_batch(QUERY) is None

    results = [table.commit(account(0, 5), each) for table, each in zip((first, second), files, strict=True)]

    assert [True, False] == [result.committed for result in results]
    assert list(range(5)) == ids_of(opened())


def test_commits_of_other_queries_do_not_disturb(opened: Opener) -> None:
    first, second = opened(), opened()
    first.prepare_schema(orders(0, 1).schema)
    for batch_id in range(3):
        append(first, batch_id, orders(batch_id * 10, 5))
        append(second, batch_id, orders(batch_id * 10 + 5, 5), query_id="other")

    assert list(range(30)) == ids_of(opened())


def test_the_writer_is_pickled_and_a_failed_task_leaves_nothing(opened: Opener, tmp_path: Path) -> None:
    table = opened(partition_by=("country",))
    table.prepare_schema(orders(0, 1).schema)
    writer = pickle.loads(pickle.dumps(table.writer(orders(0, 1).schema)))

    def failing() -> object:
        yield orders(0, 10)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        writer.write(failing(), TaskId(QUERY, 0, 0))
    assert [] == [path for path in tmp_path.rglob("*parquet*") if path.is_file()]


ODD_VALUES = [
    "a/b",
    "100%",
    "ä ö",
    "x=y",
    "..",
    "",
    None,
    "new\nline",
    "q'uo\"te",
    "#hash?",
    "a" * 60,
    "{b}[c]",
    "CON:",
    "\\",
]


def test_partition_values_with_odd_characters_survive(opened: Opener) -> None:
    """An empty text reads as null, as in Spark; Iceberg alone keeps it."""
    table = opened(partition_by=("key",))
    rows = pa.record_batch({"id": pa.array(range(len(ODD_VALUES))), "key": pa.array(ODD_VALUES, pa.string())})
    append(table, 0, rows)

    found = [row["key"] for row in rows_of(opened(partition_by=("key",)))]
    empty = "" if table.spec.format is TableFormat.ICEBERG else None
    assert [empty if value == "" else value for value in ODD_VALUES] == found


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        ("day(ts)", [dt.date(2026, 3, 1), dt.date(1969, 12, 31), None]),
        ("hour(ts)", ["2026-03-01-23", "1969-12-31-05", None]),
        ("month(ts)", ["2026-03", "1969-12", None]),
        ("year(ts)", [2026, 1969, None]),
    ],
)
def test_parts_of_the_event_time_are_partitions(
    opened: Opener, transform: str, expected: list[object]
) -> None:
    moments = [
        dt.datetime(2026, 3, 1, 23, 59, 59, 999_000, dt.UTC),
        dt.datetime(1969, 12, 31, 5, tzinfo=dt.UTC),
        None,
    ]
    rows = pa.record_batch({"id": pa.array([0, 1, 2]), "ts": pa.array(moments, pa.timestamp("us", "UTC"))})
    table = opened(partition_by=(transform,), event_time="ts")
    files = append(table, 0, rows)

    name = f"ts_{transform.partition('(')[0]}"
    assert {((name, value),) for value in expected} == {file.partition for file in files}
    table = opened(partition_by=(transform,), event_time="ts")
    assert moments == [row["ts"] for row in rows_of(table)]
    greatest = round(moments[0].timestamp() * 1000) if moments[0] else 0
    assert greatest == max(file.event_time_max or 0 for file in files)
    assert (None, greatest) == (table.watermark(QUERY, 0), table.watermark(QUERY, 1))


def test_the_watermark_of_a_batch_is_that_before_it_even_after_its_commit(opened: Opener) -> None:
    """A row that was on time must not be late when its batch is replayed."""
    table = opened(event_time="ts")
    for batch_id, day in enumerate((10, 20, 15)):
        moment = dt.datetime(2026, 1, day, tzinfo=dt.UTC)
        append(
            table,
            batch_id,
            pa.record_batch({"id": [batch_id], "ts": pa.array([moment], pa.timestamp("us", "UTC"))}),
        )
    days = [
        None if mark is None else dt.datetime.fromtimestamp(mark / 1000, dt.UTC).day
        for mark in (opened(event_time="ts").watermark(QUERY, batch_id) for batch_id in (2, 3))
    ]
    assert [20, 20] == days


TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("u32", pa.uint32()),
        ("f16", pa.float32()),
        ("flag", pa.bool_()),
        ("text", pa.dictionary(pa.int32(), pa.string())),
        ("large", pa.large_string()),
        ("blob", pa.large_binary()),
        ("ns", pa.timestamp("ns", "Europe/Berlin")),
        ("wall", pa.timestamp("ms")),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 3)),
        ("tags", pa.list_(pa.string())),
        ("nested", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("unknown", pa.null()),
    ]
)


def test_types_are_mapped_and_values_kept(opened: Opener) -> None:
    moment = dt.datetime(2026, 5, 6, 7, 8, 9, 123456, dt.UTC)
    row = {
        "id": 1,
        "u32": 2**32 - 1,
        "f16": 0.5,
        "flag": True,
        "text": "x",
        "large": "y" * 100,
        "blob": b"\x00\xff",
        "ns": moment,
        "wall": moment.replace(microsecond=123000, tzinfo=None),
        "day": dt.date(2026, 1, 2),
        "price": decimal.Decimal("123456789.125"),
        "tags": ["a", None],
        "nested": {"a": 1, "b": [{"c": "d"}]},
        "map": [("k", 1)],
        "unknown": None,
    }
    table = opened()
    append(table, 0, pa.RecordBatch.from_pylist([row, {"id": 2}], TYPES))

    first, second = rows_of(opened())
    del row["unknown"]
    assert row == first
    assert dict.fromkeys(row) | {"id": 2} == second


def test_evolution_follows_the_policy(opened: Opener) -> None:
    narrow = pa.schema([("id", pa.int32()), ("x", pa.float32())])
    wide = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("new", pa.string())])
    append(opened(evolve=Evolve.NONE), 0, pa.RecordBatch.from_pylist([{"id": 1, "x": 0.5}], narrow))

    with pytest.raises(SchemaRefusedError, match="'new': it is new") as refused:
        opened(evolve=Evolve.NONE).prepare_schema(wide)
    assert ("id", "x", "new") == refused.value.columns
    with pytest.raises(SchemaRefusedError, match="'id': int64 is wider than the table's int32") as refused:
        opened(evolve=Evolve.ADD).prepare_schema(wide)
    assert ("id", "x") == refused.value.columns
    with pytest.raises(SchemaRefusedError, match="'id': string does not fit"):
        opened(evolve=Evolve.WIDEN).prepare_schema(pa.schema([("id", pa.string())]))

    change = opened(evolve=Evolve.WIDEN).prepare_schema(wide)
    assert (False, ("new",), ("id", "x")) == (change.created, change.added, change.widened)
    assert not opened(evolve=Evolve.NONE).prepare_schema(narrow)
    append(opened(), 1, pa.RecordBatch.from_pylist([{"id": 2**40, "x": 0.1, "new": "n"}], wide))
    append(opened(), 2, pa.RecordBatch.from_pylist([{"id": 3, "x": 0.25}], narrow))
    assert [
        {"id": 1, "x": 0.5, "new": None},
        {"id": 3, "x": 0.25, "new": None},
        {"id": 2**40, "x": 0.1, "new": "n"},
    ] == rows_of(opened())


def test_compaction_keeps_rows_and_progress(opened: Opener) -> None:
    table = opened(partition_by=("country",))
    for batch_id in range(4):
        append(table, batch_id, orders(batch_id * 10, 10))
    before = rows_of(table)
    untouched = table.compact(CompactPolicy(newest_kept_s=3600))
    assert (0, 0) == (untouched.files_removed, untouched.files_added)

    result = table.compact(CompactPolicy(newest_kept_s=0))
    assert (12, 3) == (result.files_removed, result.files_added)
    append(opened(partition_by=("country",)), 3, orders(30, 10))
    assert before == rows_of(opened(partition_by=("country",)))

    append(table, 4, orders(40, 10))
    gone = table.compact(CompactPolicy(newest_kept_s=0, retention_s=0))
    assert 0 < gone.files_deleted
    assert list(range(50)) == ids_of(opened(partition_by=("country",)))


def test_changes_since_a_version_are_the_rows_it_appended(opened: Opener) -> None:
    table = opened()
    if table.spec.format is TableFormat.PARQUET:
        pytest.skip("files alone have no versions")
    append(table, 0, orders(0, 3))
    since = table.version()
    append(table, 1, orders(3, 2))
    table.compact(CompactPolicy(newest_kept_s=0))

    changes = [(change.kind, change.rows.column(0).to_pylist()) for change in opened().read_changes(since)]
    assert [("insert", [3, 4])] == changes
    assert [0, 1, 2] == sorted(
        number for batch in table.read(["id"], since) for number in batch.column(0).to_pylist()
    )
    assert [0, 1, 2, 3, 4] == sorted(
        number for change in opened().read_changes(None) for number in change.rows.column(0).to_pylist()
    )


def test_no_column_of_a_row_is_left_out_in_silence(opened: Opener) -> None:
    """A task whose rows have more columns than the table was prepared for fails instead."""
    table = opened()
    table.prepare_schema(orders(0, 1).schema)
    wider = orders(0, 2).append_column("email", pa.array(["a", "b"]))

    with pytest.raises(SchemaRefusedError, match="email"):
        table.writer(orders(0, 1).schema).write([wider], TaskId(QUERY, 0, 0))
    unknown = orders(0, 2).append_column("empty", pa.nulls(2))
    assert [2] == [
        file.rows for file in table.writer(orders(0, 1).schema).write([unknown], TaskId(QUERY, 0, 0))
    ]


def test_null_and_empty_stay_apart_when_files_are_written_again(opened: Opener) -> None:
    """The library that reads Iceberg makes an empty list of a null one whose items are structures."""
    part = pa.struct([("p", pa.int64())])
    columns = {
        "id": pa.array([0, 1, 2]),
        "l": pa.array([None, [], [{"p": 1}]], pa.list_(part)),
        "m": pa.array([[("k", {"p": 1})], None, []], pa.map_(pa.string(), part)),
        "n": pa.array([{"l": None}, {"l": []}, None], pa.struct([("l", pa.list_(part))])),
    }
    rows = pa.record_batch(columns)
    table = opened()
    append(table, 0, rows.slice(0, 1))
    append(table, 1, rows.slice(1))
    assert rows.to_pylist() == rows_of(table)

    opened().compact(CompactPolicy(newest_kept_s=0))

    assert rows.to_pylist() == rows_of(opened())


def test_the_last_moment_is_written_and_found(opened: Opener) -> None:
    """It often stands for "until further notice"; the bound of Delta's log is rounded up to a millisecond."""
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, dt.UTC)
    rows = pa.record_batch({"id": [0, 1], "at": pa.array([last, None], pa.timestamp("us", "UTC"))})

    append(opened(), 0, rows)

    assert [last, None] == [row["at"] for row in rows_of(opened())]


def test_bounds_are_those_of_the_column_whatever_its_name(tmp_path: Path) -> None:
    """A part of a structure has the same path; its bounds would hide rows from readers with a filter."""
    spec = spec_of(tmp_path, TableFormat.DELTA)
    columns = {"a.b": [1, 100], "a": [{"b": 5}, {"b": 6}], "id": [0, 1]}
    append(open_table(spec), 0, pa.record_batch(columns))

    found = DeltaTable(spec.path).to_pyarrow_dataset().to_table(filter=pc.field("a.b") == 100)

    assert [1] == found["id"].to_pylist()


@pytest.mark.parametrize("kind", [TableFormat.DELTA, TableFormat.PARQUET])
def test_a_table_of_partitions_alone_is_refused(tmp_path: Path, kind: TableFormat) -> None:
    """Its files would have no column, and so no reader finds a row."""
    table = open_table(spec_of(tmp_path, kind, partition_by=("id",)))

    with pytest.raises(TableSpecError, match="partition_by names every column"):
        table.prepare_schema(pa.schema([("id", pa.int64())]))


def test_small_decimals_name_a_partition_with_their_digits(opened: Opener, tmp_path: Path) -> None:
    numbers = [decimal.Decimal(0), decimal.Decimal("-0.0000000001")]
    rows = pa.record_batch({"id": [0, 1], "d": pa.array(numbers, pa.decimal128(20, 10))})

    append(opened(partition_by=("d",)), 0, rows)

    assert numbers == [row["d"] for row in rows_of(opened(partition_by=("d",)))]
    assert not list(tmp_path.rglob("*E-10*"))


PART = pa.struct([("b", pa.int64())])


@pytest.mark.parametrize("kind", [PART, pa.list_(PART), pa.map_(pa.string(), PART)])
@pytest.mark.parametrize("order", [("a", "a.b"), ("a.b", "a")])
@pytest.mark.parametrize("is_later", [False, True])
def test_a_column_that_iceberg_takes_for_a_part_is_one_of_bad_rows(
    tmp_path: Path, kind: pa.DataType, order: tuple[str, str], is_later: bool
) -> None:
    """The library refuses the schema of such values, and one of them would stop the pipeline for good."""
    table = open_table(spec_of(tmp_path, TableFormat.ICEBERG))
    kinds = {"id": pa.int64(), "a": kind, "a.b": pa.int64()}
    names = ["id", *order]

    for count in (2, 3) if is_later else (3,):
        table.prepare_schema(pa.schema([(name, kinds[name]) for name in names[:count]]), is_strict=False)

    schema = table.schema()
    assert schema is not None
    assert ["id", order[0]] == schema.names
    rows = pa.record_batch({"id": [0, 1], order[1]: pa.array([None, None], kinds[order[1]])})
    assert () == table.fit().fit(rows).misfits
    with pytest.raises(SchemaRefusedError, match="to a part of"):
        table.prepare_schema(pa.schema([(name, kinds[name]) for name in names]))


def test_a_structure_gets_no_part_that_is_a_column_of_iceberg(tmp_path: Path) -> None:
    table = open_table(spec_of(tmp_path, TableFormat.ICEBERG))
    wide = pa.struct([("c", pa.int64()), ("b", pa.int64())])
    first = pa.schema([("a.b", pa.int64()), ("a", pa.struct([("c", pa.int64())]))])
    table.prepare_schema(first, is_strict=False)

    table.prepare_schema(pa.schema([("a.b", pa.int64()), ("a", wide)]), is_strict=False)

    rows = pa.record_batch({"a.b": [1, 2], "a": pa.array([{"c": 1}, {"b": 2}], wide)})
    assert [1] == [each.row for each in table.fit().fit(rows).misfits]


@pytest.mark.parametrize("item", [pa.timestamp("us"), pa.list_(pa.timestamp("us"))])
def test_a_local_time_in_a_map_is_refused_by_delta_by_name(tmp_path: Path, item: pa.DataType) -> None:
    """The library fails as it creates such a table, which says nothing of the column."""
    table = open_table(spec_of(tmp_path, TableFormat.DELTA))
    columns = pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), item))])

    with pytest.raises(SchemaRefusedError, match=r"'m': map<.*> has no counterpart in delta"):
        table.prepare_schema(columns)
    table.prepare_schema(columns, is_strict=False)

    schema = table.schema()
    assert schema is not None
    assert ["id"] == schema.names


def test_a_table_in_partitions_of_decimals_is_not_written_again(tmp_path: Path) -> None:
    """deltalake would break the log of its negative ones; so a wider value stays out of the column."""
    spec = spec_of(tmp_path, TableFormat.DELTA, partition_by=("price",), evolve=Evolve.WIDEN)
    price = pa.array([decimal.Decimal("-0.10"), decimal.Decimal("1.50")], pa.decimal128(10, 2))
    append(open_table(spec), 0, pa.record_batch({"id": [0, 1], "n": pa.array([1, 2]), "price": price}))

    wider = pa.schema([("id", pa.int64()), ("n", pa.float64()), ("price", price.type)])
    with pytest.raises(SchemaRefusedError, match="breaks partitions by decimals"):
        open_table(spec).prepare_schema(wider)
    open_table(spec).prepare_schema(wider, is_strict=False)

    assert [{"id": 0, "n": 1, "price": price[0].as_py()}, {"id": 1, "n": 2, "price": price[1].as_py()}] == (
        rows_of(open_table(spec))
    )
