"""Encodes and decodes the records of ``__transaction_state``, byte for byte as Kafka writes them.

The key is the transactional id. Version 1 of the value is flexible (KIP-915): brokers skip tagged fields that
they do not know. `next_producer_epoch` belongs to KIP-939. With `last_producer_epoch` a new coordinator
recognizes a retry of InitProducerId (KAFKA-20357). A tombstone deletes the id.
"""

from typing import Final

from kalda.common.types import TopicPartition, by_topic
from kalda.coordinator.coordinator_record import (
    CoordinatorRecord,
    RecordTypes,
    decode_key,
    decode_value,
    encode_record,
)
from kalda.coordinator.transaction.transaction_metadata import EPOCH_BUMP_FROM, TransactionMetadata
from kalda.coordinator.transaction.transaction_state import TransactionState
from kalda.protocol.messages.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from kalda.protocol.protocol_errors import ProtocolError

KEY_VERSION: Final = 0
FLEXIBLE_VERSION: Final = 1


RECORD_TYPES: Final[RecordTypes] = {KEY_VERSION: (TransactionLogKey, TransactionLogValue)}


def encode(metadata: TransactionMetadata, transaction_version: int) -> CoordinatorRecord:
    """Encode a state: flexible from transaction version 1 on, or if a tagged field is set."""
    partitions = None
    if metadata.state is not TransactionState.EMPTY:
        partitions = [
            PartitionsSchema(topic=topic, partition_ids=[each.partition for each in group])
            for topic, group in by_topic(sorted(metadata.partitions)).items()
        ]
    is_flexible = transaction_version > 0 or metadata.client_version > 0 or metadata.next_producer_id >= 0
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=metadata.update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    if is_flexible:
        value.previous_producer_id = metadata.previous_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.next_producer_epoch = metadata.next_producer_epoch
        value.last_producer_epoch = metadata.last_producer_epoch
        value.client_transaction_version = metadata.client_version
    key = TransactionLogKey(transactional_id=metadata.transactional_id)
    return encode_record(key, KEY_VERSION, value, FLEXIBLE_VERSION if is_flexible else 0)


def encode_tombstone(transactional_id: str) -> CoordinatorRecord:
    """Return the record that deletes an id."""
    return encode_record(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION, None)


def decode(record: CoordinatorRecord) -> tuple[str, TransactionMetadata | None] | None:
    """Return id and state of a record, without state for a tombstone; None for a key of a later version.

    Raises:
        ProtocolError: the record is not one of ``__transaction_state``.
    """
    key = decode_key(RECORD_TYPES, record.key)
    if key is None:
        return None
    assert isinstance(key[1], TransactionLogKey), "the only key there is"
    transactional_id = key[1].transactional_id
    if record.value is None:
        return transactional_id, None
    value = decode_value(TransactionLogValue, record.value)
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise ProtocolError(
            f"transactional id {transactional_id!r} has state {value.transaction_status}, known are 0 to 7"
        ) from None
    partitions = frozenset(
        TopicPartition(topic.topic, partition)
        for topic in value.transaction_partitions or ()
        for partition in topic.partition_ids
    )
    last_epoch = value.last_producer_epoch
    if last_epoch < 0 and value.client_transaction_version >= EPOCH_BUMP_FROM and state.is_prepared:
        # A record of a broker that does not write the field.
        last_epoch = value.producer_epoch - 1
    metadata = TransactionMetadata(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        state,
        partitions,
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        last_producer_epoch=last_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
        client_version=value.client_transaction_version,
    )
    return transactional_id, metadata
