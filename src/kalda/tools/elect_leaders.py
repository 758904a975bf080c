"""`kalda elect-leaders`: makes the controller elect leaders, as `kafka-leader-election` does."""

from enum import StrEnum
from pathlib import Path

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolUsageError
from kalda.command.names import TopicName
from kalda.command.option_types import INT32_MAX, EnumType, Integer
from kalda.command.results import error_json, raise_for
from kalda.command.tables import Table
from kalda.command.values import read_json
from kalda.common.types import TopicPartition
from kalda.tools.group_offsets import partitions_of
from kalda.tools.partition_files import parse_partitions


class _Election(StrEnum):
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


@command("elect-leaders", aliases={"--command-config": ("--admin.config",)})
@click.option(
    "--election-type",
    type=EnumType(_Election),
    required=True,
    help="preferred: the first replica, if it is in sync. unclean: any replica that is alive, where none is "
    "in sync; records may be lost.",
)
@click.option(
    "--topic",
    multiple=True,
    type=TopicName(),
    metavar="TOPIC[:0,1]",
    help="A topic, or some of its partitions; repeatable.",
)
@click.option(
    "--partition",
    "partition_number",
    type=Integer(0, INT32_MAX),
    metavar="N",
    help="The partition of the one --topic.",
)
@click.option(
    "--path-to-json-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The partitions, as Kafka's tool reads them: "
    '{"partitions": [{"topic": "flights", "partition": 0}]}.',
)
@click.option("--all-topic-partitions", is_flag=True, help="All partitions that need an election.")
async def elect_leaders(
    tool: Tool,
    election_type: _Election,
    topic: tuple[str, ...],
    partition_number: int | None,
    path_to_json_file: Path | None,
    all_topic_partitions: bool,
) -> None:
    """Elect the leaders of partitions.

    A partition that has the right leader already is no error; the result shows it as not needed.
    """
    from kalda.clients.admin.partitions import ElectionType
    from kalda.common.errors import ErrorCode

    if sum((bool(topic), path_to_json_file is not None, all_topic_partitions)) != 1:
        raise ToolUsageError(
            "name the partitions by one of --topic, --path-to-json-file, --all-topic-partitions"
        )
    if partition_number is not None:
        if len(topic) != 1 or ":" in topic[0]:
            raise ToolUsageError("--partition needs one --topic, without partitions of its own")
        topic = (f"{topic[0]}:{partition_number}",)
    kind = ElectionType[election_type.name]
    async with tool.admin() as admin:
        partitions: list[TopicPartition] | None = None
        if path_to_json_file is not None:
            option = "--path-to-json-file"
            partitions = parse_partitions(
                read_json(option, path_to_json_file), f"{option}={path_to_json_file}"
            )
        elif topic:
            partitions = await partitions_of(admin, "--topic", topic)
        elected = await admin.elect_leaders(kind, partitions, outcomes=True)
    errors = {
        each: error
        for each, error in elected.errors.items()
        if error.code is not ErrorCode.ELECTION_NOT_NEEDED
    }
    statuses = {
        each: "error" if each in errors else "not-needed" if each in elected.errors else "elected"
        for each in sorted(elected)
    }
    tool.output.result(
        {
            "partitions": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "status": status,
                    "error": error_json(errors.get(each)),
                }
                for each, status in statuses.items()
            ]
        },
        Table(
            ("TOPIC", "PARTITION", "STATUS"),
            [(each.topic, each.partition, status) for each, status in statuses.items()],
        ),
    )
    raise_for(tool.output, errors.values())
