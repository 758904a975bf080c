"""Declares the settings that consumers and share consumers have in common."""

from collections.abc import Sequence
from typing import Final

from kalda.clients.config.client_options import CommonClientOptions
from kalda.clients.config.common_config import CommonClientConfig
from kalda.common.config_def import MissingFeature, at_least
from kalda.common.settings import HIGH, LOW, boolean, integer, string, string_list

_JAVA_REPORTERS: Final = MissingFeature("Java classes", "read metrics() instead")


class ReaderOptions(CommonClientOptions, total=False):
    """The settings as keyword arguments; `ReaderConfig` documents them."""

    max_poll_interval_ms: int
    max_poll_records: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    client_rack: str
    check_crcs: bool
    default_api_timeout_ms: int
    exclude_internal_topics: bool
    allow_auto_create_topics: bool
    metric_reporters: str | Sequence[str]


class ReaderConfig(CommonClientConfig):
    """The settings of clients that fetch records in a group."""

    max_poll_interval_ms = integer(
        300_000,
        "The longest time between two calls of poll; a member that takes longer leaves the group.",
        at_least(1),
    )
    max_poll_records = integer(500, "How many records one call of poll returns at most.", at_least(1))
    fetch_min_bytes = integer(
        1,
        "How much data a broker waits for before it answers a fetch, up to `fetch.max.wait.ms`.",
        at_least(0),
        importance=HIGH,
    )
    fetch_max_bytes = integer(
        52_428_800,
        "How many bytes one fetch returns at most; a single larger batch is returned nevertheless. While "
        "records of this size are fetched and unread, nothing more is fetched.",
        at_least(0),
    )
    fetch_max_wait_ms = integer(
        500,
        "How long a broker waits for `fetch.min.bytes` before it answers a fetch.",
        at_least(0),
        importance=LOW,
    )
    client_rack = string(
        "", "The rack of this consumer, to read from the closest replica (KIP-392).", importance=LOW
    )
    check_crcs = boolean(True, "Whether to check the CRC of each batch of records.", importance=LOW)
    default_api_timeout_ms = integer(
        60_000, "The bound on calls for which no time-out is given.", at_least(0)
    )
    exclude_internal_topics = boolean(
        True, "Whether a pattern leaves out internal topics such as __consumer_offsets."
    )
    allow_auto_create_topics = boolean(
        True, "Whether a topic that is subscribed to may be created, if the brokers allow it, too."
    )
    key_deserializer = string(
        "",
        "Turns the bytes of keys into objects: one of Java's class names, such as StringDeserializer. The "
        "keyword argument takes a function of the bytes or a Deserializer, too. Without it keys are bytes.",
        importance=HIGH,
    )
    value_deserializer = string(
        "", "Turns the bytes of values into objects, as `key.deserializer` does for keys.", importance=HIGH
    )
    metric_reporters = string_list(
        (), "Java classes that report metrics.", importance=LOW, requires=_JAVA_REPORTERS
    )
