"""Checks the records of a Produce request against the rules of its version, before the log sees them."""

from struct import Struct
from typing import Final

from kalda.common.errors import ErrorCode
from kalda.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    TRANSACTIONAL_FLAG,
)
from kalda.records.compression import Compression
from kalda.records.format_conversion import is_message_set

RECORD_BATCHES_FROM: Final = 3
"""The first version whose records are batches of format 2."""
ZSTD_FROM: Final = 7

# base offset, batch length, partition leader epoch, magic, CRC, attributes
_BATCH_HEAD: Final = Struct(">qiibIh")
_NEXT_LENGTH_MIN: Final = 14
"""The least number of bytes after the length, in any format; fewer are not a batch."""
_ZSTD: Final = int(Compression.ZSTD)


class RefusedError(Exception):
    """A batch is refused before it reaches the log."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.message)
        self.code = code
        self.message = message


def checked_batch(records: memoryview | None, version: int, transactional_id: bytes | None) -> memoryview:
    """Check the records against the rules of the request's version; the log checks the batch itself.

    From version 3 on, the records of a partition are exactly one batch of format 2. An incomplete second one
    is cut off, as in Kafka. Before, they are messages of format 0 or 1, which the log converts.
    """
    if version < RECORD_BATCHES_FROM and records is not None and is_message_set(records):
        return records
    if records is None or len(records) < HEADER_SIZE:
        if records is not None and len(records) > MAGIC_POSITION and records[MAGIC_POSITION] != MAGIC:
            raise RefusedError(ErrorCode.INVALID_RECORD, "Records must be batches of format 2.")
        raise RefusedError(ErrorCode.INVALID_RECORD, "A partition's records must hold one whole batch.")
    _, length, _, magic, _, attributes = _BATCH_HEAD.unpack_from(records)
    size = len(records)
    if magic != MAGIC:
        known = magic in (0, 1)
        raise RefusedError(
            ErrorCode.INVALID_RECORD if known else ErrorCode.CORRUPT_MESSAGE,
            "Records must be batches of format 2.",
        )
    if length + LOG_OVERHEAD != size:
        records = _first_batch(records, length + LOG_OVERHEAD)
    if attributes & (_ZSTD | TRANSACTIONAL_FLAG):
        if attributes & COMPRESSION_MASK == _ZSTD and version < ZSTD_FROM:
            raise RefusedError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if attributes & TRANSACTIONAL_FLAG and transactional_id is None:
            raise RefusedError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "A request with transactional records must name a transactional id.",
            )
    return records


def _first_batch(records: memoryview, batch_size: int) -> memoryview:
    if batch_size < HEADER_SIZE:
        raise RefusedError(
            ErrorCode.CORRUPT_MESSAGE, f"A batch of {batch_size} bytes has no room for its header."
        )
    if batch_size > len(records):
        raise RefusedError(ErrorCode.INVALID_RECORD, "A partition's records must hold one whole batch.")
    rest = len(records) - batch_size
    if rest >= LOG_OVERHEAD:
        next_length = int.from_bytes(records[batch_size + 8 : batch_size + 12], "big", signed=True)
        has_magic = rest > MAGIC_POSITION
        if next_length < _NEXT_LENGTH_MIN or (has_magic and records[batch_size + MAGIC_POSITION] > MAGIC):
            raise RefusedError(
                ErrorCode.CORRUPT_MESSAGE, f"The {rest} bytes behind the batch do not begin another."
            )
        if next_length + LOG_OVERHEAD <= rest:
            raise RefusedError(ErrorCode.INVALID_RECORD, "A partition's records must be exactly one batch.")
    return records[:batch_size]
