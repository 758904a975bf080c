"""`kalda log-dirs`: the directories of brokers and the logs in them, as `kafka-log-dirs` shows them."""

from collections.abc import Mapping

import click

from kalda.command.command import Tool, command, noun
from kalda.command.names import TopicName
from kalda.command.output import Json
from kalda.command.results import error_json, raise_for
from kalda.command.tables import Table
from kalda.command.values import parse_ids
from kalda.common.types import TopicPartition
from kalda.tools.group_offsets import partitions_of

log_dirs = noun("Describe the directories of brokers and the logs in them.")


@command("describe", log_dirs)
@click.option("--broker-list", metavar="ID,...", help="Only these brokers.")
@click.option(
    "--topic-list",
    metavar="TOPIC,...",
    type=TopicName(),
    help="Only logs of these topics, as in Kafka's tool.",
)
@click.option(
    "--topic",
    multiple=True,
    type=TopicName(),
    metavar="TOPIC[:0,1]",
    help="Only logs of a topic, or of some of its partitions; repeatable.",
)
@click.option("--summary", is_flag=True, help="Only the directories, without the logs in them.")
async def describe(
    tool: Tool, broker_list: str | None, topic_list: str | None, topic: tuple[str, ...], summary: bool
) -> None:
    """Describe directories and logs: sizes in bytes, how far replicas are behind, free space.

    OFFSET-LAG is how many records a replica is behind the high watermark. A future replica is a copy that
    replaces the present one when a move between directories is done.
    """
    brokers = None if broker_list is None else parse_ids("--broker-list", broker_list)
    words = [*topic, *(topic_list.split(",") if topic_list else ())]
    async with tool.admin() as admin:
        partitions = await partitions_of(admin, "--topic", words) if words else None
        described = await admin.describe_log_dirs(brokers, partitions=partitions, outcomes=True)
    directories, logs = [], []
    document: list[Json] = []
    errors = [*described.errors.values()]
    for broker_id, found in sorted(described.results.items()):
        listed: list[Json] = []
        for path, each in sorted(found.items()):
            sizes = {partition: info.size for partition, info in each.replica_infos.items()}
            directories.append(
                (
                    broker_id,
                    path,
                    "offline" if each.error is not None else "cordoned" if each.is_cordoned else "online",
                    len(sizes),
                    sum(sizes.values()),
                    each.total_bytes,
                    each.usable_bytes,
                )
            )
            rows = [
                (broker_id, path, part.topic, part.partition, info.size, info.offset_lag, info.is_future)
                for part, info in sorted(each.replica_infos.items())
            ]
            logs += rows
            listed.append(
                {
                    "directory": path,
                    "error": error_json(each.error),
                    "total_bytes": each.total_bytes,
                    "usable_bytes": each.usable_bytes,
                    "is_cordoned": each.is_cordoned,
                    "logs": [_log_json(row) for row in rows],
                }
            )
        document.append({"broker": broker_id, "directories": listed})
    columns = ("BROKER", "DIRECTORY", "STATUS", "LOGS", "SIZE", "TOTAL-BYTES", "USABLE-BYTES")
    tables: list[Table | str] = [Table(columns, directories)]
    if not summary:
        columns = ("BROKER", "DIRECTORY", "TOPIC", "PARTITION", "SIZE", "OFFSET-LAG", "IS-FUTURE")
        tables += ["", Table(columns, logs)]
    tool.output.result({"brokers": document}, *tables)
    raise_for(tool.output, errors)


def _log_json(row: tuple[int, str, str, int, int, int, bool]) -> Mapping[str, Json]:
    _, _, topic, partition, size, offset_lag, is_future = row
    place = TopicPartition(topic, partition)
    return {**place._asdict(), "size": size, "offset_lag": offset_lag, "is_future": is_future}
