"""Refuses misspelt options: a name that is almost that of an option has no effect otherwise.

Spark gives all options of a query to the source, so unknown names are allowed. But
`failOnDataLos`, `delivry` or `kafka.isolation_level` would change in silence what a query reads or writes.
Source and sink know the names of both, because applications share one set of options between them.
"""

from collections.abc import Iterable
from typing import Final

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.spark.source.option_values import OptionError

SOURCE_OPTIONS: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "includeHeaders",
    "failOnDataLoss",
    "malformedTimestamps",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "groupIdPrefix",
    "lagCommit",
    "columns",
    "pushdown",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "readMode",
    "rows",
    "kafkaConsumer.pollTimeoutMs",
)
"""The source's options, without `kafka.*` and `value.*`."""
SINK_OPTIONS: Final = ("topic", "delivery", "sinkId", "txn.id", "txn.version", "checkpointLocation")
"""The sink's options, without `kafka.*`; Spark passes the last one on."""

_BY_LOWER_NAME: Final = {name.lower(): name for name in (*SOURCE_OPTIONS, *SINK_OPTIONS)}
_LIKENESS_MIN: Final = 0.85
"""How much of two names is the same; below it a name is taken for an option of something else."""


def check_names(lowered_names: Iterable[str]) -> None:
    """Refuse a name that almost is an option, or that is a setting of Kafka without its prefix.

    Raises:
        OptionError: see there; the message names the option that was meant.
    """
    of_readers = {f"kafka.{each}" for each in _names_of(ConsumerConfig) | _names_of(LogReaderConfig)}
    for name in lowered_names:
        if name in _BY_LOWER_NAME or name in of_readers or name.startswith("value."):
            continue
        meant = _meant_by(name, of_readers)
        if meant is not None:
            raise OptionError(f"`{name}` is not an option; did you mean `{meant}`?")


def _meant_by(name: str, of_readers: set[str]) -> str | None:
    """Return the option that a misspelt name stands for; None for a setting of producers and other names."""
    # Imported where they are used: few queries have such options, and start-up time counts.
    from difflib import get_close_matches

    from kalda.clients.producer.producer_config import ProducerConfig

    settings = of_readers | {f"kafka.{each}" for each in _names_of(ProducerConfig)}
    settings.add("kafka.partitioner.class")
    if name in settings:
        return None
    if f"kafka.{name}" in settings:
        return f"kafka.{name}"
    known = _BY_LOWER_NAME | {each: each for each in settings}
    near = get_close_matches(name, known, n=1, cutoff=_LIKENESS_MIN)
    return known[near[0]] if near else None


def _names_of(config: type[CommonClientConfig]) -> set[str]:
    return {key.name for key in config.definitions().values()}
