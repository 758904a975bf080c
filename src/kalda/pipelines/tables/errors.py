"""Defines the exceptions of tables; each message names the table, the finding, the limit and the fix."""

from kalda.common.public import public_in


@public_in("kalda.pipelines.tables")
class TableError(Exception):
    """A table cannot be read or written as asked."""


@public_in("kalda.pipelines.tables")
class TableSpecError(TableError):
    """The description of a table is wrong: an option, a partition or a key does not fit."""


@public_in("kalda.pipelines.tables")
class SchemaRefusedError(TableError):
    """Rows have columns that the table's evolution policy does not admit.

    Attributes:
        columns: The refused columns, in the order of the incoming schema.
    """

    def __init__(self, message: str, columns: tuple[str, ...]) -> None:
        super().__init__(message)
        self.columns = columns


@public_in("kalda.pipelines.tables")
class UpsertRefusedError(TableError):
    """Rows cannot be merged by key: a key is null, or the format has no upsert."""


@public_in("kalda.pipelines.tables")
class CommitConflictError(TableError):
    """Other writers changed the table at each of the bounded number of attempts to commit."""
