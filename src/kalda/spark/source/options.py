"""Parses the options of the data source, with the names, defaults and precedence of Spark's Kafka connector.

Option names are not case-sensitive. This module sends no request: whether a topic exists is checked when the
query is planned. An option that is not supported raises `OptionError` where ignoring it would change what
the query reads.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from kalda.clients.errors import ClientConfigError
from kalda.clients.log_reader.log_reader_config import WITHOUT_EFFECT, LogReaderConfig
from kalda.common.types import TopicPartition
from kalda.spark.source.java_regex import UnsupportedPatternError, translate_java_regex
from kalda.spark.source.offsets import (
    EARLIEST,
    LATEST,
    OffsetFormatError,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
)

T = TypeVar("T")

logger: Final = logging.getLogger(__name__)


class OptionError(ValueError):
    """An option is missing, malformed, forbidden or at odds with another; the message names it."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Every partition of the named topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """Every partition of the topics whose whole name matches."""

    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Assign:
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


Selection = Subscribe | SubscribePattern | Assign


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


Position = Edge | AtOffsets | AtTimestamp | AtTimestamps


class NoMatch(Enum):
    """What a start by timestamp does where no record is as young as the timestamp."""

    ERROR = "error"
    LATEST = "latest"


class RowKind(Enum):
    """What a row of the source is."""

    RECORDS = "records"
    RANGES = "ranges"
    """The range of offsets that a task would read; a pipeline's own task then reads the records."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of one query; pickled to the executors."""

    client: LogReaderConfig
    selection: Selection
    starting: Position
    ending: Position
    no_match: NoMatch = NoMatch.ERROR
    include_headers: bool = False
    fail_on_data_loss: bool = True
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    offsets_per_trigger_max: int | None = None
    poll_timeout_ms: int = 120_000
    """How long an executor waits for records that the plan says are there."""
    rows: RowKind = RowKind.RECORDS


def parse_common_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options without knowing which kind of query they are for.

    Raises:
        OptionError: neither a batch nor a streaming query would accept them.
    """
    return _parse(_lowered(options), default_start=Edge.EARLIEST)


def parse_batch_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a batch query.

    Raises:
        OptionError: see there.
    """
    lowered = _lowered(options)
    parsed = _parse(lowered, default_start=Edge.EARLIEST)
    starting, ending = parsed.starting, parsed.ending
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
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if name.lower() in lowered:
            logger.warning("option %s has no effect in a batch query", name)
    return parsed


def parse_stream_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a streaming query.

    Raises:
        OptionError: see there.
    """
    lowered = _lowered(options)
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name.lower() in lowered:
            raise OptionError(f"`{name}` is not valid in a streaming query, which has no end")
    for name in ("minOffsetsPerTrigger", "maxTriggerDelay"):
        if name.lower() in lowered:
            raise OptionError(
                f"`{name}` is not supported yet; leave it out to start a batch at every trigger"
            )
    return _parse(lowered, default_start=Edge.LATEST)


_SELECTIONS: Final = ("subscribe", "subscribePattern", "assign")
_FORBIDDEN: Final[Mapping[str, str]] = {
    "kafka.auto.offset.reset": "set `startingOffsets` to earliest or latest instead; Spark keeps track of "
    "offsets itself, and a resumed query goes on where it left off",
    "kafka.key.deserializer": "keys are always binary; cast or parse the column with DataFrame functions",
    "kafka.value.deserializer": "values are always binary; cast or parse the column with DataFrame functions",
    "kafka.enable.auto.commit": "Spark's checkpoint is what records progress",
    "kafka.interceptor.classes": "interceptors could change records before Spark sees them",
}
_TEXT_BOOLEANS: Final = {"true": True, "false": False}


def _parse(lowered: Mapping[str, str], default_start: Edge) -> SourceOptions:
    for name, reason in _FORBIDDEN.items():
        if name in lowered:
            raise OptionError(f"`{name}` is not supported: {reason}")
    return SourceOptions(
        selection=_parse_selection(lowered),
        client=_parse_client(lowered),
        starting=_parse_position(lowered, "starting", default_start),
        ending=_parse_position(lowered, "ending", Edge.LATEST),
        no_match=_parse_no_match(lowered),
        include_headers=_parse_boolean(lowered, "includeHeaders", default=False),
        fail_on_data_loss=_parse_boolean(lowered, "failOnDataLoss", default=True),
        partitions_min=_parse_positive(lowered, "minPartitions"),
        records_per_partition_max=_parse_positive(lowered, "maxRecordsPerPartition"),
        offsets_per_trigger_max=_parse_positive(lowered, "maxOffsetsPerTrigger"),
        poll_timeout_ms=_parse_positive(lowered, "kafkaConsumer.pollTimeoutMs") or 120_000,
        rows=_parse_rows(lowered),
    )


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}


def _parse_selection(lowered: Mapping[str, str]) -> Selection:
    given = [name for name in _SELECTIONS if name.lower() in lowered]
    if len(given) != 1:
        count = "none" if not given else " and ".join(given)
        raise OptionError(f"exactly one of {', '.join(_SELECTIONS)} must be set; found {count}")
    name = given[0]
    value = lowered[name.lower()]
    match name:
        case "assign":
            return Assign(_read(name, value, parse_partitions))
        case "subscribe":
            topics = tuple(dict.fromkeys(topic for part in value.split(",") if (topic := part.strip())))
            if not topics:
                raise OptionError(f"`subscribe`={value!r} names no topic")
            return Subscribe(topics)
    pattern = value.strip()
    if not pattern:
        raise OptionError(f"`subscribePattern`={value!r} is empty")
    try:
        return SubscribePattern(translate_java_regex(pattern))
    except UnsupportedPatternError as error:
        raise OptionError(f"`subscribePattern`={value!r}: {error}") from None


def _parse_position(lowered: Mapping[str, str], prefix: str, default: Edge) -> Position:
    """Read where to start or end: one timestamp for all beats timestamps, which beat offsets."""
    name = f"{prefix}Timestamp"
    if (text := lowered.get(name.lower())) is not None:
        text = text.strip()
        if not (text.isascii() and text.isdigit()):
            raise OptionError(f"`{name}`={text!r} is not a number of milliseconds since the epoch")
        return AtTimestamp(int(text))
    name = f"{prefix}OffsetsByTimestamp"
    if (text := lowered.get(name.lower())) is not None:
        return AtTimestamps(_read(name, text, parse_timestamps))
    name = f"{prefix}Offsets"
    text = lowered.get(name.lower())
    if text is None:
        return default
    try:
        return Edge(text.strip().lower())
    except ValueError:
        return AtOffsets(_read(name, text, parse_offsets))


def _parse_client(lowered: Mapping[str, str]) -> LogReaderConfig:
    properties: dict[str, str] = {"client.id": "kalda-spark"}
    known = {key.name for key in LogReaderConfig.definitions().values()} - WITHOUT_EFFECT
    for name, value in lowered.items():
        if not name.startswith("kafka."):
            continue
        name = name.removeprefix("kafka.")
        if name in known or name.startswith(("security.", "sasl.", "ssl.")):
            properties[name] = value
        else:
            # Consumers tolerate settings that they do not use, and Spark's guide has its readers set some
            # (`kafka.group.id`, `kafka.max.poll.records`) that mean nothing without a Java consumer.
            logger.warning("option kafka.%s has no effect on this source", name)
    if "bootstrap.servers" not in properties:
        raise OptionError("`kafka.bootstrap.servers` must be set to host:port[,host:port…]")
    # A task reads one partition at a time, so that more per fetch costs memory for that one only.
    properties.setdefault("max.partition.fetch.bytes", str(_PARTITION_FETCH_BYTES))
    try:
        return LogReaderConfig.from_properties(properties)
    except ClientConfigError as error:
        raise OptionError(f"kafka.*: {error}") from None


_PARTITION_FETCH_BYTES: Final = 4 * 1024 * 1024


def _parse_no_match(lowered: Mapping[str, str]) -> NoMatch:
    name = "startingOffsetsByTimestampStrategy"
    text = lowered.get(name.lower(), NoMatch.ERROR.value)
    try:
        return NoMatch(text.strip().lower())
    except ValueError:
        raise OptionError(f"`{name}`={text!r} is neither error nor latest") from None


def _parse_rows(lowered: Mapping[str, str]) -> RowKind:
    text = lowered.get("rows", RowKind.RECORDS.value)
    try:
        return RowKind(text.strip().lower())
    except ValueError:
        raise OptionError(f"`rows`={text!r} is neither records nor ranges") from None


def _parse_boolean(lowered: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = lowered.get(name.lower())
    if text is None:
        return default
    value = _TEXT_BOOLEANS.get(text.strip().lower())
    if value is None:
        raise OptionError(f"`{name}`={text!r} is neither true nor false")
    return value


def _parse_positive(lowered: Mapping[str, str], name: str) -> int | None:
    text = lowered.get(name.lower())
    if text is None:
        return None
    text = text.strip()
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise OptionError(f"`{name}`={text!r} is not a positive whole number")
    return int(text)


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


def _read(name: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except OffsetFormatError as error:
        raise OptionError(f"`{name}`: {error}") from None
