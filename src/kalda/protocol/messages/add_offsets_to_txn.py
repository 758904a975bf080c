"""AddOffsetsToTxn (key 25): the offsets of a group become part of a transaction (KIP-98).

v1 throttles after the response. v2 may answer PRODUCER_FENCED. v3 is flexible. v4 may answer
TRANSACTION_ABORTABLE (KIP-890).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, INT64, STRING, Message, wire


class AddOffsetsToTxnRequest(Message, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"):
    """Adds the partition of the internal topic that holds the group's offsets."""

    transactional_id: str = wire(STRING, "0+")
    producer_id: int = wire(INT64, "0+")
    producer_epoch: int = wire(INT16, "0+")
    group_id: str = wire(STRING, "0+")


class AddOffsetsToTxnResponse(Message, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-4", flexible="3+"):
    """Whether it was added."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
