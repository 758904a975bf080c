"""The consumer's protocol inside the opaque bytes of the classic group protocol (``protocol_type`` consumer).

v1 adds the partitions that a member owns, for cooperative rebalancing (KIP-429). v2 adds the generation
(KIP-792), v3 the rack (KIP-881). Of an unknown version, the fields of the last known one are read.
"""

from kalda.protocol.schema import BYTES, INT32, STRING, Message, Struct, array, wire


class TopicPartition(Struct):
    """Partitions of one topic."""

    topic: str = wire(STRING, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """The topics that a member subscribes to and the partitions that it owns."""

    topics: list[str] = wire(array(STRING), "0+")
    user_data: bytes | None = wire(BYTES, "0+", nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = wire(array(TopicPartition), "1+", ignorable=True)
    generation_id: int = wire(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = wire(STRING, "3+", nullable="3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """The partitions assigned to a member."""

    assigned_partitions: list[TopicPartition] = wire(array(TopicPartition), "0+")
    user_data: bytes | None = wire(BYTES, "0+", nullable="0+", default=None)
