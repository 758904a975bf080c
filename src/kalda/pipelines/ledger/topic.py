"""Writes the ledger to the compacted topic `__kalda_audit` and reads it back.

Any Kafka tool can read the topic: keys name query, batch and partition, values are JSON. Publishing a batch
again writes the same keys, so that recovery may always publish.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.topics import NewTopic
from kalda.clients.consumer.consumer import Consumer
from kalda.clients.errors import BrokerResponseError, RequestTimedOutError
from kalda.clients.producer.producer import Producer
from kalda.common.errors import ErrorCode
from kalda.pipelines.ledger.audit_record import LEDGER_TOPIC, LedgerRecord, LedgerRecordError

logger: Final = logging.getLogger(__name__)

_CLIENT_ID: Final = "kalda-ledger"
_PUBLISH_TIMEOUT_S: Final = 60.0
_STALLED_POLLS_MAX: Final = 60
"""Polls of a second without progress until reading gives up."""


@dataclass(frozen=True, slots=True)
class LedgerContents:
    """What the topic holds."""

    records: tuple[LedgerRecord, ...]
    """The last one of each key, in the order of their keys' first occurrence."""
    faults: tuple[str, ...]
    """What is wrong with the values that are no records."""


class LedgerTopic:
    """Publishes records of the ledger; its producer lives until `close`."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Take the cluster's settings with Kafka's dotted names, `bootstrap.servers` among them."""
        self._properties: Final = dict(properties)
        self._producer: Producer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def publish(self, records: Iterable[LedgerRecord]) -> None:
        """Write records and wait until all in-sync replicas have them.

        Raises:
            ClientError: the topic could not be created or written.
        """
        producer = self._running()
        sent = [producer.send(LEDGER_TOPIC, each.to_json(), key=each.key) for each in records]
        for future in sent:
            future.result(_PUBLISH_TIMEOUT_S)

    def delete(self, records: Iterable[LedgerRecord]) -> None:
        """Delete records: their table does not exist any more.

        Raises:
            ClientError: the topic could not be written.
        """
        producer = self._running()
        for future in [producer.send(LEDGER_TOPIC, None, key=each.key) for each in records]:
            future.result(_PUBLISH_TIMEOUT_S)

    def close(self) -> None:
        """Close the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _running(self) -> Producer:
        if self._producer is None:
            create_ledger_topic(self._properties)
            # The records of a batch are one request to each partition; there is nothing to linger for.
            settings = {**self._properties, "client.id": _CLIENT_ID, "acks": "all", "linger.ms": "0"}
            self._producer = Producer.from_config(settings)
        return self._producer


def create_ledger_topic(properties: Mapping[str, str]) -> None:
    """Create the topic if it does not exist.

    Raises:
        ClientError: the cluster refuses it or cannot be reached.
    """
    with Admin.from_config({**properties, "client.id": _CLIENT_ID}) as admin:
        topic = NewTopic(LEDGER_TOPIC, partitions=1, config={"cleanup.policy": "compact"})
        error = admin.create_topics([topic], outcomes=True).errors.get(LEDGER_TOPIC)
    if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise error


def read_ledger(properties: Mapping[str, str], pipelines: frozenset[str] | None = None) -> LedgerContents:
    """Read the whole ledger.

    Args:
        properties: the cluster's settings with Kafka's dotted names.
        pipelines: the pipelines whose records are wanted; None for all.

    Raises:
        ClientError: the topic could not be read. One that does not exist is an empty ledger.
    """
    records: dict[bytes, LedgerRecord] = {}
    faults: dict[bytes, str] = {}
    for key, value in read_compacted(properties, LEDGER_TOPIC):
        records.pop(key, None)
        faults.pop(key, None)
        if value is None:
            continue
        try:
            record = LedgerRecord.from_json(value)
        except LedgerRecordError as error:
            faults[key] = f"{key.decode(errors='replace')}: {error}"
            continue
        if pipelines is None or record.pipeline in pipelines:
            records[key] = record
    return LedgerContents(tuple(records.values()), tuple(faults.values()))


def read_compacted(properties: Mapping[str, str], topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield key and value of every committed record of a topic, partition by partition in no fixed order.

    Raises:
        RequestTimedOutError: the records up to the end at the time of the call did not come.
        ClientError: the topic could not be read. One that does not exist has no records.
    """
    settings = {
        **properties,
        "client.id": _CLIENT_ID,
        "isolation.level": "read_committed",
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": "false",
    }
    settings.pop("group.id", None)
    with Consumer.from_config(settings) as consumer:
        try:
            found = consumer.partitions_for(topic)
        except BrokerResponseError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return
            raise
        partitions = [each.topic_partition for each in found]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        stalled = 0
        while behind := [each for each in partitions if consumer.position(each) < ends[each]]:
            got = consumer.poll(1.0)
            stalled = 0 if got else stalled + 1
            if stalled > _STALLED_POLLS_MAX:
                raise RequestTimedOutError(
                    f"records of {behind[0]} before offset {ends[behind[0]]} did not come"
                )
            for record in got:
                if record.key is not None:
                    yield bytes(record.key), None if record.value is None else bytes(record.value)
