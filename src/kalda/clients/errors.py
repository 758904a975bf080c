"""Defines the exceptions that producers, consumers and admin clients raise.

All derive from `ClientError`. `code` is the broker's error code where a broker sent one, and `is_retriable`
whether the same call may succeed later. The exceptions of connections are those of `kalda.net.client`.
"""

from kalda.common.errors import ErrorCode
from kalda.net.client.client_errors import (
    BrokerConnectionError,
    BrokerResponseError,
    ClientConfigError,
    ClientError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    UnsupportedApiError,
)

__all__ = [
    "BrokerConnectionError",
    "BrokerResponseError",
    "ClientConfigError",
    "ClientError",
    "IllegalStateError",
    "OffsetOutOfRangeError",
    "RequestTimedOutError",
    "UnknownTopicOrPartitionError",
    "UnsupportedApiError",
    "error_for",
]


class IllegalStateError(ClientError, RuntimeError):
    """The program called a method that the client's present state does not allow, e.g. after `close`."""


def error_for(code: ErrorCode, what: str) -> BrokerResponseError:
    """Return the exception for a broker's error code; `what` names the operation and the topic or group."""
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return UnknownTopicOrPartitionError(what)
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return OffsetOutOfRangeError(what)
    return BrokerResponseError(code, what)
