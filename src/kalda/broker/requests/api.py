"""Defines the contract between the dispatcher and the request handlers: `ApiHandler`, `RequestContext`.

Each API key has one handler, registered as data with its version range. A handler returns one of these:

- the response itself, if it can answer at once; no task is made;
- a `Pending`, which a delayed operation completes later from the event loop;
- a coroutine, for an operation that waits for ZooKeeper or for the controller;
- steps (`kalda.common.turns`), for an operation on many elements, whose first turn the handler has done.

Produce and Fetch have raw handlers instead, which parse the frame and build the reply themselves.
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from kalda.broker.requests.large_requests import ELEMENTS_MAX, LargeRequest
from kalda.cluster.history.author import RequestAuthor
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.metrics import Metrics, RequestMetrics
from kalda.common.pending import Pending
from kalda.common.turns import Steps
from kalda.net.connection import Connection
from kalda.net.reply import Chunk, Ticket
from kalda.protocol import registry
from kalda.security.principal import KafkaPrincipal

if TYPE_CHECKING:
    from kalda.broker.requests.services import BrokerServices

__all__ = [
    "ERROR_NONE",
    "ApiHandler",
    "ErrorResponse",
    "Handle",
    "Pending",
    "RawHandle",
    "RawReply",
    "RawResult",
    "RequestContext",
    "ServedApi",
    "Steps",
    "dropped_in_steps",
    "error_codes",
    "error_codes_in_steps",
    "nothing_named",
]


class RequestContext:
    """One request: its header fields, the connection that it came from and, once decoded, its message.

    The dispatcher makes one per request and passes it on alone, so it has slots and no more.
    """

    __slots__ = (
        "amends",
        "api",
        "api_version",
        "busy_seconds",
        "client_id",
        "connection",
        "correlation_id",
        "large",
        "message",
        "parked_at",
        "pays_for_response",
        "received_at",
        "takes_turns",
        "throttle_seconds",
        "ticket",
        "topic_ids",
    )

    amends: "list[Callable[[Any], Steps[None] | None]] | None"
    """What completes the response where ACLs took something out of the request; set only then."""
    ticket: Ticket
    """The place of the reply in the connection's order; set when the request begins to wait."""
    topic_ids: Mapping[bytes, bytes]
    """The ids that a Produce request gave, by the names of the topics; set where it gave ids."""

    def __init__(
        self,
        connection: Connection,
        api: "ServedApi",
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        received_at: float,
    ) -> None:
        self.connection = connection
        self.api = api
        self.api_version = api_version
        """The version in which the response is written."""
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.received_at = received_at
        """Monotonic seconds at which the last byte of the request was received."""
        self.message: object = None
        """The decoded request; None while it is not decoded, as in a raw handler."""
        self.large: LargeRequest | None = None
        """Set if the request is decoded, handled and answered in turns."""
        self.takes_turns = False
        """Whether the handler took turns, so that the response may be large although the request is not."""
        self.parked_at = 0.0
        """Monotonic seconds at which the request began to wait; 0 if it did not."""
        self.busy_seconds = 0.0
        """For how long the broker worked for the request until it began to wait; measured for quotas only."""
        self.pays_for_response = False
        """Whether the sending of the response counts too, where the request waited."""
        self.throttle_seconds = 0.0
        """How long the client must wait after the response, because it used more than a quota."""

    @property
    def principal(self) -> KafkaPrincipal:
        """The identity of the client."""
        return self.connection.principal

    @property
    def listener(self) -> str:
        """The name of the listener that the client connected to."""
        return self.connection.listener

    def author(self) -> RequestAuthor:
        """Describe the request for the history of what is changed for it."""
        return RequestAuthor(
            self.api.title, str(self.principal), self.client_id, self.connection.peer_address
        )

    def count_error(self, code: int) -> None:
        """Count an error code that a raw handler puts into its reply; the dispatcher counts all others."""
        self.api.metrics.count_error(code)

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
"""None if the request gets no reply (acks=0)."""


class RawHandle(Protocol):
    """Handles a request straight from its frame.

    `frame` is the request without its size prefix; it is writable and valid during the call only. The body
    begins at `body_position`. Raises `ProtocolError` if the request is malformed.
    """

    def __call__(self, context: RequestContext, frame: memoryview, body_position: int, /) -> RawResult:
        """Handle one request."""
        ...


Handle: TypeAlias = (
    "Callable[[Any, RequestContext], Any | Pending[Any] | Coroutine[Any, Any, Any] | Steps[Any]]"
)
"""``handle(request, context)``: request and response are message objects of `kalda.protocol`.

A handler may raise `ApiError`; `ApiHandler.error_response` then makes the response from its code.
"""

ErrorResponse: TypeAlias = "Callable[[Any, ErrorCode], Any]"
"""``error_response(request, code)``: returns the response that carries `code` for everything requested.
Returns None where the protocol has no reply (Produce with acks=0): the connection is closed, as in Kafka."""


AccessCheck = Callable[[Any], Any]
"""Checks one request: a `Check` of the package `checks`, which is above this module."""

AuditNames = Callable[[Any], Iterable[object]]
"""``audit(request)``: the names of what a request changes: texts, or ids of topics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiHandler:
    """Everything a broker knows about one API key: who may use it, and how requests are handled.

    A broker calls `build` or `build_raw` once, when its parts exist. The result is called for each request
    and holds nothing but the parts that it was built with.

    `versions` are served. `advertised`, if it is wider, is what ApiVersions returns: some clients switch
    features on by the advertised range. A request of an advertised version that is not served gets
    UNSUPPORTED_VERSION in its own format; any other version closes the connection, as in Kafka.
    """

    key: ApiKey
    versions: tuple[int, int]
    error_response: ErrorResponse
    access: AccessCheck | None
    """Which permission a request needs; None where every client may make it or the handler asks by itself."""
    build: "Callable[[BrokerServices], Handle] | None" = None
    """Binds the handler to the parts of a broker that it needs."""
    build_raw: "Callable[[BrokerServices], RawHandle] | None" = None
    """The same for a raw handler; an API has one of the two."""
    advertised: tuple[int, int] | None = None
    elements_max: int = ELEMENTS_MAX
    """Elements that the arrays of one request may have together; those of a small request are not counted."""
    is_built_when_used: bool = False
    """Whether the handler is built with the first request: building it imports what few clusters use."""
    is_of_brokers: bool = False
    """Whether brokers make the request, one at a time. It does not wait for those of clients, which may wait
    for its effect: the deletion of a topic ends when the controller's StopReplica is done."""
    is_throttled: bool = True
    """Whether quotas bound it."""
    is_served_early: bool = False
    """Whether a broker serves it before it has the metadata of the cluster."""
    is_telemetry: bool = False
    """Whether clients send their metrics by it; brokers that show no metrics do not advertise it."""
    audit: AuditNames | None = None
    """Returns the names of what a request changes. None if the audit log leaves out such requests."""

    def __post_init__(self) -> None:
        low, high = self.versions
        assert 0 <= low <= high, f"{self.key.title}: versions {self.versions}"
        assert (self.build is None) != (self.build_raw is None), f"{self.key.title}: one way of handling"

    @property
    def versions_advertised(self) -> tuple[int, int]:
        """The range that ApiVersions returns."""
        return self.advertised if self.advertised is not None else self.versions

    def refusal(self, request: Any, code: ErrorCode, version: int) -> Any:
        """Return the response of a version that carries `code`; None where the protocol has none."""
        response = self.error_response(request, code)
        for field in type(response).FIELDS if response is not None else ():
            if field.name in ("error_code", "error_message") and not field.versions.includes(version):
                # The items of the response carry the error.
                setattr(response, field.name, field.default())
        return response


def nothing_named(request: object) -> tuple[()]:
    """Return that the audit log names nothing: all that a request has is a secret."""
    return ()


class ServedApi:
    """A handler of one broker with what the dispatcher derives from it once."""

    __slots__ = (
        "flexible_from",
        "handle",
        "handle_raw",
        "handler",
        "high",
        "low",
        "metrics",
        "request_class",
        "response_class",
        "tagged_headers_from",
        "title",
    )

    def __init__(self, handler: ApiHandler, services: "BrokerServices", metrics: Metrics) -> None:
        self.handler: Final = handler
        self.title: Final = handler.key.title
        self.low, self.high = handler.versions
        self.handle: Final = handler.build(services) if handler.build is not None else None
        self.handle_raw: Final = handler.build_raw(services) if handler.build_raw is not None else None
        spec = registry.spec(handler.key)
        self.request_class: Final = spec.request_class
        self.response_class: Final = spec.response_class
        self.flexible_from: Final = spec.flexible_from
        self.tagged_headers_from: Final = registry.tagged_response_headers_from(handler.key)
        """The first version in which the header of a response has tagged fields."""
        self.metrics: Final = RequestMetrics(metrics, self.title)


ERROR_NONE: Final = int(ErrorCode.NONE)

# An abstract `Sequence` is asked in a function, for each field of each response.
_ARRAYS: Final = (list, tuple)


def error_codes(response: object) -> list[int]:
    """Return the error codes of a response and of the items in its own lists.

    Codes nested deeper are not counted: counting must not cost more than answering.
    """
    codes: list[int] = []
    code = getattr(response, "error_code", ERROR_NONE)
    if code:
        codes.append(code)
    for name in getattr(type(response), "__slots__", ()):
        value = getattr(response, name, None)
        if isinstance(value, _ARRAYS) and value and hasattr(value[0], "error_code"):
            codes.extend(item.error_code for item in value if item.error_code)
    return codes


_STEP_ITEMS: Final = 256
"""Items that are looked at in one step: 20 microseconds."""


def error_codes_in_steps(response: object) -> Iterator[list[int]]:
    """Yield the error codes that `error_codes` returns, some at a time."""
    code = getattr(response, "error_code", ERROR_NONE)
    if code:
        yield [code]
    for name in getattr(type(response), "__slots__", ()):
        value = getattr(response, name, None)
        if isinstance(value, _ARRAYS) and value and hasattr(value[0], "error_code"):
            for start in range(0, len(value), _STEP_ITEMS):
                part = value[start : start + _STEP_ITEMS]
                yield [item.error_code for item in part if item.error_code]


_STEP_DROPPED: Final = 16


def dropped_in_steps(messages: list[Any]) -> Steps[None]:
    """Empty a list of messages, and let the elements of their arrays go one by one.

    To free 300,000 objects at once takes 10 ms. What others share stays as it is.
    """
    kept: list[object] = []
    yield from _gathered(messages, kept)
    messages.clear()
    while kept:
        del kept[-_STEP_DROPPED:]
        yield


def _gathered(elements: list[Any], kept: list[object]) -> Steps[None]:
    """Add elements to `kept`, behind those of their own arrays, so that each holds no others when it goes."""
    if len(elements) <= _STEP_ITEMS:
        for each in elements:
            for name in (field.name for field in getattr(each, "FIELDS", ())):
                value = getattr(each, name)
                if isinstance(value, list):
                    yield from _gathered(value, kept)
            yield
    kept += elements
