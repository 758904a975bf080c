"""Reads and builds control batches: the markers that end a transaction in each partition (KIP-98).

A marker's key holds a version and a type. Its value holds a version and the epoch of the transaction
coordinator, which fences a coordinator that has lost its partition.

A barrier is a control record of a type of Kalda's own, which a client writes at the beginning of a
transaction. Readers of every isolation level skip it, as Kafka's clients skip control records of types that
they do not know, but its open transaction holds the last stable offset back. `kalda.spark.sink.barrier` needs
it; `check_barrier` refuses every other control record of a client.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from kalda.records.batch import NO_PARTITION_LEADER_EPOCH, BatchHeader, Buffer
from kalda.records.compression import Compression
from kalda.records.errors import CorruptRecordError, InvalidRecordError
from kalda.records.record import Record, RecordBatchBuilder, iter_records

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0
BARRIER_TYPE: Final = 0x4B42
"""Far from Kafka's own types, which count up from 0."""


class ControlRecordType(IntEnum):
    """The type of a control record. Readers skip unknown types, as Java clients do."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """The end of a producer's transaction in one partition."""

    control_type: ControlRecordType
    coordinator_epoch: int


def build_end_transaction_marker(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytearray:
    """Return the batch of one record that commits or aborts a producer's transaction."""
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=partition_leader_epoch,
    )
    builder.append(
        _KEY.pack(_VERSION, marker.control_type), _VALUE.pack(_VERSION, marker.coordinator_epoch), timestamp
    )
    return builder.build()


def read_control_type(record: Record) -> ControlRecordType | None:
    """Return the type of a control record, or ``None`` for a type of a later protocol.

    Raises `CorruptRecordError` for a key that is too short; longer ones come from later versions.
    """
    key = record.key
    if key is None or len(key) < _KEY.size:
        size = 0 if key is None else len(key)
        raise CorruptRecordError(
            f"the control record at offset {record.offset} has a key of {size} bytes; {_KEY.size} are needed"
        )
    control_type = _KEY.unpack_from(key)[1]
    if control_type == ControlRecordType.ABORT:
        return ControlRecordType.ABORT
    if control_type == ControlRecordType.COMMIT:
        return ControlRecordType.COMMIT
    return None


def read_end_transaction_marker(
    buffer: Buffer, position: int, header: BatchHeader
) -> EndTransactionMarker | None:
    """Return the marker in a control batch, or ``None`` for another kind of control record.

    Raises `CorruptRecordError` for a batch without a record or a record too short.
    """
    record = next(iter_records(buffer, position, header), None)
    if record is None:
        # Compaction empties a marker's batch when no record of its transaction is left.
        return None
    control_type = read_control_type(record)
    if control_type is None:
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        size = 0 if record.value is None else len(record.value)
        raise CorruptRecordError(
            f"the marker at offset {record.offset} has a value of {size} bytes; {_VALUE.size} are needed"
        )
    return EndTransactionMarker(control_type, _VALUE.unpack_from(record.value)[1])


def build_barrier(*, producer_id: int, producer_epoch: int, timestamp: int) -> bytearray:
    """Return the batch of one barrier, which begins a transaction.

    It has sequence number 0. So, of several processes that write it with the same identity, the log keeps the
    first copy and the others get the answer to a duplicate.
    """
    builder = RecordBatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=0,
        is_transactional=True,
        is_control=True,
    )
    builder.append(_KEY.pack(_VERSION, BARRIER_TYPE), b"", timestamp)
    return builder.build()


def check_barrier(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Check a control batch that a client produces.

    Raises:
        InvalidRecordError: it is not one barrier in a transaction; clients write no other control records.
    """
    if header.record_count == 1 and header.is_transactional and header.compression is Compression.NONE:
        record = next(iter_records(buffer, position, header))
        if record.key is not None and bytes(record.key) == _KEY.pack(_VERSION, BARRIER_TYPE):
            return
    raise InvalidRecordError("clients may not write control records, except one barrier in a transaction")
