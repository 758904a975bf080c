"""`kalda legacy ConsumerPerformance`: kafka.tools.ConsumerPerformance of 0.8.2, with its columns."""

import asyncio
import random
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import click

from kalda.command.command import Tool, command
from kalda.command.names import TopicName
from kalda.command.option_types import INT32_MAX, Integer
from kalda.command.zookeeper_security import zookeeper_security_option
from kalda.tools.legacy.consumption_report import ConsumptionReport, Lines
from kalda.tools.legacy.group import legacy
from kalda.tools.legacy.performance_options import output_options

if TYPE_CHECKING:
    from kalda.clients.legacy import ConsumerConnector, KafkaStream

_TIMEOUT_MS: Final = 5_000
"""How long a thread waits at the end of its partitions."""
_STOP_SECONDS: Final = 2.0
_MB: Final = 1024 * 1024


@command("ConsumerPerformance", legacy, connects=False)
@click.option("--zookeeper", required=True, metavar="HOST:PORT,...", help="The ZooKeeper servers.")
@zookeeper_security_option
@click.option("--topic", type=TopicName(), required=True, metavar="TOPIC", help="The topic to read.")
@click.option(
    "--group",
    metavar="GROUP",
    help="The group, whose znodes are deleted first unless it has consumers; one of its own unless given.",
)
@click.option(
    "--messages", type=Integer(1), required=True, metavar="COUNT", help="The messages of each thread."
)
@click.option(
    "--threads", type=Integer(1, 1000), default=10, show_default=True, metavar="COUNT", help="The streams."
)
@click.option(
    "--fetch-size",
    type=Integer(1, INT32_MAX),
    default=_MB,
    show_default=True,
    metavar="BYTES",
    help="The most bytes of one partition in a fetch.",
)
@click.option(
    "--socket-buffer-size",
    type=Integer(1, INT32_MAX),
    default=2 * _MB,
    show_default=True,
    metavar="BYTES",
    help="The size of the socket's receive buffer.",
)
@click.option(
    "--num-fetch-threads",
    type=Integer(1, INT32_MAX),
    default=1,
    metavar="COUNT",
    help="Accepted for old scripts; one connection to each broker carries all fetches.",
)
@click.option("--from-latest", is_flag=True, help="Begin at the end instead of the beginning.")
@output_options
def consumer_performance(tool: Tool, /, **options: Any) -> None:
    """Measure how fast the old consumer reads, as kafka-consumer-perf-test.sh of 0.8.

    A thread ends behind --messages, or when nothing comes for 5 seconds, which the rates do not count.
    """
    from kalda.clients.legacy import Consumer, ConsumerConfig

    given: str | None = options["group"]
    config = ConsumerConfig(
        {
            "zookeeper.connect": options["zookeeper"],
            "group.id": f"perf-consumer-{random.randrange(100_000)}" if given is None else given,
            "fetch.message.max.bytes": options["fetch_size"],
            "socket.receive.buffer.bytes": options["socket_buffer_size"],
            "auto.offset.reset": "largest" if options["from_latest"] else "smallest",
            "consumer.timeout.ms": _TIMEOUT_MS,
            "offsets.storage": "zookeeper",
            # Each run reads all again, so that nothing is kept.
            "auto.commit.enable": False,
        }
    )
    if given is not None:
        asyncio.run(_forget(options["zookeeper"], given))
    lines = Lines(tool, options)
    lines.header()
    try:
        failure = _measure(Consumer.create(config), lines, options)
    finally:
        if given is None:
            asyncio.run(_forget(options["zookeeper"], config.group))
    if failure is not None:
        raise failure


def _measure(connector: "ConsumerConnector", lines: Lines, options: dict[str, Any]) -> Exception | None:
    """Read in threads, and print the lines; return the failure of a thread."""
    workers: list[_Worker] = []
    try:
        with connector:
            streams = connector.create_message_streams({options["topic"]: options["threads"]})
            workers += [
                _Worker(stream, ConsumptionReport(lines, number), options["messages"])
                for number, stream in enumerate(streams[options["topic"]])
            ]
            start = time.time()
            for each in workers:
                each.start()
            for each in workers:
                each.join()
            waited_s = _TIMEOUT_MS / 1000 if any(each.has_waited for each in workers) else 0.0
            lines.total(start, [each.report for each in workers], waited_s)
    finally:
        # The streams end with the connector, also on Ctrl-C.
        for each in workers:
            each.join(_STOP_SECONDS)
    return next((each.failure for each in workers if each.failure is not None), None)


async def _forget(zookeeper: str, group: str) -> None:
    """Delete the znodes of a group, unless it has consumers."""
    from kalda.tools.legacy.cluster_view import open_cluster
    from kalda.tools.zk.tree_commands import Rm, run

    path = f"/consumers/{group}"
    async with open_cluster("--zookeeper", zookeeper) as view:
        if await view.children(path) and not await view.children(f"{path}/ids"):
            await run(view.zookeeper, Rm(path, recursive=True))


class _Worker(threading.Thread):
    """Reads one stream."""

    def __init__(self, stream: "KafkaStream[Any, Any]", report: ConsumptionReport, messages: int) -> None:
        super().__init__(daemon=True)
        self.report: Final = report
        self.has_waited = False
        """Whether it ended because nothing came."""
        self.failure: Exception | None = None
        self._stream: Final = stream
        self._messages: Final = messages

    def run(self) -> None:
        """Read until the end."""
        from kalda.clients.legacy import ConsumerTimeoutError

        try:
            for each in self._stream:
                self.report.add(1, len(each.raw_message.payload or b""))
                if self.report.messages >= self._messages:
                    break
        except ConsumerTimeoutError:
            self.has_waited = True
        except Exception as error:
            self.failure = error
        if self.report.lines.interval is not None:
            self.report.print_detail()
