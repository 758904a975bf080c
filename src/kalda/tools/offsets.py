"""`kalda offsets`: looks up offsets of partitions by time, as `kafka-get-offsets` does."""

from typing import TYPE_CHECKING

import click

from kalda.command.command import Tool, command
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.output import Json
from kalda.command.results import error_json, raise_for
from kalda.command.tables import Table
from kalda.command.values import parse_partitions, parse_time_ms
from kalda.common.types import TopicPartition
from kalda.tools.partition_rules import PartitionRule, parse_rules
from kalda.tools.topic_selection import existing_topics, topic_arguments

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.partitions import OffsetSpec

_WORDS = ("latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered", "earliest-pending-upload")
"""What -1, -2, ... stand for, as in Kafka's tool."""


@command("offsets")
@topic_arguments
@click.option(
    "--topic-partitions",
    multiple=True,
    metavar="RULE,...",
    help="Topics or patterns with partitions, such as flights:0,trains:2-4 (2 and 3),fl.*:7-; repeatable.",
)
@click.option("--partitions", metavar="N,...", help="Only these partitions of each topic.")
@click.option(
    "--time",
    "moment",
    default="latest",
    show_default=True,
    metavar="TIME",
    help="latest, earliest, max-timestamp, earliest-local, latest-tiered, earliest-pending-upload "
    "(or -1 to -6), a date and time, or milliseconds since 1970.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="Whether the latest offset is the end of the log, or that of decided transactions.",
)
@click.option(
    "--exclude-internal-topics", is_flag=True, help="Leave out the topics in which brokers keep state."
)
async def offsets(
    tool: Tool,
    names: tuple[str, ...],
    topic: tuple[str, ...],
    topic_partitions: tuple[str, ...],
    partitions: str | None,
    moment: str,
    isolation_level: str,
    exclude_internal_topics: bool,
) -> None:
    """Look up offsets of partitions by time.

    Without names, all topics are looked up. A time means the first record at it or after it; the offset is -
    where no record is that new.
    """
    spec = offset_spec("--time", moment)
    numbers = None if partitions is None else parse_partitions("--partitions", partitions)
    rules = parse_rules("--topic-partitions", topic_partitions)
    async with tool.admin() as admin:
        wanted = await _partitions(
            admin, [*names, *topic], rules, include_internal=not exclude_internal_topics
        )
        chosen = [each for each in wanted if numbers is None or each.partition in numbers]
        if (wanted or rules) and not chosen:
            which = " and ".join(
                f"{option}={text}"
                for option, text in (
                    ("--topic-partitions", ",".join(topic_partitions)),
                    ("--partitions", partitions),
                )
                if text
            )
            raise ToolError(f"none of the topics has a partition of {which}")
        found = await admin.list_offsets(
            dict.fromkeys(chosen, spec), isolation_level=isolation_level, outcomes=True
        )
    rows = []
    document: list[Json] = []
    for each in chosen:
        info = found.results.get(each)
        offset = info.offset if info is not None and info.is_found else None
        timestamp = info.timestamp_ms if info is not None and info.timestamp_ms >= 0 else None
        if info is not None:
            rows.append((each.topic, each.partition, offset, timestamp))
        document.append(
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": offset,
                "timestamp_ms": timestamp,
                "leader_epoch": None if info is None else info.leader_epoch,
                "error": error_json(found.errors.get(each)),
            }
        )
    tool.output.result({"offsets": document}, Table(("TOPIC", "PARTITION", "OFFSET", "TIMESTAMP"), rows))
    raise_for(tool.output, found.errors.values())


def offset_spec(option: str, text: str) -> "OffsetSpec":
    """Read a time: a word of Kafka's tool, its number, milliseconds, or a date with a time.

    Raises:
        ToolUsageError: the text is none of them.
    """
    from kalda.clients.admin.partitions import OffsetSpec

    words = {
        "latest": OffsetSpec.latest,
        "earliest": OffsetSpec.earliest,
        "max-timestamp": OffsetSpec.max_timestamp,
        "earliest-local": OffsetSpec.earliest_local,
        "latest-tiered": OffsetSpec.latest_tiered,
        "earliest-pending-upload": OffsetSpec.earliest_pending_upload,
    }
    assert tuple(words) == _WORDS
    word = text.strip().lower()
    try:
        number = int(word)
    except ValueError:
        return words[word]() if word in words else OffsetSpec.for_timestamp(parse_time_ms(option, text))
    if number < -len(words):
        raise ToolUsageError(
            f"{option}={text} is not allowed: of negative numbers it takes -1 to -{len(words)}"
        )
    return words[_WORDS[-number - 1]]() if number < 0 else OffsetSpec.for_timestamp(number)


async def _partitions(
    admin: "AsyncAdmin", names: list[str], rules: list[PartitionRule], *, include_internal: bool
) -> list[TopicPartition]:
    """Return the partitions of the named topics, and those that a rule means; all without names and rules."""
    chosen: dict[str, list[range]] = {}
    whole = await existing_topics(admin, names, include_internal=include_internal, is_all_default=not rules)
    for rule in rules:
        for topic in await existing_topics(
            admin,
            [rule.topic] if rule.topic else [],
            include_internal=include_internal,
            is_all_default=True,
        ):
            chosen.setdefault(topic, []).append(rule.partitions)
    described = await admin.describe_topics([*whole, *(chosen.keys() - set(whole))])
    return sorted(
        TopicPartition(topic.name, each.partition)
        for topic in described.results.values()
        for each in topic.partitions
        if topic.name in whole or any(each.partition in allowed for allowed in chosen[topic.name])
    )
