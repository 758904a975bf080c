"""AlterShareGroupOffsets (key 91): set start offsets of an empty share group (KIP-932)."""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import INT16, INT32, INT64, STRING, UUID_KIND, Message, Struct, array, wire


class RequestPartition(Struct):
    """One partition."""

    partition_index: int = wire(INT32, "0+")
    start_offset: int = wire(INT64, "0+")


class RequestTopic(Struct):
    """The partitions of one topic."""

    topic_name: str = wire(STRING, "0+")
    partitions: list[RequestPartition] = wire(array(RequestPartition), "0+")


class AlterShareGroupOffsetsRequest(
    Message, api_key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"
):
    """The new start offsets."""

    group_id: str = wire(STRING, "0+")
    topics: list[RequestTopic] = wire(array(RequestTopic), "0+")


class ResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)


class ResponseTopic(Struct):
    """The partitions of one topic."""

    topic_name: str = wire(STRING, "0+")
    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[ResponsePartition] = wire(array(ResponsePartition), "0+")


class AlterShareGroupOffsetsResponse(
    Message, api_key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"
):
    """The outcome for each partition."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    responses: list[ResponseTopic] = wire(array(ResponseTopic), "0+")
