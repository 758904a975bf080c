"""Defines the record that a share consumer hands to its user."""

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kalda.clients.foreign_attributes import RECORD, names_counterparts
from kalda.clients.reprs import record_repr
from kalda.common.public import public
from kalda.common.types import TopicPartition

if TYPE_CHECKING:
    from kalda.records.batch import TimestampType
    from kalda.records.record import Header

K = TypeVar("K")
V = TypeVar("V")


@public
@names_counterparts(RECORD)
class ShareRecord(NamedTuple, Generic[K, V]):
    """One record as a share consumer received it: the fields of a `ConsumerRecord`, and `delivery_count`."""

    topic: str
    partition: int
    offset: int
    """The position of the record in its partition."""
    timestamp_ms: int
    """Milliseconds since the epoch, or -1 if the record has no timestamp."""
    timestamp_type: "TimestampType"
    """Whether the producer set the timestamp, or the broker when it appended the record."""
    key: K
    """The deserialized key; None for a record without a key."""
    value: V
    """The deserialized value; None for a tombstone."""
    headers: "tuple[Header, ...]"
    """Pairs of name and value, in the producer's order; a name may occur several times."""
    serialized_key_size: int
    """Bytes of the key before deserialization; -1 for a record without a key."""
    serialized_value_size: int
    """Bytes of the value before deserialization; -1 for a tombstone."""
    leader_epoch: int | None
    """The leader epoch under which the record was appended, if the broker stored one (KIP-320)."""
    delivery_count: int
    """How often the group has delivered the record, this time included: 1 for the first delivery."""

    def __repr__(self) -> str:
        return record_repr(self, self._asdict())

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that holds the record."""
        return TopicPartition(self.topic, self.partition)
