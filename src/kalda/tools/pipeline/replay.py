"""`kalda pipeline replay` and `backfill`: process offsets that a table lacks, without duplicates."""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError, ToolUsageError
from kalda.common.log_text import counted
from kalda.tools.pipeline.arguments import checked_master, chosen, file_error, missing_package, read_file
from kalda.tools.pipeline.noun import pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kalda.pipelines.accounts import BatchAccount
    from kalda.pipelines.backfill.bounds import Bound, RefillPlan
    from kalda.pipelines.backfill.refill import Refill
    from kalda.pipelines.spec.model import PipelineFile


def _arguments(function: "Callable[..., None]") -> "Callable[..., None]":
    for add in (
        click.option(
            "--master",
            metavar="URL",
            callback=checked_master,
            help="Spark's master (default: the file's, else local[*]).",
        ),
        click.option("--dry-run", is_flag=True, help="Only say what would be processed."),
        click.argument("name", metavar="PIPELINE"),
        click.argument("file", type=click.Path(path_type=Path), metavar="FILE"),
    ):
        function = add(function)
    return function


@command("replay", pipeline)
@_arguments
@click.option(
    "--to", "end", metavar="BOUND", help="Behind the last: an offset, offsets as JSON, or a time (the end)."
)
@click.option("--from", "start", metavar="BOUND", help="The first (default: the beginning of the log).")
def replay(
    tool: Tool, file: Path, name: str, master: str | None, dry_run: bool, start: str | None, end: str | None
) -> None:
    """Process a range of offsets or of time again, into the same table and without duplicates.

    Offsets that a batch accounts for are left out where rows are appended. Where rows replace each other by
    key, all are processed up to where the table is, and the pipeline must not run. What the pipeline has not
    reached yet is left to it.
    """
    pipelines = read_file(tool, file)
    first, last = _bound("--from", start), _bound("--to", end)
    with _errors_in_one_line():
        refill = _open(tool, pipelines, name)
        plan, _ = refill.plan(first, last)
        _run(tool, pipelines, refill, plan, master, dry_run=dry_run)


@command("backfill", pipeline)
@_arguments
@click.option(
    "--rebuild", is_flag=True, help="Forget the ledger of a table that was deleted, and fill it again."
)
@click.option(
    "--as-of", metavar="TIME", help="Process what was there at this time (default: all that is there)."
)
def backfill(
    tool: Tool, file: Path, name: str, master: str | None, dry_run: bool, as_of: str | None, rebuild: bool
) -> None:
    """Fill a table from the beginning of its topics up to a time; the pipeline goes on from there.

    What the table holds already is left out. A pipeline that has never run gets a checkpoint, so that its
    first batch begins where the backfill ended.
    """
    pipelines = read_file(tool, file)
    last = _bound("--as-of", as_of)
    with _errors_in_one_line():
        refill = _open(tool, pipelines, name)
        if rebuild and not dry_run:
            tool.output.note(f"{counted(refill.forget(), 'record')} of the ledger deleted")
        plan, ends = refill.plan(None, last)
        _run(tool, pipelines, refill, plan, master, dry_run=dry_run)
        if not dry_run and refill.begin_at(ends):
            tool.output.note(f"{name} begins behind the backfill when it runs")


def _open(tool: Tool, file: "PipelineFile", name: str) -> "Refill":
    (spec,) = chosen(file, [name])
    try:
        from kalda.pipelines.backfill.refill import Refill
        from kalda.pipelines.engine.planner import plan_topic_pipeline
        from kalda.pipelines.engine.run_lock import RunLock, RunLockError
        from kalda.pipelines.spec.errors import PipelineFileError
        from kalda.pipelines.spec.model import TopicSource
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    if not isinstance(spec.source, TopicSource):
        raise ToolUsageError(f"{name} is a pipeline {spec.kind.value}; only topics can be processed again")
    try:
        refill = Refill(plan_topic_pipeline(spec, file), file)
    except PipelineFileError as error:
        raise file_error(tool, error) from None
    try:
        # Beside the pipeline, but not beside another replay or backfill of it; until the command ends.
        click.get_current_context().with_resource(RunLock(file.refill_storage, spec.name))
        if refill.replaces_rows:
            click.get_current_context().with_resource(RunLock(file.storage, spec.name))
    except RunLockError as error:
        raise ToolError(str(error)) from None
    refill.complete()
    return refill


@contextmanager
def _errors_in_one_line() -> "Iterator[None]":
    """Report what a refill, its Spark job or its table refuses without a traceback."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from kalda.pipelines.backfill.refill import RefillError
        from kalda.pipelines.checkpoint import CheckpointError
        from kalda.pipelines.engine.batch_log import BatchLogError
        from kalda.pipelines.engine.errors import PipelineStoppedError
        from kalda.pipelines.engine.restarts import first_line
        from kalda.pipelines.tables import TableError
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    refusals = (RefillError, CheckpointError, BatchLogError, PipelineStoppedError, TableError)
    try:
        yield
    except (*refusals, PySparkException, Py4JError) as error:
        raise ToolError(first_line(error)) from error


def _bound(option: str, text: str | None) -> "Bound | None":
    from kalda.pipelines.backfill.bounds import BoundError, parse_bound

    try:
        return None if text is None else parse_bound(text)
    except BoundError as error:
        raise ToolUsageError(f"{option}: {error}") from error


def _run(
    tool: Tool,
    file: "PipelineFile",
    refill: "Refill",
    plan: "RefillPlan",
    master: str | None,
    *,
    dry_run: bool,
) -> None:
    counts = {"rows_out": 0, "dlq": 0, "filtered": 0, "records": 0}
    if plan.batches and not dry_run:
        from kalda.pipelines.engine.application import start_session

        session = start_session(file, master or file.spark.master)
        try:
            result = refill.run(session, plan, lambda account: _report(tool, account))
        finally:
            session.stop()
        counts = {name: result.total(name) for name in counts}
    tool.output.result(
        {"offsets": plan.offsets, "skipped_offsets": plan.skipped_offsets, "dry_run": dry_run, **counts},
        f"{counted(plan.offsets, 'offset')} {'to process' if dry_run else 'processed'}, "
        f"{plan.skipped_offsets} left out because the table has them: "
        f"{counted(counts['records'], 'record')}, {counted(counts['rows_out'], 'row')}, "
        f"{counted(counts['dlq'], 'dead letter')}, "
        f"{counts['filtered']} filtered",
    )


def _report(tool: Tool, account: "BatchAccount") -> None:
    tool.output.note(f"batch {account.batch_id}: {counted(account.total('rows_out'), 'row')}")
