"""`kalda delete-records`: deletes the first records of partitions, as `kafka-delete-records` does."""

from pathlib import Path

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolUsageError
from kalda.command.names import TopicName
from kalda.command.option_types import Integer
from kalda.command.results import error_json, raise_for
from kalda.command.tables import Table
from kalda.command.values import read_json
from kalda.common.types import TopicPartition
from kalda.tools.group_offsets import partitions_of
from kalda.tools.partition_files import parse_offsets

_END = -1


@command("delete-records")
@click.option(
    "--offset-json-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The first offsets to keep, as Kafka's tool reads them: "
    '{"partitions": [{"topic": "flights", "partition": 0, "offset": 42}], "version": 1}.',
)
@click.option(
    "--topic",
    multiple=True,
    type=TopicName(),
    metavar="TOPIC[:0,1]",
    help="A topic, or some of its partitions; repeatable.",
)
@click.option("--before-offset", type=Integer(0), metavar="OFFSET", help="The first offset to keep.")
@click.option("--all", "is_all", is_flag=True, help="Delete all records that are there now.")
async def delete_records(
    tool: Tool,
    offset_json_file: Path | None,
    topic: tuple[str, ...],
    before_offset: int | None,
    is_all: bool,
) -> None:
    """Delete the first records of partitions.

    Give a file, or topics with --before-offset or --all. Deleted records cannot be brought back. The result
    shows the first offset that is left.
    """
    is_by_option = bool(topic) and (before_offset is not None) is not is_all
    if (offset_json_file is not None) == is_by_option or (offset_json_file is not None and topic):
        raise ToolUsageError(
            "name what to delete by --offset-json-file, or by --topic with one of --before-offset and --all"
        )
    async with tool.admin() as admin:
        if offset_json_file is not None:
            option = "--offset-json-file"
            offsets = parse_offsets(read_json(option, offset_json_file), f"{option}={offset_json_file}")
        else:
            partitions = await partitions_of(admin, "--topic", topic)
            offsets = dict.fromkeys(partitions, _END if before_offset is None else before_offset)
        deleted = await admin.delete_records(offsets, outcomes=True)
    marks: dict[TopicPartition, int] = {each: one.low_watermark for each, one in deleted.results.items()}
    rows = [(each.topic, each.partition, marks[each]) for each in sorted(marks)]
    tool.output.result(
        {
            "partitions": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "low_watermark": marks.get(each),
                    "error": error_json(deleted.errors.get(each)),
                }
                for each in sorted(offsets)
            ]
        },
        Table(("TOPIC", "PARTITION", "LOW-WATERMARK"), rows),
    )
    raise_for(tool.output, deleted.errors.values())
