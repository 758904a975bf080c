"""Converts offsets to and from the JSON of Spark's checkpoints and of the source's options.

The JSON is that of Spark's own Kafka connector, ``{"topic":{"0":123}}`` with the *next* offset to read, so
that a checkpoint can move between the two sources. A checkpoint also says which topics its offsets belong to:
``"topic@0db1…":{}`` has the topic's id (KIP-516). To Spark's connector, that is a topic without a partition,
which it leaves out; no topic can have such a name.

Equal offsets must be equal as JSON text, because Spark compares the text; so topics are sorted, and
partitions by number.
"""

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn
from uuid import UUID

from kalda.common.types import ZERO_UUID, TopicPartition

LATEST: Final = -1
"""In an option's JSON: the end of the partition."""
EARLIEST: Final = -2
"""In an option's JSON: the beginning of the partition."""

PartitionOffsets = Mapping[TopicPartition, int]
SparkOffset = dict[str, Any]
"""What Spark hands over and logs: nested dicts of plain values."""

_ANCHOR_KEY: Final = "__start__"
_ID_SEPARATOR: Final = "@"
"""Between a topic's name, which cannot have it, and its id."""
_OFFSET_MAX: Final = 2**63 - 1


class OffsetFormatError(ValueError):
    """Text or a dict that should hold offsets does not; the message shows what it should look like."""


def anchor_offset() -> SparkOffset:
    """Return the start of a new query, before it has real offsets.

    It is symbolic and always the same. Spark asks for the initial offset again when batch 0 was planned but
    not committed; a real offset would then differ from the logged one where `startingOffsets` is ``latest``,
    and the records between the two would be lost. With the symbol, batch 0 is empty and logs where the query
    starts: ``__start__ → {"t":{"0":1500}}``; later batches and every restart begin from what was logged.
    """
    # The value is no dict, so no topic of that name can be mistaken for it.
    return {_ANCHOR_KEY: 1}


def is_anchor(offset: SparkOffset) -> bool:
    """Return whether the offset is the symbolic start."""
    return not isinstance(offset.get(_ANCHOR_KEY, {}), dict)


def to_spark_offset(offsets: PartitionOffsets, topic_ids: Mapping[str, UUID] | None = None) -> SparkOffset:
    """Return offsets in the form that Spark logs, in canonical order, with those ids of their topics."""
    result: dict[str, dict[str, int]] = {}
    for topic_partition in sorted(offsets):
        result.setdefault(topic_partition.topic, {})[str(topic_partition.partition)] = offsets[
            topic_partition
        ]
    for topic, topic_id in sorted((topic_ids or {}).items()):
        if topic in result and topic_id != ZERO_UUID:
            result[f"{topic}{_ID_SEPARATOR}{topic_id}"] = {}
    return result


def topic_ids_of(offset: SparkOffset) -> dict[str, UUID]:
    """Return the ids that `to_spark_offset` wrote; none in a checkpoint of Spark's own connector."""
    result = {}
    for key, value in offset.items():
        topic, separator, text = key.rpartition(_ID_SEPARATOR)
        if separator and value == {}:
            with contextlib.suppress(ValueError):
                result[topic] = UUID(text)
    return result


def from_spark_offset(offset: SparkOffset) -> dict[TopicPartition, int]:
    """Read what `to_spark_offset` or Spark's own connector wrote; the anchor is not such an offset.

    Raises:
        OffsetFormatError: the dict has another form, e.g. a checkpoint of another source.
    """
    example = '{"topicA":{"0":23,"1":45}}'
    return _partition_numbers(offset, lambda: _refuse(json.dumps(offset), example), least=0)


def parse_offsets(text: str, words: str = "") -> dict[TopicPartition, int]:
    """Read the JSON of `startingOffsets`: -1 stands for latest, -2 for earliest.

    Args:
        text: The JSON.
        words: What the option may be instead; the error names it.

    Raises:
        OffsetFormatError: the text is not such JSON.
    """
    example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}} with -1 for latest and -2 for earliest'
    return _parse_numbers(text, example, least=EARLIEST, words=words)


def parse_timestamps(text: str) -> dict[TopicPartition, int]:
    """Read the JSON of `startingOffsetsByTimestamp`: milliseconds since the epoch for each partition.

    Raises:
        OffsetFormatError: the text is not such JSON.
    """
    return _parse_numbers(text, '{"topicA":{"0":1700000000000,"1":1700000000000}}', least=0)


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """Read the JSON of `assign`, e.g. ``{"topicA":[0,1]}``; the result is sorted and without repeats.

    Raises:
        OffsetFormatError: the text is not such JSON, or names no partition.
    """

    def fail() -> NoReturn:
        _refuse(text, '{"topicA":[0,1],"topicB":[2,4]}')

    found: set[TopicPartition] = set()
    for topic, partitions in _load_object(text, fail).items():
        if not isinstance(partitions, list):
            fail()
        for partition in partitions:
            if type(partition) is not int or partition < 0:
                fail()
            found.add(TopicPartition(topic, partition))
    if not found:
        fail()
    return tuple(sorted(found))


def _parse_numbers(text: str, example: str, least: int, words: str = "") -> dict[TopicPartition, int]:
    def fail() -> NoReturn:
        _refuse(text, example, words)

    return _partition_numbers(_load_object(text, fail), fail, least)


def _partition_numbers(
    value: dict[str, Any], fail: Callable[[], NoReturn], least: int
) -> dict[TopicPartition, int]:
    result: dict[TopicPartition, int] = {}
    for topic, numbers in value.items():
        if not isinstance(numbers, dict):
            fail()
        for partition, number in numbers.items():
            if not (isinstance(partition, str) and partition.isascii() and partition.isdigit()):
                fail()
            # bool is an int for isinstance, and JSON's true is no offset.
            if type(number) is not int or not least <= number <= _OFFSET_MAX:
                fail()
            topic_partition = TopicPartition(topic, int(partition))
            if topic_partition in result:
                raise OffsetFormatError(f"the JSON names {topic_partition} twice; remove one of the two")
            result[topic_partition] = number
    return result


def _load_object(text: str, fail: Callable[[], NoReturn]) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_without_doubles)
    except OffsetFormatError:
        raise
    except (ValueError, RecursionError):
        fail()
    if not isinstance(value, dict):
        fail()
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object; of a key that is there twice, nothing says which value is meant."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise OffsetFormatError(f"the JSON names {key[:500]!r} twice; remove one of the two")
        found[key] = value
    return found


def _refuse(text: str, example: str, words: str = "") -> NoReturn:
    allowed = f"{words} or " if words else ""
    raise OffsetFormatError(f"expected {allowed}JSON such as {example}, got {text[:500]!r}")
