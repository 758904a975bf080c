"""Declares the errors of record parsing; every parser in this package raises only these.

Each error carries the error code of the response, so request handlers need no table of their own.
"""

from typing import ClassVar

from kalda.common.errors import ErrorCode


class RecordsError(Exception):
    """The bytes are not a record batch that this package accepts."""

    code: ClassVar[ErrorCode] = ErrorCode.CORRUPT_MESSAGE


class CorruptRecordError(RecordsError):
    """The batch contradicts itself: wrong CRC, impossible length or count, a record past the end."""


class NeedMoreBytes(RecordsError):  # noqa: N818 - a state of the input rather than a fault of it
    """The buffer ends inside a batch: a torn tail of a log, or a fetch that ended at its byte limit."""


class UnsupportedCompressionTypeError(RecordsError):
    """The attributes name a codec that the protocol does not have."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class DecompressedSizeError(RecordsError):
    """The decompressed records exceed the size bound: a decompression bomb, or a bound set too low."""

    code = ErrorCode.INVALID_RECORD


class InvalidRecordError(RecordsError):
    """The bytes are valid, but a client may not write them, e.g. a keyless record to a compacted topic.

    `record_errors` names single records by index in their batch, with a sentence each (KIP-467).
    """

    code = ErrorCode.INVALID_RECORD

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class InvalidTimestampError(InvalidRecordError):
    """A record's time is outside what the topic allows, or a client claims log-append time."""

    code = ErrorCode.INVALID_TIMESTAMP
