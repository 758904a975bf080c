"""Other readers of the tables read the rows that a pipeline committed."""

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from kalda.pipelines.spec.model import TableFormat
from kalda.pipelines.tables import CompactPolicy, TaskId, open_table
from tests.unit.pipelines.tables.table_cases import QUERY, append, spec_of

LONG = "\U0010ffff" * 40
"""A text with no other above it, to which an upper bound must not be cut."""

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(12, 2)),
        ("ratio", pa.float64()),
        ("text", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("day", pa.date32()),
    ]
)


def rows(first: int, count: int) -> list[dict[str, Any]]:
    """Return rows whose texts are longer than the bounds that statistics keep."""
    start = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    return [
        {
            "id": number,
            "at": start + dt.timedelta(microseconds=number * 1_234_567),
            "price": decimal.Decimal(number).scaleb(-2),
            "ratio": float("nan") if number % 5 == 0 else number / 3,
            "text": LONG if number == 3 else f"{number:04d}" * 20,
            "tags": ["a", None] if number % 2 else None,
            "day": dt.date(2026, 3, 1 + number % 3) if number % 4 else None,
        }
        for number in range(first, first + count)
    ]


@pytest.fixture(params=list(TableFormat), ids=lambda kind: kind.value)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> TableFormat:
    """Write two batches, join their files, write two more and lose one that is never committed."""
    kind: TableFormat = request.param
    table = open_table(spec_of(tmp_path, kind, partition_by=("day",)))
    for batch_id in range(4):
        append(table, batch_id, pa.RecordBatch.from_pylist(rows(batch_id * 10, 10), SCHEMA))
        if batch_id == 1:
            table.compact(CompactPolicy(newest_kept_s=0))
    table.writer(SCHEMA).write([pa.RecordBatch.from_pylist(rows(900, 9), SCHEMA)], TaskId(QUERY, 9, 0))
    return kind


def dataset_of(kind: TableFormat, root: Path) -> Any:
    """Return the table as its own library gives it to Arrow."""
    location = root / "lake/orders"
    match kind:
        case TableFormat.DELTA:
            return DeltaTable(str(location)).to_pyarrow_dataset()
        case TableFormat.ICEBERG:
            catalog = load_catalog("kalda", type="sql", uri=f"sqlite:///{root}/iceberg-catalog.db")
            return catalog.load_table("lake.orders").scan().to_arrow()
    return ds.dataset(
        location, partitioning=ds.partitioning(pa.schema([("day", pa.date32())]), flavor="hive")
    )


def test_the_format_s_own_library_reads_the_rows(written: TableFormat, tmp_path: Path) -> None:
    found = dataset_of(written, tmp_path)
    table = found if isinstance(found, pa.Table) else found.to_table()
    got = sorted(table.select(SCHEMA.names).to_pylist(), key=lambda row: row["id"])
    assert repr(rows(0, 40)) == repr(got).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc")


def test_duckdb_reads_the_rows_and_skips_by_the_right_bounds(written: TableFormat, tmp_path: Path) -> None:
    """A bound narrower than the values would hide rows from a filter."""
    connection = duckdb.connect()
    orders = dataset_of(written, tmp_path)
    if written is TableFormat.PARQUET:
        files = str(tmp_path / "lake/orders/**/*.parquet")
        orders = connection.read_parquet(files, hive_partitioning=True)

    def count(condition: str) -> int:
        relation = orders if written is TableFormat.PARQUET else connection.from_arrow(orders)
        return int(relation.filter(condition).count("*").fetchall()[0][0])

    assert 40 == count("true")
    assert 1 == count(f"text = '{LONG}'")
    assert 1 == count(f"text = '{'0007' * 20}'")
    assert 1 == count("\"at\" = '2026-03-01 00:00:08.641969+00'")
    assert 10 == count("day is null")
    assert 1 == count("price = 0.39")
    if written is not TableFormat.PARQUET:  # DuckDB 2.0 skips row groups by bounds that leave NaN out
        assert 8 == count("isnan(ratio)")


def test_pyiceberg_skips_files_by_the_right_bounds(tmp_path: Path) -> None:
    table = open_table(spec_of(tmp_path, TableFormat.ICEBERG))
    for batch_id in range(4):
        append(table, batch_id, pa.RecordBatch.from_pylist(rows(batch_id * 10, 10), SCHEMA))
    loaded = load_catalog("kalda", type="sql", uri=f"sqlite:///{tmp_path}/iceberg-catalog.db").load_table(
        "lake.orders"
    )
    for condition, files in (
        ("id = 13", 1),
        ("price = 0.39", 1),
        (f"text = '{'0007' * 20}'", 1),
        ("id > 5", 4),
    ):
        scan = loaded.scan(condition)
        assert files == len(list(scan.plan_files())), condition
        assert 0 < scan.count()
