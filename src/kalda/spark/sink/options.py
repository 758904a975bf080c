"""Parses the options of the sink, with the names, defaults and refusals of Spark's Kafka connector.

Option names are not case-sensitive. The options beyond those of the connector are ``delivery``, ``sinkId``,
``txn.id`` and ``txn.version``. This module sends no request.

A setting that weakens the guarantee which ``delivery`` asks for raises `OptionError`; it is never ignored.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kalda.clients.errors import ClientConfigError
from kalda.clients.producer.producer_config import ProducerConfig
from kalda.spark.source.option_names import check_names
from kalda.spark.source.option_values import OptionError

logger: Final = logging.getLogger(__name__)


class Delivery(Enum):
    """What the sink guarantees when tasks, workers or the driver fail and run again."""

    AT_LEAST_ONCE = "at-least-once"
    """Rows of tasks that run again appear again."""
    EXACTLY_ONCE = "exactly-once"
    """One transaction for each task; a ``read_committed`` reader sees each row once."""
    EXACTLY_ONCE_BATCH = "exactly-once-batch"
    """As `EXACTLY_ONCE`, and all rows of a batch become visible together (KIP-939)."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of one query; pickled to the executors."""

    producer: tuple[tuple[str, str], ...]
    """The settings of producers by Kafka's names, in order of the names."""
    topic: str | None = None
    """The topic of all rows; None where the column ``topic`` names it."""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    sink_id: str = "sink"
    """Distinguishes several sinks of one query in transactional ids."""
    partitioner: str | None = None
    """``kafka.partitioner.class``: a class of Java with a counterpart here, or ``package.module:name``."""
    txn_id: str | None = None
    """The application's name of a batch write's history; takes the place of the query id."""
    txn_version: int | None = None
    """The number of this batch write in the history; takes the place of the batch id."""
    checkpoint: str | None = None
    """The option ``checkpointLocation`` of a stream, which Spark passes on to its sink."""


_FORBIDDEN: Final[Mapping[str, str]] = {
    "kafka.key.serializer": "keys are string or binary columns; cast the column with DataFrame functions",
    "kafka.value.serializer": "values are string or binary columns; cast the column with DataFrame functions",
    "kafka.transactional.id": "the sink names its transactions itself; set `delivery`=exactly-once",
    "kafka.transaction.two.phase.commit.enable": "set `delivery`=exactly-once-batch",
    "kafka.interceptor.classes": "interceptors of Java cannot run here",
}
_PARTITIONER: Final = "kafka.partitioner.class"
_TEXT_BOOLEANS: Final = ("true", "false")


def parse_sink_options(options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Read the options of a query.

    Raises:
        OptionError: an option is missing, malformed, forbidden or at odds with another.
    """
    lowered = {name.lower(): value for name, value in options.items()}
    for name, reason in _FORBIDDEN.items():
        if name in lowered:
            raise OptionError(f"`{name}` is not supported: {reason}")
    check_names(lowered)
    include_headers = lowered.get("includeheaders", "false").strip().lower()
    if include_headers not in _TEXT_BOOLEANS:
        raise OptionError(f"`includeHeaders`={include_headers!r} is neither true nor false")
    topic = lowered.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("`topic` is empty; name a topic, or leave it out and add the column `topic`")
    delivery = _parse_delivery(lowered)
    sink_id = lowered.get("sinkid", "sink").strip()
    if not sink_id or not all(each.isalnum() or each in "._-" for each in sink_id):
        raise OptionError(f"`sinkId`={sink_id!r} must be letters, digits, dots, underscores or hyphens")
    txn_id, txn_version = _parse_txn(lowered, is_stream=is_stream)
    if delivery is not Delivery.AT_LEAST_ONCE and not is_stream and txn_id is None:
        raise OptionError(
            f"`delivery`={delivery.value} of a batch write needs `txn.id` and `txn.version`, by which a "
            "repeated write is recognised"
        )
    return SinkOptions(
        producer=_parse_producer(lowered, delivery),
        topic=None if topic is None else topic.strip(),
        delivery=delivery,
        sink_id=sink_id,
        partitioner=lowered.get(_PARTITIONER) or None,
        txn_id=txn_id,
        txn_version=txn_version,
        checkpoint=lowered.get("checkpointlocation"),
    )


def _parse_delivery(lowered: Mapping[str, str]) -> Delivery:
    text = lowered.get("delivery")
    if text is None:
        has_txn = "txn.id" in lowered or "txn.version" in lowered
        return Delivery.EXACTLY_ONCE_BATCH if has_txn else Delivery.AT_LEAST_ONCE
    try:
        return Delivery(text.strip().lower())
    except ValueError:
        allowed = ", ".join(each.value for each in Delivery)
        raise OptionError(f"`delivery`={text!r} is not one of {allowed}") from None


def _parse_txn(lowered: Mapping[str, str], *, is_stream: bool) -> tuple[str | None, int | None]:
    txn_id, version = lowered.get("txn.id"), lowered.get("txn.version")
    if txn_id is None and version is None:
        return None, None
    if is_stream:
        raise OptionError(
            "`txn.id` and `txn.version` are for batch writes; a streaming query has its own id and batches"
        )
    if txn_id is None or version is None:
        raise OptionError("`txn.id` and `txn.version` must be set together")
    if not txn_id.strip() or "/" in txn_id:
        raise OptionError(f"`txn.id`={txn_id!r} must be a name without a slash")
    version = version.strip()
    if not (version.isascii() and version.isdigit()):
        raise OptionError(f"`txn.version`={version!r} is not a whole number that is not negative")
    return txn_id.strip(), int(version)


def _parse_producer(lowered: Mapping[str, str], delivery: Delivery) -> tuple[tuple[str, str], ...]:
    properties: dict[str, str] = {"client.id": "kalda-spark-sink"}
    known = {key.name for key in ProducerConfig.definitions().values()}
    for name, value in lowered.items():
        if not name.startswith("kafka.") or name == _PARTITIONER:
            continue
        name = name.removeprefix("kafka.")
        if name in known or name.startswith(("security.", "sasl.", "ssl.")):
            properties[name] = value
        else:
            logger.warning("option kafka.%s has no effect on this sink", name)
    if "bootstrap.servers" not in properties:
        raise OptionError("`kafka.bootstrap.servers` must be set to host:port[,host:port…]")
    if delivery is not Delivery.AT_LEAST_ONCE:
        _check_exactly_once(properties, delivery)
    try:
        ProducerConfig.from_properties(properties)
    except ClientConfigError as error:
        raise OptionError(f"kafka.*: {error}") from None
    return tuple(sorted(properties.items()))


def _check_exactly_once(properties: Mapping[str, str], delivery: Delivery) -> None:
    acks = properties.get("acks", "all").strip().lower()
    if acks not in ("all", "-1"):
        raise OptionError(f"`kafka.acks`={acks} excludes `delivery`={delivery.value}, which needs all")
    if properties.get("enable.idempotence", "true").strip().lower() == "false":
        raise OptionError(f"`kafka.enable.idempotence`=false excludes `delivery`={delivery.value}")
    if delivery is Delivery.EXACTLY_ONCE_BATCH and "transaction.timeout.ms" in properties:
        raise OptionError(
            "`kafka.transaction.timeout.ms` has no meaning with `delivery`=exactly-once-batch, whose "
            "transactions do not time out; remove it"
        )
