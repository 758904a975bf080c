"""DescribeTopicPartitions (key 75): topics and partitions page by page.

It also returns the eligible leader replicas (KIP-966). Flexible from the start; there is only v0. Admin
clients try it first and fall back to Metadata.
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.messages import AUTHORIZED_OPERATIONS_UNKNOWN
from kalda.protocol.schema import BOOL, INT16, INT32, STRING, UUID_KIND, Message, Struct, array, wire


class TopicRequest(Struct):
    """One topic asked for."""

    name: str = wire(STRING, "0+")


class Cursor(Struct):
    """Where a page begins: this partition of this topic, topics in order of name."""

    topic_name: str = wire(STRING, "0+")
    partition_index: int = wire(INT32, "0+")


class DescribeTopicPartitionsRequest(
    Message, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0-0", flexible="0+"
):
    """Asks for topics, at most `response_partition_limit` partitions per answer, from `cursor` on."""

    topics: list[TopicRequest] = wire(array(TopicRequest), "0+")
    response_partition_limit: int = wire(INT32, "0+", default=2000)
    cursor: Cursor | None = wire(Cursor, "0+", nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    """One partition.

    `eligible_leader_replicas` and `last_known_elr` are None in a cluster that keeps no such lists.
    """

    error_code: int = wire(INT16, "0+")
    partition_index: int = wire(INT32, "0+")
    leader_id: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+", default=-1, ignorable=True)
    replica_nodes: list[int] = wire(array(INT32), "0+")
    isr_nodes: list[int] = wire(array(INT32), "0+")
    eligible_leader_replicas: list[int] | None = wire(array(INT32), "0+", nullable="0+", default=None)
    last_known_elr: list[int] | None = wire(array(INT32), "0+", nullable="0+", default=None)
    offline_replicas: list[int] = wire(array(INT32), "0+", ignorable=True)


class DescribeTopicPartitionsResponseTopic(Struct):
    """One topic, or the error that stands in its place."""

    error_code: int = wire(INT16, "0+")
    name: str | None = wire(STRING, "0+", nullable="0+")
    topic_id: UUID = wire(UUID_KIND, "0+", ignorable=True)
    is_internal: bool = wire(BOOL, "0+", ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = wire(
        array(DescribeTopicPartitionsResponsePartition), "0+"
    )
    topic_authorized_operations: int = wire(INT32, "0+", default=AUTHORIZED_OPERATIONS_UNKNOWN)


class DescribeTopicPartitionsResponse(
    Message, api_key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0-0", flexible="0+"
):
    """One page; `next_cursor` is None on the last."""

    throttle_time_ms: int = wire(INT32, "0+", ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = wire(
        array(DescribeTopicPartitionsResponseTopic), "0+"
    )
    next_cursor: Cursor | None = wire(Cursor, "0+", nullable="0+", default=None)
