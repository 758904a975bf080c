"""Says where a query starts and ends: the values of `startingOffsets`, `endingTimestamp` and their relatives.

A position names no offset of a log: `discovery` looks those up. Precedence is that of Spark's own connector:
one timestamp for all partitions, then timestamps by partition, then offsets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from kalda.common.types import TopicPartition
from kalda.spark.source.offsets import EARLIEST, LATEST, parse_offsets, parse_timestamps
from kalda.spark.source.option_values import Lowered, OptionError, parse_json, parse_span_ms


class Edge(Enum):
    """The beginning or the end of every partition."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; negative ones stand for earliest and latest."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """In each partition, the first record whose timestamp is not below this many ms since the epoch."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class AtTimestamps:
    """As `AtTimestamp`, with a timestamp of its own for each partition."""

    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Ago:
    """In each partition, the first record that is at most this old when the query starts; else its end."""

    span_ms: int


@dataclass(frozen=True, slots=True)
class AtCommitted:
    """What the query's consumer group has committed; partitions without a commit start at the earliest."""


Position = Edge | AtOffsets | AtTimestamp | AtTimestamps | Ago | AtCommitted


class NoMatch(Enum):
    """What a start by timestamp does where no record is as young as the timestamp."""

    ERROR = "error"
    LATEST = "latest"


_GROUP: Final = "group"


def parse_position(lowered: Lowered, prefix: str, default: Edge) -> Position:
    """Read where to start or end.

    Args:
        lowered: The options.
        prefix: ``starting`` or ``ending``; the words of this source alone (`-10m`, `group`) are for starts.
        default: The position of a query that sets none.

    Raises:
        OptionError: the option that decides is malformed.
    """
    name = f"{prefix}Timestamp"
    if (text := lowered.get(name.lower())) is not None:
        text = text.strip()
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise OptionError(f"`{name}`={text!r} is not a number of milliseconds since the epoch")
        return AtTimestamp(int(text))
    name = f"{prefix}OffsetsByTimestamp"
    if (text := lowered.get(name.lower())) is not None:
        return AtTimestamps(parse_json(name, text, parse_timestamps))
    name = f"{prefix}Offsets"
    text = lowered.get(name.lower())
    if text is None:
        return default
    word = text.strip()
    if word.lower() in (Edge.EARLIEST.value, Edge.LATEST.value):
        return Edge(word.lower())
    if prefix == "starting" and word.lower() == _GROUP:
        return AtCommitted()
    if prefix == "starting" and word.startswith("-"):
        span_ms = parse_span_ms(word[1:])
        if span_ms is None or span_ms < 0:
            raise OptionError(f"`{name}`={text!r} is not a time before now such as -10m, -1h 30m or -PT10M")
        return Ago(span_ms)
    words = "latest"
    if prefix == "starting":
        words = "earliest, latest, group, a time before now such as -10m,"
    return AtOffsets(parse_json(name, text, lambda given: parse_offsets(given, words)))


def starts_at_earliest(position: Position, partition: TopicPartition) -> bool:
    """Return whether a partition is read from wherever its log begins."""
    if isinstance(position, AtOffsets):
        return position.offsets.get(partition) == EARLIEST
    return position is Edge.EARLIEST


def is_fixed_start(position: Position) -> bool:
    """Return whether the position means the same offsets, or later ones, whenever it is resolved again."""
    match position:
        case Edge():
            return position is Edge.EARLIEST
        case AtOffsets(offsets):
            return LATEST not in offsets.values()
        case AtTimestamp() | AtTimestamps():
            return True
        case Ago() | AtCommitted():
            return False
        case _ as never:
            assert_never(never)


def check_batch_positions(starting: Position, ending: Position) -> None:
    """Refuse positions between which a batch query has nothing to read.

    Raises:
        OptionError: see there.
    """
    if starting is Edge.LATEST or (isinstance(starting, AtOffsets) and LATEST in starting.offsets.values()):
        raise OptionError(
            "`startingOffsets` of a batch query cannot be latest (-1): there would be nothing to read"
        )
    if ending is Edge.EARLIEST or (isinstance(ending, AtOffsets) and EARLIEST in ending.offsets.values()):
        raise OptionError(
            "`endingOffsets` of a batch query cannot be earliest (-2): there would be nothing to read"
        )
    if isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
        _check_order("Offsets", starting.offsets, ending.offsets)
    if isinstance(starting, AtTimestamps) and isinstance(ending, AtTimestamps):
        _check_order("OffsetsByTimestamp", starting.timestamps, ending.timestamps)


def _check_order(
    suffix: str, starting: Mapping[TopicPartition, int], ending: Mapping[TopicPartition, int]
) -> None:
    if starting.keys() != ending.keys():
        different = ", ".join(str(each) for each in sorted(starting.keys() ^ ending.keys()))
        raise OptionError(
            f"`starting{suffix}` and `ending{suffix}` must name the same partitions; not so: {different}"
        )
    for each, start in starting.items():
        if 0 <= ending[each] < start:
            raise OptionError(
                f"`starting{suffix}` of {each} is {start}, above `ending{suffix}`, {ending[each]}"
            )
