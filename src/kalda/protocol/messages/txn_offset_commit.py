"""TxnOffsetCommit (key 28): write a group's positions as part of a transaction (KIP-98).

v1 throttles after the response. v2 adds the leader epoch. v3 is flexible and adds member, instance and
generation, which fence (KIP-447). v4 may answer TRANSACTION_ABORTABLE. v5 adds the group to the transaction
by itself (KIP-890). v6 names topics by id and returns GROUP_ID_NOT_FOUND, STALE_MEMBER_EPOCH and
UNKNOWN_TOPIC_ID (KIP-1319).
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import INT16, INT32, INT64, STRING, UUID_KIND, Message, Struct, array, wire


class TxnOffsetCommitRequestPartition(Struct):
    """One partition and its position."""

    partition_index: int = wire(INT32, "0+")
    committed_offset: int = wire(INT64, "0+")
    committed_leader_epoch: int = wire(INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = wire(STRING, "0+", nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    """The positions in one topic."""

    name: str = wire(STRING, "0-5", ignorable=True)
    topic_id: UUID = wire(UUID_KIND, "6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = wire(array(TxnOffsetCommitRequestPartition), "0+")


class TxnOffsetCommitRequest(Message, api_key=ApiKey.TXN_OFFSET_COMMIT, versions="0-6", flexible="3+"):
    """Positions that count once the transaction is committed."""

    transactional_id: str = wire(STRING, "0+")
    group_id: str = wire(STRING, "0+")
    producer_id: int = wire(INT64, "0+")
    producer_epoch: int = wire(INT16, "0+")
    generation_id: int = wire(INT32, "3+", default=-1)
    member_id: str = wire(STRING, "3+")
    group_instance_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = wire(array(TxnOffsetCommitRequestTopic), "0+")


class TxnOffsetCommitResponsePartition(Struct):
    """The result for one position."""

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")


class TxnOffsetCommitResponseTopic(Struct):
    """The results for the positions in one topic."""

    name: str = wire(STRING, "0-5", ignorable=True)
    topic_id: UUID = wire(UUID_KIND, "6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = wire(array(TxnOffsetCommitResponsePartition), "0+")


class TxnOffsetCommitResponse(Message, api_key=ApiKey.TXN_OFFSET_COMMIT, versions="0-6", flexible="3+"):
    """An error code for every partition of the request."""

    throttle_time_ms: int = wire(INT32, "0+")
    topics: list[TxnOffsetCommitResponseTopic] = wire(array(TxnOffsetCommitResponseTopic), "0+")
