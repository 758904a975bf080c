"""Answers ``kalda why``: makes chains of causes from the events of all brokers. Sans-IO.

An answer has *incidents*: all events about a subject that have the same first cause. The newest incident in
which something got worse is the answer; those before it are listed behind it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.events.causes import Evidence, partitions_of
from kalda.events.event import CausalEvent, EventId, EventKind
from kalda.events.words import commands, evidence, sentence, unexplained

LINKS_MAX: Final = 40
"""Links of one incident; a broker may come and go for days."""


@dataclass(frozen=True, slots=True)
class Link:
    """One event of a chain, in words."""

    event: CausalEvent
    text: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Incident:
    """Events with one first cause, which is the first of them."""

    links: tuple[Link, ...]
    commands: tuple[str, ...]

    @property
    def first(self) -> Link:
        """The first cause."""
        return self.links[0]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of `kalda why` about a subject."""

    subject: str
    facts: tuple[str, ...]
    """The state now."""
    incidents: tuple[Incident, ...]
    """The newest first; the first of them is the answer."""
    remarks: tuple[str, ...]
    """What limits the answer: brokers that did not answer, and events that are no longer kept."""


def explain(
    subject: str,
    events: Evidence,
    effects: Sequence[CausalEvent],
    *,
    facts: Sequence[str] = (),
    silent: Collection[int] = (),
    remarks: Sequence[str] = (),
    incidents_max: int = 5,
    routine: Collection[str] = (),
) -> Answer:
    """Group the effects by their first cause, and put each group into words.

    `silent` are the brokers that did not answer, whose own events are missing. `routine` are the kinds of
    events that come behind all that made something worse, however new they are.
    """
    # In each group the first cause is the first, as every chain begins with it.
    groups: dict[EventId, dict[EventId, CausalEvent]] = {}
    for effect in effects:
        chain = events.chain_to(effect)
        groups.setdefault(chain[0].id, {}).update({event.id: event for event in chain})
    quiet = _RECOVERIES | frozenset(routine)
    incidents = sorted(groups.values(), key=lambda group: _worst_ms(group.values(), quiet), reverse=True)
    return Answer(
        subject=subject,
        facts=tuple(facts),
        incidents=tuple(_incident(subject, group, silent) for group in incidents[:incidents_max]),
        remarks=tuple(remarks),
    )


def _incident(subject: str, group: Mapping[EventId, CausalEvent], silent: Collection[int]) -> Incident:
    # The first cause stays first although the next start of a killed broker, or a clock, is later.
    root, *others = group.values()
    ordered = [root, *sorted(others, key=lambda event: (event.time_ms, event.id))][:LINKS_MAX]
    hint = unexplained(root, is_silent=root.subject.get("broker") in silent)
    links = (
        Link(root, sentence(root) + hint, evidence(root)),
        *(Link(event, sentence(event), evidence(event)) for event in ordered[1:]),
    )
    found = dict.fromkeys(command for event in ordered for command in commands(event))
    # The command that was just run says nothing new.
    return Incident(links, tuple(each for each in found if each != f"kalda why {subject}"))


def _worst_ms(group: Collection[CausalEvent], quiet: Collection[str]) -> int:
    """Return when something got worse last; when anything changed, if nothing did."""
    worse = [event.time_ms for event in group if is_worse(event, quiet)]
    return max(worse) if worse else max(event.time_ms for event in group) - _RECOVERY_AGE_MS


_RECOVERY_AGE_MS: Final = 30 * 24 * 3_600_000
"""What recovers, or is routine, counts as that much older than what gets worse."""


def is_worse(event: CausalEvent, quiet: Collection[str]) -> bool:
    """Return whether an event is none of the quiet kinds, and no replica that comes back."""
    if event.kind == EventKind.ISR_CHANGED:
        return bool(set(event.numbers("isr_before")) - set(event.numbers("isr")))
    return event.kind not in quiet or event.text("reason") == "delete-records"


_RECOVERIES: Final = frozenset(
    (
        EventKind.BROKER_STARTED,
        EventKind.BROKER_JOINED,
        EventKind.BROKER_REGISTERED,
        EventKind.SESSION_RESTORED,
        EventKind.CONTROLLER_ELECTED,
        EventKind.DIRECTORY_RECOVERED,
        EventKind.GROUP_STABLE,
        EventKind.TOPIC_CREATED,
    )
)

ROUTINE_OF_LOGS: Final = frozenset((EventKind.RECORDS_DELETED, EventKind.RECORDS_COMPACTED))
"""What a log does all the time: retention and compaction, but not a client that deletes records."""

Select = Callable[[CausalEvent], bool]


def of_names(**names: str | int) -> Select:
    """Return a filter for the events that have these names in their subject."""
    return lambda event: event.has(**names)


def of_broker(broker_id: int) -> Select:
    """Return a filter for the events about a broker, and about partitions that it had to leave."""

    def select(event: CausalEvent) -> bool:
        if event.kind in (EventKind.LEADER_CHANGED, EventKind.ISR_CHANGED):
            gone = set(event.numbers("isr_before")) - set(event.numbers("isr"))
            is_elected = event.number("leader_before") != event.number("leader")
            return broker_id in gone or (is_elected and broker_id == event.number("leader_before"))
        return event.subject.get("broker") == broker_id

    return select


def of_record(topic: str, partition: int, offset: int) -> Select:
    """Return a filter for the events that removed a record."""

    def select(event: CausalEvent) -> bool:
        if event.subject.get("topic") != topic:
            return False
        if event.kind == EventKind.TOPIC_DELETED:
            return True
        return (
            event.kind in _TAKING
            and event.subject.get("partition") == partition
            and event.number("from") <= offset < event.number("to")
        )

    return select


_TAKING: Final = frozenset(
    (EventKind.RECORDS_DELETED, EventKind.RECORDS_TRUNCATED, EventKind.RECORDS_COMPACTED)
)


def of_partition(topic: str, partition: int) -> Select:
    """Return a filter for the events of one partition, except those that removed records.

    Retention deletes records of most partitions for ever, and says nothing about leaders.
    """

    def select(event: CausalEvent) -> bool:
        if event.subject.get("topic") != topic or event.kind in _TAKING - {EventKind.RECORDS_TRUNCATED}:
            return False
        if event.kind == EventKind.CONFIG_CHANGED:
            changes = event.text("changes")
            return any(name in changes for name in _SETTINGS_OF_REPLICAS)
        is_of_topic = event.kind in (EventKind.TOPIC_CREATED, EventKind.TOPIC_DELETED)
        return is_of_topic or partition in partitions_of(event)

    return select


_SETTINGS_OF_REPLICAS: Final = (
    "min.insync.replicas",
    "unclean.leader.election.enable",
    ".replication.throttled.replicas",
)
"""The settings of a topic that decide what its replicas may do."""
