"""Which declared columns a table takes, before a row is written."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from kalda.pipelines.spec.model import Evolve, TableFormat, TableSpec
from kalda.pipelines.tables import SchemaRefusedError, open_table
from kalda.pipelines.tables.schemas import check_columns


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_columns_that_a_table_may_not_get_are_problems(tmp_path: Path, kind: str) -> None:
    """Iceberg makes no floating-point numbers of integers; the pipeline would stop at its first batch."""
    spec = TableSpec(
        table="lake.t", path=f"{tmp_path.as_uri()}/lake/t", format=TableFormat(kind), evolve=Evolve.WIDEN
    )
    table = open_table(spec)
    table.prepare_schema(pa.schema([("id", pa.int64()), ("amount", pa.int64())]))
    wider = pa.schema([("id", pa.int32()), ("amount", pa.float64()), ("new", pa.string())])

    if kind == "iceberg":
        with pytest.raises(SchemaRefusedError, match=r"'amount': .* Iceberg makes no floating-point numbers"):
            check_columns(spec, table.schema(), wider)
    else:
        check_columns(spec, table.schema(), wider)
    with pytest.raises(SchemaRefusedError, match=r"2 column\(s\): 'amount': double is wider .*; 'new'"):
        check_columns(replace(spec, evolve=Evolve.NONE), table.schema(), wider)
    with pytest.raises(SchemaRefusedError, match="'ID': it differs from another column by case alone"):
        check_columns(spec, None, pa.schema([("id", pa.int64()), ("ID", pa.int64())]))
