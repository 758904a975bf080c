"""Finds the cause of an event among the events of all brokers. Sans-IO.

An event that carries the id of its cause needs no more. For the others `RULES` say which kinds of events can
be the cause, in order of preference, and how the two must agree: by broker, by broker epoch, by partition,
and in time. Clocks of brokers differ, so a rule across brokers allows `SKEW_MS` in the wrong direction.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from kalda.events.event import CausalEvent, EventId, EventKind

SKEW_MS: Final = 2_000
"""How far the clocks of two brokers may differ."""

DEPTH_MAX: Final = 16
"""The longest chain of causes; a longer one is a circle of guesses."""

Agree: TypeAlias = "Callable[[CausalEvent, CausalEvent], bool]"
"""``agree(effect, cause)``: whether the two are about the same."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`effect` may be caused by `cause`, at most `before_ms` earlier or `after_ms` later."""

    effect: str
    cause: str
    agree: Agree
    before_ms: int
    after_ms: int = SKEW_MS


def same_broker(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether both are about one broker."""
    return effect.subject.get("broker") == cause.subject.get("broker")


def same_registration(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether both are about one broker, in one registration of it where both name one."""
    epochs = effect.number("broker_epoch"), cause.number("broker_epoch")
    return same_broker(effect, cause) and (-1 in epochs or epochs[0] == epochs[1])


def emitted_by_subject(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether the broker that the effect is about emitted the cause."""
    return effect.subject.get("broker") == cause.id.broker_id


def ended_before(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether a start found that the broker had ended without a shutdown, before the effect."""
    last = cause.number("last_event_ms")
    return (
        same_broker(effect, cause)
        and cause.details.get("is_clean") is False
        and cause.details.get("is_first") is False
        and last <= effect.time_ms + SKEW_MS
    )


def ended_by_directories(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether the broker ended because no log directory was left."""
    return same_registration(effect, cause) and cause.details.get("has_ended_broker") is True


def removed_broker(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether the cause is about a replica that the effect takes out of the in-sync replicas."""
    return cause.subject.get("broker") in _removed(effect)


def added_broker(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether the cause is about a replica that the effect adds to the in-sync replicas."""
    return cause.subject.get("broker") in set(effect.numbers("isr")) - set(effect.numbers("isr_before"))


def led_before(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether the cause took the leadership from the replica that leads again."""
    return (
        effect.subject.get("topic") == cause.subject.get("topic")
        and effect.details.get("leader") == cause.details.get("leader_before")
        and bool(partitions_of(effect) & partitions_of(cause))
    )


def partitions_of(event: CausalEvent) -> frozenset[int]:
    """Return the partitions of its topic that an event is about."""
    found: set[int] = set()
    partition = event.subject.get("partition")
    if isinstance(partition, int):
        found.add(partition)
    listed = event.details.get("partitions")
    if isinstance(listed, list):
        numbers = (each[0] for each in listed if isinstance(each, list) and each)
        found.update(number for number in numbers if isinstance(number, int))
    return frozenset(found)


def _removed(event: CausalEvent) -> frozenset[int]:
    return frozenset(event.numbers("isr_before")) - frozenset(event.numbers("isr"))


_MINUTE: Final = 60_000
_DAY: Final = 24 * 60 * _MINUTE


def in_failed_registration(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether a broker noticed that it stood still after the effect took its role away."""
    seconds = cause.details.get("seconds")
    stalled_ms = seconds * 1000 if isinstance(seconds, (int, float)) else 0
    began_ms = cause.time_ms - stalled_ms
    brokers = _removed(effect) | {effect.subject.get("broker"), effect.number("leader_before")}
    return cause.subject.get("broker") in brokers and began_ms - SKEW_MS <= effect.time_ms


def same_group(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether both are about one group."""
    return effect.subject.get("group") == cause.subject.get("group") is not None


def same_transactional_id(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether both are about one transactional id."""
    return effect.subject.get("transactional_id") == cause.subject.get("transactional_id") is not None


def same_producer(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether both are about one producer id."""
    return effect.subject.get("producer") == cause.subject.get("producer") is not None


def same_client(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether a quota that changed is one of the client or of the user, or of all."""
    return all(
        key not in cause.subject or cause.subject[key] in (effect.subject.get(key), "<default>")
        for key in ("client", "user")
    ) and bool({"client", "user"} & cause.subject.keys())


def same_topic(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether both are about one topic."""
    return effect.subject.get("topic") == cause.subject.get("topic") is not None


def changed_retention(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether a setting changed that decides which records of the topic are deleted."""
    changes = cause.text("changes")
    return same_topic(effect, cause) and any(word in changes for word in ("retention.", "cleanup.policy"))


def deleted_topic(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether the offsets of the effect were deleted with the topic of the cause."""
    return same_topic(effect, cause) and "topic was deleted" in effect.text("reason")


def changed_limit(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether a setting changed by which the broker refused the records."""
    names = _LIMITS.get(effect.text("reason"), ())
    return same_topic(effect, cause) and any(name in cause.text("changes") for name in names)


_LIMITS: Final[Mapping[str, tuple[str, ...]]] = {
    "NOT_ENOUGH_REPLICAS": ("min.insync.replicas",),
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": ("min.insync.replicas",),
    "MESSAGE_TOO_LARGE": ("max.message.bytes",),
    "RECORD_LIST_TOO_LARGE": ("segment.bytes",),
    "INVALID_TIMESTAMP": ("message.timestamp.",),
    "INVALID_RECORD": ("cleanup.policy", "kalda.", "message.format.version"),
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": ("message.format.version",),
}
"""The settings of topics that decide about records, by the code with which a broker refuses these."""

_BY_REPLICAS: Final = frozenset(
    ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT")
)


def lacks_replicas(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether replicas of the partition left the in-sync replicas before its records were refused."""
    return (
        effect.text("reason") in _BY_REPLICAS
        and same_topic(effect, cause)
        and bool(partitions_of(effect) & partitions_of(cause))
        and bool(_removed(cause))
    )


def same_leader(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether a log directory of the broker that refused the records could not take them."""
    return cause.subject.get("broker") == effect.id.broker_id and effect.text("reason") in (
        "KAFKA_STORAGE_ERROR",
        "UNKNOWN_SERVER_ERROR",
    )


def moved(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether an operator asked for the replica that comes, or that goes."""
    added = set(effect.numbers("isr")) - set(effect.numbers("isr_before"))
    gone = _removed(effect) | {effect.number("leader_before")} - {effect.number("leader")}
    return (
        same_topic(effect, cause)
        and bool(partitions_of(effect) & partitions_of(cause))
        and bool(added & set(cause.numbers("adding")) or gone & set(cause.numbers("removing")))
    )


_STEP_MS: Final = 2 * _MINUTE
"""How far a clock must have moved to be a cause where days, hours or minutes count: time servers set clocks
by a second now and then."""


def clock_of_retention(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether records became old at once, as the clock of their broker was set forward."""
    return (
        effect.id.broker_id == cause.id.broker_id
        and cause.number("milliseconds") >= _STEP_MS
        and "retention.ms" in effect.text("reason")
    )


def clock_of_timestamps(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether a leader refused timestamps after its clock was set."""
    return (
        effect.id.broker_id == cause.id.broker_id
        and abs(cause.number("milliseconds")) >= _STEP_MS
        and effect.text("reason") == "INVALID_TIMESTAMP"
    )


def clock_of_transactions(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether a transaction timed out as the clock of its coordinator was set forward.

    The step must be at least half of the time that the transaction had.
    """
    return (
        effect.id.broker_id == cause.id.broker_id
        and 2 * cause.number("milliseconds") >= max(effect.number("timeout_ms"), 1)
        and effect.text("reason") == "time-out"
    )


def on_refusing_broker(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether the cause is about a broker that lost a leadership or its place among the replicas."""
    return cause.subject.get("broker") in _removed(effect) | {effect.number("leader_before")}


def leads_truncated(effect: CausalEvent, cause: CausalEvent) -> bool:
    """Return whether another leader was elected for the partition that was truncated."""
    return same_topic(effect, cause) and bool(partitions_of(effect) & partitions_of(cause))


RULES: Final = (
    # A broker leaves: it was stopped, lost its session, or died, which only its next start can say.
    # The controller reads why a broker ended before or after it misses the broker, and busy ones read late.
    Rule(EventKind.BROKER_LEFT, EventKind.DIRECTORY_FAILED, ended_by_directories, 2 * _MINUTE, _MINUTE),
    Rule(EventKind.BROKER_LEFT, EventKind.PROCESS_STALLED, in_failed_registration, 2 * _MINUTE, 10 * _MINUTE),
    Rule(EventKind.BROKER_LEFT, EventKind.SESSION_EXPIRED, same_registration, 2 * _MINUTE, 10 * _MINUTE),
    Rule(EventKind.BROKER_LEFT, EventKind.BROKER_STOPPED, same_registration, 2 * _MINUTE),
    Rule(EventKind.BROKER_LEFT, EventKind.CONTROLLED_SHUTDOWN, same_registration, 5 * _MINUTE, 0),
    Rule(EventKind.BROKER_LEFT, EventKind.BROKER_STARTED, ended_before, _MINUTE, _DAY),
    Rule(EventKind.BROKER_JOINED, EventKind.BROKER_STARTED, same_broker, 2 * _MINUTE),
    Rule(EventKind.BROKER_JOINED, EventKind.SESSION_EXPIRED, same_broker, 2 * _MINUTE),
    Rule(EventKind.CONTROLLED_SHUTDOWN, EventKind.BROKER_STOPPED, same_registration, _MINUTE),
    Rule(EventKind.SESSION_EXPIRED, EventKind.PROCESS_STALLED, same_broker, 10 * _MINUTE, _MINUTE),
    Rule(EventKind.SESSION_EXPIRED, EventKind.SESSION_LOST, same_broker, 10 * _MINUTE, 0),
    Rule(EventKind.SESSION_LOST, EventKind.PROCESS_STALLED, same_broker, 10 * _MINUTE, _MINUTE),
    Rule(EventKind.SESSION_LOST, EventKind.SLOW_SYNC, same_broker, _MINUTE),
    Rule(EventKind.BROKER_REGISTERED, EventKind.SESSION_EXPIRED, same_broker, 10 * _MINUTE, 0),
    # In-sync replicas shrink because of the removed replica's broker, and grow when it is back.
    Rule(EventKind.REPLICAS_REFUSED, EventKind.DIRECTORY_FAILED, same_broker, 2 * _MINUTE),
    Rule(EventKind.REPLICAS_REFUSED, EventKind.DIRECTORY_FULL, same_broker, 2 * _MINUTE),
    Rule(EventKind.ISR_CHANGED, EventKind.BROKER_STOPPED, removed_broker, _MINUTE),
    Rule(EventKind.ISR_CHANGED, EventKind.DIRECTORY_FAILED, removed_broker, 2 * _MINUTE),
    Rule(EventKind.ISR_CHANGED, EventKind.DIRECTORY_FULL, removed_broker, 2 * _MINUTE),
    Rule(EventKind.ISR_CHANGED, EventKind.PROCESS_STALLED, in_failed_registration, 2 * _MINUTE, 10 * _MINUTE),
    Rule(EventKind.ISR_CHANGED, EventKind.BROKER_LEFT, removed_broker, _MINUTE),
    Rule(EventKind.ISR_CHANGED, EventKind.REPLICATION_FAILED, removed_broker, 5 * _MINUTE),
    Rule(EventKind.ISR_CHANGED, EventKind.SESSION_LOST, removed_broker, 5 * _MINUTE),
    Rule(EventKind.ISR_CHANGED, EventKind.SLOW_SYNC, removed_broker, _MINUTE),
    Rule(EventKind.ISR_CHANGED, EventKind.REASSIGNMENT_REQUESTED, moved, _DAY),
    Rule(EventKind.ISR_CHANGED, EventKind.DIRECTORY_RECOVERED, added_broker, 5 * _MINUTE),
    Rule(EventKind.ISR_CHANGED, EventKind.BROKER_JOINED, added_broker, 30 * _MINUTE),
    Rule(EventKind.LEADER_CHANGED, EventKind.DIRECTORY_FAILED, on_refusing_broker, 2 * _MINUTE),
    Rule(EventKind.LEADER_CHANGED, EventKind.DIRECTORY_FULL, on_refusing_broker, 2 * _MINUTE),
    Rule(EventKind.LEADER_CHANGED, EventKind.REASSIGNMENT_REQUESTED, moved, _DAY),
    # Groups and producers.
    Rule(EventKind.GROUP_STABLE, EventKind.GROUP_REBALANCING, same_group, 30 * _MINUTE, 0),
    Rule(EventKind.PRODUCER_REFUSED, EventKind.PRODUCER_FENCED, same_transactional_id, _DAY, 0),
    Rule(EventKind.PRODUCER_REFUSED, EventKind.TRANSACTION_ABORTED, same_transactional_id, _DAY, 0),
    Rule(EventKind.PRODUCER_REFUSED, EventKind.TRANSACTION_ABORTED, same_producer, _DAY),
    Rule(EventKind.PRODUCER_REFUSED, EventKind.PRODUCER_FENCED, same_producer, _DAY),
    # A takeover first aborts the open transaction, then raises the epoch.
    Rule(EventKind.PRODUCER_FENCED, EventKind.TRANSACTION_ABORTED, same_transactional_id, _MINUTE, 0),
    Rule(EventKind.TRANSACTION_ABORTED, EventKind.CLOCK_CHANGED, clock_of_transactions, _MINUTE),
    Rule(EventKind.CLIENT_THROTTLED, EventKind.QUOTA_CHANGED, same_client, 30 * _DAY),
    Rule(EventKind.OFFSETS_DELETED, EventKind.TOPIC_DELETED, deleted_topic, 10 * _MINUTE),
    # Records that a leader does not take: a setting that was just changed, replicas that are not in sync.
    Rule(EventKind.RECORDS_REFUSED, EventKind.CONFIG_CHANGED, changed_limit, 10 * _MINUTE),
    Rule(EventKind.RECORDS_REFUSED, EventKind.CLOCK_CHANGED, clock_of_timestamps, 10 * _MINUTE),
    Rule(EventKind.RECORDS_REFUSED, EventKind.DIRECTORY_FULL, same_leader, 10 * _MINUTE),
    Rule(EventKind.RECORDS_REFUSED, EventKind.DIRECTORY_FAILED, same_leader, 10 * _MINUTE),
    Rule(EventKind.RECORDS_REFUSED, EventKind.ISR_CHANGED, lacks_replicas, _DAY),
    Rule(EventKind.RECORDS_REFUSED, EventKind.LEADER_CHANGED, lacks_replicas, _DAY),
    Rule(EventKind.RECORDS_REFUSED, EventKind.CONFIG_CHANGED, changed_limit, 30 * _DAY),
    Rule(EventKind.RECORDS_REFUSED, EventKind.CLOCK_CHANGED, clock_of_timestamps, _DAY),
    # Records that are gone.
    Rule(EventKind.RECORDS_DELETED, EventKind.CLOCK_CHANGED, clock_of_retention, 10 * _MINUTE, 0),
    Rule(EventKind.RECORDS_DELETED, EventKind.CONFIG_CHANGED, changed_retention, _DAY),
    Rule(EventKind.RECORDS_COMPACTED, EventKind.CONFIG_CHANGED, changed_retention, _DAY),
    Rule(EventKind.RECORDS_TRUNCATED, EventKind.LEADER_CHANGED, leads_truncated, 30 * _MINUTE),
)
"""In order of preference for each effect: the first rule that finds a cause wins."""


_SET_BACK_MS: Final = 10 * _MINUTE
"""For how long after a clock was set back its broker's events also count with the times that it had before:
as long as most rules look back."""


class Evidence:
    """The events of all brokers, with the causes that they name and those that rules find."""

    def __init__(self, events: Iterable[CausalEvent], *, is_steady: bool = False) -> None:
        """`is_steady` takes the times as they are, whatever the events say of clocks."""
        self.events: Final = sorted(events, key=lambda event: (event.time_ms, event.id))
        self._by_id: Final = {event.id: event for event in self.events}
        self._by_kind: Final[dict[str, list[CausalEvent]]] = {}
        for event in self.events:
            self._by_kind.setdefault(event.kind, []).append(event)
        self._times: Final = {
            kind: [event.time_ms for event in events] for kind, events in self._by_kind.items()
        }
        self._causes: Final[dict[EventId, CausalEvent | None]] = {}
        steady = None if is_steady else _with_steady_clocks(self.events)
        self._steady: Final = None if steady is None else Evidence(steady, is_steady=True)
        """The same events as if no clock had been set back; None if none was. Which of the two times of such
        a clock was right is not known, so these explain what nothing else does."""

    def of_kind(self, *kinds: str) -> list[CausalEvent]:
        """Return the events of some kinds, oldest first."""
        return sorted(
            (event for kind in kinds for event in self._by_kind.get(kind, ())),
            key=lambda event: (event.time_ms, event.id),
        )

    def find(self, event_id: EventId) -> CausalEvent | None:
        """Return an event by its id; None if no broker that answered has it."""
        return self._by_id.get(event_id)

    def cause_of(self, event: CausalEvent) -> CausalEvent | None:
        """Return the event that caused another one; None if it is a first cause as far as is known."""
        if event.id not in self._causes:
            self._causes[event.id] = self._cause_of(event)
        return self._causes[event.id]

    def chain_to(self, event: CausalEvent) -> list[CausalEvent]:
        """Return the causes that led to an event, first cause first, the event last."""
        chain = [event]
        seen = {event.id}
        while len(chain) < DEPTH_MAX and (cause := self.cause_of(chain[0])) is not None:
            if cause.id in seen:
                break
            seen.add(cause.id)
            chain.insert(0, cause)
        return chain

    def _cause_of(self, event: CausalEvent) -> CausalEvent | None:
        named = None if event.cause is None else self._by_id.get(event.cause)
        if named is not None and not _is_vague(named):
            return named
        for rule in _BY_EFFECT.get(event.kind, ()):
            found = self._nearest(event, rule)
            if found is not None:
                return found
        return self._balance_cause(event) or named or self._steady_cause(event)

    def _steady_cause(self, event: CausalEvent) -> CausalEvent | None:
        """Return the cause that a rule finds with the times of clocks that were not set back."""
        steady = None if self._steady is None else self._steady.find(event.id)
        if self._steady is None or steady is None:
            return None
        found = self._steady.cause_of(steady)
        return None if found is None else self._by_id[found.id]

    def _nearest(self, effect: CausalEvent, rule: Rule) -> CausalEvent | None:
        """Return the cause by a rule that is nearest in time, the earlier one of two; None if there is none.

        The search goes outwards from the effect: clients can make events by the ten thousand.
        """
        causes, times = self._by_kind.get(rule.cause, []), self._times.get(rule.cause, [])
        least, most = effect.time_ms - rule.before_ms, effect.time_ms + rule.after_ms
        later = bisect_left(times, effect.time_ms)
        earlier = later - 1
        while True:
            before = effect.time_ms - times[earlier] if earlier >= 0 and times[earlier] >= least else None
            after = times[later] - effect.time_ms if later < len(times) and times[later] <= most else None
            if before is not None and (after is None or before <= after):
                cause = causes[earlier]
                earlier -= 1
            elif after is not None:
                cause = causes[later]
                later += 1
            else:
                return None
            if cause.id != effect.id and rule.agree(effect, cause):
                return cause

    def _balance_cause(self, event: CausalEvent) -> CausalEvent | None:
        """Return the change that moved a leadership away which the controller's balance moves back."""
        if event.kind != EventKind.LEADER_CHANGED:
            return None
        changes, times = self._by_kind.get(event.kind, []), self._times.get(event.kind, [])
        earlier = range(bisect_left(times, event.time_ms) - 1, -1, -1)
        return next((changes[each] for each in earlier if led_before(event, changes[each])), None)


def _with_steady_clocks(events: Iterable[CausalEvent]) -> list[CausalEvent] | None:
    """Return events with the times of clocks as they went before they were set back; None if none was.

    The numbers of a broker's events ascend whatever its clock does. A clock that goes forward may be that of
    a machine that was suspended, which is right before and after; one that had been set back is put right by
    it. A step back may have put the clock right itself, so later events keep their times.
    """
    steps: dict[int, tuple[int, int]] = {}
    was_set_back = False
    found = []
    for event in sorted(events, key=lambda event: event.id):
        broker_id, moved_ms = event.id.broker_id, event.number("milliseconds")
        ahead_ms, until_ms = steps.get(broker_id, (0, event.time_ms))
        if event.kind == EventKind.CLOCK_CHANGED and moved_ms < -SKEW_MS:
            was_set_back = True
            ahead_ms, until_ms = ahead_ms - moved_ms, event.time_ms + _SET_BACK_MS
        elif event.kind == EventKind.CLOCK_CHANGED and moved_ms > SKEW_MS:
            ahead_ms, until_ms = max(ahead_ms - moved_ms, 0), until_ms + moved_ms
        if event.time_ms > until_ms:
            ahead_ms = 0
        steps[broker_id] = ahead_ms, until_ms
        found.append(replace(event, time_ms=event.time_ms + ahead_ms))
    return found if was_set_back else None


def _is_vague(event: CausalEvent) -> bool:
    """Return whether an event says that the controller balanced leaders, which has a cause itself."""
    return event.kind == EventKind.ELECTION_REQUESTED and event.text("reason") == "balance"


_BY_EFFECT: Final[Mapping[str, list[Rule]]] = {
    effect: [rule for rule in RULES if rule.effect == effect] for effect in {rule.effect for rule in RULES}
}
