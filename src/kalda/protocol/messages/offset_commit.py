"""OffsetCommit (key 8): write a group's positions.

v0 wrote to ZooKeeper. v1 writes to the internal topic and adds generation, member and a time stamp per
partition, which v2 replaces by a retention time. v3 adds the throttle time; v4 throttles after the response.
v5 drops the retention time. v6 adds the leader epoch (KIP-320). v7 adds static members (KIP-345). v8 is
flexible. v9 serves the consumer protocol and answers STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND (KIP-848).
v10 names topics by id, not by name, and answers UNKNOWN_TOPIC_ID (KIP-848, stable in Kafka 4.2).
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import INT16, INT32, INT64, STRING, UUID_KIND, Message, Struct, array, wire


class OffsetCommitRequestPartition(Struct):
    """A position; `committed_leader_epoch` is the epoch of the last record read, or -1."""

    partition_index: int = wire(INT32, "0+")
    committed_offset: int = wire(INT64, "0+")
    committed_leader_epoch: int = wire(INT32, "6+", default=-1, ignorable=True)
    commit_timestamp: int = wire(INT64, "1", default=-1)
    committed_metadata: str | None = wire(STRING, "0+", nullable="0+")


class OffsetCommitRequestTopic(Struct):
    """The positions in one topic."""

    name: str = wire(STRING, "0-9", ignorable=True)
    topic_id: UUID = wire(UUID_KIND, "10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = wire(array(OffsetCommitRequestPartition), "0+")


class OffsetCommitRequest(Message, api_key=ApiKey.OFFSET_COMMIT, versions="0-10", flexible="8+"):
    """Commits positions of a group, or of a simple consumer with generation -1 and no member id.

    `retention_time_ms` -1 leaves the retention to the broker.
    """

    group_id: str = wire(STRING, "0+")
    generation_id_or_member_epoch: int = wire(INT32, "1+", default=-1, ignorable=True)
    member_id: str = wire(STRING, "1+", ignorable=True)
    group_instance_id: str | None = wire(STRING, "7+", nullable="7+", default=None)
    retention_time_ms: int = wire(INT64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = wire(array(OffsetCommitRequestTopic), "0+")


class OffsetCommitResponsePartition(Struct):
    """The result for one position."""

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")


class OffsetCommitResponseTopic(Struct):
    """The results for the positions in one topic."""

    name: str = wire(STRING, "0-9", ignorable=True)
    topic_id: UUID = wire(UUID_KIND, "10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = wire(array(OffsetCommitResponsePartition), "0+")


class OffsetCommitResponse(Message, api_key=ApiKey.OFFSET_COMMIT, versions="0-10", flexible="8+"):
    """An error code for every partition of the request."""

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = wire(array(OffsetCommitResponseTopic), "0+")
