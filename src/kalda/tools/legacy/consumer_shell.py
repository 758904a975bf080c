"""`kalda legacy ConsumerShell`: prints the messages of a topic, as kafka.tools.ConsumerShell of 0.7."""

import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kalda.command.command import Tool, command
from kalda.command.names import TopicName
from kalda.command.option_types import Integer
from kalda.common.log_text import counted
from kalda.tools.legacy.group import legacy

if TYPE_CHECKING:
    from kalda.clients.legacy import KafkaStream


@command("ConsumerShell", legacy, connects=False)
@click.option("--topic", type=TopicName(), required=True, metavar="TOPIC", help="The topic to consume from.")
@click.option(
    "--props",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Properties file with the consumer properties.",
)
@click.option(
    "--partitions", type=Integer(1, 1000), default=1, show_default=True, metavar="COUNT", help="The streams."
)
def consumer_shell(tool: Tool, topic: str, props: Path, partitions: int) -> None:
    """Print messages as they come, until Ctrl-C or SIGTERM, or until nothing comes for consumer.timeout.ms.

    The properties are those of the old consumer.
    """
    from kalda.clients.config.properties_source import properties_of
    from kalda.clients.legacy import Consumer, StringDecoder

    ended, lock = threading.Event(), threading.Lock()
    failures: list[Exception] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with Consumer.create(dict(properties_of(props))) as connector:
        streams = connector.create_message_streams({topic: partitions}, None, StringDecoder)[topic]
        threads = [
            threading.Thread(target=_print, args=(tool, each, lock, failures), daemon=True)
            for each in streams
        ]
        for each in threads:
            each.start()
        while not ended.wait(0.1) and not failures and any(each.is_alive() for each in threads):
            pass
    for each in threads:
        each.join()
    if failures:
        raise failures[0]


def _print(
    tool: Tool, stream: "KafkaStream[Any, Any]", lock: threading.Lock, failures: list[Exception]
) -> None:
    from kalda.clients.legacy import ConsumerTimeoutError

    count = 0
    try:
        with suppress(ConsumerTimeoutError):
            for each in stream:
                count += 1
                message = each.message()
                with lock:
                    text = "null" if message is None else message
                    tool.output.item({"consumed": message}, f"consumed: {text}")
                    tool.output.flush()
        with lock:
            tool.output.item({"received": count}, f"Received {counted(count, 'message')}")
    except Exception as error:
        failures.append(error)
