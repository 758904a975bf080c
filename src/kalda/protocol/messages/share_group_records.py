"""Records of ``__consumer_offsets`` that share groups write (KIP-932).

The version of a key is the kind of record: 10 is a member, 11 the group, 12 the epoch of the target
assignment, 13 a member's part of it, 14 what a member has now, 15 the partitions with state at share
coordinators.
"""

from kalda.common.types import UUID
from kalda.protocol.schema import INT8, INT32, INT64, STRING, UUID_KIND, Message, Struct, array, wire


class ShareGroupMemberMetadataKey(Message, versions="10"):
    """A member."""

    group_id: str = wire(STRING, "10")
    member_id: str = wire(STRING, "10")


class ShareGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    """The metadata of a member, as the member sent it."""

    rack_id: str | None = wire(STRING, "0+", nullable="0+")
    client_id: str = wire(STRING, "0+")
    client_host: str = wire(STRING, "0+")
    subscribed_topic_names: list[str] = wire(array(STRING), "0+")


class ShareGroupMetadataKey(Message, versions="11"):
    """The group."""

    group_id: str = wire(STRING, "11")


class ShareGroupMetadataValue(Message, versions="0", flexible="0+"):
    """The epoch of the group, and a hash of the topics that it was made with."""

    epoch: int = wire(INT32, "0+")
    metadata_hash: int = wire(INT64, "0+")


class ShareGroupTargetAssignmentMetadataKey(Message, versions="12"):
    """The group."""

    group_id: str = wire(STRING, "12")


class ShareGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    """The epoch of the target assignment."""

    assignment_epoch: int = wire(INT32, "0+")
    assignment_timestamp: int = wire(INT64, "0+", ignorable=True, tag=0)


class ShareGroupTargetAssignmentMemberKey(Message, versions="13"):
    """A member."""

    group_id: str = wire(STRING, "13")
    member_id: str = wire(STRING, "13")


class TopicPartition(Struct):
    """Partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class ShareGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    """The target assignment of a member."""

    topic_partitions: list[TopicPartition] = wire(array(TopicPartition), "0+")


class ShareGroupCurrentMemberAssignmentKey(Message, versions="14"):
    """A member."""

    group_id: str = wire(STRING, "14")
    member_id: str = wire(STRING, "14")


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class ShareGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    """The epoch and the assignment of a member."""

    member_epoch: int = wire(INT32, "0+")
    previous_member_epoch: int = wire(INT32, "0+")
    state: int = wire(INT8, "0+")
    assigned_partitions: list[TopicPartitions] = wire(array(TopicPartitions), "0+")


class ShareGroupStatePartitionMetadataKey(Message, versions="15"):
    """The group."""

    group_id: str = wire(STRING, "15")


class TopicPartitionsInfo(Struct):
    """Partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    topic_name: str = wire(STRING, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class TopicInfo(Struct):
    """A topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    topic_name: str = wire(STRING, "0+")


class ShareGroupStatePartitionMetadataValue(Message, versions="0", flexible="0+"):
    """The partitions whose state a share coordinator has, will have, or is to delete."""

    initializing_topics: list[TopicPartitionsInfo] = wire(array(TopicPartitionsInfo), "0+")
    initialized_topics: list[TopicPartitionsInfo] = wire(array(TopicPartitionsInfo), "0+")
    deleting_topics: list[TopicInfo] = wire(array(TopicInfo), "0+")
