"""ShareAcknowledge (key 79): acknowledge records of a share group without a fetch (KIP-932).

v0 was an early access. v2 adds renewals (KIP-1222).
"""

from typing import Final

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import (
    BOOL,
    INT8,
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

RELEASE_DELAY_TAG: Final = 10_000
REJECT_REASON_TAG: Final = 10_001
"""Kalda's own, both. Apache Kafka numbers tags from 0 on, and passes over those that it does not know."""

GROUPS_DELAY: Final = -1
"""The `release_delay_ms` of an acknowledgement that leaves the delay to the settings of the group."""

RELEASE_DELAY_MAX_MS: Final = 7 * 86_400_000
"""The longest `release_delay_ms`: a record that waits is in flight, and holds up the start offset."""

REJECT_REASON_MAX: Final = 1000
"""How many bytes of UTF-8 a `reject_reason` has at most: the leader keeps it until the dead letter is
written."""


class AcknowledgementBatch(Struct):
    """One acknowledged range of offsets; one type for all of them, or one for each.

    0 is a gap, 1 accept, 2 release, 3 reject and 4 renew (KIP-1222). `release_delay_ms` is how long those
    that are released are not delivered, `reject_reason` why the others are rejected, for their dead letters.
    """

    first_offset: int = wire(INT64, "0+")
    last_offset: int = wire(INT64, "0+")
    acknowledge_types: list[int] = wire(array(INT8), "0+")
    release_delay_ms: int = wire(INT32, "0+", default=GROUPS_DELAY, tag=RELEASE_DELAY_TAG)
    reject_reason: str | None = wire(STRING, "0+", nullable="0+", default=None, tag=REJECT_REASON_TAG)


class AcknowledgePartition(Struct):
    """The acknowledgements of one partition."""

    partition_index: int = wire(INT32, "0+")
    acknowledgement_batches: list[AcknowledgementBatch] = wire(array(AcknowledgementBatch), "0+")


class AcknowledgeTopic(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[AcknowledgePartition] = wire(array(AcknowledgePartition), "0+")


class ShareAcknowledgeRequest(Message, api_key=ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+"):
    """Acknowledges records that the member has acquired."""

    group_id: str | None = wire(STRING, "0+", nullable="0+", default=None)
    member_id: str | None = wire(STRING, "0+", nullable="0+")
    share_session_epoch: int = wire(INT32, "0+")
    is_renew_ack: bool = wire(BOOL, "2+")
    topics: list[AcknowledgeTopic] = wire(array(AcknowledgeTopic), "0+")


class LeaderIdAndEpoch(Struct):
    """The leader of a partition; -1 if it is unknown."""

    leader_id: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+")


class PartitionData(Struct):
    """The outcome for one partition."""

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "0+")


class ShareAcknowledgeTopicResponse(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+", ignorable=True)
    partitions: list[PartitionData] = wire(array(PartitionData), "0+")


class NodeEndpoint(Struct):
    """Where a leader is reached."""

    node_id: int = wire(INT32, "0+")
    host: str = wire(STRING, "0+")
    port: int = wire(INT32, "0+")
    rack: str | None = wire(STRING, "0+", nullable="0+", default=None)


class ShareAcknowledgeResponse(Message, api_key=ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+"):
    """The outcome for each partition."""

    throttle_time_ms: int = wire(INT32, "0+", ignorable=True)
    error_code: int = wire(INT16, "0+", ignorable=True)
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = wire(INT32, "2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = wire(array(ShareAcknowledgeTopicResponse), "0+")
    node_endpoints: list[NodeEndpoint] = wire(array(NodeEndpoint), "0+")
