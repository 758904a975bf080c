"""AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids (KIP-730).

Brokers of Apache Kafka send it since 3.0; Kalda's take their blocks from ZooKeeper themselves.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, INT64, Message, wire


class AllocateProducerIdsRequest(Message, api_key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+"):
    """The broker that gives the ids to producers."""

    broker_id: int = wire(INT32, "0+")
    broker_epoch: int = wire(INT64, "0+", default=-1)


class AllocateProducerIdsResponse(Message, api_key=ApiKey.ALLOCATE_PRODUCER_IDS, versions="0", flexible="0+"):
    """The first id of the block, and how many there are."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    producer_id_start: int = wire(INT64, "0+")
    producer_id_len: int = wire(INT32, "0+")
