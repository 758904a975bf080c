"""Fetch (key 1): read records from partitions, as a consumer or as a follower.

v1 adds the throttle time. v2 and v3 deliver magic 1; v3 bounds the whole response and serves partitions
in the order asked. v4 adds magic 2, isolation levels and aborted transactions (KIP-98). v5 adds log
start offsets (KIP-107). v6 may answer KAFKA_STORAGE_ERROR. v7 adds incremental sessions (KIP-227). v8
throttles after the response. v9 fences by leader epoch (KIP-320). v10 allows zstd (KIP-110). v11 adds the
rack and the preferred read replica (KIP-392). v12 is flexible and detects divergence by epoch (KIP-595).
v13 names topics by id (KIP-516). v14 may answer OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405). v15 moves the
replica id into a tagged struct with its epoch (KIP-903). v16 adds the endpoints of new leaders
(KIP-951). v17 adds the replica's directory id (KIP-853), v18 the high watermark that a replica of KRaft knows
(KIP-1166).
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UUID_KIND,
    Message,
    Records,
    Struct,
    array,
    wire,
)


class ReplicaState(Struct):
    """The follower that sends the request; the broker epoch fences a restarted one."""

    replica_id: int = wire(INT32, "15+", default=-1)
    replica_epoch: int = wire(INT64, "15+", default=-1)


class FetchPartition(Struct):
    """One partition and where to read from.

    `log_start_offset` is a follower's own; `last_fetched_epoch` is the epoch of the last record it holds,
    or -1.
    """

    partition: int = wire(INT32, "0+")
    current_leader_epoch: int = wire(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = wire(INT64, "0+")
    last_fetched_epoch: int = wire(INT32, "12+", default=-1)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = wire(INT32, "0+")
    replica_directory_id: UUID = wire(UUID_KIND, "17+", ignorable=True, tag=0)
    high_watermark: int = wire(INT64, "18+", default=2**63 - 1, ignorable=True, tag=1)


class FetchTopic(Struct):
    """The partitions asked for of one topic: by name up to v12, by id from v13."""

    topic: str = wire(STRING, "0-12", ignorable=True)
    topic_id: UUID = wire(UUID_KIND, "13+", ignorable=True)
    partitions: list[FetchPartition] = wire(array(FetchPartition), "0+")


class ForgottenTopic(Struct):
    """Partitions to take out of the session."""

    topic: str = wire(STRING, "7-12", ignorable=True)
    topic_id: UUID = wire(UUID_KIND, "13+", ignorable=True)
    partitions: list[int] = wire(array(INT32), "7+")


class FetchRequest(Message, api_key=ApiKey.FETCH, versions="0-18", flexible="12+"):
    """Asks for records from many partitions at once.

    The broker answers when it has `min_bytes` or after `max_wait_ms`. `session_id` 0 with `session_epoch` 0
    opens a session, epoch -1 means a full fetch without one; in a session, `topics` holds only what changed
    and `forgotten_topics_data` what to drop. `replica_id` (from v15 `replica_state`) is -1 for consumers.
    """

    cluster_id: str | None = wire(STRING, "12+", nullable="12+", default=None, ignorable=True, tag=0)
    replica_id: int = wire(INT32, "0-14", default=-1)
    replica_state: ReplicaState = wire(ReplicaState, "15+", tag=1)
    max_wait_ms: int = wire(INT32, "0+")
    min_bytes: int = wire(INT32, "0+")
    max_bytes: int = wire(INT32, "3+", default=0x7FFFFFFF, ignorable=True)
    isolation_level: int = wire(INT8, "4+", ignorable=True)
    session_id: int = wire(INT32, "7+", ignorable=True)
    session_epoch: int = wire(INT32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = wire(array(FetchTopic), "0+")
    forgotten_topics_data: list[ForgottenTopic] = wire(array(ForgottenTopic), "7+")
    rack_id: str = wire(STRING, "11+", ignorable=True)


class EpochEndOffset(Struct):
    """Where a diverging follower should truncate: the largest epoch in common and its end."""

    epoch: int = wire(INT32, "12+", default=-1)
    end_offset: int = wire(INT64, "12+", default=-1)


class LeaderIdAndEpoch(Struct):
    """The leader to go to instead; -1 where unknown."""

    leader_id: int = wire(INT32, "12+", default=-1)
    leader_epoch: int = wire(INT32, "12+", default=-1)


class SnapshotId(Struct):
    """The snapshot to fetch instead of log records (KRaft only)."""

    end_offset: int = wire(INT64, "0+", default=-1)
    epoch: int = wire(INT32, "0+", default=-1)


class AbortedTransaction(Struct):
    """A producer whose records from `first_offset` on, up to its abort marker, must be skipped."""

    producer_id: int = wire(INT64, "4+")
    first_offset: int = wire(INT64, "4+")


class PartitionData(Struct):
    """One partition's records and positions.

    `records` may end in the middle of a batch. `aborted_transactions` is None under read_uncommitted. At
    most one of the tagged structs is set.
    """

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    high_watermark: int = wire(INT64, "0+")
    last_stable_offset: int = wire(INT64, "4+", default=-1, ignorable=True)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = wire(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = wire(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = wire(
        array(AbortedTransaction), "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = wire(INT32, "11+", default=-1)
    records: Records | None = wire(RECORDS, "0+", nullable="0+")


class FetchableTopicResponse(Struct):
    """The partitions of one topic."""

    topic: str = wire(STRING, "0-12", ignorable=True)
    topic_id: UUID = wire(UUID_KIND, "13+", ignorable=True)
    partitions: list[PartitionData] = wire(array(PartitionData), "0+")


class NodeEndpoint(Struct):
    """Where a leader that `current_leader` names can be reached."""

    node_id: int = wire(INT32, "16+")
    host: str = wire(STRING, "16+")
    port: int = wire(INT32, "16+")
    rack: str | None = wire(STRING, "16+", nullable="16+", default=None)


class FetchResponse(Message, api_key=ApiKey.FETCH, versions="0-18", flexible="12+"):
    """Records, or errors, by partition.

    In a session only partitions with something new appear. `error_code` is for the session as a whole.
    """

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "7+", ignorable=True)
    session_id: int = wire(INT32, "7+")
    responses: list[FetchableTopicResponse] = wire(array(FetchableTopicResponse), "0+")
    node_endpoints: list[NodeEndpoint] = wire(array(NodeEndpoint), "16+", tag=0)
