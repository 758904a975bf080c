"""ShareGroupHeartbeat (key 76): join, stay in and leave a share group (KIP-932).

v0 was an early access; the client makes its member id.
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import INT16, INT32, STRING, UUID_KIND, Message, Struct, array, wire


class ShareGroupHeartbeatRequest(Message, api_key=ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+"):
    """A member's subscription; None means unchanged since the last heartbeat.

    `member_epoch` 0 joins and -1 leaves.
    """

    group_id: str = wire(STRING, "0+")
    member_id: str = wire(STRING, "0+")
    member_epoch: int = wire(INT32, "0+")
    rack_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = wire(array(STRING), "0+", nullable="0+", default=None)


class TopicPartitions(Struct):
    """Partitions of one topic, by the id of the topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class Assignment(Struct):
    """The partitions that the member may fetch from; other members may fetch from them too."""

    topic_partitions: list[TopicPartitions] = wire(array(TopicPartitions), "0+")


class ShareGroupHeartbeatResponse(Message, api_key=ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+"):
    """The epoch of the member, and its assignment when it changed."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    member_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    member_epoch: int = wire(INT32, "0+")
    heartbeat_interval_ms: int = wire(INT32, "0+")
    assignment: Assignment | None = wire(Assignment, "0+", nullable="0+", default=None)
