"""AddPartitionsToTxn (key 24): partitions become part of a transaction (KIP-98).

v1 throttles after the response. v2 may answer PRODUCER_FENCED. v3 is flexible. v4 is for brokers: many
transactions, and `verify_only` asks without adding (KIP-890). v5 may answer TRANSACTION_ABORTABLE.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, INT16, INT32, INT64, STRING, Message, Struct, array, wire


class AddPartitionsToTxnTopic(Struct):
    """Partitions of one topic."""

    name: str = wire(STRING, "0+")
    partitions: list[int] = wire(array(INT32), "0+")


class AddPartitionsToTxnTransaction(Struct):
    """The partitions of one transaction, from v4."""

    transactional_id: str = wire(STRING, "4+")
    producer_id: int = wire(INT64, "4+")
    producer_epoch: int = wire(INT16, "4+")
    verify_only: bool = wire(BOOL, "4+")
    topics: list[AddPartitionsToTxnTopic] = wire(array(AddPartitionsToTxnTopic), "4+")


class AddPartitionsToTxnRequest(Message, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+"):
    """Names the partitions: in the fields that end in ``v3_and_below`` up to v3, by transaction from v4."""

    transactions: list[AddPartitionsToTxnTransaction] = wire(array(AddPartitionsToTxnTransaction), "4+")
    v3_and_below_transactional_id: str = wire(STRING, "0-3")
    v3_and_below_producer_id: int = wire(INT64, "0-3")
    v3_and_below_producer_epoch: int = wire(INT16, "0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire(array(AddPartitionsToTxnTopic), "0-3")


class AddPartitionsToTxnPartitionResult(Struct):
    """The result for one partition."""

    partition_index: int = wire(INT32, "0+")
    partition_error_code: int = wire(INT16, "0+")


class AddPartitionsToTxnTopicResult(Struct):
    """The results for the partitions of one topic."""

    name: str = wire(STRING, "0+")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = wire(
        array(AddPartitionsToTxnPartitionResult), "0+"
    )


class AddPartitionsToTxnResult(Struct):
    """The results for the partitions of one transaction."""

    transactional_id: str = wire(STRING, "4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = wire(array(AddPartitionsToTxnTopicResult), "4+")


class AddPartitionsToTxnResponse(
    Message, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions="0-5", flexible="3+"
):
    """An error per partition; a producer without the right gets one in all of them."""

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = wire(array(AddPartitionsToTxnResult), "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire(
        array(AddPartitionsToTxnTopicResult), "0-3"
    )
