"""The faults of a plan as values. Each of them checks itself when it is made."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.public import public_in

COORDINATOR: Final = "coordinator"
"""The coordination server, as the end of a link or where a simulation kills or pauses it."""
CONTROLLER: Final = "controller"
"""The broker that is the controller when the fault begins."""
ALL: Final = "all"
CLIENTS: Final = "clients"
"""The clients of a simulation, as the end of a link."""

MILLISECONDS_MAX: Final = 7 * 24 * 3_600_000
"""A delay longer than a week is a typing error."""

CLOCK_MILLISECONDS_MAX: Final = 100 * 366 * 24 * 3_600_000
"""A clock may be a hundred years off."""

TRUNCATED_BYTES_MAX: Final = 2**31 - 1

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LEADER: Final = re.compile(r"leader/([A-Za-z0-9._-]{1,249})/(\d{1,9})")
_MEMBER: Final = re.compile(rf"\d{{1,9}}|{COORDINATOR}|{ALL}|{CLIENTS}")


@public_in("kalda.faults")
class FaultError(ValueError):
    """A fault or a plan is not valid; the message names the fault, the value found and what is allowed."""


@public_in("kalda.faults")
class RequestEffect(Enum):
    """The effects of a fault on a request. The value is the word in a plan."""

    ERROR = "error"
    """The broker answers with an error and does nothing."""
    ERROR_AFTER = "error-after"
    """The broker does what is asked, and answers with an error."""
    DELAY = "delay"
    """The broker begins later; later requests of the connection wait behind it."""
    DROP = "drop"
    """The connection closes before the broker does anything."""
    LOSE = "lose"
    """The broker does what is asked, and the connection closes instead of the answer."""
    HANG = "hang"
    """The broker does nothing and never answers; the connection stays open."""
    TRUNCATE = "truncate"
    """The broker does what is asked, sends the first bytes of the answer and closes the connection."""
    THROTTLE = "throttle"
    """The answer says that the client is above its quota and has to wait."""
    ROUTE = "route"
    """Records go to another topic, and offsets are asked for there; the client does not notice."""


@public_in("kalda.faults")
class Condition(Enum):
    """A state of the cluster that each API reports by a code of its own. The value is the word in a plan."""

    REBALANCE = "rebalance"
    """The group rebalances: its members have to join again."""
    FENCE = "fence"
    """A producer with the same transactional id has begun, so that this one is fenced."""
    MOVE = "move"
    """The coordinator of the group or the transactional id has moved to another broker."""
    RECREATE = "recreate"
    """The topic was deleted and created again, so that its id is another."""


@public_in("kalda.faults")
class BrokerEffect(Enum):
    """The effects of a fault on a broker. The value is the word in a plan."""

    KILL = "broker:kill"
    """It ends at once, as by ``kill -9``."""
    STOP = "broker:stop"
    """It shuts down in order."""
    PAUSE = "broker:pause"
    """It is suspended, as by SIGSTOP."""
    FULL_DISK = "disk:full"
    """Writes to its log directories fail with ENOSPC."""
    FAILING_DISK = "disk:fail"
    """Reads and writes in its log directories fail with EIO."""
    READ_ONLY_DISK = "disk:read-only"
    """Writes to its log directories fail with EROFS."""
    CLOCK_JUMP = "clock:jump"
    """Its wall clock is set forward or back."""
    SESSION_EXPIRY = "session:expire"
    """Its session with the coordination server expires."""
    POWER_LOSS = "broker:power"
    """It ends at once, and its disk loses a part of what was not synced."""
    SLOW_DISK = "disk:slow"
    """Each work in the background, such as a sync, takes longer."""
    FLIPPED_BIT = "disk:flip"
    """A bit of what its disk has synced is another; at the end it starts again and checks all that it has."""
    KILL_CLIENT = "client:kill"
    """A client of a workload ends at once; `broker` is its number."""

    @property
    def is_simulated_only(self) -> bool:
        """Whether only a simulation can carry it out."""
        return self in _SIMULATED


_SIMULATED: Final = (
    BrokerEffect.POWER_LOSS,
    BrokerEffect.SLOW_DISK,
    BrokerEffect.FLIPPED_BIT,
    BrokerEffect.KILL_CLIENT,
)
_OF_COORDINATOR: Final = (BrokerEffect.KILL, BrokerEffect.PAUSE, BrokerEffect.POWER_LOSS)


@public_in("kalda.faults")
class LinkEffect(Enum):
    """The effects of a fault on a link between two members. The value is the word in a plan."""

    CUT = "link:cut"
    """No connection between them, or from one to the other."""
    DELAY = "link:delay"
    """Requests from one to the other arrive later."""
    LOSS = "link:loss"
    """Some requests are lost with their connection; `value` is how many in 100."""


GROUP_APIS: Final = (
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
)
TRANSACTION_APIS: Final = (
    ApiKey.PRODUCE,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
)
ALL_APIS: Final = tuple(sorted(ApiKey))

API_GROUPS: Final = {"group": GROUP_APIS, "txn": TRANSACTION_APIS, "any": ALL_APIS}
"""Names that stand for several APIs. The Produce requests of `txn` are those with a transactional id."""

CODES: Final[dict[Condition, dict[ApiKey, ErrorCode]]] = {
    Condition.REBALANCE: {
        ApiKey.HEARTBEAT: ErrorCode.REBALANCE_IN_PROGRESS,
        # A member of the newer protocol joins again with the epoch 0.
        ApiKey.CONSUMER_GROUP_HEARTBEAT: ErrorCode.FENCED_MEMBER_EPOCH,
    },
    Condition.FENCE: {
        ApiKey.PRODUCE: ErrorCode.INVALID_PRODUCER_EPOCH,
        ApiKey.ADD_PARTITIONS_TO_TXN: ErrorCode.PRODUCER_FENCED,
        ApiKey.ADD_OFFSETS_TO_TXN: ErrorCode.PRODUCER_FENCED,
        ApiKey.END_TXN: ErrorCode.PRODUCER_FENCED,
        ApiKey.TXN_OFFSET_COMMIT: ErrorCode.INVALID_PRODUCER_EPOCH,
    },
    Condition.MOVE: dict.fromkeys(
        (*GROUP_APIS, *(key for key in TRANSACTION_APIS if key is not ApiKey.PRODUCE)),
        ErrorCode.NOT_COORDINATOR,
    ),
    Condition.RECREATE: dict.fromkeys((ApiKey.PRODUCE, ApiKey.FETCH), ErrorCode.UNKNOWN_TOPIC_ID),
}

_KNOWN_FROM: Final = {
    (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.PRODUCER_FENCED): 2,
    (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.PRODUCER_FENCED): 2,
    (ApiKey.END_TXN, ErrorCode.PRODUCER_FENCED): 2,
    (ApiKey.PRODUCE, ErrorCode.UNKNOWN_TOPIC_ID): 13,
    (ApiKey.FETCH, ErrorCode.UNKNOWN_TOPIC_ID): 13,
}
"""The first version of an API that knows a code."""

_BEFORE: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""What older versions say instead."""


def code_for(code: ErrorCode | Condition, api_key: ApiKey, version: int) -> ErrorCode | None:
    """Return the code by which an API reports an error; None if it never reports the condition."""
    if isinstance(code, ErrorCode):
        return code
    found = CODES[code].get(api_key)
    if found is not None and version < _KNOWN_FROM.get((api_key, found), 0):
        return _BEFORE[found]
    return found


_WITH_CODE: Final = (RequestEffect.ERROR, RequestEffect.ERROR_AFTER)
_WITH_DURATION: Final = (RequestEffect.DELAY, RequestEffect.THROTTLE)


@public_in("kalda.faults")
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFault:
    """A fault of the requests that it matches.

    Of the requests that match, the fault applies from the `nth` on, to `times` of them, each with a
    probability. Names may be patterns with ``*``, ``?`` and ``[…]``, as those of files.

    Raises:
        FaultError: a value is not allowed.
    """

    apis: tuple[ApiKey, ...]
    """The APIs of the requests."""
    effect: RequestEffect
    code: ErrorCode | Condition | None = None
    """The error, with ERROR and ERROR_AFTER."""
    milliseconds: int | None = None
    """How long, with DELAY and THROTTLE."""
    size: int | None = None
    """How many bytes of the answer are sent, with TRUNCATE: the size in 4 bytes, then the rest."""
    to: str | None = None
    """The other topic, with ROUTE."""
    client: str | None = None
    """The client id."""
    topic: str | None = None
    """A topic that the request names. Only the named topics have an error; others succeed."""
    partition: int | None = None
    """A partition that the request names, as for `topic`."""
    group: str | None = None
    """The group id."""
    transactional_id: str | None = None
    header: str | None = None
    """A header of a record, ``name`` or ``name=value``, in a Produce request."""
    broker: int | None = None
    """The broker that gets the request."""
    source: str = "clients"
    """Who sends it: ``clients``, ``brokers`` or ``all``."""
    nth: int = 1
    times: int | None = None
    """None means always."""
    percent: float = 100.0
    """How many in 100 of the requests it applies to, by chance; with ROUTE, of the clients."""

    def __post_init__(self) -> None:
        if not self.apis:
            raise FaultError("a fault of requests names no API")
        effect = self.effect.value
        _demand(self.code is not None, self.effect in _WITH_CODE, effect, "an error code")
        _demand(self.milliseconds is not None, self.effect in _WITH_DURATION, effect, "a duration, as in 3s")
        _demand(self.to is not None, self.effect is RequestEffect.ROUTE, effect, "a topic")
        _demand(self.size is not None, self.effect is RequestEffect.TRUNCATE, effect, "a number of bytes")
        if self.milliseconds is not None:
            _check_range("the duration in milliseconds", self.milliseconds, 1, MILLISECONDS_MAX)
        if self.size is not None:
            _check_range("the number of bytes", self.size, 0, TRUNCATED_BYTES_MAX)
        if self.to is not None:
            _check_topic("the topic of a route", self.to)
            if self.apis != (ApiKey.PRODUCE,):
                raise FaultError("only Produce requests can be routed; the target must be `produce`")
        if self.code is ErrorCode.NONE:
            raise FaultError("the code NONE is no error")
        if isinstance(self.code, Condition) and not set(self.apis) & set(CODES[self.code]):
            names = ", ".join(key.title for key in CODES[self.code])
            raise FaultError(f"{self.code.value} is a condition that only these report: {names}")
        for name in ("client", "topic", "group", "transactional_id", "header"):
            check_text(name, getattr(self, name))
        if self.header is not None and self.apis != (ApiKey.PRODUCE,):
            raise FaultError("only Produce requests have headers of records; the target must be `produce`")
        if self.partition is not None:
            _check_range("partition", self.partition, 0, 2**31 - 1)
        if self.broker is not None:
            _check_range("broker", self.broker, 0, 2**31 - 1)
        if self.source not in SOURCES:
            raise FaultError(f"from={self.source} is none of {', '.join(SOURCES)}")
        _check_range("nth", self.nth, 1, 2**31 - 1)
        if self.times is not None:
            _check_range("times", self.times, 1, 2**31 - 1)
        if not 0 < self.percent <= 100:
            raise FaultError(f"percent={self.percent:g} is outside of 0 (without it) to 100")

    @property
    def is_partial(self) -> bool:
        """Whether it concerns only some topics or partitions of a request."""
        return self.topic is not None or self.partition is not None


@public_in("kalda.faults")
@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFault:
    """A fault of a broker, its disk, its clock or its session.

    Raises:
        FaultError: a value is not allowed.
    """

    effect: BrokerEffect
    broker: int | str
    """The broker's id, ``controller``, ``leader/TOPIC/PARTITION`` or ``all``; ``coordinator`` with KILL and
    PAUSE."""
    milliseconds: int | None = None
    """How far the clock jumps, below 0 into the past, with CLOCK_JUMP; how much longer a work takes, with
    SLOW_DISK."""
    after_ms: int = 0
    """When it begins, in milliseconds after the plan was put in force."""
    for_ms: int | None = None
    """When it ends, in milliseconds after its beginning; None means not by itself."""

    def __post_init__(self) -> None:
        _check_times(self.after_ms, self.for_ms)
        takes_time = self.effect in (BrokerEffect.CLOCK_JUMP, BrokerEffect.SLOW_DISK)
        _demand(self.milliseconds is not None, takes_time, self.effect.value, "a duration, as in 1h")
        if self.effect is BrokerEffect.SLOW_DISK and self.milliseconds is not None:
            _check_range("the delay in milliseconds", self.milliseconds, 1, MILLISECONDS_MAX)
        elif self.milliseconds is not None:
            limit = CLOCK_MILLISECONDS_MAX
            _check_range("the jump in milliseconds", self.milliseconds, -limit, limit)
        if self.effect is BrokerEffect.SESSION_EXPIRY and self.for_ms is not None:
            raise FaultError("session:expire has no end; leave out `for`")
        if isinstance(self.broker, int):
            _check_range("the broker", self.broker, 0, 2**31 - 1)
        elif self.effect is BrokerEffect.KILL_CLIENT:
            raise FaultError(f"a client is named by its number, not @{self.broker}")
        elif self.broker == COORDINATOR and self.effect in _OF_COORDINATOR:
            pass
        elif self.broker not in (CONTROLLER, ALL) and _LEADER.fullmatch(self.broker) is None:
            raise FaultError(
                f"the broker @{self.broker} is neither an id nor controller, all or leader/TOPIC/PARTITION"
            )

    @property
    def leader_of(self) -> tuple[str, int] | None:
        """The topic and partition whose leader is meant; None where the broker is named otherwise."""
        found = _LEADER.fullmatch(self.broker) if isinstance(self.broker, str) else None
        return None if found is None else (found[1], int(found[2]))


@public_in("kalda.faults")
@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault:
    """A fault between two members: brokers, or a broker and the coordination server.

    Raises:
        FaultError: a value is not allowed.
    """

    effect: LinkEffect
    one: int | str
    """A broker's id, ``coordinator``, ``clients`` or ``all``, which is all brokers."""
    other: int | str
    is_one_way: bool = False
    """Whether only connections that `one` opens to `other` are concerned, and the requests on them."""
    value: int | None = None
    """Milliseconds with DELAY, percent with LOSS."""
    after_ms: int = 0
    for_ms: int | None = None

    def __post_init__(self) -> None:
        _check_times(self.after_ms, self.for_ms)
        for member in (self.one, self.other):
            if _MEMBER.fullmatch(str(member)) is None:
                names = f"{COORDINATOR}, {CLIENTS} or {ALL}"
                raise FaultError(f"the member {member} is neither a broker's id nor {names}")
        if self.one == self.other:
            raise FaultError(f"a link has two ends, {self.one} and {self.other} are the same")
        effect = self.effect
        _demand(self.value is not None, effect is not LinkEffect.CUT, effect.value, "a value")
        if effect is LinkEffect.DELAY and self.value is not None:
            _check_range("the delay in milliseconds", self.value, 1, MILLISECONDS_MAX)
        if effect is LinkEffect.LOSS and self.value is not None:
            _check_range("the loss in percent", self.value, 1, 100)
        if effect is not LinkEffect.CUT and COORDINATOR in (self.one, self.other):
            raise FaultError(
                f"{effect.value} is between brokers; a link to the {COORDINATOR} can only be cut"
            )

    @property
    def is_simulated_only(self) -> bool:
        """Whether only a simulation can carry it out."""
        return CLIENTS in (self.one, self.other)


Fault: TypeAlias = RequestFault | BrokerFault | LinkFault

SOURCES: Final = ("clients", "brokers", "all")


def check_text(name: str, value: str | None) -> None:
    """Check a text that selects requests.

    Raises:
        FaultError: it is empty, has white space around it, or characters that cannot be printed.
    """
    if value is not None and (not value or value != value.strip() or not value.isprintable()):
        raise FaultError(
            f"{name.replace('_', '-')}={value!r} must be a text without white space around it and without "
            "characters that cannot be printed"
        )


def _check_topic(what: str, name: str) -> None:
    if _TOPIC.fullmatch(name) is None:
        raise FaultError(f"{what}, {name!r}, must be 1 to 249 letters, digits, '.', '_' and '-'")


def _check_range(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise FaultError(f"{what}, {value}, is outside of {low} to {high}")


def _check_times(after_ms: int, for_ms: int | None) -> None:
    _check_range("`after` in milliseconds", after_ms, 0, MILLISECONDS_MAX)
    if for_ms is not None:
        _check_range("`for` in milliseconds", for_ms, 1, MILLISECONDS_MAX)


def _demand(is_given: bool, is_needed: bool, effect: str, what: str) -> None:
    if is_given != is_needed:
        verb = "needs" if is_needed else "does not take"
        raise FaultError(f"the effect {effect} {verb} {what}")
