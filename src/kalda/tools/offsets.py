"""`kalda offsets`: looks up offsets of partitions by time, as `kafka-get-offsets` does."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from kalda.common.types import TopicPartition
from kalda.tools.framework.command import Tool, command
from kalda.tools.framework.errors import ToolError, ToolUsageError
from kalda.tools.framework.output import Json
from kalda.tools.framework.results import error_json, raise_for
from kalda.tools.framework.tables import Table
from kalda.tools.framework.values import parse_partitions, parse_time_ms, parse_topic_partitions
from kalda.tools.topic_selection import existing_topics, topic_arguments

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.partitions import OffsetSpec

_WORDS = ("latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered")
"""What -1, -2, ... stand for, as in Kafka's tool."""


@command("offsets")
@topic_arguments
@click.option(
    "--topic-partitions",
    multiple=True,
    metavar="TOPIC:0,1",
    help="Some partitions of a topic, or Kafka's list of patterns such as flights:0,trains:2; repeatable.",
)
@click.option("--partitions", metavar="N,...", help="Only these partitions of each topic.")
@click.option(
    "--time",
    "moment",
    default="latest",
    show_default=True,
    metavar="TIME",
    help="latest, earliest, max-timestamp, earliest-local, latest-tiered (or -1 to -5), a date and time, "
    "or milliseconds since 1970.",
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
    numbers = None
    if partitions is not None:
        numbers = parse_partitions("--partitions", partitions)
    async with tool.admin() as admin:
        wanted = await _partitions(
            admin, [*names, *topic], topic_partitions, include_internal=not exclude_internal_topics
        )
        chosen = [each for each in wanted if numbers is None or each.partition in numbers]
        if wanted and not chosen:
            raise ToolError(f"none of the topics has a partition of --partitions={partitions}")
        found = await admin.list_offsets(dict.fromkeys(chosen, spec), isolation_level=isolation_level)
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


def split_topics(lists: Iterable[str]) -> list[str]:
    """Return single topics, with their partitions, from Kafka's lists of both.

    >>> split_topics(["flights:0,1", "trains:2-3,flights:4,ships"])
    ['flights:0,1', 'trains:2-3', 'flights:4', 'ships']
    """
    found: list[str] = []
    for each in lists:
        words: list[str] = []
        for word in each.split(","):
            if words and ":" in words[-1] and word.replace("-", "").isdecimal():
                words[-1] += f",{word}"  # one more partition of that topic
            else:
                words.append(word)
        found += words
    return found


async def _partitions(
    admin: "AsyncAdmin", names: list[str], topic_partitions: tuple[str, ...], *, include_internal: bool
) -> list[TopicPartition]:
    given = parse_topic_partitions("--topic-partitions", split_topics(topic_partitions))
    found = {TopicPartition(topic, number) for topic, numbers in given.items() for number in numbers or ()}
    whole = [topic for topic, numbers in given.items() if numbers is None]
    if names or whole or not given:
        topics = await existing_topics(
            admin, [*names, *whole], include_internal=include_internal, is_all_default=True
        )
        described = await admin.describe_topics(topics)
        described.raise_for_errors()
        found |= {
            TopicPartition(each.name, partition.partition)
            for each in described.results.values()
            for partition in each.partitions
        }
    return sorted(found)
