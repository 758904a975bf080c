"""Parses the options of the data source, with the names, defaults and precedence of Spark's Kafka connector.

Option names are not case-sensitive. This module sends no request: whether a topic exists is checked when the
query is planned. An option that is not supported raises `OptionError` where ignoring it would change what
the query reads.
"""

import functools
import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.errors import ClientConfigError
from kalda.clients.range_reader.log_reader_config import WITHOUT_EFFECT, LogReaderConfig
from kalda.common.config_def import ConfigError
from kalda.common.types import TopicPartition
from kalda.spark.source.java_regex import UnsupportedPatternError, translate_java_regex
from kalda.spark.source.offsets import parse_partitions
from kalda.spark.source.option_names import check_names
from kalda.spark.source.option_values import (
    Lowered,
    OptionError,
    lower_names,
    parse_boolean,
    parse_choice,
    parse_json,
    parse_number,
    parse_spark_time_ms,
)
from kalda.spark.source.positions import Edge, NoMatch, Position, check_batch_positions, parse_position

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Every partition of the named topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """Every partition of the topics in whose name the pattern is found."""

    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Assign:
    """Exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


Selection = Subscribe | SubscribePattern | Assign


class RowKind(Enum):
    """What a row of the source is."""

    RECORDS = "records"
    RANGES = "ranges"
    """The range of offsets that a task would read; a pipeline's own task then reads the records."""


class ReadMode(Enum):
    """How a task gets the records of its range."""

    AUTO = "auto"
    """From the leader's segment files where the task sees them, else over the network."""
    NETWORK = "network"
    FILES = "files"
    """From segment files; a task that sees none fails. After a doubt on the way it fetches."""


class MalformedTimestamps(Enum):
    """What becomes of the timestamp of a record that no column of microseconds holds."""

    ERROR = "error"
    NULL = "null"


class OnBadValue(Enum):
    """What happens with a value that is not of the declared format."""

    FAIL = "fail"
    NULL = "null"
    """The value is null, and the column `value_error` says why."""


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """The declared format of values; see `kalda.formats`."""

    name: str
    schema: str | None
    schema_file: str | None
    settings: Mapping[str, str]
    """The other options of the format: ``value.registry_url`` is ``registry_url`` here."""
    on_error: OnBadValue


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """How much one micro-batch of a stream holds."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    """A trigger with fewer new offsets is left out, until `delay_ms_max` is over."""
    delay_ms_max: int = 900_000
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of one query; pickled to the executors."""

    client: LogReaderConfig
    selection: Selection
    starting: Position
    ending: Position
    group_id: str
    """The consumer group that holds the query's progress; the same at each start of the query."""
    lag_commit: bool = True
    connection: Mapping[str, str] = field(default_factory=dict)
    """The `kafka.*` settings that an admin client shares, by Kafka's names."""
    no_match: NoMatch = NoMatch.ERROR
    include_headers: bool = False
    fail_on_data_loss: bool = True
    malformed_timestamps: MalformedTimestamps = MalformedTimestamps.ERROR
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    bytes_per_partition_max: int | None = None
    trigger: TriggerLimits = TriggerLimits()
    poll_timeout_ms: int = 120_000
    """How long an executor waits for records that the plan says are there."""
    fetch_offset_tries: int = 3
    fetch_offset_wait_ms: int = 1000
    rows: RowKind = RowKind.RECORDS
    columns: tuple[str, ...] | None = None
    """The columns of the source's schema, in order; None for all."""
    push_down: bool = False
    """Whether filters narrow what is read; right only for a frame that is read with one filter."""
    value: ValueOptions | None = None
    """None for values as bytes."""
    read_mode: ReadMode = ReadMode.AUTO


def parse_common_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options without knowing which kind of query they are for.

    Raises:
        OptionError: neither a batch nor a streaming query would accept them.
    """
    return _parse(lower_names(options), default_start=Edge.EARLIEST)


def parse_batch_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a batch query.

    Raises:
        OptionError: see there.
    """
    lowered = lower_names(options)
    parsed = _parse(lowered, default_start=Edge.EARLIEST)
    check_batch_positions(parsed.starting, parsed.ending)
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger"):
        if name.lower() in lowered:
            logger.warning("option %s has no effect in a batch query", name)
    return parsed


def parse_stream_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a streaming query.

    Raises:
        OptionError: see there.
    """
    lowered = lower_names(options)
    for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
        if name.lower() in lowered:
            raise OptionError(f"`{name}` is not valid in a streaming query, which has no end")
    if "maxbytesperpartition" in lowered:
        # The sizes are estimates that change, and sinks take a task of a repeated batch for the same task.
        raise OptionError(
            "`maxBytesPerPartition` is not valid in a streaming query: a batch that is run again must have "
            "the same tasks; use `maxRecordsPerPartition`, and `maxBytesPerTrigger` for the batch as a whole"
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
_PARTITION_FETCH_BYTES: Final = 4 * 1024 * 1024
_GROUP_ID_PREFIX: Final = "spark-kafka-source"
_CLIENT_ID: Final = "kalda-spark"
_OF_CREATE_TABLE: Final = "option."
"""Spark repeats each option of CREATE TABLE with this prefix."""


def _parse(lowered: Lowered, default_start: Edge) -> SourceOptions:
    if any(name.startswith(_OF_CREATE_TABLE) for name in lowered):
        raise OptionError(
            "topics cannot be tables: Spark gives a Python source no options when it reads a table of "
            "CREATE TABLE; use CREATE TEMPORARY VIEW … USING kalda OPTIONS (…)"
        )
    for name, reason in _FORBIDDEN.items():
        if name in lowered:
            raise OptionError(f"`{name}` is not supported: {reason}")
    check_names(lowered)
    return SourceOptions(
        selection=_parse_selection(lowered),
        client=_parse_client(lowered),
        starting=parse_position(lowered, "starting", default_start),
        ending=parse_position(lowered, "ending", Edge.LATEST),
        group_id=_parse_group_id(lowered),
        lag_commit=parse_boolean(lowered, "lagCommit", default=True),
        connection=_parse_connection(lowered),
        no_match=parse_choice(lowered, "startingOffsetsByTimestampStrategy", NoMatch.ERROR),
        include_headers=parse_boolean(lowered, "includeHeaders", default=False),
        fail_on_data_loss=parse_boolean(lowered, "failOnDataLoss", default=True),
        malformed_timestamps=parse_choice(lowered, "malformedTimestamps", MalformedTimestamps.ERROR),
        partitions_min=parse_number(lowered, "minPartitions"),
        records_per_partition_max=parse_number(lowered, "maxRecordsPerPartition"),
        bytes_per_partition_max=parse_number(lowered, "maxBytesPerPartition"),
        trigger=_parse_trigger_limits(lowered),
        poll_timeout_ms=parse_number(lowered, "kafkaConsumer.pollTimeoutMs") or 120_000,
        fetch_offset_tries=parse_number(lowered, "fetchOffset.numRetries") or 3,
        fetch_offset_wait_ms=_or_default(parse_number(lowered, "fetchOffset.retryIntervalMs", least=0), 1000),
        rows=parse_choice(lowered, "rows", RowKind.RECORDS),
        columns=_parse_columns(lowered),
        push_down=_parse_push_down(lowered),
        value=_parse_value(lowered),
        read_mode=parse_choice(lowered, "readMode", ReadMode.AUTO),
    )


def _parse_selection(lowered: Lowered) -> Selection:
    given = [name for name in _SELECTIONS if name.lower() in lowered]
    if len(given) != 1:
        count = "none" if not given else " and ".join(given)
        raise OptionError(f"exactly one of {', '.join(_SELECTIONS)} must be set; found {count}")
    name = given[0]
    value = lowered[name.lower()]
    match name:
        case "assign":
            return Assign(parse_json(name, value, parse_partitions))
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


def _parse_trigger_limits(lowered: Lowered) -> TriggerLimits:
    offsets_max = parse_number(lowered, "maxOffsetsPerTrigger")
    offsets_min = parse_number(lowered, "minOffsetsPerTrigger", least=0)
    if offsets_min is not None and offsets_max is not None and offsets_min > offsets_max:
        raise OptionError(
            f"`minOffsetsPerTrigger`={offsets_min} is above `maxOffsetsPerTrigger`={offsets_max}; "
            "lower the one or raise the other"
        )
    return TriggerLimits(
        offsets_max=offsets_max,
        offsets_min=offsets_min,
        delay_ms_max=parse_spark_time_ms(lowered, "maxTriggerDelay", "15m"),
        bytes_max=parse_number(lowered, "maxBytesPerTrigger"),
    )


def _parse_group_id(lowered: Lowered) -> str:
    """Return `kafka.group.id`, or a name that is the same whenever the same topics are read.

    Where the query starts and how much it reads at a time may change at a restart; its group must not.
    """
    given = lowered.get("kafka.group.id")
    if given is not None:
        if not given.strip():
            raise OptionError("`kafka.group.id` is empty; leave it out or name a group")
        if given != lowered.get("kafka.client.id"):  # a pipeline names its group and its client after itself
            _warn_of_shared_group(given, "groupidprefix" in lowered)
        return given
    prefix = lowered.get("groupidprefix", _GROUP_ID_PREFIX)
    name = next(name for name in _SELECTIONS if name.lower() in lowered)
    selection = f"{name}={','.join(sorted(lowered[name.lower()].split(',')))}"
    return f"{prefix}-{hashlib.sha256(selection.encode()).hexdigest()[:12]}"


@functools.cache
def _warn_of_shared_group(group_id: str, is_prefix_given: bool) -> None:
    """Log it once for each group, as Spark and pipelines parse the options of a query several times."""
    logger.warning(
        "option kafka.group.id=%s: no other query and no consumer may use this group, or its lag means "
        "nothing%s",
        group_id,
        "; groupIdPrefix is ignored" if is_prefix_given else "",
    )


def _parse_value(lowered: Lowered) -> ValueOptions | None:
    given = {name.removeprefix("value."): text for name, text in lowered.items() if name.startswith("value.")}
    name = given.pop("format", None)
    if name is None:
        if given:
            raise OptionError(f"`value.{min(given)}` is set without `value.format`, e.g. json")
        return None
    on_error = parse_choice(lowered, "value.onError", OnBadValue.FAIL)
    given.pop("onerror", None)
    return ValueOptions(
        name.strip().lower(), given.pop("schema", None), given.pop("schemafile", None), given, on_error
    )


def _parse_columns(lowered: Lowered) -> tuple[str, ...] | None:
    text = lowered.get("columns")
    if text is None:
        return None
    columns = tuple(dict.fromkeys(column for part in text.split(",") if (column := part.strip())))
    if not columns:
        raise OptionError(f"`columns`={text!r} names no column")
    return columns


def _parse_push_down(lowered: Lowered) -> bool:
    """Read `pushdown`, which has no plain ``true``.

    Spark 4.3 keeps the plan of a filter with the frame that was loaded, for the frame's other reads.
    The source is not called for those, so only the user can know that there are none.
    """
    text = lowered.get("pushdown", "false")
    match text.strip().lower():
        case "false":
            return False
        case "per-frame":
            return True
        case "true":
            raise OptionError(
                "`pushdown`=true is not supported: Spark would use the filter of one read of a frame for the "
                "frame's other reads as well; set `pushdown`=per-frame if each loaded frame is used with one "
                "filter only, or narrow the frame with `startingTimestamp`, `endingTimestamp` or `assign`"
            )
    raise OptionError(f"`pushdown`={text!r} is neither false nor per-frame")


def _parse_client(lowered: Lowered) -> LogReaderConfig:
    properties: dict[str, str] = {"client.id": _CLIENT_ID}
    known = {key.name for key in LogReaderConfig.definitions().values()} - WITHOUT_EFFECT
    of_consumers = {key.name: key for key in ConsumerConfig.definitions().values()}
    for name, value in lowered.items():
        if not name.startswith("kafka."):
            continue
        name = name.removeprefix("kafka.")
        if name in known or name.startswith(("security.", "sasl.", "ssl.")):
            properties[name] = value
        elif name in of_consumers:
            # Spark's guide has its readers set some (`kafka.max.poll.records`) that mean nothing without a
            # Java consumer. Their values are checked, as a consumer would check them.
            try:
                of_consumers[name].parse(value)
            except ConfigError as error:
                raise OptionError(f"kafka.*: {error}") from None
        else:
            logger.warning("option kafka.%s has no effect on this source", name)
    if "bootstrap.servers" not in properties:
        raise OptionError("`kafka.bootstrap.servers` must be set to host:port[,host:port…]")
    # A task reads one partition at a time, so that more per fetch costs memory for that one only.
    properties.setdefault("max.partition.fetch.bytes", str(_PARTITION_FETCH_BYTES))
    try:
        return LogReaderConfig.from_properties(properties)
    except ClientConfigError as error:
        raise OptionError(f"kafka.*: {error}") from None


def _parse_connection(lowered: Lowered) -> dict[str, str]:
    shared = {key.name for key in CommonClientConfig.definitions().values()} - WITHOUT_EFFECT
    given = {
        name.removeprefix("kafka."): value for name, value in lowered.items() if name.startswith("kafka.")
    }
    return {"client.id": _CLIENT_ID} | {name: given[name] for name in given.keys() & shared}


def _or_default(value: int | None, default: int) -> int:
    return default if value is None else value
