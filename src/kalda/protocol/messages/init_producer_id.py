"""InitProducerId (key 22): a producer id and epoch for idempotence and transactions (KIP-98).

v1 throttles after the response. v2 is flexible. v3 lets a producer raise its own epoch (KIP-360). v4 may
answer PRODUCER_FENCED. v5 may answer TRANSACTION_ABORTABLE (KIP-890). v6 enables two-phase commit (KIP-939).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, wire


class InitProducerIdRequest(Message, api_key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+"):
    """Asks for an id; `transactional_id` is None for a producer that is only idempotent.

    `producer_id` and `producer_epoch` are the ones in use when the epoch shall be raised, else -1. With
    `enable2_pc` the transaction has no time-out; with `keep_prepared_txn` one under way is not aborted.
    """

    transactional_id: str | None = wire(STRING, "0+", nullable="0+")
    transaction_timeout_ms: int = wire(INT32, "0+")
    producer_id: int = wire(INT64, "3+", default=-1)
    producer_epoch: int = wire(INT16, "3+", default=-1)
    enable2_pc: bool = wire(BOOL, "6+")
    keep_prepared_txn: bool = wire(BOOL, "6+")


class InitProducerIdResponse(Message, api_key=ApiKey.INIT_PRODUCER_ID, versions="0-6", flexible="2+"):
    """The producer id and epoch to stamp on every batch.

    The ``ongoing`` ones are those of a transaction that was kept, else -1.
    """

    throttle_time_ms: int = wire(INT32, "0+", ignorable=True)
    error_code: int = wire(INT16, "0+")
    producer_id: int = wire(INT64, "0+", default=-1)
    producer_epoch: int = wire(INT16, "0+")
    ongoing_txn_producer_id: int = wire(INT64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = wire(INT16, "6+", default=-1)
