"""`kalda legacy ConsumerOffsetChecker`: how far a group is behind, as kafka.tools.ConsumerOffsetChecker."""

from typing import TYPE_CHECKING, Final

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError
from kalda.command.option_types import INT32_MAX, Integer
from kalda.command.output import Form, Json
from kalda.command.zookeeper_security import zookeeper_security_option
from kalda.common.types import TopicPartition
from kalda.tools.legacy.group import legacy

if TYPE_CHECKING:
    from kalda.tools.legacy.cluster_view import ClusterView

_ROW: Final = "%-15s %-30s %-3s %-15s %-15s %-15s %s"


@command("ConsumerOffsetChecker", legacy, connects=False)
@click.option(
    "--zookeeper",
    "--zkconnect",
    default="localhost:2181",
    show_default=True,
    metavar="HOST:PORT,...",
    help="The ZooKeeper servers, with a chroot.",
)
@zookeeper_security_option
@click.option("--group", required=True, metavar="GROUP", help="The consumer group.")
@click.option("--topic", metavar="TOPIC,...", help="The topics; those that the group owns unless given.")
@click.option("--broker-info", is_flag=True, help="Print the addresses of the brokers, too.")
@click.option(
    "--socket.timeout.ms",
    "timeout_ms",
    type=Integer(1, INT32_MAX),
    default=6000,
    show_default=True,
    metavar="MS",
    help="How long to wait for brokers.",
)
@click.option(
    "--retry.backoff.ms",
    "_backoff_ms",
    type=Integer(0, INT32_MAX),
    default=3000,
    metavar="MS",
    help="Accepted for old scripts; the client has a back-off of its own.",
)
async def consumer_offset_checker(
    tool: Tool,
    zookeeper: str,
    group: str,
    topic: str | None,
    broker_info: bool,
    timeout_ms: int,
    _backoff_ms: int,
) -> None:
    """Print the offset, the end and the lag of each partition of a group, and the thread that owns it.

    An offset in Kafka counts before one in ZooKeeper. Without --topic the topics are those with owners, or
    with offsets if no consumer runs.
    """
    from kalda.clients.errors import ClientError
    from kalda.tools.legacy.cluster_view import open_cluster

    async with open_cluster("--zookeeper", zookeeper) as view:
        topics = await _topics(view, group, topic)
        partitions = await view.partitions(topics)
        # Without a leader nobody knows the end.
        led = list(await view.leaders(partitions))
        base = f"/consumers/{group}"
        try:
            async with view.consumer(group, timeout_ms) as consumer:
                stored = await consumer.committed(partitions) if partitions else {}
                ends = await consumer.end_offsets(led) if led else {}
        except ClientError as error:
            raise ToolError(f"the brokers cannot be asked for offsets: {error}") from error
        if tool.output.form is not Form.JSON:
            tool.output.item(None, _ROW % ("Group", "Topic", "Pid", "Offset", "logSize", "Lag", "Owner"))
        for each in partitions:
            found = stored.get(each)
            in_zookeeper = await view.data(f"{base}/offsets/{each.topic}/{each.partition}")
            offset = found.offset if found is not None else _number(in_zookeeper)
            owner = await view.data(f"{base}/owners/{each.topic}/{each.partition}")
            _print(tool, group, each, offset, ends.get(each), owner)
        if broker_info:
            if tool.output.form is not Form.JSON:
                tool.output.item(None, "BROKER INFO")
            for number, address in (await view.brokers()).items():
                tool.output.item({"broker": number, "address": address}, f"{number} -> {address}")


async def _topics(view: "ClusterView", group: str, given: str | None) -> list[str]:
    if given is not None:
        return sorted({name for each in given.split(",") if (name := each.strip())})
    base = f"/consumers/{group}"
    found = await view.children(f"{base}/owners") or await view.children(f"{base}/offsets")
    if not found:
        raise ToolError(
            f"group {group} has neither owners nor offsets in ZooKeeper; name its topics with --topic"
        )
    # The znodes of the group stay when a topic is deleted.
    return sorted({*found} & {*await view.children("/brokers/topics")})


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _print(
    tool: Tool, group: str, partition: TopicPartition, offset: int | None, end: int | None, owner: str | None
) -> None:
    lag = None if offset is None or end is None else end - offset
    document: Json = {
        "group": group,
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": offset,
        "log_size": end,
        "lag": lag,
        "owner": owner,
    }
    shown = ["unknown" if each is None else str(each) for each in (offset, end, lag)]
    line = _ROW % (group, partition.topic, partition.partition, *shown, owner or "none")
    tool.output.item(document, line)
