"""Reads what a topic holds at present, again and again, for assertions."""

import time
from typing import Final, Literal, TypeAlias

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.partitions import OffsetSpec
from kalda.clients.config.properties_source import PropertiesSource
from kalda.clients.consumer.consumer import Consumer
from kalda.common.types import UUID, TopicPartition
from kalda.testing.record_matching import Record

Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]

READ_SECONDS_MAX: Final = 10.0
"""How long one look at a topic may take where brokers are slow or down."""

_POLL_SECONDS: Final = 0.1
"""How long one wait for records lasts: partitions of a topic may be added meanwhile."""


class TopicReader:
    """The records of one topic, read once each, by a consumer without a group."""

    def __init__(self, topic: str, admin: Admin, config: PropertiesSource, isolation: Isolation) -> None:
        self._topic: Final = topic
        self._admin: Final = admin
        self._isolation: Final = isolation
        self._consumer: Final[Consumer[bytes | None, bytes | None]] = Consumer.from_config(
            config,
            isolation_level=isolation,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            enable_metrics_push=False,
            request_timeout_ms=int(READ_SECONDS_MAX * 1000 / 2),
            default_api_timeout_ms=int(READ_SECONDS_MAX * 1000),
        )
        self._topic_id: UUID | None = None
        self._partitions: tuple[TopicPartition, ...] = ()
        self._records: Final[list[Record]] = []
        self._is_sorted = True

    def records(self) -> list[Record]:
        """Return all records that the topic has now, by partition and offset.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            ClientError: the topic cannot be read.
            TimeoutError: not everything could be read in time.
        """
        deadline = time.monotonic() + READ_SECONDS_MAX
        self._assign()
        # On another connection: the consumer's has a fetch that waits for records.
        specs = dict.fromkeys(self._partitions, OffsetSpec.latest())
        found = self._admin.list_offsets(specs, isolation_level=self._isolation)
        ends = {partition: each.offset for partition, each in found.items()}
        behind = list(self._partitions)
        while behind := [each for each in behind if self._consumer.position(each) < ends[each]]:
            if time.monotonic() > deadline:
                first = behind[0]
                raise TimeoutError(
                    f"{self._topic} was not read to its end within {READ_SECONDS_MAX:g} s: partition "
                    f"{first.partition} to offset {self._consumer.position(first)} of {ends[first]}"
                )
            self._add(self._consumer.poll(_POLL_SECONDS))
        if not self._is_sorted:
            self._records.sort(key=lambda record: (record.partition, record.offset))
            self._is_sorted = True
        return list(self._records)

    def wait(self, timeout_s: float) -> None:
        """Return when there are further records, or after a while."""
        self._add(self._consumer.poll(min(timeout_s, _POLL_SECONDS)))

    def close(self, timeout_s: float) -> None:
        """Close the consumer."""
        self._consumer.close(timeout_s)

    def _add(self, records: list[Record]) -> None:
        if records:
            self._records.extend(records)
            self._is_sorted = False

    def _assign(self) -> None:
        description = self._admin.describe_topics([self._topic])[self._topic]
        partitions = tuple(TopicPartition(self._topic, each.partition) for each in description.partitions)
        if description.topic_id != self._topic_id:
            # Deleted and created again: what was read is gone.
            self._topic_id = description.topic_id
            self._partitions = ()
            self._records.clear()
        if partitions == self._partitions:
            return
        positions = {each: self._consumer.position(each) for each in self._partitions}
        self._consumer.assign(partitions)
        for partition in partitions:
            self._consumer.seek(partition, positions.get(partition, 0))
        self._partitions = partitions
