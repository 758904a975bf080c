"""ShareFetch (key 78): acquire records of partitions for a share group, and acknowledge records (KIP-932).

v0 was an early access. v1 adds the limits of records and the lock duration. v2 adds the strict limit of
records (KIP-1206) and renewals (KIP-1222).
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.messages.share_acknowledge import GROUPS_DELAY, REJECT_REASON_TAG, RELEASE_DELAY_TAG
from kalda.protocol.schema import (
    BOOL,
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


class AcknowledgementBatch(Struct):
    """One acknowledged range of offsets; one type for all of them, or one for each.

    0 is a gap, 1 accept, 2 release, 3 reject and 4 renew (KIP-1222). `release_delay_ms` and
    `reject_reason` are as in ShareAcknowledge.
    """

    first_offset: int = wire(INT64, "0+")
    last_offset: int = wire(INT64, "0+")
    acknowledge_types: list[int] = wire(array(INT8), "0+")
    release_delay_ms: int = wire(INT32, "0+", default=GROUPS_DELAY, tag=RELEASE_DELAY_TAG)
    reject_reason: str | None = wire(STRING, "0+", nullable="0+", default=None, tag=REJECT_REASON_TAG)


class FetchPartition(Struct):
    """One partition of the session, with acknowledgements of its records."""

    partition_index: int = wire(INT32, "0+")
    acknowledgement_batches: list[AcknowledgementBatch] = wire(array(AcknowledgementBatch), "0+")


class FetchTopic(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[FetchPartition] = wire(array(FetchPartition), "0+")


class ForgottenTopic(Struct):
    """Partitions that leave the session."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class ShareFetchRequest(Message, api_key=ApiKey.SHARE_FETCH, versions="1-2", flexible="0+"):
    """Asks for records of the partitions of a share session.

    `share_session_epoch` 0 opens a session, -1 closes it. `share_acquire_mode` 0 acquires whole batches, 1 at
    most `max_records`.
    """

    group_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    member_id: str | None = wire(STRING, "0+", nullable="0+")
    share_session_epoch: int = wire(INT32, "0+")
    max_wait_ms: int = wire(INT32, "0+")
    min_bytes: int = wire(INT32, "0+")
    max_bytes: int = wire(INT32, "0+", default=0x7FFFFFFF)
    max_records: int = wire(INT32, "1+")
    batch_size: int = wire(INT32, "1+")
    share_acquire_mode: int = wire(INT8, "2+", ignorable=True)
    is_renew_ack: bool = wire(BOOL, "2+")
    topics: list[FetchTopic] = wire(array(FetchTopic), "0+")
    forgotten_topics_data: list[ForgottenTopic] = wire(array(ForgottenTopic), "0+")


class LeaderIdAndEpoch(Struct):
    """The leader of a partition; -1 if it is unknown."""

    leader_id: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+")


class AcquiredRecords(Struct):
    """A range of acquired offsets, and how often they were delivered, this time included."""

    first_offset: int = wire(INT64, "0+")
    last_offset: int = wire(INT64, "0+")
    delivery_count: int = wire(INT16, "0+")


class PartitionData(Struct):
    """The outcome for one partition: of the fetch, and of the acknowledgements."""

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    acknowledge_error_code: int = wire(INT16, "0+")
    acknowledge_error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "0+")
    records: Records = wire(RECORDS, "0+")
    acquired_records: list[AcquiredRecords] = wire(array(AcquiredRecords), "0+")


class ShareFetchableTopicResponse(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[PartitionData] = wire(array(PartitionData), "0+")


class NodeEndpoint(Struct):
    """Where a leader is reached."""

    node_id: int = wire(INT32, "0+")
    host: str = wire(STRING, "0+")
    port: int = wire(INT32, "0+")
    rack: str | None = wire(STRING, "0+", nullable="0+", default=None)


class ShareFetchResponse(Message, api_key=ApiKey.SHARE_FETCH, versions="1-2", flexible="0+"):
    """The records, and which of them are acquired for the member."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = wire(INT32, "1+")
    responses: list[ShareFetchableTopicResponse] = wire(array(ShareFetchableTopicResponse), "0+")
    node_endpoints: list[NodeEndpoint] = wire(array(NodeEndpoint), "0+")
