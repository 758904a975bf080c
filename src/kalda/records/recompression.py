"""Puts a batch's records, compressed with another codec, into a batch: for topics with a `compression.type`.

Only the records section changes. Offset deltas, timestamps, headers, producer id, epoch, sequence and flags
stay as the producer sent them, so idempotence and transactions are not affected.
"""

from kalda.records.batch import COMPRESSION_MASK, BatchHeader, pack_batch
from kalda.records.compression import Compression


def repack(header: BatchHeader, packed: bytes, compression: Compression) -> bytearray:
    """Return the batch of `header` with `packed`, its records under `compression`, with a new CRC."""
    return pack_batch(
        packed,
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        attributes=header.attributes & ~COMPRESSION_MASK | compression,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )
