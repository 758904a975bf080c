"""Defines the exceptions of client connections, by cause.

`ClientConfigError` is the caller's mistake. The others come from the cluster or the network: a broker that
cannot be reached, a time-out, a request in no shared version, an error code in a response.
"""

from collections.abc import Mapping
from types import MappingProxyType

from kalda.common.errors import ErrorCode
from kalda.common.public import public


@public
class ClientError(Exception):
    """Base of all exceptions of clients."""

    code: ErrorCode | None = None
    """The error code that a broker answered with; None where the failure is not a broker's response."""
    succeeded: Mapping[object, object] = MappingProxyType({})
    """The results of what succeeded in the same call of an admin client; empty for other errors."""
    failed: Mapping[object, "ClientError"] = MappingProxyType({})
    """The errors of what failed in the same call of an admin client, this one among them."""

    @property
    def is_retriable(self) -> bool:
        """Whether the same operation may succeed when it is tried again."""
        return self.code is not None and self.code.retriable


@public
class ClientConfigError(ClientError, ValueError):
    """A setting is unknown, malformed or not supported; the message names it and what is allowed."""


@public
class BrokerConnectionError(ClientError):
    """A broker refused the connection, closed it, or could not be found. Safe to retry on another one."""

    @property
    def is_retriable(self) -> bool:
        """Always true: the broker may come back, or another one may answer."""
        return True


@public
class BootstrapError(ClientError):
    """No bootstrap server has ever answered this client, and `bootstrap.wait.ms` is over."""


@public
class AuthenticationError(ClientError):
    """A broker and this client did not accept each other; trying again with the same settings is useless."""


@public
class TlsError(AuthenticationError):
    """The TLS handshake with a broker failed; the message gives OpenSSL's reason."""


@public
class SaslAuthenticationError(AuthenticationError):
    """A broker refused the login, or offers no such mechanism; the message is the broker's own."""


@public
class RequestTimedOutError(ClientError):
    """An operation did not end within its time; the message includes the last failure before that."""

    @property
    def is_retriable(self) -> bool:
        """Always true."""
        return True


@public
class UnsupportedApiError(ClientError):
    """The broker and this client share no version of a request."""


@public
class BrokerResponseError(ClientError):
    """A broker answered with an error that retrying does not cure, or did not cure in time.

    `what` names the operation and the thing; `message` is the broker's own text, where it sent one.
    """

    code: ErrorCode

    def __init__(self, code: ErrorCode, what: str, message: str | None = None) -> None:
        self.code = code
        super().__init__(f"{what}: {code.name}: {message or code.message}")


@public
class UnknownTopicOrPartitionError(BrokerResponseError):
    """A topic or partition does not exist, or is hidden from this client."""

    def __init__(self, what: str, message: str | None = None) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what, message)


@public
class OffsetOutOfRangeError(BrokerResponseError):
    """A fetch asked for an offset that the log no longer holds, or does not hold yet."""

    def __init__(self, what: str, message: str | None = None) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, what, message)
