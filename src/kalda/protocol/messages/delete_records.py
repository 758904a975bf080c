"""DeleteRecords (key 21): moves the log start offset up, which deletes the records before it (KIP-107).

v1 throttles after the response. v2 is flexible.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, wire


class DeleteRecordsPartition(Struct):
    """One partition: everything before `offset` goes; -1 stands for the high watermark."""

    partition_index: int = wire(INT32, "0+")
    offset: int = wire(INT64, "0+")


class DeleteRecordsTopic(Struct):
    """The partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: list[DeleteRecordsPartition] = wire(array(DeleteRecordsPartition), "0+")


class DeleteRecordsRequest(Message, api_key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+"):
    """Offsets by partition, and how long to wait for the replicas."""

    topics: list[DeleteRecordsTopic] = wire(array(DeleteRecordsTopic), "0+")
    timeout_ms: int = wire(INT32, "0+")


class DeleteRecordsPartitionResult(Struct):
    """One partition and the lowest offset that its replicas still hold."""

    partition_index: int = wire(INT32, "0+")
    low_watermark: int = wire(INT64, "0+")
    error_code: int = wire(INT16, "0+")


class DeleteRecordsTopicResult(Struct):
    """The partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: list[DeleteRecordsPartitionResult] = wire(array(DeleteRecordsPartitionResult), "0+")


class DeleteRecordsResponse(Message, api_key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+"):
    """The result for each partition."""

    throttle_time_ms: int = wire(INT32, "0+")
    topics: list[DeleteRecordsTopicResult] = wire(array(DeleteRecordsTopicResult), "0+")
