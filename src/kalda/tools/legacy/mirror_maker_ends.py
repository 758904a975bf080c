"""The clients between which `kalda legacy MirrorMaker` copies: old and new consumers and producers.

Defaults lose nothing, as those of Kafka's mirror maker since 0.9: consumers do not commit by themselves, and
producers wait for all in-sync replicas and repeat without end. What a file sets otherwise counts.
"""

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from kalda.clients.consumer.consumer import Consumer
from kalda.clients.consumer.rebalance_listener import ConsumerRebalanceListener
from kalda.clients.errors import ClientError
from kalda.clients.legacy import (
    ConsumerConfig,
    ConsumerConnector,
    ConsumerTimeoutError,
    Message,
    Producer,
    ProducerConfig,
    ProducerData,
    TopicFilter,
)
from kalda.clients.producer.producer import Producer as KaldaProducer
from kalda.clients.values import ConsumerRecord
from kalda.common.settings import INT_MAX, LONG_MAX
from kalda.common.types import TopicPartition
from kalda.tools.legacy.mirror_maker_run import Copied

logger: Final = logging.getLogger(__name__)

_TAKE_SECONDS: Final = 0.5
"""How long a source waits for a message; then its thread looks whether it is time to commit or to stop."""
_POLL_RECORDS: Final = 2_000


class NewConsumerSource(ConsumerRebalanceListener):
    """A member of a consumer group, as the mirror maker of 0.9 and later has it.

    Invariant: `_offsets` has partitions of this member only, behind the last record that `take` returned.
    """

    def __init__(self, properties: Mapping[str, object], whitelist: re.Pattern[str]) -> None:
        self._consumer: Final = Consumer.from_config({**properties, "enable.auto.commit": False})
        self._records: Final[deque[ConsumerRecord[bytes, bytes]]] = deque()
        self._offsets: Final[dict[TopicPartition, int]] = {}
        self._has_arrived: Callable[[], bool] = lambda: False
        self._consumer.subscribe(whitelist, self)

    def take(self) -> Copied | None:
        """Return the next record."""
        if not self._records:
            self._records.extend(self._consumer.poll(_TAKE_SECONDS, _POLL_RECORDS))
        if not self._records:
            return None
        record = self._records.popleft()
        self._offsets[TopicPartition(record.topic, record.partition)] = record.offset + 1
        return Copied(record.topic, record.key, record.value, record.timestamp_ms, record.headers)

    def commit(self) -> None:
        """Commit behind the records that `take` returned."""
        if self._offsets:
            self._consumer.commit(dict(self._offsets))

    def shutdown(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def set_has_arrived(self, has_arrived: Callable[[], bool]) -> None:
        """Set what to ask before partitions are revoked."""
        self._has_arrived = has_arrived

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commit what has arrived, and forget the partitions that go to another member."""
        if self._offsets and self._has_arrived():
            try:
                self.commit()
            except ClientError as error:
                logger.warning("The mirror maker could not commit before a rebalance: %s", error)
        self.on_partitions_lost(partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the records and offsets of partitions that are another member's."""
        gone = set(partitions)
        kept = [each for each in self._records if TopicPartition(each.topic, each.partition) not in gone]
        self._records.clear()
        self._records.extend(kept)
        for each in gone:
            self._offsets.pop(each, None)


class OldConsumerSource:
    """A connector of 0.7 and 0.8 with one stream, so that a commit concerns one thread."""

    def __init__(self, properties: Mapping[str, object], topics: TopicFilter, number: int) -> None:
        given = {ConsumerConfig.RENAMED.get(name, name): value for name, value in properties.items()}
        if "consumer.id" in given:
            given["consumer.id"] = f"{given['consumer.id']}-{number}"
        own = {"auto.commit.enable": False, "consumer.timeout.ms": round(_TAKE_SECONDS * 1_000)}
        self._connector: Final = ConsumerConnector(given | own)
        try:
            (self._stream,) = self._connector.create_message_streams_by_filter(topics)
        except BaseException:
            self._connector.shutdown()
            raise

    def take(self) -> Copied | None:
        """Return the next message. None also after a failure that the stream outlives."""
        try:
            found = next(self._stream)
        except (ConsumerTimeoutError, StopIteration):
            return None
        except ClientError as error:
            if not error.is_retriable:
                raise
            logger.warning("A stream of the mirror maker waits: %s", error)
            time.sleep(_TAKE_SECONDS)
            return None
        message = found.raw_message
        return Copied(found.topic, message.key, message.payload, message.timestamp, found.headers)

    def commit(self) -> None:
        """Commit behind the messages that `take` returned."""
        self._connector.commit_offsets()

    def set_has_arrived(self, has_arrived: Callable[[], bool]) -> None:
        """Set what to ask before partitions are released."""
        self._connector.set_before_release(has_arrived)

    def shutdown(self) -> None:
        """Leave the group."""
        self._connector.shutdown()


class OldTarget:
    """The producer of 0.7 and 0.8; always sync, because an async one does not say what failed."""

    def __init__(self, properties: Mapping[str, object]) -> None:
        defaults = {
            "request.required.acks": -1,
            "message.send.max.retries": INT_MAX,
            "zk.read.num.retries": INT_MAX,
            "max.message.size": INT_MAX,
        }
        given = {ProducerConfig.RENAMED.get(name, name): value for name, value in properties.items()}
        self._producer: Final = Producer({**defaults, **given, "producer.type": "sync"})

    def send(self, batch: Sequence[Copied]) -> None:
        """Send a batch and wait for the brokers."""
        self._producer.send(
            [
                ProducerData(each.topic, each.key, Message(each.payload, each.key, each.timestamp))
                for each in batch
            ]
        )

    def close(self) -> None:
        """Close the connections."""
        self._producer.close()


class NewTarget:
    """The new producer, with --new.producer."""

    def __init__(self, properties: Mapping[str, object]) -> None:
        defaults = {
            "acks": "all",
            "retries": INT_MAX,
            "max.block.ms": LONG_MAX,
            "delivery.timeout.ms": INT_MAX,
        }
        self._producer: Final = KaldaProducer.from_config({**defaults, **properties})

    def send(self, batch: Sequence[Copied]) -> None:
        """Send a batch and wait for the brokers."""
        futures = [
            self._producer.send(
                each.topic,
                value=each.payload,
                key=each.key,
                headers=list(each.headers),
                timestamp_ms=each.timestamp if each.timestamp >= 0 else None,
            )
            for each in batch
        ]
        self._producer.flush()
        for each in futures:
            each.result()

    def close(self) -> None:
        """Give up what is on its way, and close."""
        self._producer.close(0.0)
