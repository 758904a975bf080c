"""`kalda legacy` ExportZkOffsets, ImportZkOffsets and UpdateOffsetsInZK: offsets of groups in ZooKeeper.

The file has Kafka's lines: ``/consumers/group/offsets/topic/partition:offset``.
"""

import re
from pathlib import Path
from typing import Final

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.names import TopicName
from kalda.command.option_types import INT32_MAX, INT64_MAX
from kalda.command.zookeeper_security import zookeeper_security_option
from kalda.common.types import TopicPartition
from kalda.tools.legacy.group import legacy

_LINE: Final = re.compile(r"/consumers/([^/]+)/offsets/([^/]+)/([0-9]{1,10}):([0-9]{1,19})")
_ASK_MS: Final = 10_000

_zookeeper_option = click.option(
    "--zkconnect",
    "--zookeeper",
    "zookeeper",
    default="localhost:2181",
    show_default=True,
    metavar="HOST:PORT,...",
    help="The ZooKeeper servers, with a chroot.",
)


@command("ExportZkOffsets", legacy, connects=False)
@_zookeeper_option
@zookeeper_security_option
@click.option(
    "--group", "groups", multiple=True, metavar="GROUP", help="A group; repeatable, all unless given."
)
@click.option(
    "--output-file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="The file to write.",
)
async def export_zk_offsets(tool: Tool, zookeeper: str, groups: tuple[str, ...], output_file: Path) -> None:
    """Write the offsets of groups in ZooKeeper to a file, one line for each partition."""
    from kalda.tools.legacy.cluster_view import open_cluster

    lines = []
    async with open_cluster("--zkconnect", zookeeper) as view:
        for group in groups or await view.children("/consumers"):
            base = f"/consumers/{group}/offsets"
            topics = await view.children(base)
            if groups and not topics:
                raise ToolError(f"group {group} has no offsets in ZooKeeper")
            for topic in topics:
                for partition in sorted(
                    await view.children(f"{base}/{topic}"), key=lambda each: (len(each), each)
                ):
                    path = f"{base}/{topic}/{partition}"
                    offset = await view.data(path)
                    if offset is not None and _LINE.fullmatch(f"{path}:{offset}"):
                        lines.append(f"{path}:{offset}\n")
    _write(output_file, lines)
    tool.output.note(f"{len(lines)} offsets are in {output_file}")


@command("ImportZkOffsets", legacy, connects=False)
@_zookeeper_option
@zookeeper_security_option
@click.option(
    "--input-file", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The file to read."
)
async def import_zk_offsets(tool: Tool, zookeeper: str, input_file: Path) -> None:
    """Set offsets of groups in ZooKeeper from a file of ExportZkOffsets; stop the groups before.

    The whole file is checked before the first offset is set.
    """
    from kalda.cluster.consumer_offsets import write_offset
    from kalda.tools.legacy.cluster_view import open_cluster

    offsets = _read(input_file)
    async with open_cluster("--zkconnect", zookeeper) as view:
        for (group, partition), offset in offsets.items():
            await write_offset(view.zookeeper, group, partition, offset)
    tool.output.note(f"{len(offsets)} offsets are set")


@command("UpdateOffsetsInZK", legacy, connects=False)
@click.argument("where", type=click.Choice(["earliest", "latest"]))
@click.argument("consumer_properties", type=click.Path(path_type=Path))
@click.argument("topic", type=TopicName())
async def update_offsets_in_zk(tool: Tool, where: str, consumer_properties: Path, topic: str) -> None:
    """Set the offsets of a group in ZooKeeper to the beginning or the end of a topic; stop the group before.

    CONSUMER_PROPERTIES are those of the old consumer: group.id and zookeeper.connect.
    """
    from kalda.clients.config.properties_source import properties_of
    from kalda.clients.errors import ClientError
    from kalda.clients.legacy import ConsumerConfig
    from kalda.cluster.consumer_offsets import write_offset
    from kalda.tools.legacy.cluster_view import open_cluster

    config = ConsumerConfig(properties_of(consumer_properties))
    assert config.zookeeper_connect is not None, "checked"
    async with open_cluster("zookeeper.connect", config.zookeeper_connect) as view:
        partitions = await view.partitions([topic])
        try:
            async with view.consumer(config.group, _ASK_MS) as consumer:
                ask = consumer.beginning_offsets if where == "earliest" else consumer.end_offsets
                found = await ask(partitions)
        except ClientError as error:
            raise ToolError(f"the brokers cannot be asked for offsets: {error}") from error
        for each in partitions:
            await write_offset(view.zookeeper, config.group, each, found[each])
            tool.output.item(
                {"partition": each.partition, "offset": found[each]},
                f"updating partition {each.partition} with new offset: {found[each]}",
            )
    tool.output.item({"partitions": len(partitions)}, f"updated the offset for {len(partitions)} partitions")


def _write(path: Path, lines: list[str]) -> None:
    try:
        path.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise ToolError(f"--output-file={path}: {error.strerror}") from error


def _fits(match: re.Match[str]) -> bool:
    """Return whether ZooKeeper and the protocol can carry what a line has."""
    from kalda.zookeeper.errors import BadArgumentsError
    from kalda.zookeeper.path_validation import check_path

    try:
        check_path(match.string.rpartition(":")[0])
    except BadArgumentsError:
        return False
    return int(match[3]) <= INT32_MAX and int(match[4]) <= INT64_MAX


def _read(path: Path) -> dict[tuple[str, TopicPartition], int]:
    """Return the offsets of a file by group and partition.

    Raises:
        ToolUsageError: the file cannot be read, or a line is none of ExportZkOffsets.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ToolUsageError(f"--input-file={path}: {reason}") from error
    offsets = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None or not _fits(match):
            raise ToolUsageError(
                f"--input-file={path}: line {number} is {line!r}; "
                "expected /consumers/GROUP/offsets/TOPIC/PARTITION:OFFSET"
            )
        offsets[match[1], TopicPartition(match[2], int(match[3]))] = int(match[4])
    return offsets
