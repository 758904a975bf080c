"""`kalda legacy ProducerShell`: sends the lines of stdin, as kafka.tools.ProducerShell of 0.7."""

import sys
from pathlib import Path
from typing import Final

import click

from kalda.command.command import Tool, command
from kalda.command.names import TopicName
from kalda.tools.legacy.group import legacy

_DEFAULTS: Final = {"serializer.class": "kafka.serializer.StringEncoder"}
"""What the shell sends is text; in 0.7 the file had to say so."""


@command("ProducerShell", legacy, connects=False)
@click.option(
    "--props",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Properties file with the producer properties.",
)
@click.option("--topic", type=TopicName(), required=True, metavar="TOPIC", help="The topic to produce to.")
def producer_shell(tool: Tool, props: Path, topic: str) -> None:
    """Produce messages from the command line: one for each line.

    The properties are those of the old producer. Lines are encoded by StringEncoder unless the file names
    another serializer.class.
    """
    from kalda.clients.config.properties_source import properties_of
    from kalda.clients.legacy import Producer, ProducerConfig, ProducerData

    config = ProducerConfig({**_DEFAULTS, **properties_of(props)})
    with Producer(config) as producer:
        for line in sys.stdin.buffer:
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            message = text.strip()
            producer.send(ProducerData(topic, message))
            size = len(message.encode())
            tool.output.item({"message": message, "bytes": size}, f"Sent: {text} ({size} bytes)")
            tool.output.flush()
