"""The command `kalda produce`: records from lines, with the properties of ``kafka-console-producer``."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from kalda.command.command import PRODUCER_ALIASES, SettingOption, Tool, command
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.names import TopicName
from kalda.command.option_types import INT32_MAX, EnumType, Integer
from kalda.command.output import Form
from kalda.command.values import parse_settings, read_settings
from kalda.common.log_text import counted
from kalda.tools.console.byte_formats import ByteFormat, ByteFormatError, of_java_class, to_bytes
from kalda.tools.console.line_reader import (
    READER_PROPERTIES,
    ConsoleRecord,
    LineError,
    LineOptions,
    check_options,
    read_json_line,
    read_text_line,
)

if TYPE_CHECKING:
    from kalda.clients.producer.producer import Producer
    from kalda.clients.producer.record_metadata import RecordMetadata

_LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A longer line is refused: it could not be one record, and reading on would use up the memory."""

_FAILURES_SHOWN_MAX: Final = 10

_DEFAULTS: Final = {"client.id": "kalda-produce", "max.block.ms": "15000"}
"""A person waits for the result: a wrong address must not take a minute."""

_SETTINGS: Final = (
    SettingOption("--batch-size", "batch.size", "BYTES", "The bytes of a batch."),
    SettingOption("--max-partition-memory-bytes", "batch.size", "BYTES", "The same as --batch-size."),
    SettingOption("--max-memory-bytes", "buffer.memory", "BYTES", "The memory for records to be sent."),
    SettingOption("--max-block-ms", "max.block.ms", "MS", "How long to wait for memory or metadata."),
    SettingOption("--message-send-max-retries", "retries", "COUNT", "How often to send a record again."),
    SettingOption("--retry-backoff-ms", "retry.backoff.ms", "MS", "The pause before that."),
    SettingOption("--request-timeout-ms", "request.timeout.ms", "MS", "How long a request may take."),
    SettingOption("--timeout", "linger.ms", "MS", "How long a record waits for others of its batch."),
    SettingOption("--metadata-expiry-ms", "metadata.max.age.ms", "MS", "How old metadata may become."),
    SettingOption("--socket-buffer-size", "send.buffer.bytes", "BYTES", "The socket's buffer."),
)
"""The options of kafka-console-producer for single settings."""

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


@command("produce", aliases=PRODUCER_ALIASES, settings=_SETTINGS)
@click.argument("topic_argument", metavar="[TOPIC]", type=TopicName(), required=False)
@click.option("--topic", type=TopicName(), metavar="TOPIC", help="The topic, where it is not an argument.")
@click.option("--file", "files", type=click.Path(), multiple=True, help="Read this file; repeatable.")
@click.option("--json-lines", is_flag=True, help="Lines are JSON objects, as `kalda consume --json` writes.")
@click.option(
    "--format", "value_format", type=EnumType(ByteFormat), default=ByteFormat.TEXT, help="Of values."
)
@click.option("--key-format", type=EnumType(ByteFormat), default=ByteFormat.TEXT, help="Of keys.")
@click.option("--parse-key", is_flag=True, help="A line begins with the key; see --key-separator.")
@click.option("--key-separator", metavar="TEXT", help="Between key and value; a tab by default.")
@click.option(
    "--parse-headers", is_flag=True, help="A line begins with headers: NAME:VALUE,NAME:VALUE and a tab."
)
@click.option("--null-marker", metavar="TEXT", help="A key, value or header value that is this text is null.")
@click.option("--key", metavar="TEXT", help="The key of every record.")
@click.option(
    "--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header of every record; repeatable."
)
@click.option(
    "--partition", type=Integer(0, INT32_MAX), metavar="NUMBER", help="The partition of every record."
)
@click.option(
    "--acks",
    "--request-required-acks",
    "acks",
    type=click.Choice(["0", "1", "all", "-1"]),
    help="Acknowledgements to wait for.",
)
@click.option("--compression-codec", "compression", type=click.Choice(_CODECS), help="The codec of batches.")
@click.option("--sync", is_flag=True, help="Wait for each record before the next one is read.")
@click.option(
    "--reader-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file of properties of the line reader; --reader-property wins.",
)
@click.option(
    "--reader-property",
    "--property",
    "properties",
    metavar="NAME=VALUE",
    multiple=True,
    help=f"A property of Kafka's line reader: {', '.join(READER_PROPERTIES)}; repeatable.",
)
def produce(
    tool: Tool,
    /,
    topic_argument: str | None,
    topic: str | None,
    files: tuple[str, ...],
    json_lines: bool,
    value_format: ByteFormat,
    key_format: ByteFormat,
    parse_key: bool,
    key_separator: str | None,
    parse_headers: bool,
    null_marker: str | None,
    key: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    acks: str | None,
    compression: str | None,
    sync: bool,
    reader_config: Path | None,
    properties: tuple[str, ...],
) -> None:
    """Send lines as records: from stdin, or from files.

    Each line is one record; an empty line is a record with an empty value. With --json, a line with partition
    and offset is printed for each record that was acknowledged.
    """
    name = topic_argument or topic
    if name is None or (topic_argument and topic and topic != topic_argument):
        raise ToolUsageError("name one topic: kalda produce TOPIC, or --topic TOPIC")
    options = _options(
        LineOptions(key_format=key_format, value_format=value_format),
        {
            **read_settings("--reader-config", reader_config),
            **parse_settings("--reader-property", properties),
        },
    )
    options = replace(
        options,
        parse_key=options.parse_key or parse_key,
        key_separator=options.key_separator if key_separator is None else key_separator,
        parse_headers=options.parse_headers or parse_headers,
        null_marker=options.null_marker if null_marker is None else null_marker,
    )
    try:
        check_options(options)
        fixed = ConsoleRecord(
            None if key is None else to_bytes(key, key_format),
            None,
            [(header, value.encode()) for header, value in parse_settings("--header", headers).items()],
            partition,
        )
    except (LineError, ByteFormatError) as error:
        raise ToolUsageError(str(error)) from error
    from kalda.clients.producer.producer_config import ProducerConfig

    settings = tool.settings_for(ProducerConfig)
    settings |= {} if acks is None else {"acks": acks}
    settings |= {} if compression is None else {"compression.type": compression}
    reader: Callable[[str, int], ConsoleRecord] = (
        read_json_line if json_lines else lambda line, number: read_text_line(line, number, options)
    )
    _Run(tool, name, fixed, reader, is_sync=sync).produce(settings, files)


def _options(base: LineOptions, properties: dict[str, str]) -> LineOptions:
    """Return `base` with the properties of Kafka's reader."""
    types = {field.name: field.type for field in fields(LineOptions)}
    changed: dict[str, object] = {}
    for name, value in properties.items():
        if name in ("key.serializer", "value.serializer"):
            try:
                changed["key_format" if name.startswith("key") else "value_format"] = of_java_class(value)
            except ByteFormatError as error:
                raise ToolUsageError(f"--reader-property {name}: {error}") from error
        elif name not in READER_PROPERTIES:
            raise ToolUsageError(
                f"--reader-property {name} is unknown; known are {', '.join(READER_PROPERTIES)}"
            )
        else:
            attribute = READER_PROPERTIES[name]
            is_flag = types[attribute] in (bool, "bool")
            changed[attribute] = value.strip().lower() == "true" if is_flag else value
    return replace(base, **changed)  # type: ignore[arg-type]  # the values have the types of the fields


class _Run:
    """One run of the command."""

    def __init__(
        self,
        tool: Tool,
        topic: str,
        fixed: ConsoleRecord,
        reader: Callable[[str, int], ConsoleRecord],
        *,
        is_sync: bool,
    ) -> None:
        self._tool: Final = tool
        self._topic: Final = topic
        self._fixed: Final = fixed
        self._reader: Final = reader
        self._is_sync: Final = is_sync
        self._partitions = 0
        self._sent = 0
        self._failed = 0

    def produce(self, settings: dict[str, str], files: tuple[str, ...]) -> None:
        """Read all lines and send them; raises `ToolError` if one was no record or not acknowledged."""
        from kalda.clients.producer.producer import Producer

        with Producer.from_config({**_DEFAULTS, **settings}) as producer:
            self._partitions = len(producer.partitions_for(self._topic))
            if self._fixed.partition is not None:
                self._check_partition(self._fixed.partition, "--partition")
            try:
                for name in files or ("-",):
                    with _opened(name) as lines:
                        self._send_lines(producer, lines, "" if name == "-" else f"{name}: ")
            except KeyboardInterrupt:
                pass  # what was read is sent, as with Kafka's tool
            producer.flush()
        if self._failed:
            raise ToolError(f"{self._failed} of {self._sent} records were not acknowledged")
        self._tool.output.note(f"{counted(self._sent, 'record')} acknowledged")

    def _send_lines(self, producer: "Producer", lines: BinaryIO, place: str) -> None:
        is_interactive = lines.isatty()
        number = 0
        while True:
            if is_interactive:
                print(">", end="", file=sys.stderr, flush=True)
            line = lines.readline(_LINE_BYTES_MAX + 1)
            if not line:
                return
            number += 1
            if len(line) > _LINE_BYTES_MAX:
                raise ToolError(f"{place}line {number} is longer than {_LINE_BYTES_MAX} bytes")
            text = line.removesuffix(b"\n").removesuffix(b"\r").decode(errors="surrogateescape")
            try:
                record = self._reader(text, number)
            except LineError as error:
                producer.flush()
                raise ToolError(f"{place}{error}; the lines before it were sent") from error
            self._send(producer, record, f"{place}line {number}")

    def _send(self, producer: "Producer", record: ConsoleRecord, place: str) -> None:
        from kalda.clients.errors import ClientError

        fixed = self._fixed

        def delivered(metadata: "RecordMetadata", error: Exception | None) -> None:
            self._delivered(metadata, error, place)

        if record.partition is not None:
            self._check_partition(record.partition, place)
        self._sent += 1
        try:
            future = producer.send(
                self._topic,
                record.value,
                fixed.key if record.key is None else record.key,
                [*record.headers, *fixed.headers],
                record.partition if fixed.partition is None else fixed.partition,
                record.timestamp_ms,
                delivered,
            )
        except (ClientError, ValueError) as error:
            self._fail(error, place)
            return
        if self._is_sync:
            future.exception()  # waits; `delivered` notes the error

    def _check_partition(self, partition: int, place: str) -> None:
        """Refuse a partition that the topic does not have: the producer would wait for it to appear."""
        if partition >= self._partitions:
            raise ToolError(
                f"{place}: topic {self._topic} has no partition {partition}; it has {self._partitions}"
            )

    def _delivered(self, metadata: "RecordMetadata", error: Exception | None, place: str) -> None:
        """Note the outcome of a record; runs on the producer's thread."""
        if error is not None:
            self._fail(error, place)
        elif self._tool.output.form is Form.JSON:
            self._tool.output.item(
                {
                    "topic": metadata.topic,
                    "partition": metadata.partition,
                    "offset": metadata.offset,
                    "timestamp": metadata.timestamp_ms,
                },
                "",
            )

    def _fail(self, error: Exception, place: str) -> None:
        self._failed += 1
        if self._failed <= _FAILURES_SHOWN_MAX:
            self._tool.output.failure(f"{place}: {error}")


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(name, "rb")  # noqa: SIM115 - the error of opening is another than those of the block
    except OSError as error:
        raise ToolUsageError(f"--file={name}: {error.strerror}") from error
    with file:
        yield file
