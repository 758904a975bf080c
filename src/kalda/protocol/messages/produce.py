"""Produce (key 0): append records to partitions.

v1 adds the throttle time, v2 the log append time to the response. v3 carries record batches of magic 2
and a transactional id (KIP-98); below it the records are message sets of magic 0 or 1. v4 may answer
KAFKA_STORAGE_ERROR. v5 adds the log start offset. v6 throttles after the response. v7 allows zstd
(KIP-110). v8 adds the refused records with the reasons (KIP-467). v9 is flexible. v10 adds the new leader
to NOT_LEADER_OR_FOLLOWER (KIP-951). v11 may answer TRANSACTION_ABORTABLE (KIP-890). v12 adds its partitions
to the transaction by itself, where ``transaction.version`` is 2. v13 names topics by id (KIP-516).
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import (
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


class PartitionProduceData(Struct):
    """The records for one partition: from v3 exactly one record batch of magic 2."""

    index: int = wire(INT32, "0+")
    records: Records | None = wire(RECORDS, "0+", nullable="0+")


class TopicProduceData(Struct):
    """The records for one topic."""

    name: str = wire(STRING, "0-12", ignorable=True)
    topic_id: UUID = wire(UUID_KIND, "13+", ignorable=True)
    partition_data: list[PartitionProduceData] = wire(array(PartitionProduceData), "0+")


class ProduceRequest(Message, api_key=ApiKey.PRODUCE, versions="0-13", flexible="9+"):
    """Records for partitions.

    `acks` is 0 (no response at all), 1 (the leader has written) or -1 (every in-sync replica has);
    `timeout_ms` bounds the wait for -1.
    """

    transactional_id: str | None = wire(STRING, "3+", nullable="3+", default=None)
    acks: int = wire(INT16, "0+")
    timeout_ms: int = wire(INT32, "0+")
    topic_data: list[TopicProduceData] = wire(array(TopicProduceData), "0+")


class BatchIndexAndErrorMessage(Struct):
    """One record that was refused, by its index in the batch."""

    batch_index: int = wire(INT32, "8+")
    batch_index_error_message: str | None = wire(STRING, "8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    """The leader to go to instead; -1 where unknown."""

    leader_id: int = wire(INT32, "10+", default=-1)
    leader_epoch: int = wire(INT32, "10+", default=-1)


class PartitionProduceResponse(Struct):
    """The result for one partition.

    `base_offset` is the offset of the first record; `log_append_time_ms` is -1 unless the topic stamps
    append time.
    """

    index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    base_offset: int = wire(INT64, "0+")
    log_append_time_ms: int = wire(INT64, "2+", default=-1, ignorable=True)
    log_start_offset: int = wire(INT64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = wire(
        array(BatchIndexAndErrorMessage), "8+", ignorable=True
    )
    error_message: str | None = wire(STRING, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    """The results for one topic."""

    name: str = wire(STRING, "0-12", ignorable=True)
    topic_id: UUID = wire(UUID_KIND, "13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = wire(array(PartitionProduceResponse), "0+")


class NodeEndpoint(Struct):
    """Where a leader that `current_leader` names can be reached."""

    node_id: int = wire(INT32, "10+")
    host: str = wire(STRING, "10+")
    port: int = wire(INT32, "10+")
    rack: str | None = wire(STRING, "10+", nullable="10+", default=None)


class ProduceResponse(Message, api_key=ApiKey.PRODUCE, versions="0-13", flexible="9+"):
    """The result for each partition; never sent for `acks` 0."""

    responses: list[TopicProduceResponse] = wire(array(TopicProduceResponse), "0+")
    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = wire(array(NodeEndpoint), "10+", tag=0)
