"""Records of ``__consumer_offsets`` that the consumer protocol writes (KIP-848).

The version of a key is the kind of record: 3 is the group, 4 the partitions it sees, 5 a member, 6 the epoch
of the target assignment, 7 a member's part of it, 8 what a member has now, 16 a resolved regular expression.

Some records describe the same things, such as partitions of topics, in structs of different names. The names
are Kafka's; a test compares the declarations with Kafka's schemas.
"""

from kalda.common.types import UUID
from kalda.protocol.schema import BYTES, INT8, INT32, INT64, STRING, UUID_KIND, Message, Struct, array, wire


class ConsumerGroupMetadataKey(Message, versions="3"):
    """The group."""

    group_id: str = wire(STRING, "3")


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    """The epoch of the group."""

    epoch: int = wire(INT32, "0+")


class ConsumerGroupPartitionMetadataKey(Message, versions="4"):
    """The group."""

    group_id: str = wire(STRING, "4")


class PartitionMetadata(Struct):
    """Where a partition is; not written any more."""

    partition: int = wire(INT32, "0+")
    racks: list[str] = wire(array(STRING), "0+")


class TopicMetadata(Struct):
    """A topic as the group saw it last."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    topic_name: str = wire(STRING, "0+")
    num_partitions: int = wire(INT32, "0+")
    partition_metadata: list[PartitionMetadata] = wire(array(PartitionMetadata), "0+")


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    """The topics that the group is subscribed to."""

    topics: list[TopicMetadata] = wire(array(TopicMetadata), "0+")


class ConsumerGroupMemberMetadataKey(Message, versions="5"):
    """A member."""

    group_id: str = wire(STRING, "5")
    member_id: str = wire(STRING, "5")


class ClassicProtocol(Struct):
    """A way of assigning that a classic member offers."""

    name: str = wire(STRING, "0+")
    metadata: bytes = wire(BYTES, "0+")


class ClassicMemberMetadata(Struct):
    """The extra state of a member that uses the classic protocol."""

    session_timeout_ms: int = wire(INT32, "0+")
    supported_protocols: list[ClassicProtocol] = wire(array(ClassicProtocol), "0+")


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    """A member's own description, with `classic_member_metadata` if it uses the classic protocol."""

    instance_id: str | None = wire(STRING, "0+", nullable="0+")
    rack_id: str | None = wire(STRING, "0+", nullable="0+")
    client_id: str = wire(STRING, "0+")
    client_host: str = wire(STRING, "0+")
    subscribed_topic_names: list[str] = wire(array(STRING), "0+")
    subscribed_topic_regex: str | None = wire(STRING, "0+", nullable="0+")
    rebalance_timeout_ms: int = wire(INT32, "0+", default=-1)
    server_assignor: str | None = wire(STRING, "0+", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        ClassicMemberMetadata, "0+", nullable="0+", tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="6"):
    """The group."""

    group_id: str = wire(STRING, "6")


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    """The group epoch that the target assignment was made for, and when it was made (KIP-1263)."""

    assignment_epoch: int = wire(INT32, "0+")
    assignment_timestamp: int = wire(INT64, "0+", ignorable=True, tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="7"):
    """A member."""

    group_id: str = wire(STRING, "7")
    member_id: str = wire(STRING, "7")


class TopicPartition(Struct):
    """Partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    """The target assignment of a member."""

    topic_partitions: list[TopicPartition] = wire(array(TopicPartition), "0+")


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="8"):
    """A member."""

    group_id: str = wire(STRING, "8")
    member_id: str = wire(STRING, "8")


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    """The partitions that a member has, and those that it must revoke first."""

    member_epoch: int = wire(INT32, "0+")
    previous_member_epoch: int = wire(INT32, "0+")
    state: int = wire(INT8, "0+")
    assigned_partitions: list[TopicPartitions] = wire(array(TopicPartitions), "0+")
    partitions_pending_revocation: list[TopicPartitions] = wire(array(TopicPartitions), "0+")


class ConsumerGroupRegularExpressionKey(Message, versions="16"):
    """A regular expression that members of the group subscribe by."""

    group_id: str = wire(STRING, "16")
    regular_expression: str = wire(STRING, "16")


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    """The topics that it matched, and when: `version` counts changes of the cluster's metadata."""

    topics: list[str] = wire(array(STRING), "0+")
    version: int = wire(INT64, "0+")
    timestamp: int = wire(INT64, "0+")
