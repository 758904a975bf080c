"""Decides what one admin call sends, sends again and returns, as Java's `AdminApiDriver`. Sans-IO.

A call has many keys (topics, groups, partitions). Each key goes through the same steps: find its broker, be
part of a request, and succeed, fail, or take another round after a back-off. An `AdminOperation` knows the
requests and responses of one method; `AdminCall` knows the rounds; `call_runner` does the I/O and has the
time.

Each key ends exactly once, with a result or with an error, whatever a broker answers or leaves out. A key in
flight is never sent a second time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, Generic, Self, TypeAlias, TypeVar

from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import AnyBroker, Broker, Controller, Route
from kalda.clients.errors import ClientError, RequestTimedOutError, error_for
from kalda.common.errors import ErrorCode
from kalda.common.settings import INT_MAX
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol.schema import Message

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
R = TypeVar("R", bound=Message)

UNKNOWN_PATIENCE_S: Final = 3.0
"""How long an unknown topic, partition or broker is looked for. A new topic reaches all brokers within that
time; without the bound, a misspelt name would take the whole time of the call, a minute by default."""

_UNKNOWN_CODES: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.BROKER_NOT_AVAILABLE})


class Place(Enum):
    """A destination that is no fixed broker."""

    ANY = "any broker"
    CONTROLLER = "the controller"


Target: TypeAlias = int | Place
"""The node id of a broker, or a place that each round resolves to one."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The facts about the receiving broker that an operation needs to build its requests."""

    broker_id: int
    """Below 0 for a bootstrap server, whose id is not known."""
    versions: NodeApiVersions
    timeout_ms: int
    """How long the broker may work on a request before its connection counts as dead."""


class Answers(Generic[K, V]):
    """The results and errors in one response, by the keys of its request."""

    def __init__(self) -> None:
        self.results: Final[dict[K, V]] = {}
        self.errors: Final[dict[K, tuple[ErrorCode, str | None]]] = {}
        self.failures: Final[dict[K, ClientError]] = {}
        self.unfinished: Final[set[K]] = set()

    def succeed(self, key: K, value: V) -> None:
        """End a key with its result."""
        self.results[key] = value

    def fail(self, key: K, code: int, message: str | None = None) -> None:
        """Report a broker's error code; the route decides whether the key ends or takes another round."""
        self.errors[key] = (ErrorCode.of(code), message)

    def fail_with(self, key: K, error: ClientError) -> None:
        """End a key with an exception."""
        self.failures[key] = error

    def ask_again(self, key: K) -> None:
        """Leave a key unfinished: its next request differs, and is sent at once."""
        self.unfinished.add(key)


@dataclass(frozen=True, slots=True)
class AdminRequest(Generic[K, V]):
    """One request, the keys that it is for, and how to read its response."""

    message: Message
    response_class: type[Message]
    keys: tuple[K, ...]
    read: Callable[[Message], Answers[K, V]]
    version_max: int | None = None
    """The highest version that can express the request; None for any."""

    @classmethod
    def of(
        cls,
        message: Message,
        response_class: type[R],
        keys: Iterable[K],
        read: Callable[[R, Answers[K, V]], None],
        *,
        version_max: int | None = None,
    ) -> Self:
        """Pair a request with the function that reads a response of `response_class` into answers."""

        def read_message(response: Message) -> Answers[K, V]:
            assert isinstance(response, response_class), f"a {type(response).__name__}"
            answers: Answers[K, V] = Answers()
            read(response, answers)
            return answers

        return cls(message, response_class, tuple(keys), read_message, version_max)


class AdminOperation(ABC, Generic[K, V]):
    """One method of the admin client: where its keys go, their requests, and how to read the responses.

    `title` begins the messages of its errors: "create topic" gives "create topic flights: …".
    """

    title: ClassVar[str]
    retry_codes: ClassVar[frozenset[ErrorCode]] = frozenset()
    """Codes after which a key is sent again, besides those of the route."""
    final_codes: ClassVar[frozenset[ErrorCode]] = frozenset()
    """Codes of the route after which a key is not sent again."""

    @property
    @abstractmethod
    def route(self) -> Route[K]:
        """Where the requests of the keys go."""

    @abstractmethod
    def requests(self, keys: Sequence[K], context: RequestContext) -> Iterable[AdminRequest[K, V]]:
        """Return the requests for keys with the same destination, in versions that it knows.

        Raises:
            UnsupportedApiError: no version that the broker knows can express the call.
        """

    def refusal(self, key: K, context: RequestContext) -> ClientError | None:
        """Return the error of a key that this broker is too old for, although it may serve the others."""
        return None

    def what(self, key: K) -> str:
        """Name the operation on one key, for messages."""
        return f"{self.title} {key}"


@dataclass(slots=True)
class _Pending(Generic[K]):
    """A key that has not ended."""

    key: K
    node_id: int | None = None
    """The broker that a look-up found; unused by routes without a look-up."""
    not_before: float = 0.0
    failures: int = 0
    unknown_since: float | None = None
    is_in_flight: bool = False
    is_sent: bool = False
    """Whether it is in flight in a request to a broker that was reached."""
    is_unanswered: bool = False
    """Whether a request for the key was lost: the broker may have processed it."""
    last_error: ClientError | None = None


@dataclass(frozen=True, slots=True)
class Dispatch(Generic[K]):
    """Keys to send now: `target` is None when their brokers have to be looked up first."""

    keys: tuple[K, ...]
    target: Target | None


class AdminCall(Generic[K, V]):
    """The rounds of one call.

    Args:
        operation: The method.
        keys: What it is called for; duplicates count once.
        now: Monotonic seconds.
        timeout_ms: How long the call may take.
        backoff: The seconds to wait before the next round, after that many failures in a row.
        retries_max: After how many failures more a key ends, although there is time left.
    """

    def __init__(
        self,
        operation: AdminOperation[K, V],
        keys: Iterable[K],
        *,
        now: float,
        timeout_ms: int,
        backoff: Callable[[int], float],
        retries_max: int = INT_MAX,
    ) -> None:
        self.operation: Final = operation
        self.deadline: Final = now + timeout_ms / 1000
        self._timeout_ms: Final = timeout_ms
        self._backoff: Final = backoff
        self._retries_max: Final = retries_max
        self._order: Final = tuple(dict.fromkeys(keys))
        self._pending: Final[dict[K, _Pending[K]]] = {key: _Pending(key) for key in self._order}
        self._results: Final[dict[K, V]] = {}
        self._errors: Final[dict[K, ClientError]] = {}

    @property
    def is_done(self) -> bool:
        """Whether each key has ended."""
        return not self._pending

    def outcomes(self) -> Outcomes[K, V]:
        """Return how the keys ended, in the order in which they were given."""
        assert self.is_done, f"{len(self._pending)} keys are pending"
        return Outcomes(
            {key: self._results[key] for key in self._order if key in self._results},
            {key: self._errors[key] for key in self._order if key in self._errors},
        )

    def due(self, now: float) -> list[Dispatch[K]]:
        """Return the keys that may be sent now, by destination; they are in flight from here on."""
        by_target: dict[Target | None, list[K]] = {}
        for pending in self._pending.values():
            if not pending.is_in_flight and pending.not_before <= now:
                pending.is_in_flight, pending.is_sent = True, False
                by_target.setdefault(self._target(pending), []).append(pending.key)
        return [Dispatch(tuple(keys), target) for target, keys in by_target.items()]

    def next_due(self) -> float:
        """Return when `due` or `expire` has something to do, unless a response comes first."""
        times = [each.not_before for each in self._pending.values() if not each.is_in_flight]
        return min([self.deadline, *times])

    def prepare(self, dispatch: Dispatch[K], context: RequestContext) -> list[AdminRequest[K, V]]:
        """Return the requests of a dispatch to the broker that its destination turned out to be.

        Raises:
            UnsupportedApiError: as `AdminOperation.requests`.
        """
        accepted = []
        for key in dispatch.keys:
            if key not in self._pending:
                continue
            error = self.operation.refusal(key, context)
            if error is None:
                accepted.append(key)
                self._pending[key].is_sent = True
            else:
                self._fail(self._pending[key], error)
        return list(self.operation.requests(accepted, context)) if accepted else []

    def located(self, nodes: dict[K, int | ClientError], now: float) -> None:
        """Take the brokers that a look-up found, or the errors in their place."""
        for key, found in nodes.items():
            if key not in self._pending:
                continue
            pending = self._pending[key]
            if isinstance(found, int):
                pending.node_id = found
                pending.is_in_flight = False
                pending.not_before = now
            else:
                self._take_error(pending, found, now, is_moved=True)

    def received(self, request: AdminRequest[K, V], response: Message, now: float, broker: str) -> bool:
        """Take the response to a request; return whether it says that another broker is responsible.

        `broker` is the one that answered, as errors name it.
        """
        answers = request.read(response)
        for key in request.keys:
            if key not in self._pending:
                continue
            pending = self._pending[key]
            if key in answers.results:
                self._succeed(pending, answers.results[key])
            elif key in answers.errors:
                self._take_code(pending, *answers.errors[key], now, broker)
            elif key in answers.failures:
                self._fail(pending, answers.failures[key])
            elif key in answers.unfinished:
                pending.is_in_flight = False
                pending.not_before = now
            else:
                what = f"{self.operation.what(key)}: the response of {broker} does not mention it"
                self._fail(pending, error_for(ErrorCode.UNKNOWN_SERVER_ERROR, what))
        return any(code in self.operation.route.moved_codes for code, _ in answers.errors.values())

    def failed(self, keys: Iterable[K], error: ClientError, now: float, *, was_sent: bool) -> None:
        """Take a failure without a response: no connection, a lost one, a time-out, or no shared version.

        `was_sent` says whether the broker may have received a request for the keys.
        """
        for key in keys:
            if key not in self._pending:
                continue
            pending = self._pending[key]
            pending.is_unanswered |= was_sent
            self._take_error(pending, error, now, is_moved=True)

    def expire(self, now: float, unreached: ClientError | None = None) -> None:
        """End all keys if the time is up.

        `unreached` says why no broker answers: the cause for keys that still waited for one.
        """
        if now < self.deadline:
            return
        for pending in list(self._pending.values()):
            is_answer_awaited = pending.is_in_flight and pending.is_sent
            last = pending.last_error or (None if is_answer_awaited else unreached)
            text = f"{self.operation.what(pending.key)}: gave up after {self._timeout_ms} ms"
            error = RequestTimedOutError(text if last is None else f"{text}; last: {last}")
            error.__cause__ = last
            self._fail(pending, error)

    def _target(self, pending: _Pending[K]) -> Target | None:
        match self.operation.route:
            case AnyBroker():
                return Place.ANY
            case Controller():
                return Place.CONTROLLER
            case Broker(broker_id_of):
                broker_id = broker_id_of(pending.key)
                return Place.ANY if broker_id is None else broker_id
        return pending.node_id

    def _take_code(
        self, pending: _Pending[K], code: ErrorCode, message: str | None, now: float, broker: str
    ) -> None:
        """Take an error code of a response: the broker moved, try again, or the end."""
        operation = self.operation
        error = error_for(code, f"{operation.what(pending.key)} at {broker}", message)
        moved_codes = operation.route.moved_codes
        is_final = code in operation.final_codes
        if is_final or code not in moved_codes | operation.route.retry_codes | operation.retry_codes:
            self._fail(pending, error)
        else:
            self._retry(pending, error, now, is_moved=code in moved_codes)

    def _take_error(self, pending: _Pending[K], error: ClientError, now: float, *, is_moved: bool) -> None:
        if error.is_retriable or error.code in _UNKNOWN_CODES:
            self._retry(pending, error, now, is_moved=is_moved)
        else:
            self._fail(pending, error)

    def _retry(self, pending: _Pending[K], error: ClientError, now: float, *, is_moved: bool) -> None:
        if error.code not in _UNKNOWN_CODES:
            pending.unknown_since = None
        elif pending.unknown_since is None:
            pending.unknown_since = now
        elif now - pending.unknown_since >= UNKNOWN_PATIENCE_S:
            self._fail(pending, error)
            return
        pending.failures += 1
        if pending.failures > self._retries_max:
            self._fail(pending, error)
            return
        pending.last_error = error
        pending.is_in_flight = False
        pending.not_before = now + self._backoff(pending.failures)
        if is_moved:
            pending.node_id = None

    def _succeed(self, pending: _Pending[K], value: V) -> None:
        self._results[pending.key] = value
        del self._pending[pending.key]

    def _fail(self, pending: _Pending[K], error: ClientError) -> None:
        if pending.is_unanswered and not isinstance(error, RequestTimedOutError):
            error.add_note("An earlier request of this call got no response; it may have taken effect.")
        self._errors[pending.key] = error
        del self._pending[pending.key]
