"""Spark, DuckDB, deltalake and pyiceberg read the same rows of the tables that pipelines write.

Spark reads Delta and Iceberg through the jars of these formats, which Maven brings. They were published for
Spark 4.1, and classes that they need have changed since: on 4.3.0, Delta 4.1.0 fails with a NoSuchMethodError
(LogicalRDD) and Iceberg 1.11.0 with an IncompatibleClassChangeError (View). So the test reads with Spark 4.1.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import IdentityTransform

from benchmarks.apache_kafka import NotAvailableError, maven_jars
from benchmarks.spark_official import pyspark_python
from kalda.pipelines.accounts import BatchAccount, RangeAccount
from kalda.pipelines.spec.model import Evolve, TableFormat, TableSpec
from kalda.pipelines.tables import CompactPolicy, Table, TaskId, open_table
from kalda.pipelines.tables.upsert import HIDDEN
from tests.iceberg_threads import start_threads

pytestmark = pytest.mark.timeout(400)

SPARK_VERSION = "4.1.1"
COORDINATES = (
    "io.delta:delta-spark_4.1_2.13:4.1.0",
    "io.delta:delta-storage:4.1.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    "org.xerial:sqlite-jdbc:3.49.1.0",
)
COLUMNS = ("id", "name", "country", "amount", "extra")


@pytest.fixture(scope="module", autouse=True)
def library_threads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start the threads of the libraries, which live as long as the process, with their sockets."""
    start_threads()
    DeltaTable.create(
        str(tmp_path_factory.mktemp("delta")), pa.schema([("id", pa.int64())])
    ).to_pyarrow_table()


READ = """
import json, sys
from pyspark.sql import SparkSession

jars, root, columns, tables = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
for name, value in {
    "spark.jars": ",".join(jars),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.kalda": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.kalda.type": "jdbc",
    "spark.sql.catalog.kalda.uri": f"jdbc:sqlite:{root}/iceberg-catalog.db",
    "spark.sql.catalog.kalda.warehouse": root,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
found = {}
for name, source in tables.items():
    try:
        if "/" not in source:
            frame = spark.table(source)
        else:
            kind, path = source.split(":", 1)
            frame = spark.read.format(kind).option("mergeSchema", "true").load(path)
        found[name] = [list(row) for row in frame.select(*columns).orderBy("id").collect()]
    except Exception as error:
        found[name] = str(error)[:2000]
print("FOUND" + json.dumps(found))
spark.stop()
"""


def rows(first: int, count: int, *, name: str = "name", extra: bool = False) -> pa.RecordBatch:
    """Return rows with ids from `first`; `extra` adds the column by which the schema grows."""
    ids = range(first, first + count)
    columns = {
        "id": pa.array(ids, pa.int64()),
        "name": pa.array([f"{name} {number}" if number % 7 else None for number in ids]),
        "country": pa.array([("de", "fr", None)[number % 3] for number in ids]),
        "amount": pa.array([number / 4 for number in ids]),
    }
    if extra:
        columns["extra"] = pa.array([f"extra {number}" for number in ids])
    return pa.record_batch(columns)


class Batches:
    """Commits batches to a table as a pipeline does."""

    def __init__(self, spec: TableSpec) -> None:
        self.table: Table = open_table(spec)
        self._next = 0

    def reopen(self, spec: TableSpec) -> None:
        """Go on with another declaration of the table."""
        self.table = open_table(spec)

    def commit(self, batch: pa.RecordBatch, deletes: Sequence[int] = ()) -> None:
        """Append or, for a table with keys, upsert rows; with those that are deleted."""
        table, size = self.table, batch.num_rows
        start = 1_000 * self._next
        account = BatchAccount("q", self._next, (RangeAccount("t", 0, start, start + size, size, size),))
        task = TaskId("q", self._next, 0)
        self._next += 1
        table.prepare_schema(batch.schema)
        if not table.spec.keys:
            table.commit(account, table.writer(batch.schema).write([batch], task))
            return
        deleted = [number in deletes for number in batch.column("id").to_pylist()]
        hidden = (pa.array([0] * size), pa.array(range(size)), pa.array(deleted))
        for field, values in zip(HIDDEN, hidden, strict=True):
            batch = batch.append_column(field, values.cast(field.type))
        table.upsert(account, table.upsert_writer(batch.schema).write([batch], task))

    def abandon(self) -> None:
        """Write files of a batch that is never committed."""
        self.table.writer(rows(0, 1).schema).write([rows(900, 9)], TaskId("q", self._next, 0))


def write_appended(spec: TableSpec) -> list[list[Any]]:
    """Append, compact, grow the schema, change Iceberg's partitions; return the rows that are there."""
    batches = Batches(spec)
    for number in range(3):
        batches.commit(rows(number * 10, 10))
    batches.table.compact(CompactPolicy(newest_kept_s=0))
    if spec.format is TableFormat.ICEBERG:
        with catalog_of(spec).load_table(spec.table).update_spec() as update:
            update.add_field("id", IdentityTransform(), "id")
        batches.reopen(replace(spec, partition_by=(*spec.partition_by, "id")))
    batches.commit(rows(30, 5, extra=True))
    batches.abandon()
    expected = pa.Table.from_batches([rows(0, 30)]).append_column("extra", pa.nulls(30, pa.string()))
    return values_of(pa.concat_tables([expected, pa.Table.from_batches([rows(30, 5, extra=True)])]))


def write_upserted(spec: TableSpec) -> list[list[Any]]:
    """Insert, replace and delete rows by key, compacting between; return the rows that are there."""
    batches = Batches(spec)
    batches.commit(rows(0, 20, extra=True))
    batches.commit(rows(5, 10, name="new", extra=True), deletes=[7, 8])
    batches.table.compact(CompactPolicy(newest_kept_s=0))
    batches.commit(rows(18, 4, name="newer", extra=True), deletes=[19])
    parts = [
        (0, 5, "name"),
        (5, 2, "new"),
        (9, 6, "new"),
        (15, 3, "name"),
        (18, 1, "newer"),
        (20, 2, "newer"),
    ]
    tables = [pa.Table.from_batches([rows(first, n, name=name, extra=True)]) for first, n, name in parts]
    return values_of(pa.concat_tables(tables))


def values_of(found: pa.Table) -> list[list[Any]]:
    """Return the rows as lists, by their id."""
    return sorted(
        ([row[name] for name in COLUMNS] for row in found.select(COLUMNS).to_pylist()), key=lambda row: row[0]
    )


def catalog_of(spec: TableSpec) -> Any:
    """Return the catalog of an Iceberg table."""
    root = spec.path.removeprefix("file://").removesuffix("/" + spec.table.replace(".", "/"))
    return load_catalog("kalda", type="sql", uri=f"sqlite:///{root}/iceberg-catalog.db")


def by_library(spec: TableSpec) -> pa.Table:
    """Read a table with the format's own library, Parquet with DuckDB."""
    path = spec.path.removeprefix("file://")
    match spec.format:
        case TableFormat.DELTA:
            return DeltaTable(path).to_pyarrow_table()
        case TableFormat.ICEBERG:
            return catalog_of(spec).load_table(spec.table).scan().to_arrow()
        case TableFormat.PARQUET:
            files = f"{path}/**/*.parquet"
            relation = duckdb.connect().read_parquet(files, hive_partitioning=True, union_by_name=True)
            return relation.to_arrow_table()


def by_spark(root: Path, specs: Sequence[TableSpec]) -> dict[str, Any]:
    """Read tables with Spark; a text stands for the error of a table that it could not read."""
    try:
        python = pyspark_python(SPARK_VERSION)
        jars = maven_jars("spark-tables-4.1", COORDINATES, transitive=False)
    except NotAvailableError as error:
        pytest.skip(str(error))
    sources = {
        spec.table: f"kalda.{spec.table}"
        if spec.format is TableFormat.ICEBERG
        else f"{spec.format.value}:{spec.path}"
        for spec in specs
    }
    given = json.dumps([[str(each) for each in sorted(jars.glob("*.jar"))], str(root), COLUMNS, sources])
    done = subprocess.run(
        [str(python), "-c", READ, given],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert 0 == done.returncode, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.partition("FOUND")[2])
    return result


def test_every_reader_sees_the_committed_rows(tmp_path: Path) -> None:
    """After appends, compaction, new columns, another partitioning, replaced and deleted rows."""

    def spec_of(name: str, kind: TableFormat, **options: Any) -> TableSpec:
        path = f"file://{tmp_path}/{name.replace('.', '/')}"
        return TableSpec(table=name, path=path, format=kind, evolve=Evolve.ADD, **options)

    expected: dict[str, list[list[Any]]] = {}
    specs: list[TableSpec] = []
    for kind in TableFormat:
        spec = spec_of(f"lake.{kind.value}_appended", kind, partition_by=("country",))
        expected[spec.table] = write_appended(spec)
        specs.append(spec)
        if kind is not TableFormat.PARQUET:
            spec = spec_of(f"lake.{kind.value}_upserted", kind, keys=("id",))
            expected[spec.table] = write_upserted(spec)
            specs.append(spec)

    for spec in specs:
        found = by_library(spec)
        assert expected[spec.table] == values_of(found), spec.table
        assert expected[spec.table] == values_of(duckdb.from_arrow(found).to_arrow_table()), spec.table
    assert expected == by_spark(tmp_path, specs)
