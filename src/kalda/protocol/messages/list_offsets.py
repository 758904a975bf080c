"""ListOffsets (key 2): find offsets by time, or the ends of the log.

v0 returns up to `max_num_offsets` segment starts. From v1 one offset with its timestamp. v2 adds the
isolation level and the throttle time. v3 throttles after the response. v4 fences by leader epoch
(KIP-320). v5 may answer OFFSET_NOT_AVAILABLE. v6 is flexible. v7 adds `MAX_TIMESTAMP` (KIP-734), v8
`EARLIEST_LOCAL_TIMESTAMP` (KIP-405), v9 `LATEST_TIERED_TIMESTAMP` (KIP-1005). v10 adds a time-out for
look-ups in tiered storage (KIP-1075), v11 `EARLIEST_PENDING_UPLOAD_TIMESTAMP` (KIP-1023).
"""

from typing import Final

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT8, INT16, INT32, INT64, STRING, Message, Struct, array, wire

LATEST_TIMESTAMP: Final = -1
"""Ask for the end: the high watermark, or the last stable offset under read_committed."""

EARLIEST_TIMESTAMP: Final = -2
"""Ask for the log start offset."""

MAX_TIMESTAMP: Final = -3
"""Ask for the record with the largest timestamp (v7)."""

EARLIEST_LOCAL_TIMESTAMP: Final = -4
"""Ask for the first offset on local disk (v8)."""

LATEST_TIERED_TIMESTAMP: Final = -5
"""Ask for the last offset in tiered storage (v9)."""

EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6
"""Ask for the first offset that is not in tiered storage yet (v11)."""


class ListOffsetsPartition(Struct):
    """One partition and a time in ms since the epoch, or one of the special timestamps."""

    partition_index: int = wire(INT32, "0+")
    current_leader_epoch: int = wire(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = wire(INT64, "0+")
    max_num_offsets: int = wire(INT32, "0", default=1)


class ListOffsetsTopic(Struct):
    """The partitions asked for of one topic."""

    name: str = wire(STRING, "0+")
    partitions: list[ListOffsetsPartition] = wire(array(ListOffsetsPartition), "0+")


class ListOffsetsRequest(Message, api_key=ApiKey.LIST_OFFSETS, versions="0-11", flexible="6+"):
    """Asks for one offset per partition; `replica_id` is -1 for clients, `timeout_ms` bounds remote reads."""

    replica_id: int = wire(INT32, "0+")
    isolation_level: int = wire(INT8, "2+")
    topics: list[ListOffsetsTopic] = wire(array(ListOffsetsTopic), "0+")
    timeout_ms: int = wire(INT32, "10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    """One partition's answer.

    Below v1 the answer is the list `old_style_offsets`; from v1 a timestamp and an offset, both -1 when
    nothing fits.
    """

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    old_style_offsets: list[int] = wire(array(INT64), "0")
    timestamp: int = wire(INT64, "1+", default=-1)
    offset: int = wire(INT64, "1+", default=-1)
    leader_epoch: int = wire(INT32, "4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    """The partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: list[ListOffsetsPartitionResponse] = wire(array(ListOffsetsPartitionResponse), "0+")


class ListOffsetsResponse(Message, api_key=ApiKey.LIST_OFFSETS, versions="0-11", flexible="6+"):
    """The offsets found."""

    throttle_time_ms: int = wire(INT32, "2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = wire(array(ListOffsetsTopicResponse), "0+")
