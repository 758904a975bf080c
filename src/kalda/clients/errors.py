"""Defines the exceptions that producers, consumers and admin clients raise.

All derive from `ClientError`. `code` is the broker's error code where a broker sent one, and `is_retriable`
whether the same call may succeed later. The exceptions of connections are those of `kalda.net.client`.
"""

from kalda.clients.error_hints import explained
from kalda.common.errors import ErrorCode
from kalda.common.public import public
from kalda.net.client.client_errors import (
    AuthenticationError,
    BootstrapError,
    BrokerConnectionError,
    BrokerResponseError,
    ClientConfigError,
    ClientError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    SaslAuthenticationError,
    TlsError,
    UnknownTopicOrPartitionError,
    UnsupportedApiError,
)

__all__ = [
    "AuthenticationError",
    "BootstrapError",
    "BrokerConnectionError",
    "BrokerResponseError",
    "BufferExhaustedError",
    "ClientConfigError",
    "ClientError",
    "IllegalStateError",
    "OffsetOutOfRangeError",
    "RecordTooLargeError",
    "RequestTimedOutError",
    "SaslAuthenticationError",
    "SerializationError",
    "TlsError",
    "UnknownTopicOrPartitionError",
    "UnsupportedApiError",
    "error_for",
]


@public
class IllegalStateError(ClientError, RuntimeError):
    """The program called a method that the client's present state does not allow, e.g. after `close`."""


@public
class SerializationError(ClientError):
    """A key or value could not be written or read; chained to the exception of the function that failed."""


@public
class RecordTooLargeError(BrokerResponseError):
    """A record is larger than the producer or the topic allows; the message names the limit."""

    def __init__(self, what: str, message: str | None = None) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, what, message)


@public
class BufferExhaustedError(RequestTimedOutError):
    """`buffer.memory` was full for `max.block.ms`: records come faster than brokers take them."""


def error_for(code: ErrorCode, what: str, message: str | None = None) -> BrokerResponseError:
    """Return the exception for a broker's error code.

    Args:
        code: The code.
        what: The operation and the topic or group, e.g. "create topic flights".
        message: The broker's own text, which replaces the general one of the code and its remedy.
    """
    message = message or explained(code)
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return UnknownTopicOrPartitionError(what, message)
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return OffsetOutOfRangeError(what, message)
    if code == ErrorCode.MESSAGE_TOO_LARGE:
        return RecordTooLargeError(what, message)
    return BrokerResponseError(code, what, message)


@public
class TransactionError(ClientError):
    """Base of the errors of transactional producers; `code` is the broker's, None if none caused it."""

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_retriable(self) -> bool:
        """Always false: the same call in the same transaction fails again."""
        return False


@public
class TransactionAbortableError(TransactionError):
    """The transaction cannot be committed; abort it, then begin another (KIP-1050)."""


@public
class FatalTransactionError(TransactionError):
    """The producer cannot continue; close it and create another (KIP-1050)."""


@public
class ProducerFencedError(FatalTransactionError):
    """Another producer uses the same transactional id, or the coordinator timed the transaction out."""


@public
class TransactionAbortedError(ClientError):
    """The record was not sent because its transaction was aborted."""
