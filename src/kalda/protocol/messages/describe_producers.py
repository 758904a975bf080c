"""DescribeProducers (key 61): the active producers of a partition's log (KIP-664)."""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, wire


class TopicRequest(Struct):
    """Partitions of one topic."""

    name: str = wire(STRING, "0+")
    partition_indexes: list[int] = wire(array(INT32), "0+")


class DescribeProducersRequest(Message, api_key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+"):
    """Lists partitions.

    A broker that hosts a replica returns the producers; any other broker returns an error for the partition.
    """

    topics: list[TopicRequest] = wire(array(TopicRequest), "0+")


class ProducerState(Struct):
    """One producer.

    `last_sequence` and `last_timestamp` are -1 if they are unknown, and `current_txn_start_offset` is -1
    without an open transaction.
    """

    producer_id: int = wire(INT64, "0+")
    producer_epoch: int = wire(INT32, "0+")
    last_sequence: int = wire(INT32, "0+", default=-1)
    last_timestamp: int = wire(INT64, "0+", default=-1)
    coordinator_epoch: int = wire(INT32, "0+")
    current_txn_start_offset: int = wire(INT64, "0+", default=-1)


class PartitionResponse(Struct):
    """The producers of one partition."""

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    active_producers: list[ProducerState] = wire(array(ProducerState), "0+")


class TopicResponse(Struct):
    """The partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: list[PartitionResponse] = wire(array(PartitionResponse), "0+")


class DescribeProducersResponse(Message, api_key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+"):
    """One entry for each partition of the request."""

    throttle_time_ms: int = wire(INT32, "0+")
    topics: list[TopicResponse] = wire(array(TopicResponse), "0+")
