"""WriteTxnMarkers (key 27): a coordinator ends a transaction in the partitions it wrote to (KIP-98).

v1 is flexible. v2 adds the transaction version of each marker (KIP-1228). Only brokers, and the tool that
aborts hanging transactions, send it.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT8, INT16, INT32, INT64, STRING, Message, Struct, array, wire


class WritableTxnMarkerTopic(Struct):
    """Partitions of one topic."""

    name: str = wire(STRING, "0+")
    partition_indexes: list[int] = wire(array(INT32), "0+")


class WritableTxnMarker(Struct):
    """The end of one producer's transaction; `coordinator_epoch` fences older coordinators."""

    producer_id: int = wire(INT64, "0+")
    producer_epoch: int = wire(INT16, "0+")
    transaction_result: bool = wire(BOOL, "0+")
    topics: list[WritableTxnMarkerTopic] = wire(array(WritableTxnMarkerTopic), "0+")
    coordinator_epoch: int = wire(INT32, "0+")
    transaction_version: int = wire(INT8, "2+", ignorable=True)


class WriteTxnMarkersRequest(Message, api_key=ApiKey.WRITE_TXN_MARKERS, versions="0-2", flexible="1+"):
    """Markers to write to logs that the receiver leads."""

    markers: list[WritableTxnMarker] = wire(array(WritableTxnMarker), "0+")


class WritableTxnMarkerPartitionResult(Struct):
    """The result of the marker in one partition."""

    partition_index: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")


class WritableTxnMarkerTopicResult(Struct):
    """The result of the marker in one topic."""

    name: str = wire(STRING, "0+")
    partitions: list[WritableTxnMarkerPartitionResult] = wire(array(WritableTxnMarkerPartitionResult), "0+")


class WritableTxnMarkerResult(Struct):
    """The result for one marker."""

    producer_id: int = wire(INT64, "0+")
    topics: list[WritableTxnMarkerTopicResult] = wire(array(WritableTxnMarkerTopicResult), "0+")


class WriteTxnMarkersResponse(Message, api_key=ApiKey.WRITE_TXN_MARKERS, versions="0-2", flexible="1+"):
    """An error per producer and partition."""

    markers: list[WritableTxnMarkerResult] = wire(array(WritableTxnMarkerResult), "0+")
