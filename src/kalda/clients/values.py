"""Defines the values that a consumer hands to its user: records, committed offsets, offsets found by time.

`ConsumerRecord` is a named tuple because one is made for every record consumed, and nothing that Python can
build from C code is cheaper; `record_decoder` depends on the order of its fields.
"""

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from kalda.clients.foreign_attributes import RECORD, names_counterparts
from kalda.clients.reprs import record_repr
from kalda.common.public import public
from kalda.common.types import TopicPartition

if TYPE_CHECKING:
    # The admin client uses the offsets below, and its import must stay quick: it needs no record format.
    from kalda.records.batch import TimestampType
    from kalda.records.record import Header

K = TypeVar("K")
V = TypeVar("V")


@public
@names_counterparts(RECORD)
class ConsumerRecord(NamedTuple, Generic[K, V]):
    """One record as the consumer received it."""

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

    def __repr__(self) -> str:
        return record_repr(self, self._asdict())

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that holds the record."""
        return TopicPartition(self.topic, self.partition)


@public
class OffsetAndMetadata(NamedTuple):
    """An offset to commit, or a committed one: the offset of the next record that the group will read."""

    offset: int
    metadata: str = ""
    """Text that the committer attached; brokers limit its size (`offset.metadata.max.bytes`)."""
    leader_epoch: int | None = None
    """The leader epoch of the last record consumed, for the detection of log truncation (KIP-320)."""


@public
class OffsetAndTimestamp(NamedTuple):
    """The result of a look-up by time: the first offset with a timestamp at or after the one asked for."""

    offset: int
    timestamp_ms: int
    """The timestamp of the record at `offset`."""
    leader_epoch: int | None = None
    """The leader epoch of the record, if the broker knows it."""


@public
class ConsumerGroupMetadata(NamedTuple):
    """A member's identity, with which a transactional producer commits offsets (KIP-447)."""

    group_id: str
    generation_id: int = -1
    """The generation, or under `group.protocol=consumer` the member epoch; -1 outside a group."""
    member_id: str = ""
    """The member id; empty outside a group."""
    group_instance_id: str | None = None
    """The id of a static member (KIP-345)."""
