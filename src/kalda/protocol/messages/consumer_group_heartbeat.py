"""ConsumerGroupHeartbeat (key 68): join, stay in and leave a group of the consumer protocol (KIP-848).

v1 adds subscription by regular expression, and the client makes its member id (KIP-1082).
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import INT16, INT32, STRING, UUID_KIND, Message, Struct, array, wire


class TopicPartitions(Struct):
    """Partitions of one topic, by the id of the topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class ConsumerGroupHeartbeatRequest(
    Message, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+"
):
    """A member's subscription and assignment; None means unchanged since the last heartbeat.

    `member_epoch` 0 joins, -1 leaves, -2 leaves for now (static members).
    """

    group_id: str = wire(STRING, "0+")
    member_id: str = wire(STRING, "0+")
    member_epoch: int = wire(INT32, "0+")
    instance_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    rack_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = wire(INT32, "0+", default=-1)
    subscribed_topic_names: list[str] | None = wire(array(STRING), "0+", nullable="0+", default=None)
    subscribed_topic_regex: str | None = wire(STRING, "1+", nullable="1+", default=None)
    server_assignor: str | None = wire(STRING, "0+", nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = wire(
        array(TopicPartitions), "0+", nullable="0+", default=None
    )


class Assignment(Struct):
    """The partitions that the member may use now."""

    topic_partitions: list[TopicPartitions] = wire(array(TopicPartitions), "0+")


class ConsumerGroupHeartbeatResponse(
    Message, api_key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+"
):
    """The epoch of the member, and its assignment when it changed."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    member_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    member_epoch: int = wire(INT32, "0+")
    heartbeat_interval_ms: int = wire(INT32, "0+")
    assignment: Assignment | None = wire(Assignment, "0+", nullable="0+", default=None)
