"""Defines the errors that become responses, and the status of each error of the cluster.

Handlers raise `HttpError`, or let a `ClientError` of the cluster pass. `kalda.http.boundary` is the only
place that catches them, and renders them as the part of the server does that the request is for.
"""

from collections.abc import Callable, Mapping
from typing import Final

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from kalda.clients.errors import (
    AuthenticationError,
    BootstrapError,
    BrokerConnectionError,
    BrokerResponseError,
    BufferExhaustedError,
    ClientConfigError,
    ClientError,
    RequestTimedOutError,
    UnsupportedApiError,
)
from kalda.common.errors import ErrorCode


class HttpError(Exception):
    """A request cannot be served; the message names the thing, what was found, and what is allowed.

    `code` is the error code of the API's body, such as 40401 of the registry; without one it is the status.
    """

    def __init__(
        self, status: int, message: str, code: int | None = None, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status: Final = status
        self.message: Final = message
        self.code: Final = status if code is None else code
        self.headers: Final = headers


RenderError = Callable[[Scope, HttpError], Response]
"""Makes the response of an error, as one part of the server has it."""


_CHALLENGE: Final[Mapping[str, str]] = {"WWW-Authenticate": 'Basic realm="kalda", charset="UTF-8"'}


def unauthenticated(message: str) -> HttpError:
    """Return the error of a request that lacks credentials, or has some that the brokers refuse."""
    return HttpError(
        401, message, 40101, headers={"WWW-Authenticate": 'Basic realm="kalda", charset="UTF-8"'}
    )


_STATUS_BY_CODE: Final[Mapping[ErrorCode, int]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.RESOURCE_NOT_FOUND: 404,
    ErrorCode.LOG_DIR_NOT_FOUND: 404,
    ErrorCode.UNKNOWN_MEMBER_ID: 404,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: 403,
    ErrorCode.SASL_AUTHENTICATION_FAILED: 401,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.DUPLICATE_RESOURCE: 409,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: 409,
    ErrorCode.REASSIGNMENT_IN_PROGRESS: 409,
    ErrorCode.REBALANCE_IN_PROGRESS: 409,
    ErrorCode.ILLEGAL_GENERATION: 409,
    ErrorCode.CONCURRENT_TRANSACTIONS: 409,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 422,
    ErrorCode.INVALID_PARTITIONS: 422,
    ErrorCode.INVALID_REPLICATION_FACTOR: 422,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: 422,
    ErrorCode.INVALID_CONFIG: 422,
    ErrorCode.INVALID_GROUP_ID: 422,
    ErrorCode.INVALID_RECORD: 422,
    ErrorCode.INVALID_TIMESTAMP: 422,
    ErrorCode.POLICY_VIOLATION: 422,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.OFFSET_OUT_OF_RANGE: 416,
    ErrorCode.MESSAGE_TOO_LARGE: 413,
    ErrorCode.RECORD_LIST_TOO_LARGE: 413,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: 429,
    ErrorCode.UNSUPPORTED_VERSION: 501,
    ErrorCode.SECURITY_DISABLED: 501,
}


def status_of(error: ClientError) -> int:
    """Return the HTTP status of an error of the cluster; 503 where the same request may succeed later."""
    if isinstance(error, BrokerResponseError):
        status = _STATUS_BY_CODE.get(error.code)
        if status is not None:
            return status
        return 503 if error.is_retriable else 502
    if isinstance(error, AuthenticationError):
        return 401
    if isinstance(error, RequestTimedOutError) and not isinstance(error, BufferExhaustedError):
        return 504
    if isinstance(error, BufferExhaustedError | BootstrapError | BrokerConnectionError):
        return 503
    if isinstance(error, UnsupportedApiError):
        return 501
    if isinstance(error, ClientConfigError):
        return 400
    return 502


def http_error_of(error: ClientError) -> HttpError:
    """Return an error of the cluster as that of a response."""
    status = status_of(error)
    if status == 401:
        return unauthenticated(f"the brokers refuse the login: {error}")
    return HttpError(status, str(error))


def json_error(_scope: Scope, error: HttpError) -> Response:
    """Render ``{"error_code": …, "message": …}``, the form of the registry and of other paths."""
    return JSONResponse(
        {"error_code": error.code, "message": error.message}, error.status, headers=dict(error.headers or {})
    )
