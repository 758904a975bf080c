"""Recompresses a batch with another codec, for topics whose ``compression.type`` is not ``producer``.

Only the records section changes. Offset deltas, timestamps, headers, producer id, epoch, sequence and flags
stay as the producer sent them, so idempotence and transactions are not affected.
"""

from kalda.records.batch import COMPRESSION_MASK, BatchHeader, Buffer, pack_batch
from kalda.records.compression import DECOMPRESSED_SIZE_MAX, Compression, compress
from kalda.records.record import record_bytes


def recompress(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    compression: Compression,
    level: int | None = None,
    *,
    size_max: int = DECOMPRESSED_SIZE_MAX,
) -> bytearray:
    """Return the batch at `position` with its records under `compression`, writable, with a new CRC.

    Uses processor time for as long as the codec takes; callers on an event loop run it in a thread.
    Raises as `record_bytes` does.
    """
    records = record_bytes(buffer, position, header, size_max)
    return pack_batch(
        compress(compression, records, level),
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
