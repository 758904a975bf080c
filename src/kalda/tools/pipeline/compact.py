"""The command `kalda pipeline compact`: joins small files of the tables that pipelines write."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.option_types import INT32_MAX, Integer
from kalda.command.tables import Cell, Table
from kalda.tools.pipeline.arguments import pipeline_arguments, read_file
from kalda.tools.pipeline.noun import pipeline

if TYPE_CHECKING:
    from kalda.pipelines.spec.model import TableSpec
    from kalda.pipelines.tables import CompactResult

NEWEST_MINUTES = 10
RETENTION_HOURS = 7 * 24


@command("compact", pipeline, connects=False)
@pipeline_arguments
@click.option(
    "--newest",
    type=Integer(0, INT32_MAX),
    metavar="MINUTES",
    help=f"Leave files alone that are younger. Default: the pipeline's, or {NEWEST_MINUTES}.",
)
@click.option(
    "--retention",
    # A running pipeline has files that no commit names yet. They must not go as if they were abandoned.
    type=Integer(1, INT32_MAX),
    default=RETENTION_HOURS,
    metavar="HOURS",
    help=(
        "Keep replaced files this long for readers of old versions, and those of unfinished batches; "
        f"at least 1. Default: {RETENTION_HOURS}."
    ),
)
def compact(tool: Tool, /, file: Path, names: tuple[str, ...], newest: int | None, retention: int) -> None:
    """Join small files of the tables that the pipelines of FILE write, and delete replaced ones.

    The pipelines may go on running. Replaced files are deleted after the retention.
    """
    from kalda.pipelines.tables import CompactPolicy, open_table
    from kalda.pipelines.tables.errors import TableError

    done: list[tuple[str, str, CompactResult]] = []
    for name, spec in _tables(tool, file, names):
        newest_s = newest * 60.0 if newest is not None else _newest_s(spec)
        policy = CompactPolicy(spec.file_target_bytes, newest_s, retention_s=retention * 3600.0)
        try:
            table = open_table(spec)
            if table.schema() is None:
                tool.output.note(f"Table {spec.table} of pipeline {name} does not exist yet.")
                continue
            done.append((name, spec.table, table.compact(policy)))
        except TableError as error:
            raise ToolError(str(error)) from error
    rows: list[list[Cell]] = [
        [name, table, each.files_removed, each.files_added, each.bytes_rewritten, each.files_deleted]
        for name, table, each in done
    ]
    columns = ("PIPELINE", "TABLE", "JOINED", "INTO", "BYTES", "DELETED")
    keys = ("pipeline", "table", "filesJoined", "filesWritten", "bytesRewritten", "filesDeleted")
    tool.output.result([dict(zip(keys, row, strict=True)) for row in rows], Table(columns, rows))


def _newest_s(spec: "TableSpec") -> float:
    return spec.compact.newest_ms / 1000 if spec.compact is not None else NEWEST_MINUTES * 60.0


def _tables(tool: Tool, file: Path, names: tuple[str, ...]) -> "list[tuple[str, TableSpec]]":
    from kalda.pipelines.spec.model import TableSpec

    pipelines = read_file(tool, file).pipelines
    tables = {each.name: each.target for each in pipelines if isinstance(each.target, TableSpec)}
    unknown = [name for name in names if name not in tables]
    if unknown:
        raise ToolUsageError(
            f"{file} has no pipeline {', '.join(unknown)} that writes a table; "
            f"it has {', '.join(tables) or 'none'}"
        )
    return [(name, spec) for name, spec in tables.items() if not names or name in names]
