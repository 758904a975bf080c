"""ElectLeaders (key 43): elect leaders by hand, the preferred replicas or whichever live (KIP-183, KIP-460).

v1 adds the type of election and an error for the whole request. v2 is flexible.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, wire


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: str = wire(STRING, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class ElectLeadersRequest(Message, api_key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+"):
    """Partitions, or None for all; `election_type` is 0 for preferred and 1 for unclean elections."""

    election_type: int = wire(INT8, "1+")
    topic_partitions: list[TopicPartitions] | None = wire(array(TopicPartitions), "0+", nullable="0+")
    timeout_ms: int = wire(INT32, "0+", default=60000)


class PartitionResult(Struct):
    """The result for one partition."""

    partition_id: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")


class ReplicaElectionResult(Struct):
    """The partitions of one topic."""

    topic: str = wire(STRING, "0+")
    partition_result: list[PartitionResult] = wire(array(PartitionResult), "0+")


class ElectLeadersResponse(Message, api_key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+"):
    """The result for each partition."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "1+")
    replica_election_results: list[ReplicaElectionResult] = wire(array(ReplicaElectionResult), "0+")
