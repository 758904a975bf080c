"""EndTxn (key 26): commit or abort a transaction (KIP-98).

v1 throttles after the response. v2 may answer PRODUCER_FENCED. v3 is flexible. v4 may answer
TRANSACTION_ABORTABLE (KIP-890). v5 raises the epoch with every transaction and returns the new one.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, wire


class EndTxnRequest(Message, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    """Ends the transaction; `committed` false aborts."""

    transactional_id: str = wire(STRING, "0+")
    producer_id: int = wire(INT64, "0+")
    producer_epoch: int = wire(INT16, "0+")
    committed: bool = wire(BOOL, "0+")


class EndTxnResponse(Message, api_key=ApiKey.END_TXN, versions="0-5", flexible="3+"):
    """From v5 with the producer id and epoch for the next transaction."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    producer_id: int = wire(INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = wire(INT16, "5+", default=-1, ignorable=True)
