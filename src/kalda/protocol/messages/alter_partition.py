"""AlterPartition (key 56): a leader asks the controller to change its in-sync replicas (KIP-497).

v1 adds the leader recovery state (KIP-704). v2 names topics by id. v3 adds the epochs of the in-sync brokers
(KIP-903). Leaders of Apache Kafka send it since 2.7; Kalda's write their changes to ZooKeeper themselves.
"""

from kalda.common.api_keys import ApiKey
from kalda.common.types import UUID
from kalda.protocol.schema import INT8, INT16, INT32, INT64, STRING, UUID_KIND, Message, Struct, array, wire


class BrokerState(Struct):
    """An in-sync replica; the epoch is -1 if the leader does not know it."""

    broker_id: int = wire(INT32, "3+")
    broker_epoch: int = wire(INT64, "3+", default=-1)


class PartitionData(Struct):
    """One partition; `partition_epoch` is the version of its state's znode that the leader knows."""

    partition_index: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+")
    new_isr: list[int] = wire(array(INT32), "0-2")
    new_isr_with_epochs: list[BrokerState] = wire(array(BrokerState), "3+")
    leader_recovery_state: int = wire(INT8, "1+")
    partition_epoch: int = wire(INT32, "0+")


class TopicData(Struct):
    """The partitions of one topic."""

    topic_name: str = wire(STRING, "0-1", ignorable=True)
    topic_id: UUID = wire(UUID_KIND, "2+", ignorable=True)
    partitions: list[PartitionData] = wire(array(PartitionData), "0+")


class AlterPartitionRequest(Message, api_key=ApiKey.ALTER_PARTITION, versions="0-3", flexible="0+"):
    """The leader, and its changes."""

    broker_id: int = wire(INT32, "0+")
    broker_epoch: int = wire(INT64, "0+", default=-1)
    topics: list[TopicData] = wire(array(TopicData), "0+")


class AlteredPartition(Struct):
    """The state that is stored now, or an error."""

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    leader_id: int = wire(INT32, "0+")
    leader_epoch: int = wire(INT32, "0+")
    isr: list[int] = wire(array(INT32), "0+")
    leader_recovery_state: int = wire(INT8, "1+", ignorable=True)
    partition_epoch: int = wire(INT32, "0+")


AlteredPartition.__name__ = "PartitionData"


class AlteredTopic(Struct):
    """The partitions of one topic."""

    topic_name: str = wire(STRING, "0-1", ignorable=True)
    topic_id: UUID = wire(UUID_KIND, "2+", ignorable=True)
    partitions: list[AlteredPartition] = wire(array(AlteredPartition), "0+")


AlteredTopic.__name__ = "TopicData"


class AlterPartitionResponse(Message, api_key=ApiKey.ALTER_PARTITION, versions="0-3", flexible="0+"):
    """The result for each partition."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    topics: list[AlteredTopic] = wire(array(AlteredTopic), "0+")
