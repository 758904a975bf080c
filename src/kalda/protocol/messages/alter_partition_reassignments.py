"""AlterPartitionReassignments (key 45): move partitions to other brokers, or call a move off (KIP-455).

v1 adds `allow_replication_factor_change` (KIP-860).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT16, INT32, STRING, Message, Struct, array, wire


class ReassignablePartition(Struct):
    """One partition and the brokers it is to have, the preferred leader first; None calls the move off."""

    partition_index: int = wire(INT32, "0+")
    replicas: list[int] | None = wire(array(INT32), "0+", nullable="0+", default=None)


class ReassignableTopic(Struct):
    """Partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: list[ReassignablePartition] = wire(array(ReassignablePartition), "0+")


class AlterPartitionReassignmentsRequest(
    Message, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+"
):
    """Partitions to move."""

    timeout_ms: int = wire(INT32, "0+", default=60000)
    allow_replication_factor_change: bool = wire(BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = wire(array(ReassignableTopic), "0+")


class ReassignablePartitionResponse(Struct):
    """Whether one partition's move was taken on, or called off."""

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default="")


class ReassignableTopicResponse(Struct):
    """The partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: list[ReassignablePartitionResponse] = wire(array(ReassignablePartitionResponse), "0+")


class AlterPartitionReassignmentsResponse(
    Message, api_key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0-1", flexible="0+"
):
    """The result for each partition, and whether the replication factor was allowed to change."""

    throttle_time_ms: int = wire(INT32, "0+")
    allow_replication_factor_change: bool = wire(BOOL, "1+", default=True, ignorable=True)
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default="")
    responses: list[ReassignableTopicResponse] = wire(array(ReassignableTopicResponse), "0+")
