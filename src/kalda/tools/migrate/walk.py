"""Decides the next step of a roll from what was done and what the cluster shows. No I/O, no clock.

A roll replaces the software of brokers one at a time, in either direction. For each broker the phases are:

    STOP   the command that stops the old software
    GONE   until the cluster does not list the broker
    START  the command that starts the new software
    BACK   until the cluster lists the broker, with the new software
    SETTLE until all replicas are in sync, groups are stable, and no offset is lower than before

Each change of phase is an event of the journal, written before anything is done. A roll that was killed reads
the events and goes on: a command may then run twice, so commands have to be repeatable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias, assert_never

from kalda.common.types import TopicPartition

_SHOWN_MAX: Final = 5
"""How many names a reason lists: more would hide the others."""


class Software(StrEnum):
    """What runs as a broker."""

    KAFKA = "kafka"
    KALDA = "kalda"

    @property
    def other(self) -> "Software":
        """The one that it replaces."""
        return Software.KALDA if self is Software.KAFKA else Software.KAFKA

    @property
    def full_name(self) -> str:
        """Its name."""
        return "Apache Kafka" if self is Software.KAFKA else "Kalda"


class Phase(StrEnum):
    """Where one broker is between its two softwares."""

    STOP = "stop"
    GONE = "gone"
    START = "start"
    BACK = "back"
    SETTLE = "settle"


class Accepted(StrEnum):
    """A pause of clients that the plan accepts."""

    SINGLE_REPLICAS = "single-replicas"
    """Partitions whose only replica is on the broker."""
    MIN_INSYNC_REPLICAS = "min-insync-replicas"
    """Partitions that have too few replicas in sync while the broker is down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """One broker and the commands of its operator."""

    broker_id: int
    host: str
    stop: Mapping[Software, str]
    """By software, the command that stops it; it returns when the process has ended."""
    start: Mapping[Software, str]
    """By software, the command that starts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan of a roll."""

    cluster_id: str
    brokers: tuple[BrokerPlan, ...]
    """In the order of the roll."""
    controller_last: bool = True
    wait_seconds: float = 300.0
    """How long the cluster may take for one phase before the roll stops."""
    accept: frozenset[Accepted] = frozenset()

    def broker(self, broker_id: int) -> BrokerPlan:
        """Return the plan of a broker, which the plan must have."""
        return next(each for each in self.brokers if each.broker_id == broker_id)


@dataclass(frozen=True, slots=True)
class Offsets:
    """The ends of logs and the committed offsets, which never get lower by a roll."""

    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    committed: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the cluster shows at one moment."""

    cluster_id: str | None
    controller_id: int | None
    brokers: Mapping[int, Software | None]
    """The live brokers; None where a broker does not say yet what it is."""
    partitions: Mapping[TopicPartition, Sequence[int]] = field(default_factory=dict)
    """The replicas of each."""
    isr: Mapping[TopicPartition, Sequence[int]] = field(default_factory=dict)
    min_in_sync: Mapping[str, int] = field(default_factory=dict)
    """By topic, `min.insync.replicas`."""
    leaderless: frozenset[TopicPartition] = frozenset()
    restless_groups: Sequence[str] = ()
    """Groups that rebalance."""
    newer_groups: Sequence[str] = ()
    """Groups of the consumer protocol, which Kafka in ZooKeeper mode does not serve."""
    offsets: Offsets = field(default_factory=Offsets)


# Events of the journal.


@dataclass(frozen=True, slots=True)
class Began:
    """A roll towards a software began, or one in the other direction turned back."""

    target: Software


@dataclass(frozen=True, slots=True)
class Measured:
    """The offsets before the next broker is touched."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class Entered:
    """A broker entered a phase."""

    broker_id: int
    phase: Phase

    def repeated(self) -> "Entered":
        """Return the phase in which a new run goes on: the command that was waited for is run again.

        It may have had no effect, or what it started may have ended; an operator who repeats the run has
        mended it.
        """
        earlier = {Phase.GONE: Phase.STOP, Phase.BACK: Phase.START, Phase.SETTLE: Phase.START}
        return Entered(self.broker_id, earlier.get(self.phase, self.phase))


@dataclass(frozen=True, slots=True)
class Swapped:
    """A broker has the target's software, and the cluster is as it was before."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class Returned:
    """A broker that was swapped runs its former software again: its operator went back by hand."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class Doubted:
    """The roll stopped, for this reason; the next run goes on from here."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """All brokers of the plan have the target's software."""


Event: TypeAlias = Began | Measured | Entered | Swapped | Returned | Doubted | Ended


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a roll is; the sum of the events of its journal."""

    target: Software | None = None
    swapped: tuple[int, ...] = ()
    """The brokers that have the target's software, in the order in which they got it."""
    current: Entered | None = None
    measured: Offsets | None = None
    """The offsets that nothing may be below; None before the first measurement of a run."""
    is_fresh: bool = False
    """Whether they were measured after the last broker was swapped."""
    doubt: str | None = None
    """Why the last run stopped; None if it did not, or went on."""
    has_ended: bool = False

    def after(self, event: Event) -> "Progress":
        """Return the progress after one more event."""
        match event:
            case Began(target):
                # Between two runs, days may pass: topics are deleted, offsets expire.
                measured = None if self.current is None else self.measured
                if target is self.target and not self.has_ended:
                    return replace(
                        self,
                        current=None if self.current is None else self.current.repeated(),
                        measured=measured,
                        is_fresh=False,
                        doubt=None,
                    )
                # A broker between its softwares stays current, and goes the other way.
                turned = None if self.current is None else Entered(self.current.broker_id, Phase.STOP)
                return Progress(target=target, current=turned, measured=measured)
            case Measured(offsets):
                return replace(self, measured=offsets, is_fresh=True)
            case Entered():
                return replace(self, current=event)
            case Swapped(broker_id):
                return replace(self, swapped=(*self.swapped, broker_id), current=None, is_fresh=False)
            case Returned(broker_id):
                return replace(self, swapped=tuple(each for each in self.swapped if each != broker_id))
            case Doubted(reason):
                return replace(self, doubt=reason)
            case Ended():
                return replace(self, has_ended=True)
            case _:
                assert_never(event)


# What to do next.


@dataclass(frozen=True, slots=True)
class Record:
    """Write an event to the journal, then decide again."""

    event: Event


@dataclass(frozen=True, slots=True)
class Run:
    """Run a command of a broker; if it succeeds, record the event, else doubt."""

    broker_id: int
    command: str
    then: Event


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait a moment and look again; for these reasons."""

    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    """End this run: the brokers that it was to swap are swapped, and others are left."""


Action: TypeAlias = Record | Run | Wait | Finish


def next_action(
    plan: Plan, progress: Progress, seen: Seen, *, waited_seconds: float, only: frozenset[int] = frozenset()
) -> Action:
    """Return what to do next.

    Args:
        plan: the plan.
        progress: what was done.
        seen: the cluster; whole in phase SETTLE and between brokers, else at least its brokers.
        waited_seconds: how long the roll has waited in this phase.
        only: the brokers to swap in this run; empty for all.
    """
    assert progress.target is not None, "a roll has begun"
    if seen.cluster_id is not None and seen.cluster_id != plan.cluster_id:
        return Record(
            Doubted(f"the brokers are of cluster {seen.cluster_id}, the plan is for {plan.cluster_id}")
        )
    if progress.current is None:
        action = _between(plan, progress, progress.target, seen, only)
    else:
        action = _within(plan, progress, progress.target, progress.current, seen)
    if isinstance(action, Wait) and waited_seconds >= plan.wait_seconds:
        return Record(Doubted(f"after {waited_seconds:.0f} s: {'; '.join(action.reasons)}"))
    return action


def remaining(plan: Plan, progress: Progress, controller_id: int | None) -> list[int]:
    """Return the brokers that are still to be swapped, in their order; without the current one."""
    current = None if progress.current is None else progress.current.broker_id
    left = [
        each.broker_id
        for each in plan.brokers
        if each.broker_id not in progress.swapped and each.broker_id != current
    ]
    if plan.controller_last and controller_id in left:
        left.remove(controller_id)
        left.append(controller_id)
    return left


def _between(plan: Plan, progress: Progress, target: Software, seen: Seen, only: frozenset[int]) -> Action:
    for broker_id in progress.swapped:
        if seen.brokers.get(broker_id) is target.other:
            return Record(Returned(broker_id))
    all_left = remaining(plan, progress, seen.controller_id)
    if not all_left:
        return Record(Ended())
    left = [each for each in all_left if not only or each in only]
    if not left:
        return Finish()
    for broker_id in left:
        if seen.brokers.get(broker_id) is target:
            return Record(Swapped(broker_id))
    reasons = _reasons(plan, progress, seen)
    if reasons:
        return Wait(tuple(reasons))
    broker_id = left[0]
    refusals = _refusals(plan, target, broker_id, seen)
    if refusals:
        return Record(Doubted("; ".join(refusals)))
    if not progress.is_fresh:
        return Record(Measured(seen.offsets))
    return Record(Entered(broker_id, Phase.STOP))


def _within(plan: Plan, progress: Progress, target: Software, current: Entered, seen: Seen) -> Action:
    broker = plan.broker(current.broker_id)
    name = f"broker {broker.broker_id}"
    is_listed = broker.broker_id in seen.brokers
    software = seen.brokers.get(broker.broker_id)

    def enter(phase: Phase) -> Entered:
        return Entered(broker.broker_id, phase)

    match current.phase:
        case Phase.STOP:
            if software is target:
                return Record(enter(Phase.SETTLE))
            return Run(broker.broker_id, broker.stop[target.other], enter(Phase.GONE))
        case Phase.GONE:
            if is_listed:
                return Wait((f"{name} was stopped and the cluster still lists it",))
            return Record(enter(Phase.START))
        case Phase.START:
            if software is target:
                return Record(enter(Phase.BACK))
            if software is target.other:
                return Record(
                    Doubted(
                        f"{name} is back with {software.full_name} before {target.full_name} was started; "
                        "keep its supervisor from starting it"
                    )
                )
            return Run(broker.broker_id, broker.start[target], enter(Phase.BACK))
        case Phase.BACK:
            if software is None:
                state = "does not say yet what it is" if is_listed else "is not in the cluster yet"
                return Wait((f"{target.full_name} was started as {name}, which {state}",))
            if software is not target:
                return Record(
                    Doubted(
                        f"{name} runs {software.full_name} after the command that starts {target.full_name}"
                    )
                )
            return Record(enter(Phase.SETTLE))
        case Phase.SETTLE:
            if software is target.other:
                return Record(Doubted(f"{name} runs {software.full_name} again"))
            reasons = _reasons(plan, progress, seen)
            return Wait(tuple(reasons)) if reasons else Record(Swapped(broker.broker_id))
        case _:
            assert_never(current.phase)


def _reasons(plan: Plan, progress: Progress, seen: Seen) -> list[str]:
    """Return why the cluster is not as it has to be; most of these reasons pass."""
    found = []
    missing = [each.broker_id for each in plan.brokers if each.broker_id not in seen.brokers]
    if missing:
        found.append(f"brokers that the cluster does not list: {', '.join(map(str, missing))}")
    if seen.controller_id is None:
        found.append("there is no controller")
    if seen.leaderless:
        found.append(f"partitions without a leader: {_shown(seen.leaderless)}")
    lagging = [
        each
        for each, replicas in seen.partitions.items()
        if each not in seen.leaderless and len(seen.isr.get(each, ())) < len(replicas)
    ]
    if lagging:
        found.append(f"partitions whose replicas are not all in sync: {_shown(lagging)}")
    if seen.restless_groups:
        found.append(f"groups that rebalance: {', '.join(sorted(seen.restless_groups)[:_SHOWN_MAX])}")
    if progress.measured is not None:
        found += _losses(progress.measured, seen.offsets)
    return found


def _losses(before: Offsets, after: Offsets) -> list[str]:
    """Return what is lower than before, which nothing but a loss or an administrator makes so."""
    found = []
    for partition, end in sorted(before.ends.items()):
        now = after.ends.get(partition)
        if now is None:
            found.append(f"{partition} ended at {end} and does not say now where it ends")
        elif now < end:
            found.append(f"{partition} ended at {end} and ends at {now} now")
    for group, committed in sorted(before.committed.items()):
        for partition, offset in sorted(committed.items()):
            now = after.committed.get(group, {}).get(partition)
            if now is None:
                found.append(f"group {group} had committed {offset} of {partition} and has no offset now")
            elif now < offset:
                found.append(f"group {group} had committed {offset} of {partition} and has {now} now")
    more = len(found) - _SHOWN_MAX
    return [*found[:_SHOWN_MAX], f"and {more} more"] if more > 0 else found


def _refusals(plan: Plan, target: Software, broker_id: int, seen: Seen) -> list[str]:
    """Return why the broker must not be touched, which waiting does not change."""
    found = []
    single, tight = [], []
    for partition, replicas in seen.partitions.items():
        if broker_id not in replicas:
            continue
        if len(replicas) == 1:
            single.append(partition)
        elif len(replicas) - 1 < seen.min_in_sync.get(partition.topic, 1):
            tight.append(partition)
    if single and Accepted.SINGLE_REPLICAS not in plan.accept:
        found.append(
            f"broker {broker_id} has the only replica of {_shown(single)}; add replicas, or write `accept: "
            f"[{Accepted.SINGLE_REPLICAS}]` into the plan"
        )
    if tight and Accepted.MIN_INSYNC_REPLICAS not in plan.accept:
        found.append(
            f"without broker {broker_id}, {_shown(tight)} have fewer replicas than `min.insync.replicas`; "
            f"lower it, or write `accept: [{Accepted.MIN_INSYNC_REPLICAS}]` into the plan"
        )
    if target is Software.KAFKA and seen.newer_groups:
        names = ", ".join(sorted(seen.newer_groups)[:_SHOWN_MAX])
        found.append(
            f"groups of the consumer protocol, which Kafka in ZooKeeper mode does not serve: {names}; set "
            "`group.protocol`=classic in their clients first"
        )
    return found


def _shown(partitions: Sequence[TopicPartition] | frozenset[TopicPartition]) -> str:
    names = [str(each) for each in sorted(partitions)]
    more = len(names) - _SHOWN_MAX
    return ", ".join(names[:_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
