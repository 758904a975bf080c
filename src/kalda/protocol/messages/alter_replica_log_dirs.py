"""AlterReplicaLogDirs (key 34): move replicas of a broker to others of its directories (KIP-113).

v1 throttles after the response. v2 is flexible.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, STRING, Message, Struct, array, wire


class AlterReplicaLogDirTopic(Struct):
    """Partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class AlterReplicaLogDir(Struct):
    """A directory, as an absolute path, and the partitions that it is to hold."""

    path: str = wire(STRING, "0+")
    topics: list[AlterReplicaLogDirTopic] = wire(array(AlterReplicaLogDirTopic), "0+")


class AlterReplicaLogDirsRequest(
    Message, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="0-2", flexible="2+"
):
    """Directories and what moves to them."""

    dirs: list[AlterReplicaLogDir] = wire(array(AlterReplicaLogDir), "0+")


class AlterReplicaLogDirPartitionResult(Struct):
    """Whether one partition's move was taken on."""

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")


class AlterReplicaLogDirTopicResult(Struct):
    """The partitions of one topic."""

    topic_name: str = wire(STRING, "0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = wire(array(AlterReplicaLogDirPartitionResult), "0+")


class AlterReplicaLogDirsResponse(
    Message, api_key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="0-2", flexible="2+"
):
    """The result for each partition."""

    throttle_time_ms: int = wire(INT32, "0+")
    results: list[AlterReplicaLogDirTopicResult] = wire(array(AlterReplicaLogDirTopicResult), "0+")
