"""The command `kalda pipeline pass`: lets a pipeline go on without a record that stops it."""

import re
from pathlib import Path

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolUsageError
from kalda.common.types import TopicPartition
from kalda.tools.pipeline.arguments import chosen, read_file
from kalda.tools.pipeline.noun import pipeline


@command("pass", pipeline, connects=False)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.argument("name", metavar="PIPELINE")
@click.argument("records", nargs=-1, required=True, metavar="TOPIC-PARTITION:OFFSET...")
@click.option("--reason", metavar="TEXT", default="", help="Why; it is kept with the dead letter.")
def pass_over(tool: Tool, /, file: Path, name: str, records: tuple[str, ...], reason: str) -> None:
    """Let a pipeline pass over records that stop it, e.g. with `on_error: fail`.

    The next batch, or the next start, neither decodes nor writes them. The ledger counts them as dlq and as
    passed, and they go to the dead-letter queue if the pipeline has one. Write orders-0:1234 for offset 1234.
    """
    from kalda.pipelines.engine.passed import PassedRecords
    from kalda.pipelines.spec.model import TopicSource

    pipelines = read_file(tool, file)
    (spec,) = chosen(pipelines, [name])
    if not isinstance(spec.source, TopicSource):
        raise ToolUsageError(f"{name} reads no topic, so that it has no records to pass over")
    places = [_place(each) for each in records]
    PassedRecords(pipelines.storage, spec.name).add(places, reason or "no reason was given")
    listed: list[dict[str, str | int]] = [
        {"topic": place.topic, "partition": place.partition, "offset": offset} for place, offset in places
    ]
    tool.output.result([*listed], f"{name} passes over {', '.join(records)} from its next batch on.")


def _place(text: str) -> tuple[TopicPartition, int]:
    match = re.fullmatch(r"(.+)-(\d{1,9}):(\d{1,18})", text)
    if match is None:
        raise ToolUsageError(f"{text!r} names no record; write TOPIC-PARTITION:OFFSET, e.g. orders-0:1234")
    return TopicPartition(match[1], int(match[2])), int(match[3])
