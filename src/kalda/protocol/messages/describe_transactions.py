"""DescribeTransactions (key 65): the state of transactions by their transactional ids (KIP-664)."""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, INT32, INT64, STRING, Message, Struct, array, wire


class DescribeTransactionsRequest(Message, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+"):
    """Asks for transactional ids."""

    transactional_ids: list[str] = wire(array(STRING), "0+")


class TopicData(Struct):
    """Partitions of one topic."""

    topic: str = wire(STRING, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class TransactionState(Struct):
    """One transaction; while it ends, `topics` holds what has no marker yet."""

    error_code: int = wire(INT16, "0+")
    transactional_id: str = wire(STRING, "0+")
    transaction_state: str = wire(STRING, "0+")
    transaction_timeout_ms: int = wire(INT32, "0+")
    transaction_start_time_ms: int = wire(INT64, "0+")
    producer_id: int = wire(INT64, "0+")
    producer_epoch: int = wire(INT16, "0+")
    topics: list[TopicData] = wire(array(TopicData), "0+")


class DescribeTransactionsResponse(
    Message, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+"
):
    """One entry per transactional id."""

    throttle_time_ms: int = wire(INT32, "0+")
    transaction_states: list[TransactionState] = wire(array(TransactionState), "0+")
