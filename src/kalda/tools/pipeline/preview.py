"""`kalda pipeline preview`: shows what pipelines make of the newest records, and writes nothing."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kalda.command.command import Tool, command
from kalda.command.errors import PartialFailureError, ToolUsageError
from kalda.command.option_types import Integer
from kalda.command.output import Json
from kalda.command.tables import Cell, Table
from kalda.common.log_text import counted
from kalda.tools.bytes_text import json_field, shortened
from kalda.tools.pipeline.arguments import chosen, file_error, missing_package, pipeline_arguments, read_file
from kalda.tools.pipeline.noun import pipeline

if TYPE_CHECKING:
    from kalda.pipelines.engine.trial import DeadRecord, Trial

_RECORDS_MAX: Final = 1_000
"""More do not fit a screen, and all are in memory."""
_CELL_CHARACTERS: Final = 60


@command("preview", pipeline)
@pipeline_arguments
@click.option(
    "--from",
    "count",
    type=Integer(1, _RECORDS_MAX),
    default=10,
    metavar="N",
    help=f"Process the newest N records of each pipeline's topics; at most {_RECORDS_MAX}. Default: 10.",
)
def preview(tool: Tool, file: Path, names: tuple[str, ...], count: int) -> None:
    """Show the rows and dead letters that pipelines make of the newest records.

    Runs without Spark and writes nothing. Of a pipeline that Spark executes, it shows the rows before the
    transform. Long values are cut, with --json not.
    """
    read = read_file(tool, file)
    specs = chosen(read, names)
    try:
        from kalda.pipelines.engine.preview import preview_pipeline
        from kalda.pipelines.engine.trial import TrialError
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    from kalda.pipelines.spec.errors import PipelineFileError
    from kalda.pipelines.spec.model import TopicSource

    readers = [each for each in specs if isinstance(each.source, TopicSource)]
    if not readers:
        raise ToolUsageError("preview shows pipelines that read topics, and none of these does")
    shown: list[Trial] = []
    failed: list[str] = []
    for each in readers:
        try:
            shown.append(preview_pipeline(each, read, count))
        except PipelineFileError as error:
            raise file_error(tool, error) from None
        except TrialError as error:
            failed.append(str(error))
    tool.output.result(
        {"previews": [_json(each) for each in shown]}, *(part for each in shown for part in _parts(each))
    )
    if failed:
        tool.output.flush()
        for line in failed:
            tool.output.failure(line)
        raise PartialFailureError


def _parts(found: "Trial") -> list[Table | str]:
    made = f"{counted(len(found.rows), 'row')} of the newest {counted(found.records, 'record')}"
    summary = (
        f"{found.pipeline}: {made}, {found.filtered} filtered, {counted(len(found.dead), 'dead letter')}"
    )
    parts: list[Table | str] = [summary]
    if found.note is not None:
        parts.append(f"{found.pipeline}: {found.note}")
    if found.rows:
        rows = [[_cell(row[name]) for name in found.columns] for row in found.rows]
        parts.append(Table(found.columns, rows, "Rows:"))
    if found.dead:
        columns = ("PARTITION", "OFFSET", "KEY", "VALUE", "STAGE", "CAUSE", "MESSAGE")
        parts.append(Table(columns, [_dead_row(each) for each in found.dead], "Dead letters:"))
    return parts


def _dead_row(each: "DeadRecord") -> list[Cell]:
    content = [shortened(data, _CELL_CHARACTERS) for data in (each.key, each.value)]
    return [str(each.topic_partition), each.offset, *content, each.stage, each.error_class, each.message]


def _cell(value: object) -> Cell:
    if isinstance(value, bytes):
        return shortened(value, _CELL_CHARACTERS)
    from kalda.pipelines.engine.trial import shown

    plain = shown(value)
    if plain is None or isinstance(plain, bool | int | float):
        return plain
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    return text if len(text) <= _CELL_CHARACTERS else f"{text[:_CELL_CHARACTERS]}..."


def _json(found: "Trial") -> Json:
    from kalda.pipelines.engine.trial import shown

    return {
        "pipeline": found.pipeline,
        "records": found.records,
        "filtered": found.filtered,
        "note": found.note,
        "rows": [{name: shown(value) for name, value in row.items()} for row in found.rows],
        "deadLetters": [
            {
                "topic": each.topic_partition.topic,
                "partition": each.topic_partition.partition,
                "offset": each.offset,
                **json_field("key", each.key),
                **json_field("value", each.value),
                "stage": each.stage,
                "errorClass": each.error_class,
                "errorMessage": each.message,
            }
            for each in found.dead
        ],
    }
