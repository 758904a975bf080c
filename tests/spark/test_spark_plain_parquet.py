"""Spark reads the directory of a plain Parquet table as any other."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from kalda.pipelines.spec.model import TableFormat
from kalda.pipelines.tables import CompactPolicy, TaskId, open_table
from tests.unit.pipelines.tables.table_cases import QUERY, append, orders, spec_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_reads_the_directory_as_a_table(spark: "SparkSession", tmp_path: Path) -> None:
    """Files that are staged, replaced or ours alone are passed over, and later columns are found."""
    table = open_table(spec_of(tmp_path, TableFormat.PARQUET, partition_by=("country",)))
    append(table, 0, orders(0, 6), orders(6, 6))
    table.compact(CompactPolicy(newest_kept_s=0))
    later = orders(12, 6).append_column("price", pa.array([1.5] * 6))
    append(table, 1, later)
    table.writer(later.schema).write([orders(90, 6)], TaskId(QUERY, 2, 0))

    found = spark.read.parquet(f"{tmp_path}/lake/orders")

    assert ["id", "name", "price", "country"] == found.columns
    rows = sorted((each.id, each.name, each.country, each.price) for each in found.collect())
    assert [
        (row["id"], row["name"], row["country"], 1.5 if row["id"] >= 12 else None)
        for batch in (orders(0, 12), orders(12, 6))
        for row in batch.to_pylist()
    ] == rows
    assert 2 == found.where("country = 'fr' and price is not null").count()
