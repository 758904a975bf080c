"""Opens a table by its spec. Imports the library of the format alone, so that executors load no other."""

from kalda.common.public import public_in
from kalda.pipelines.spec.model import TableFormat, TableSpec
from kalda.pipelines.tables.model import Table


@public_in("kalda.pipelines.tables")
def open_table(spec: TableSpec) -> Table:
    """Return the table of a spec, which need not exist yet.

    Raises:
        TableSpecError: The spec does not fit the format.
        ModuleNotFoundError: The format's library is missing; the extra ``[pipelines]`` brings it.
    """
    match spec.format:
        case TableFormat.PARQUET:
            from kalda.pipelines.tables.parquet_table import ParquetTable

            return ParquetTable(spec)
        case TableFormat.DELTA:
            from kalda.pipelines.tables.delta_table import DeltaLakeTable

            return DeltaLakeTable(spec)
        case TableFormat.ICEBERG:
            from kalda.pipelines.tables.iceberg_table import IcebergTable

            return IcebergTable(spec)
