"""DescribeLogDirs (key 35): where a broker keeps its logs, and how large they are (KIP-113).

v1 throttles after the response. v2 is flexible. v3 adds an error for the whole request. v4 adds the size of
the volume and what is left of it (KIP-827). v5 names cordoned directories (KIP-1066).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, Struct, array, wire


class DescribableLogDirTopic(Struct):
    """Partitions of one topic."""

    topic: str = wire(STRING, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class DescribeLogDirsRequest(Message, api_key=ApiKey.DESCRIBE_LOG_DIRS, versions="0-5", flexible="2+"):
    """Partitions to look for in every directory; None means all."""

    topics: list[DescribableLogDirTopic] | None = wire(array(DescribableLogDirTopic), "0+", nullable="0+")


class DescribeLogDirsPartition(Struct):
    """One log; `offset_lag` is how far its end is behind the high watermark, or a future log behind it."""

    partition_index: int = wire(INT32, "0+")
    partition_size: int = wire(INT64, "0+")
    offset_lag: int = wire(INT64, "0+")
    is_future_key: bool = wire(BOOL, "0+")


class DescribeLogDirsTopic(Struct):
    """The partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: list[DescribeLogDirsPartition] = wire(array(DescribeLogDirsPartition), "0+")


class DescribeLogDirsResult(Struct):
    """One directory; -1 stands for a size that is not known."""

    error_code: int = wire(INT16, "0+")
    log_dir: str = wire(STRING, "0+")
    topics: list[DescribeLogDirsTopic] = wire(array(DescribeLogDirsTopic), "0+")
    total_bytes: int = wire(INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = wire(INT64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = wire(BOOL, "5+", ignorable=True)


class DescribeLogDirsResponse(Message, api_key=ApiKey.DESCRIBE_LOG_DIRS, versions="0-5", flexible="2+"):
    """Every directory."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "3+", ignorable=True)
    results: list[DescribeLogDirsResult] = wire(array(DescribeLogDirsResult), "0+")
