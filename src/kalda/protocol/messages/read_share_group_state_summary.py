"""ReadShareGroupStateSummary (key 87): read start offsets of share partitions (KIP-932).

v1 adds the count of deliveries that are complete (KIP-1226).
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import INT16, INT32, INT64, STRING, UUID_KIND, Message, Struct, array, wire


class PartitionData(Struct):
    """One partition."""

    partition: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+")


class ReadStateSummaryData(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[PartitionData] = wire(array(PartitionData), "0+")


class ReadShareGroupStateSummaryRequest(
    Message, api_key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions="0-1", flexible="0+"
):
    """Names share partitions."""

    group_id: str = wire(STRING, "0+")
    topics: list[ReadStateSummaryData] = wire(array(ReadStateSummaryData), "0+")


class PartitionResult(Struct):
    """The summary of one partition."""

    partition: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    state_epoch: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+")
    start_offset: int = wire(INT64, "0+")
    delivery_complete_count: int = wire(INT32, "1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    """The partitions of one topic."""

    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[PartitionResult] = wire(array(PartitionResult), "0+")


class ReadShareGroupStateSummaryResponse(
    Message, api_key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions="0-1", flexible="0+"
):
    """The start offset of each partition."""

    results: list[ReadStateSummaryResult] = wire(array(ReadStateSummaryResult), "0+")
