"""The command `kalda consume`: records as lines, with the properties of ``kafka-console-consumer``."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

import click

from kalda.command.command import CONSUMER_ALIASES, Tool, command
from kalda.command.errors import ToolUsageError
from kalda.command.names import GroupName, TopicName
from kalda.command.option_types import INT32_MAX, EnumType, Integer
from kalda.command.values import parse_settings, read_settings
from kalda.tools.console.byte_formats import ByteFormat, ByteFormatError, of_java_class
from kalda.tools.console.consume_plan import ConsumePlan, Start, StartKind, parse_start
from kalda.tools.console.record_lines import FORMATTER_PROPERTIES, LineForm

_PRINTED: Final = ("key", "offset", "partition", "timestamp", "headers", "epoch")


def _print_options(function: click.decorators.FC) -> click.decorators.FC:
    for part in reversed(_PRINTED):
        function = click.option(f"--print-{part}", is_flag=True, help=f"Print the {part} too.")(function)
    return function


@command("consume", aliases=CONSUMER_ALIASES)
@click.argument("topics", metavar="[TOPIC]...", type=TopicName(), nargs=-1)
@click.option(
    "--topic", "more_topics", type=TopicName(), metavar="TOPIC", multiple=True, help="A topic; repeatable."
)
@click.option("--include", metavar="REGEX", help="Read the topics whose whole name matches.")
@click.option(
    "--partition", "partitions", type=Integer(0, INT32_MAX), multiple=True, help="Only this one; repeatable."
)
@click.option("--from-beginning", is_flag=True, help="Start at the first record, or where the group is.")
@click.option("--offset", metavar="OFFSET", help="Start at a number, earliest, latest, or -N from the end.")
@click.option("--from-time", metavar="TIME", help="Start at a time, or a duration before now such as PT1H.")
@click.option("--until-end", is_flag=True, help="End where the partitions end now; the default.")
@click.option("--follow", "-f", is_flag=True, help="Start at the end and wait for new records.")
@click.option("--max-messages", "-n", type=Integer(1), metavar="COUNT", help="End after as many records.")
@click.option("--timeout-ms", type=Integer(1), metavar="MS", help="End when no record came for so long.")
@click.option(
    "--group", type=GroupName(), metavar="GROUP", help="Read as a member of the group and commit offsets."
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="Whether to leave out records of open and aborted transactions.",
)
@_print_options
@click.option("--no-value", is_flag=True, help="Do not print the value.")
@click.option("--format", "value_format", type=EnumType(ByteFormat), default="text", help="Of values.")
@click.option("--key-format", type=EnumType(ByteFormat), default="text", help="Of keys.")
@click.option("--key-separator", metavar="TEXT", help="Between the parts of a line; a tab by default.")
@click.option("--skip-message-on-error", is_flag=True, help="Leave out records that are not of the format.")
@click.option(
    "--formatter-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file of properties of the formatter; --formatter-property wins.",
)
@click.option(
    "--formatter-property",
    "--property",
    "properties",
    metavar="NAME=VALUE",
    multiple=True,
    help=f"A property of Kafka's formatter: {', '.join(FORMATTER_PROPERTIES)}; repeatable.",
)
def consume(
    tool: Tool,
    /,
    topics: tuple[str, ...],
    more_topics: tuple[str, ...],
    include: str | None,
    partitions: tuple[int, ...],
    from_beginning: bool,
    offset: str | None,
    from_time: str | None,
    until_end: bool,
    follow: bool,
    max_messages: int | None,
    timeout_ms: int | None,
    group: str | None,
    isolation_level: str | None,
    no_value: bool,
    value_format: ByteFormat,
    key_format: ByteFormat,
    key_separator: str | None,
    skip_message_on_error: bool,
    formatter_config: Path | None,
    properties: tuple[str, ...],
    **printed: bool,
) -> None:
    """Print records as lines, up to the end or with --follow.

    It reads from the beginning to the end, or with --follow from the end on. With --max-messages or
    --timeout-ms it waits for new records at the end, up to that limit, unless --until-end is given.
    Without --group it reads all partitions and commits nothing.
    """
    from kalda.tools.console.consume_run import run_consume

    plan = ConsumePlan(
        topics=tuple(dict.fromkeys([*topics, *more_topics])),
        include=_pattern(include),
        partitions=partitions,
        start=_start(from_beginning, offset, from_time, follow),
        is_endless=follow or ((max_messages is not None or timeout_ms is not None) and not until_end),
        max_messages=max_messages,
        timeout_ms=timeout_ms,
        group=group,
        isolation_level=isolation_level,
        skips_errors=skip_message_on_error,
    )
    if until_end and follow:
        raise ToolUsageError("--until-end and --follow exclude each other")
    plan.check()
    form = LineForm(
        print_key=printed["print_key"],
        print_offset=printed["print_offset"],
        print_partition=printed["print_partition"],
        print_timestamp=printed["print_timestamp"],
        print_headers=printed["print_headers"],
        print_epoch=printed["print_epoch"],
        print_value=not no_value,
        key_format=key_format,
        value_format=value_format,
    )
    form = _with_properties(
        form,
        {
            **read_settings("--formatter-config", formatter_config),
            **parse_settings("--formatter-property", properties),
        },
    )
    if key_separator is not None:
        form = replace(form, key_separator=key_separator.encode())
    run_consume(tool, plan, form)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise ToolUsageError(f"--include={text} is no regular expression: {error}") from error


def _start(from_beginning: bool, offset: str | None, from_time: str | None, follow: bool) -> Start:
    if from_beginning + (offset is not None) + (from_time is not None) > 1:
        raise ToolUsageError("--from-beginning, --offset and --from-time exclude each other")
    if offset is not None:
        return parse_start(offset)
    if from_time is not None:
        return Start(StartKind.TIME, _time_ms(from_time))
    return Start(StartKind.LATEST if follow and not from_beginning else StartKind.EARLIEST)


def _time_ms(text: str) -> int:
    """Return a time in milliseconds since the epoch: a number, a date and time, or a duration before now."""
    import time

    from kalda.command.values import parse_duration, parse_time_ms

    if text.isascii() and text.isdecimal():
        return int(text)
    if text.startswith(("P", "p")):
        return round(time.time() * 1000) - parse_duration("--from-time", text)
    return parse_time_ms("--from-time", text)


def _with_properties(form: LineForm, properties: dict[str, str]) -> LineForm:
    """Return `form` with the properties of Kafka's formatter."""
    types = {field.name: field.type for field in fields(LineForm)}
    changed: dict[str, object] = {}
    for name, value in properties.items():
        if name not in FORMATTER_PROPERTIES:
            raise ToolUsageError(
                f"--formatter-property {name} is unknown; known are {', '.join(FORMATTER_PROPERTIES)}"
            )
        attribute = FORMATTER_PROPERTIES[name]
        if types[attribute] is ByteFormat:
            try:
                changed[attribute] = of_java_class(value)
            except ByteFormatError as error:
                raise ToolUsageError(f"--formatter-property {name}: {error}") from error
        elif types[attribute] is bool:
            changed[attribute] = value.strip().lower() == "true"
        else:
            changed[attribute] = value.encode()
    return replace(form, **changed)  # type: ignore[arg-type]  # the values have the types of the fields
