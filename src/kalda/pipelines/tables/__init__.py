"""Tables that pipelines write and read: Delta, Iceberg and plain Parquet behind one interface.

Executors write Parquet files with a `TableWriter`; the driver publishes them with one `Table.commit` for each
batch, which carries the query, the batch and its offset ranges. A batch that is committed again changes
nothing.
"""

from kalda.pipelines.tables.errors import (
    CommitConflictError,
    SchemaRefusedError,
    TableError,
    TableSpecError,
    UpsertRefusedError,
)
from kalda.pipelines.tables.model import (
    ChangeSet,
    ColumnStats,
    CommitResult,
    CompactPolicy,
    CompactResult,
    DataFile,
    SchemaChange,
    Table,
    TableWriter,
    TaskId,
)
from kalda.pipelines.tables.opening import open_table

__all__ = [
    "ChangeSet",
    "ColumnStats",
    "CommitConflictError",
    "CommitResult",
    "CompactPolicy",
    "CompactResult",
    "DataFile",
    "SchemaChange",
    "SchemaRefusedError",
    "Table",
    "TableError",
    "TableSpecError",
    "TableWriter",
    "TaskId",
    "UpsertRefusedError",
    "open_table",
]
