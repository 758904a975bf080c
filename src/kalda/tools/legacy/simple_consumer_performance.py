"""`kalda legacy SimpleConsumerPerformance`: kafka.tools.SimpleConsumerPerformance, with its columns."""

from typing import Any, Final
from urllib.parse import urlsplit

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.names import TopicName
from kalda.command.option_types import INT32_MAX, Integer
from kalda.tools.legacy.consumption_report import ConsumptionReport, Lines
from kalda.tools.legacy.group import legacy
from kalda.tools.legacy.performance_options import output_options

_MB: Final = 1024 * 1024
_TIMEOUT_MS: Final = 30_000


@command("SimpleConsumerPerformance", legacy, connects=False)
@click.option(
    "--server", required=True, metavar="kafka://HOST:PORT", help="The broker that leads the partition."
)
@click.option("--topic", type=TopicName(), required=True, metavar="TOPIC", help="The topic to read.")
@click.option(
    "--partition",
    type=Integer(0, INT32_MAX),
    default=0,
    show_default=True,
    metavar="NUMBER",
    help="The partition.",
)
@click.option("--from-latest", is_flag=True, help="Begin at the end instead of the beginning.")
@click.option(
    "--fetch-size",
    type=Integer(1, INT32_MAX),
    default=_MB,
    show_default=True,
    metavar="BYTES",
    help="The most bytes of a fetch.",
)
@click.option(
    "--messages", type=Integer(1), required=True, metavar="COUNT", help="Stop behind so many messages."
)
@click.option(
    "--clientId",
    "client_id",
    default="SimpleConsumerPerformanceClient",
    show_default=True,
    metavar="ID",
    help="The name in logs of the broker.",
)
@output_options
def simple_consumer_performance(tool: Tool, /, **options: Any) -> None:
    """Measure how fast one partition is read, as kafka-simple-consumer-perf-test.sh.

    It ends at the end of the partition, too.
    """
    from kalda.clients.legacy import FetchRequest, OffsetRequest, SimpleConsumer

    host, port = _address(options["server"])
    topic, partition, size = options["topic"], options["partition"], options["fetch_size"]
    report = ConsumptionReport(Lines(tool, options))
    report.lines.header()
    buffer_size = min(2 * size, INT32_MAX)
    with SimpleConsumer(host, port, _TIMEOUT_MS, buffer_size, options["client_id"]) as consumer:
        where = OffsetRequest.LATEST_TIME if options["from_latest"] else OffsetRequest.EARLIEST_TIME
        offset = consumer.get_offsets_before(topic, partition, where, 1)[0]
        while report.messages < options["messages"]:
            messages = consumer.fetch(FetchRequest(topic, partition, offset, size))
            sizes = [len(each.message.payload or b"") for each in messages]
            if not sizes and messages.next_offset <= offset:
                if messages.size_in_bytes > messages.valid_bytes:
                    raise ToolError(f"--fetch-size={size} is less than the message at offset {offset}")
                break
            offset = messages.next_offset
            report.add(len(sizes), sum(sizes))
    report.lines.total(report.start, [report])


def _address(server: str) -> tuple[str, int]:
    try:
        parts = urlsplit(server if "://" in server else f"kafka://{server}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port:
        raise ToolUsageError(f"--server={server} is not kafka://HOST:PORT")
    return host, port
