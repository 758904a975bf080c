"""Defines `RecordMetadata`, what a producer returns of a record that a broker acknowledged."""

from typing import NamedTuple

from kalda.common.public import public
from kalda.common.types import TopicPartition

NO_OFFSET = -1


@public
class RecordMetadata(NamedTuple):
    """Where a record is, and when it was written."""

    topic: str
    partition: int
    offset: int
    """-1 where the producer did not get it: with ``acks=0``, for a duplicate that the broker had already
    forgotten the offset of, and in a callback after an error."""
    timestamp_ms: int
    """Milliseconds since the epoch: the record's own time, or the broker's where the topic has
    ``message.timestamp.type=LogAppendTime``."""
    serialized_key_size: int
    """Bytes, -1 for a record without a key."""
    serialized_value_size: int
    """Bytes, -1 for a record without a value."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the record is in."""
        return TopicPartition(self.topic, self.partition)

    @property
    def has_offset(self) -> bool:
        """Whether the broker gave the record's offset."""
        return self.offset >= 0
