"""OffsetFetch (key 9): read a group's committed positions.

v0 read from ZooKeeper. v1 reads from the internal topic. v2 may ask for all partitions with a null list and
adds a top-level error. v3 adds the throttle time; v4 throttles after the response. v5 adds the leader epoch
(KIP-320). v6 is flexible. v7 can ask for stable offsets only (KIP-447). v8 asks for many groups (KIP-709).
v9 adds member and epoch for the consumer protocol (KIP-848). v10 names topics by id, not by name (KIP-848,
stable in Kafka 4.2).
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID_KIND,
    Message,
    Struct,
    array,
    wire,
)


class OffsetFetchRequestTopic(Struct):
    """Partitions of one topic, up to v7."""

    name: str = wire(STRING, "0-7")
    partition_indexes: list[int] = wire(array(INT32), "0-7")


class OffsetFetchRequestTopics(Struct):
    """Partitions of one topic, from v8."""

    name: str = wire(STRING, "8-9", ignorable=True)
    topic_id: UUID = wire(UUID_KIND, "10+", ignorable=True)
    partition_indexes: list[int] = wire(array(INT32), "8+")


class OffsetFetchRequestGroup(Struct):
    """One group, from v8; `topics` None asks for all that it has committed."""

    group_id: str = wire(STRING, "8+")
    member_id: str | None = wire(STRING, "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = wire(INT32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = wire(array(OffsetFetchRequestTopics), "8+", nullable="8+")


class OffsetFetchRequest(Message, api_key=ApiKey.OFFSET_FETCH, versions="0-10", flexible="6+"):
    """Asks for positions: of one group up to v7, of each of `groups` from v8.

    With `require_stable`, partitions with offsets in a transaction under way get UNSTABLE_OFFSET_COMMIT.
    """

    group_id: str = wire(STRING, "0-7")
    topics: list[OffsetFetchRequestTopic] | None = wire(array(OffsetFetchRequestTopic), "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = wire(array(OffsetFetchRequestGroup), "8+")
    require_stable: bool = wire(BOOL, "7+")


class OffsetFetchResponsePartition(Struct):
    """A position, -1 where nothing is committed, up to v7."""

    partition_index: int = wire(INT32, "0-7")
    committed_offset: int = wire(INT64, "0-7")
    committed_leader_epoch: int = wire(INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = wire(STRING, "0-7", nullable="0-7")
    error_code: int = wire(INT16, "0-7")


class OffsetFetchResponseTopic(Struct):
    """The positions in one topic, up to v7."""

    name: str = wire(STRING, "0-7")
    partitions: list[OffsetFetchResponsePartition] = wire(array(OffsetFetchResponsePartition), "0-7")


class OffsetFetchResponsePartitions(Struct):
    """A position, -1 where nothing is committed, from v8."""

    partition_index: int = wire(INT32, "8+")
    committed_offset: int = wire(INT64, "8+")
    committed_leader_epoch: int = wire(INT32, "8+", default=-1, ignorable=True)
    metadata: str | None = wire(STRING, "8+", nullable="8+")
    error_code: int = wire(INT16, "8+")


class OffsetFetchResponseTopics(Struct):
    """The positions in one topic, from v8."""

    name: str = wire(STRING, "8-9", ignorable=True)
    topic_id: UUID = wire(UUID_KIND, "10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = wire(array(OffsetFetchResponsePartitions), "8+")


class OffsetFetchResponseGroup(Struct):
    """The positions of one group, from v8."""

    group_id: str = wire(STRING, "8+")
    topics: list[OffsetFetchResponseTopics] = wire(array(OffsetFetchResponseTopics), "8+")
    error_code: int = wire(INT16, "8+")


class OffsetFetchResponse(Message, api_key=ApiKey.OFFSET_FETCH, versions="0-10", flexible="6+"):
    """The positions: at the top up to v7, per group from v8."""

    throttle_time_ms: int = wire(INT32, "3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = wire(array(OffsetFetchResponseTopic), "0-7")
    error_code: int = wire(INT16, "2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = wire(array(OffsetFetchResponseGroup), "8+")
