"""Declares the errors of storage, each with the error code that a response carries for it.

An append also raises the errors of `kalda.records.errors`, which carry a code too. `LOG_ERRORS` is the pair
to catch around a call into the log.
"""

from collections.abc import Callable
from typing import ClassVar, Final

from kalda.common.errors import ErrorCode
from kalda.records.errors import RecordsError


class StorageError(Exception):
    """Base of all errors below."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR


class LogStorageError(StorageError):
    """The disk is full, unreadable or gone. The log is as before the call; a retry may succeed."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class RecordsMissingError(LogStorageError):
    """The records at an offset are damaged on this disk and are being fetched from another replica."""


class GapChangedError(StorageError):
    """The offsets whose records were fetched from another replica are no longer missing."""


class OffsetOutOfRangeError(StorageError):
    """The offset is below the log start offset or above the log end offset."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class HeavyBatchError(Exception):
    """It would take long to open the batch here; `LogValidator.prepare` does it on another thread."""


class LookupNeededError(HeavyBatchError):
    """A batch cannot be inspected before a look-up; `wait` calls back when the look-up has been tried.

    Args:
        wait: Starts the lookup; calls its argument on the event loop, within a bounded time.
    """

    def __init__(self, wait: Callable[[Callable[[], None]], None]) -> None:
        super().__init__()
        self.wait: Final = wait


class InspectionUnavailableError(StorageError):
    """A look-up needed to inspect a batch failed; a retry may succeed."""

    # Kafka has no code for it. Producers send the batch again, and know that it was not appended.
    code = ErrorCode.NOT_ENOUGH_REPLICAS


class MessageTooLargeError(StorageError):
    """The batch is larger than ``max.message.bytes``."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class UnsupportedForMessageFormatError(StorageError):
    """The log's message format (``message.format.version``) has no place for what was sent."""

    code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class RecordListTooLargeError(StorageError):
    """The append is larger than a whole segment may be (``segment.bytes``)."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class OutOfOrderSequenceError(StorageError):
    """The batch's first sequence number does not follow the producer's last one."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class UnknownProducerIdError(StorageError):
    """The batch reuses sequence numbers of an ended transaction; its producer needs a new epoch."""

    code = ErrorCode.UNKNOWN_PRODUCER_ID


class InvalidProducerEpochError(StorageError):
    """The batch comes from an older incarnation of the producer."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnStateError(StorageError):
    """A producer with an open transaction wrote outside of it."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFencedError(StorageError):
    """The transaction marker comes from a coordinator that a newer one replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class UnexpectedAppendOffsetError(StorageError):
    """A batch for a follower starts below its log end offset, or its leader epoch is out of order."""


class InconsistentTopicIdError(StorageError):
    """The directory holds a partition of another topic with the same name."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


class CorruptIndexError(StorageError):
    """An index file contradicts itself; it is rebuilt from the log."""


class CorruptSnapshotError(StorageError):
    """A producer snapshot cannot be read; an older one, or the log itself, replaces it."""


class CorruptCheckpointError(StorageError):
    """A checkpoint file is not in Kafka's format."""


class NewerFormatError(StorageError):
    """A newer release wrote the file; the message has its name, its version and the ones that can be read."""

    def __init__(self, what: str, version: int, known: str) -> None:
        super().__init__(
            f"{what} has format version {version}, and this release of Kalda reads {known}: a newer release "
            "wrote it. Start that release, and go back as `docs/reference/upgrade-contract.md` describes"
        )
        self._version: Final = version
        self._known: Final = known

    def at(self, path: str) -> "NewerFormatError":
        """Return the error with the path of the file."""
        return NewerFormatError(path, self._version, self._known)


class LogDirectoryError(StorageError):
    """A log directory cannot be used; the message has its name and the cause."""

    code = ErrorCode.LOG_DIR_NOT_FOUND


class LogDirectoryLockedError(LogDirectoryError):
    """Another process uses the log directory."""


LOG_ERRORS: Final = (StorageError, RecordsError)
