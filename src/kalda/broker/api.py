"""What a request handler is: the contract between dispatch and the modules under `kalda.broker.handlers`.

One handler per API key, registered as data with its version range. A handler answers in one of three ways:

- the response itself, for whatever can be answered at once (no task is made);
- a `Pending`, which a delayed operation completes later, from the event loop;
- a coroutine, for operations that wait on coordination.

Produce and Fetch have raw handlers instead: they parse the frame and build the reply themselves.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.net.connection import Chunk, Connection

if TYPE_CHECKING:
    from kalda.broker.services import BrokerServices
    from kalda.common.metrics import RequestMetrics

__all__ = [
    "ERROR_NONE",
    "ApiHandler",
    "ErrorResponse",
    "Handle",
    "Pending",
    "RawHandler",
    "RawReply",
    "RawResult",
    "RequestContext",
    "error_codes",
]


class RequestContext:
    """Where a request came from and how it was made; one per request, so it has slots and no more.

    `api_version` is the version that the answer is written in.
    """

    __slots__ = (
        "api_key",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "metrics",
        "parked_at",
        "received_at",
    )

    def __init__(
        self,
        connection: Connection,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        received_at: float,
        metrics: "RequestMetrics",
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.received_at = received_at
        """Monotonic seconds at which the request's last byte was received."""
        self.metrics = metrics
        self.parked_at = 0.0
        """When its answer began to wait for something; 0 if it did not."""

    @property
    def listener(self) -> str:
        """The name of the listener that the client connected to."""
        return self.connection.listener

    def count_error(self, code: int) -> None:
        """Count an error that a raw handler puts into its reply; others' replies are looked through."""
        self.metrics.count_error(code)

    def __str__(self) -> str:
        """Describe the request for a log line."""
        client = "no client id" if self.client_id is None else f'client id "{self.client_id}"'
        return (
            f"version {self.api_version}, correlation id {self.correlation_id}, {client}, "
            f"from {self.connection.peer}"
        )


RawReply: TypeAlias = bytes | list[Chunk]
"""A complete reply frame: size prefix, response header, body."""

RawResult: TypeAlias = "RawReply | Pending[RawReply | None] | None"
"""None means that the request gets no reply (acks=0)."""


class RawHandler(Protocol):
    """Handles a request straight from its frame.

    `frame` is the request without its size prefix, writable, valid during the call only; the body begins at
    `body_position`. Raises `kalda.protocol.errors.ProtocolError` if the request is malformed.
    """

    def __call__(
        self, services: "BrokerServices", context: RequestContext, frame: memoryview, body_position: int, /
    ) -> RawResult:
        """Handle one request."""
        ...


Handle: TypeAlias = (
    "Callable[[BrokerServices, Any, RequestContext], Any | Pending[Any] | Coroutine[Any, Any, Any]]"
)
"""``handle(services, request, context)``: request and response are message objects of `kalda.protocol`.

May raise `ApiError`, whose code becomes the response through `ApiHandler.error_response`.
"""

ErrorResponse: TypeAlias = "Callable[[Any, ErrorCode], Any]"
"""``error_response(request, code)``: the response that says `code` wherever the request asked for something.
Returns None where the protocol has no reply (produce with acks=0): the connection is closed, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiHandler:
    """One API key as this broker serves it.

    `versions` are served. `advertised` is what ApiVersions says if it is more than that: a request of an
    advertised version that is not served gets UNSUPPORTED_VERSION in its own format, because some clients
    switch features on by what is advertised. Everything outside is answered as Kafka does: by closing.
    """

    key: ApiKey
    versions: tuple[int, int]
    error_response: ErrorResponse
    handle: "Handle | None" = None
    handle_raw: "RawHandler | None" = None
    advertised: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        low, high = self.versions
        assert 0 <= low <= high, f"{self.key.title}: versions {self.versions}"
        assert (self.handle is None) != (self.handle_raw is None), f"{self.key.title}: one way of handling"

    @property
    def versions_advertised(self) -> tuple[int, int]:
        """The range that ApiVersions tells clients."""
        return self.advertised if self.advertised is not None else self.versions


ERROR_NONE: Final = int(ErrorCode.NONE)


def error_codes(response: object) -> list[int]:
    """Return the errors that a response carries at its top and in the items of its own lists.

    Deeper ones are not looked for: counting errors must not cost more than answering.
    """
    codes: list[int] = []
    code = getattr(response, "error_code", ERROR_NONE)
    if code:
        codes.append(code)
    for name in getattr(type(response), "__slots__", ()):
        value = getattr(response, name, None)
        if isinstance(value, Sequence) and value and hasattr(value[0], "error_code"):
            codes.extend(item.error_code for item in value if item.error_code)
    return codes
