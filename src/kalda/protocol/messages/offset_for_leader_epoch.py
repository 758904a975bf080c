"""OffsetForLeaderEpoch (key 23): where a leader epoch ended, so that a reader can find divergence (KIP-101).

v1 returns the epoch found. v2 fences by the current leader epoch and adds the throttle time (KIP-320). v3
adds the replica id. v4 is flexible. librdkafka uses exactly v2.
"""

from typing import Final

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, wire

DEBUGGING_REPLICA_ID: Final = -2
"""The replica id of a reader that may see offsets above the high watermark; the default of the request."""


class OffsetForLeaderPartition(Struct):
    """One partition and the epoch to look up."""

    partition: int = wire(INT32, "0+")
    current_leader_epoch: int = wire(INT32, "2+", default=-1, ignorable=True)
    leader_epoch: int = wire(INT32, "0+")


class OffsetForLeaderTopic(Struct):
    """The partitions of one topic."""

    topic: str = wire(STRING, "0+")
    partitions: list[OffsetForLeaderPartition] = wire(array(OffsetForLeaderPartition), "0+")


class OffsetForLeaderEpochRequest(
    Message, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+"
):
    """Epochs to look up; `replica_id` is -1 for consumers."""

    replica_id: int = wire(INT32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = wire(array(OffsetForLeaderTopic), "0+")


class EpochEndOffset(Struct):
    """The largest epoch that is not above the one asked for, and its end offset (exclusive).

    Both are -1 when the leader has no such epoch.
    """

    error_code: int = wire(INT16, "0+")
    partition: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "1+", default=-1, ignorable=True)
    end_offset: int = wire(INT64, "0+", default=-1)


class OffsetForLeaderTopicResult(Struct):
    """The partitions of one topic."""

    topic: str = wire(STRING, "0+")
    partitions: list[EpochEndOffset] = wire(array(EpochEndOffset), "0+")


class OffsetForLeaderEpochResponse(
    Message, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+"
):
    """The end of each epoch."""

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = wire(array(OffsetForLeaderTopicResult), "0+")
