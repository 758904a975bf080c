"""Checks, when a write is planned, that the topic of the option ``topic`` exists or is created.

In the tasks, a topic that does not exist costs `max.block.ms` for each attempt of each task before the query
fails. The topics of the column ``topic`` are not known before the tasks run and are not checked.

A write is refused only for an answer of the cluster. Brokers that cannot be reached now may be back when the
tasks send.
"""

from typing import Final

from kalda.clients.errors import RequestTimedOutError
from kalda.clients.producer.producer import Producer
from kalda.clients.producer.producer_config import ProducerConfig
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.clients.shared_properties import known_settings
from kalda.common.errors import ErrorCode
from kalda.spark.sink.options import SinkOptions
from kalda.spark.source.option_values import OptionError
from kalda.spark.worker import pooled_reader

LOOKUP_TIMEOUT_MS: Final = 5_000
"""How long planning waits for an answer; a broker that runs answers in milliseconds."""
CREATION_WAIT_MS_MAX: Final = 10_000
"""How long planning waits until the brokers have created the topic, which takes them less than a second."""


def check_topic(options: SinkOptions) -> None:
    """Check that tasks can write to the topic of the options; does nothing if a column names the topics.

    Raises:
        OptionError: the topic does not exist, and the brokers do not create it.
        ClientError: the topic's name is not allowed, or the client may not create it.
    """
    if options.topic is None or not _is_missing(options, options.topic):
        return
    # A request of a producer creates the topic where the brokers allow it, as that of a task would.
    properties = dict(options.producer)
    wait_ms = min(ProducerConfig.from_properties(properties).max_block_ms, CREATION_WAIT_MS_MAX)
    producer = Producer.from_config(properties | {"max.block.ms": str(wait_ms)})
    try:
        producer.partitions_for(options.topic)
    except RequestTimedOutError:
        raise OptionError(
            f"`topic`={options.topic} does not exist, and the brokers did not create it within {wait_ms} ms; "
            "create the topic or correct its name"
        ) from None
    finally:
        producer.close(0.0)


def _is_missing(options: SinkOptions, topic: str) -> bool:
    """Return whether a broker answers that there is no such topic."""
    properties = known_settings(LogReaderConfig, dict(options.producer))
    properties["default.api.timeout.ms"] = str(LOOKUP_TIMEOUT_MS)
    with pooled_reader(LogReaderConfig.from_properties(properties)) as reader:
        try:
            found = reader.metadata([topic]).topics.get(topic)
        except RequestTimedOutError:
            return False
    return found is not None and found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
