"""ShareGroupDescribe (key 77): state and members of share groups (KIP-932).

v0 was an early access.
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import BOOL, INT16, INT32, STRING, UUID_KIND, Message, Struct, array, wire


class ShareGroupDescribeRequest(Message, api_key=ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="0+"):
    """Asks for groups by id."""

    group_ids: list[str] = wire(array(STRING), "0+")
    include_authorized_operations: bool = wire(BOOL, "0+")


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    topic_name: str = wire(STRING, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class Assignment(Struct):
    """Partitions of one member."""

    topic_partitions: list[TopicPartitions] = wire(array(TopicPartitions), "0+")


class Member(Struct):
    """One member."""

    member_id: str = wire(STRING, "0+")
    rack_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    member_epoch: int = wire(INT32, "0+")
    client_id: str = wire(STRING, "0+")
    client_host: str = wire(STRING, "0+")
    subscribed_topic_names: list[str] = wire(array(STRING), "0+")
    assignment: Assignment = wire(Assignment, "0+")


class DescribedGroup(Struct):
    """One group."""

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    group_id: str = wire(STRING, "0+")
    group_state: str = wire(STRING, "0+")
    group_epoch: int = wire(INT32, "0+")
    assignment_epoch: int = wire(INT32, "0+")
    assignor_name: str = wire(STRING, "0+")
    members: list[Member] = wire(array(Member), "0+")
    authorized_operations: int = wire(INT32, "0+", default=-2147483648)


class ShareGroupDescribeResponse(Message, api_key=ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="0+"):
    """One entry per group asked for."""

    throttle_time_ms: int = wire(INT32, "0+")
    groups: list[DescribedGroup] = wire(array(DescribedGroup), "0+")
