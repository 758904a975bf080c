"""`kalda pipeline status` and `lag`: what the pipelines of a file do, and how far behind they are."""

import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kalda.command.command import Tool, command
from kalda.command.output import Form, Json
from kalda.command.tables import Cell, Table
from kalda.tools.pipeline.arguments import chosen, file_error, missing_package, pipeline_arguments, read_file
from kalda.tools.pipeline.noun import pipeline
from kalda.tools.pipeline.status_table import status_table

if TYPE_CHECKING:
    from kalda.pipelines.engine.status import PipelineStatus, StatusFiles

_WATCH_EVERY_S: Final = 2.0
"""Drivers write no more often."""


@command("status", pipeline)
@pipeline_arguments
@click.option("--watch", is_flag=True, help="Show it every two seconds until Ctrl-C.")
def status(tool: Tool, file: Path, names: tuple[str, ...], watch: bool) -> None:
    """Show what pipelines do: state, batch, rates, lag, freshness, errors.

    The drivers that run them write this into the file's storage every two seconds. The state is dead if the
    driver ran on this host and was killed, and "not responding" if its status is older than 30 seconds.
    """
    read = read_file(tool, file)
    specs = chosen(read, names)
    try:
        from kalda.pipelines.engine.status import StatusFiles
    except ModuleNotFoundError as error:
        raise missing_package(error) from error

    files = StatusFiles(read.storage)
    with suppress(KeyboardInterrupt) if watch else nullcontext():
        while True:
            if watch and tool.output.form is Form.TERMINAL:
                click.clear()
            _show(tool, files, read.storage, [each.name for each in specs])
            if not watch:
                return
            tool.output.flush()
            time.sleep(_WATCH_EVERY_S)


def _show(tool: Tool, files: "StatusFiles", storage: str, names: Sequence[str]) -> None:
    found: list[PipelineStatus] = []
    for name in names:
        known = files.read(name)
        if known is None:
            tool.output.note(f"{name} has not run yet with the storage {storage}")
        else:
            found.append(known)
    now_ms = time.time_ns() // 1_000_000
    dead = {each.pipeline for each in found if files.is_dead(each)}
    document: Json = {
        "pipelines": [
            asdict(each)
            | {"is_responding": each.pipeline not in dead and not each.is_stale(now_ms)}
            | {"is_dead": each.pipeline in dead}
            for each in found
        ]
    }
    tool.output.result(document, status_table(found, now_ms, dead))


@command("lag", pipeline)
@pipeline_arguments
def lag(tool: Tool, file: Path, names: tuple[str, ...]) -> None:
    """Show how far pipelines are behind the topics that they read, for each partition.

    Processed is what committed batches cover, by the checkpoint. `kalda groups describe` shows the same.
    """
    read = read_file(tool, file)
    specs = chosen(read, names)
    try:
        from kalda.pipelines.engine.lag import lag_of
        from kalda.pipelines.engine.planner import plans_of
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    from kalda.pipelines.spec.errors import PipelineFileError

    try:
        plans = plans_of(read, [each.name for each in specs])
    except PipelineFileError as error:
        raise file_error(tool, error) from None
    document: list[Json] = []
    rows: list[tuple[Cell, ...]] = []
    for plan in plans:
        for each in lag_of(plan, read):
            where = each.topic_partition
            row = (plan.spec.name, where.topic, where.partition, each.processed, each.end, each.lag)
            rows.append(row)
            names_ = ("pipeline", "topic", "partition", "processed", "end", "lag")
            document.append(dict(zip(names_, row, strict=True)))
    columns = ("PIPELINE", "TOPIC", "PARTITION", "PROCESSED", "LOG-END-OFFSET", "LAG")
    tool.output.result({"lag": document}, Table(columns, rows))
