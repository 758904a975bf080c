"""DescribeShareGroupOffsets (key 90): start offsets of share groups by partition (KIP-932).

v1 adds the lag (KIP-1226).
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import INT16, INT32, INT64, STRING, UUID_KIND, Message, Struct, array, wire


class RequestTopic(Struct):
    """The partitions of one topic."""

    topic_name: str = wire(STRING, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class RequestGroup(Struct):
    """One group; topics None stands for all."""

    group_id: str = wire(STRING, "0+")
    topics: list[RequestTopic] | None = wire(array(RequestTopic), "0+", nullable="0+")


class DescribeShareGroupOffsetsRequest(
    Message, api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+"
):
    """Names groups; without topics all of a group."""

    groups: list[RequestGroup] = wire(array(RequestGroup), "0+")


class ResponsePartition(Struct):
    """One partition; start offset -1: it has none yet."""

    partition_index: int = wire(INT32, "0+")
    start_offset: int = wire(INT64, "0+")
    leader_epoch: int = wire(INT32, "0+")
    lag: int = wire(INT64, "1+", default=-1, ignorable=True)
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)


class ResponseTopic(Struct):
    """The partitions of one topic."""

    topic_name: str = wire(STRING, "0+")
    topic_id: UUID = wire(UUID_KIND, "0+")
    partitions: list[ResponsePartition] = wire(array(ResponsePartition), "0+")


class ResponseGroup(Struct):
    """One group."""

    group_id: str = wire(STRING, "0+")
    topics: list[ResponseTopic] = wire(array(ResponseTopic), "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)


class DescribeShareGroupOffsetsResponse(
    Message, api_key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+"
):
    """The offsets of each group."""

    throttle_time_ms: int = wire(INT32, "0+")
    groups: list[ResponseGroup] = wire(array(ResponseGroup), "0+")
