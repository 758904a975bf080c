"""Records of ``__transaction_state``: the state of a transaction by its transactional id."""

from kalda.protocol.schema import INT8, INT16, INT32, INT64, STRING, Message, Struct, array, wire


class TransactionLogKey(Message, versions="0"):
    """The transactional id."""

    transactional_id: str = wire(STRING, "0")


class PartitionsSchema(Struct):
    """Partitions of one topic."""

    topic: str = wire(STRING, "0+")
    partition_ids: list[int] = wire(array(INT32), "0+")


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    """The transaction; `transaction_partitions` None means that it has none.

    v1 is flexible and adds, tagged, what KIP-890 and KIP-939 need. Apache Kafka 4.4 has the tags 0 to 3; its
    readers skip tag 4, which KAFKA-20357 is expected to add.
    """

    producer_id: int = wire(INT64, "0+")
    previous_producer_id: int = wire(INT64, "1+", default=-1, tag=0)
    next_producer_id: int = wire(INT64, "1+", default=-1, tag=1)
    producer_epoch: int = wire(INT16, "0+")
    transaction_timeout_ms: int = wire(INT32, "0+")
    transaction_status: int = wire(INT8, "0+")
    transaction_partitions: list[PartitionsSchema] | None = wire(array(PartitionsSchema), "0+", nullable="0+")
    transaction_last_update_timestamp_ms: int = wire(INT64, "0+")
    transaction_start_timestamp_ms: int = wire(INT64, "0+")
    client_transaction_version: int = wire(INT16, "1+", tag=2)
    next_producer_epoch: int = wire(INT16, "1+", default=-1, tag=3)
    last_producer_epoch: int = wire(INT16, "1+", default=-1, tag=4)
