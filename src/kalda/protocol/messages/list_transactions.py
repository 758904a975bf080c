"""ListTransactions (key 66): the transactions that this broker coordinates (KIP-664).

v1 filters by duration (KIP-994), v2 by a pattern of the transactional id (KIP-1152).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, wire


class ListTransactionsRequest(Message, api_key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+"):
    """Asks for transactions that pass every filter; an empty one lets all pass."""

    state_filters: list[str] = wire(array(STRING), "0+")
    producer_id_filters: list[int] = wire(array(INT64), "0+")
    duration_filter: int = wire(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = wire(STRING, "2+", nullable="2+", default=None)


class TransactionState(Struct):
    """One transaction."""

    transactional_id: str = wire(STRING, "0+")
    producer_id: int = wire(INT64, "0+")
    transaction_state: str = wire(STRING, "0+")


class ListTransactionsResponse(Message, api_key=ApiKey.LIST_TRANSACTIONS, versions="0-2", flexible="0+"):
    """The transactions of this broker only."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    unknown_state_filters: list[str] = wire(array(STRING), "0+")
    transaction_states: list[TransactionState] = wire(array(TransactionState), "0+")
