"""OffsetDelete (key 47): forget committed positions of a group (KIP-496). It has no flexible version."""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, STRING, Message, Struct, array, wire


class OffsetDeleteRequestPartition(Struct):
    """One partition."""

    partition_index: int = wire(INT32, "0+")


class OffsetDeleteRequestTopic(Struct):
    """Partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: list[OffsetDeleteRequestPartition] = wire(array(OffsetDeleteRequestPartition), "0+")


class OffsetDeleteRequest(Message, api_key=ApiKey.OFFSET_DELETE, versions="0"):
    """Names the partitions whose positions shall go."""

    group_id: str = wire(STRING, "0+")
    topics: list[OffsetDeleteRequestTopic] = wire(array(OffsetDeleteRequestTopic), "0+")


class OffsetDeleteResponsePartition(Struct):
    """The result for one position."""

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")


class OffsetDeleteResponseTopic(Struct):
    """The results for the positions in one topic."""

    name: str = wire(STRING, "0+")
    partitions: list[OffsetDeleteResponsePartition] = wire(array(OffsetDeleteResponsePartition), "0+")


class OffsetDeleteResponse(Message, api_key=ApiKey.OFFSET_DELETE, versions="0"):
    """An error for the group, and one per partition."""

    error_code: int = wire(INT16, "0+")
    throttle_time_ms: int = wire(INT32, "0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = wire(array(OffsetDeleteResponseTopic), "0+")
