"""Defines `CausalEvent`, one change of state in a broker, with its id and the id of its cause.

An event is emitted where a state changes, never for a record and seldom for a request. Its subject names
what it is about, by the keys of `SUBJECT_KEYS`; its details are plain values for people and for
`kalda.events.chains`. Kinds and details that a release does not know are kept and shown as they are.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, Self, TypeAlias

from kalda.common.overriding import override
from kalda.common.public import public
from kalda.common.received_json import loads_received

Plain: TypeAlias = "str | int | float | bool | Sequence[Plain] | Mapping[str, Plain] | None"
"""A value that JSON has."""

Subject: TypeAlias = Mapping[str, str | int]

SUBJECT_KEYS: Final = (
    "topic",
    "partition",
    "group",
    "member",
    "producer",
    "transactional_id",
    "client",
    "user",
    "host",
    "broker",
)
"""What an event can be about. `producer` is a producer id, `client` a client id, `host` an IP address."""

TEXT_MAX: Final = 512
"""The longest text of a subject or a detail, in characters: names are shorter, and reasons are cut."""

NUMBER_MAX: Final = 2**63 - 1
TIME_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, the last that can be shown."""

_NUMBER_DIGITS_MAX: Final = len(str(NUMBER_MAX))

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


@public
@dataclass(frozen=True, slots=True, order=True)
class EventId:
    """The id of an event: the broker that emitted it, and its number there, which never repeats.

    The text form is ``2-mio3x9q1``: the broker id, and the number in base 36.
    """

    broker_id: int
    number: int

    @override
    def __str__(self) -> str:
        digits, rest = "", self.number
        while rest:
            rest, digit = divmod(rest, 36)
            digits = _DIGITS[digit] + digits
        return f"{self.broker_id}-{digits or '0'}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the id that a text stands for.

        Raises:
            ValueError: it is none.
        """
        broker_id, dash, number = text.partition("-")
        is_number = number != "" and set(number) <= set(_DIGITS)
        if not dash or not broker_id.isascii() or not broker_id.isdigit() or not is_number:
            raise ValueError(f"{text!r} is no id of an event: expected BROKER-NUMBER, such as 2-mio3x9q1")
        return cls(int(broker_id), int(number, 36))


class EventKind:
    """The kinds of events; the values are stable, as they are on disk and in ``--json``."""

    BROKER_STARTED: Final = "broker-started"
    BROKER_STOPPED: Final = "broker-stopped"
    SESSION_LOST: Final = "session-lost"
    SESSION_RESTORED: Final = "session-restored"
    SESSION_EXPIRED: Final = "session-expired"
    BROKER_REGISTERED: Final = "broker-registered"
    BROKER_JOINED: Final = "broker-joined"
    BROKER_LEFT: Final = "broker-left"
    CONTROLLER_ELECTED: Final = "controller-elected"
    CONTROLLED_SHUTDOWN: Final = "controlled-shutdown"
    ELECTION_REQUESTED: Final = "election-requested"
    REASSIGNMENT_REQUESTED: Final = "reassignment-requested"
    REPLICAS_REFUSED: Final = "replicas-refused"
    LEADER_CHANGED: Final = "leader-changed"
    ISR_CHANGED: Final = "isr-changed"
    PROCESS_STALLED: Final = "process-stalled"
    CLOCK_CHANGED: Final = "clock-changed"
    SLOW_SYNC: Final = "slow-sync"
    DIRECTORY_FAILED: Final = "directory-failed"
    DIRECTORY_FULL: Final = "directory-full"
    DIRECTORY_RECOVERED: Final = "directory-recovered"
    REPLICATION_FAILED: Final = "replication-failed"
    TOPIC_CREATED: Final = "topic-created"
    TOPIC_DELETED: Final = "topic-deleted"
    RECORDS_DELETED: Final = "records-deleted"
    RECORDS_TRUNCATED: Final = "records-truncated"
    RECORDS_COMPACTED: Final = "records-compacted"
    GROUP_REBALANCING: Final = "group-rebalancing"
    GROUP_STABLE: Final = "group-stable"
    MEMBER_JOINED: Final = "member-joined"
    MEMBER_LEFT: Final = "member-left"
    MEMBER_FAILED: Final = "member-failed"
    MEMBER_REPLACED: Final = "member-replaced"
    MEMBER_REFUSED: Final = "member-refused"
    OFFSETS_DELETED: Final = "offsets-deleted"
    OFFSETS_RESET: Final = "offsets-reset"
    PRODUCER_FENCED: Final = "producer-fenced"
    PRODUCER_REFUSED: Final = "producer-refused"
    RECORDS_REFUSED: Final = "records-refused"
    TRANSACTION_ABORTED: Final = "transaction-aborted"
    CLIENT_THROTTLED: Final = "client-throttled"
    QUOTA_CHANGED: Final = "quota-changed"
    CONFIG_CHANGED: Final = "config-changed"
    CONNECTION_REFUSED: Final = "connection-refused"
    LOGIN_FAILED: Final = "login-failed"
    ACCESS_DENIED: Final = "access-denied"
    EVENTS_DROPPED: Final = "events-dropped"


@public
@dataclass(frozen=True, slots=True, kw_only=True)
class CausalEvent:
    """One change of state."""

    id: EventId
    time_ms: int
    """Wall-clock time of the broker that emitted it, in milliseconds since the epoch."""
    kind: str
    subject: Subject
    details: Mapping[str, object] = field(default_factory=dict)
    """Values that JSON has."""
    cause: EventId | None = None
    """The event that caused this one, of this or of another broker; None if it is not known."""

    def has(self, **names: str | int) -> bool:
        """Return whether the subject has all of these names."""
        return all(self.subject.get(key) == value for key, value in names.items())

    def text(self, detail: str) -> str:
        """Return a detail as a text; empty if the event does not have it."""
        value = self.details.get(detail)
        return "" if value is None else str(value)

    def number(self, detail: str) -> int:
        """Return a detail that is a number; -1 if the event does not have it."""
        value = self.details.get(detail)
        return int(value) if isinstance(value, (int, float)) else -1

    def numbers(self, detail: str) -> tuple[int, ...]:
        """Return a detail that is a list of numbers; empty if the event does not have it."""
        value = self.details.get(detail)
        if not isinstance(value, Sequence) or isinstance(value, str):
            return ()
        return tuple(each for each in value if isinstance(each, int))


def encode_event(event: CausalEvent) -> bytes:
    """Return the event as JSON without its broker id, for the ring of its broker."""
    content: dict[str, object] = {
        "n": event.id.number,
        "t": event.time_ms,
        "k": event.kind,
        "s": dict(event.subject),
    }
    if event.details:
        content["d"] = dict(event.details)
    if event.cause is not None:
        content["c"] = str(event.cause)
    return _ENCODER.encode(content).encode("utf-8", "replace")


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def event_number(content: bytes) -> int:
    """Return the number of an event without reading the rest; -1 if the content is no event."""
    # Every content begins with it: {"n":123,
    digits = content[5 : content.find(b",")]
    return int(digits) if digits.isdigit() and len(digits) <= _NUMBER_DIGITS_MAX else -1


def decode_event(broker_id: int, content: bytes) -> CausalEvent | None:
    """Return the event of a broker that `encode_event` wrote; None if the content is no event."""
    try:
        found = loads_received(content)
        number, time_ms, cause, details = int(found["n"]), int(found["t"]), found.get("c"), found.get("d")
        if not (0 <= number <= NUMBER_MAX and 0 <= time_ms <= TIME_MAX):
            return None
        return CausalEvent(
            id=EventId(broker_id, number),
            time_ms=time_ms,
            kind=str(found["k"]),
            subject=_subject(found["s"]),
            details=details if isinstance(details, dict) else {},
            cause=None if cause is None else EventId.parse(cause),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _subject(found: Mapping[str, object]) -> dict[str, str | int]:
    return {key: value for key, value in found.items() if isinstance(value, (str, int))}


def bounded(value: Plain) -> Plain:
    """Return a value with its texts cut to `TEXT_MAX`."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_MAX else f"{value[:TEXT_MAX]}…"
    if isinstance(value, Mapping):
        return {key: bounded(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [bounded(each) for each in value]
    return value


class EventSink(Protocol):
    """Takes the events of one broker: a recorder, or nothing where events are switched off."""

    def emit(
        self,
        kind: str,
        subject: Subject,
        details: Mapping[str, Plain] | None = None,
        *,
        cause: EventId | None = None,
    ) -> EventId | None:
        """Record one change of state; returns its id, or None if it is not kept.

        An empty subject is this broker.

        It must be called on the thread of the event loop, and takes microseconds: what is written to disk is
        written later, elsewhere.
        """
        ...

    def emit_seldom(
        self, kind: str, subject: Subject, details: Mapping[str, Plain] | None = None
    ) -> EventId | None:
        """Record what clients can repeat at will: the first at once, and then how often in each minute.

        Events are equal if their kind, subject, ``reason`` and ``by_user`` are.
        """
        ...


class NoEvents:
    """Keeps no events."""

    def emit(
        self,
        kind: str,
        subject: Subject,
        details: Mapping[str, Plain] | None = None,
        *,
        cause: EventId | None = None,
    ) -> EventId | None:
        """Keep nothing."""
        return None

    def emit_seldom(
        self, kind: str, subject: Subject, details: Mapping[str, Plain] | None = None
    ) -> EventId | None:
        """Keep nothing."""
        return None


NO_EVENTS: Final[EventSink] = NoEvents()
