"""StopReplica (key 5): the controller has a broker stop replicas and, where requested, delete their logs.

v1 adds the broker epoch (KIP-380) and groups partitions by topic. v2 is flexible. v3 decides deletion per
partition and fences by the leader epoch (KIP-570). v4 adds whether the controller is a KRaft one, in a
cluster that migrates (KIP-866).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, Struct, array, wire


class StopReplicaPartitionV0(Struct):
    """One partition, in a version that does not group them."""

    topic_name: str = wire(STRING, "0")
    partition_index: int = wire(INT32, "0")


class StopReplicaTopicV1(Struct):
    """The partitions of one topic, all to be deleted or none."""

    name: str = wire(STRING, "1-2")
    partition_indexes: list[int] = wire(array(INT32), "1-2")


class StopReplicaPartitionState(Struct):
    """One partition; `leader_epoch` is -1 when unknown and -2 when its topic is being deleted."""

    partition_index: int = wire(INT32, "3+")
    leader_epoch: int = wire(INT32, "3+", default=-1)
    delete_partition: bool = wire(BOOL, "3+")


class StopReplicaTopicState(Struct):
    """The partitions of one topic."""

    topic_name: str = wire(STRING, "3+")
    partition_states: list[StopReplicaPartitionState] = wire(array(StopReplicaPartitionState), "3+")


class StopReplicaRequest(Message, api_key=ApiKey.STOP_REPLICA, versions="0-4", flexible="2+"):
    """Partitions to stop."""

    controller_id: int = wire(INT32, "0+")
    is_kraft_controller: bool = wire(BOOL, "4+")
    controller_epoch: int = wire(INT32, "0+")
    broker_epoch: int = wire(INT64, "1+", default=-1, ignorable=True)
    delete_partitions: bool = wire(BOOL, "0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = wire(array(StopReplicaPartitionV0), "0")
    topics: list[StopReplicaTopicV1] = wire(array(StopReplicaTopicV1), "1-2")
    topic_states: list[StopReplicaTopicState] = wire(array(StopReplicaTopicState), "3+")


class StopReplicaPartitionError(Struct):
    """The result for one partition."""

    topic_name: str = wire(STRING, "0+")
    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")


class StopReplicaResponse(Message, api_key=ApiKey.STOP_REPLICA, versions="0-4", flexible="2+"):
    """The result for each partition."""

    error_code: int = wire(INT16, "0+")
    partition_errors: list[StopReplicaPartitionError] = wire(array(StopReplicaPartitionError), "0+")
