"""Draws plans of faults in the words of `kalda.faults`, and says which plans a simulation takes."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

from kalda.faults import (
    BrokerEffect,
    BrokerFault,
    Fault,
    FaultError,
    FaultPlan,
    LinkEffect,
    LinkFault,
    RequestFault,
)
from kalda.faults.model import ALL, CLIENTS, CONTROLLER, COORDINATOR
from kalda.faults.plan import FAULTS_MAX
from kalda.runtime.random import Random

_LASTS_MS: Final = 1000
"""How long a fault lasts that has no end of its own."""

CLOCK_JUMP_MS: Final = 3_600_000
SLOW_DISK_MS: Final = 500
SLOW_LINK_MS: Final = 400

_BROKER_EFFECTS: Final = (
    BrokerEffect.KILL,
    BrokerEffect.KILL,
    BrokerEffect.POWER_LOSS,
    BrokerEffect.PAUSE,
    BrokerEffect.STOP,
    BrokerEffect.SESSION_EXPIRY,
    BrokerEffect.FULL_DISK,
    BrokerEffect.SLOW_DISK,
    BrokerEffect.CLOCK_JUMP,
)
_COORDINATOR_EFFECTS: Final = (BrokerEffect.KILL, BrokerEffect.PAUSE, BrokerEffect.POWER_LOSS)
_CLIENTS: Final = 8


def begin(fault: Fault) -> float:
    """Return when a fault begins, in seconds after the workloads have started."""
    return 0.0 if isinstance(fault, RequestFault) else fault.after_ms / 1000


def duration(fault: Fault) -> float:
    """Return how many seconds a fault of a broker or a link lasts: a second if the plan does not say."""
    assert not isinstance(fault, RequestFault), "a fault of requests lasts as long as all faults"
    return (_LASTS_MS if fault.for_ms is None else fault.for_ms) / 1000


def check(plan: FaultPlan, brokers: int) -> None:
    """Check that a simulation with so many brokers can carry out a plan.

    Raises:
        FaultError: it cannot; the message has the fault.
    """
    for fault in plan.faults:
        if isinstance(fault, RequestFault):
            named: Iterable[int | str] = () if fault.broker is None else (fault.broker,)
        elif isinstance(fault, LinkFault):
            if fault.effect is LinkEffect.LOSS:
                raise FaultError(f"{text(fault)}: in a simulation, a link can be cut or delayed")
            named = (fault.one, fault.other)
        else:
            named = () if fault.effect is BrokerEffect.KILL_CLIENT else (fault.broker,)
        for name in named:
            if isinstance(name, int) and name >= brokers:
                raise FaultError(f"{text(fault)}: there is no broker {name}; they are 0 to {brokers - 1}")


def text(fault: Fault) -> str:
    """Return the short form of a fault."""
    return str(FaultPlan((fault,)))


def without(plan: FaultPlan, dropped: Iterable[int]) -> FaultPlan:
    """Return a plan without the faults at these positions."""
    gone = set(dropped)
    return FaultPlan(tuple(fault for index, fault in enumerate(plan.faults) if index not in gone))


def further_faults(random: Random, brokers: int, seconds: float) -> FaultPlan:
    """Draw faults to add to those of `random_plan`: of requests, of links of clients, and flipped bits.

    They have a random source of their own, so that the seeds kept their other faults when these were added.
    """
    faults: list[Fault] = []
    if random.random() < _REQUESTS_PART:
        for words in random.sample(_REQUEST_FAULTS, random.randrange(1, 4)):
            faults += FaultPlan.parse(words).faults
    if random.random() < _CLIENT_LINKS_PART:
        at = random.uniform(0.5, seconds)
        while at < seconds:
            faults.append(_client_link(random, brokers, _times(at, 0.2 + random.random() ** 2 * 14)))
            at += random.uniform(1.0, 20.0)
    if random.random() < _FLIPS_PART:
        for _ in range(_FLIPS):
            # Long enough for readers to meet it, and to end while there is time for others.
            times = _times(random.uniform(1.0, seconds), random.uniform(0.2, 5.0))
            broker = random.randrange(brokers)
            faults.append(BrokerFault(effect=BrokerEffect.FLIPPED_BIT, broker=broker, **times))
    return FaultPlan(tuple(sorted(faults, key=begin)))


def merged(plan: FaultPlan, other: FaultPlan) -> FaultPlan:
    """Return the faults of two plans, in order; as many as a plan may have."""
    faults = sorted((*other.faults, *plan.faults), key=begin)
    return FaultPlan(tuple(faults[:FAULTS_MAX]))


def random_plan(random: Random, brokers: int, seconds: float, mean_gap_seconds: float) -> FaultPlan:
    """Draw a plan for so many seconds; faults may overlap."""
    drawn = itertools.islice(_draw(random, brokers, seconds, mean_gap_seconds), FAULTS_MAX)
    return FaultPlan(tuple(sorted(drawn, key=begin)))


def _draw(random: Random, brokers: int, seconds: float, mean_gap_seconds: float) -> Iterator[Fault]:
    at = random.uniform(0.5, mean_gap_seconds)
    while at < seconds:
        # Most are short, some outlast a session.
        lasts = 0.2 + random.random() ** 2 * 14
        if random.random() < _SEQUENCES_PART:
            draw = _SEQUENCES[random.randrange(len(_SEQUENCES))]
            yield from draw(random, brokers, at)
            at += mean_gap_seconds
        else:
            yield _single(random, brokers, _times(at, lasts))
        at += random.uniform(0.2, 2 * mean_gap_seconds)


def _times(at: float, lasts: float) -> dict[str, int]:
    return {"after_ms": int(at * 1000), "for_ms": int(lasts * 1000)}


def _single(random: Random, brokers: int, times: dict[str, int]) -> Fault:
    choice = random.random()
    if choice < 0.55:
        effect = _BROKER_EFFECTS[random.randrange(len(_BROKER_EFFECTS))]
        return _broker_fault(random, effect, random.randrange(brokers), times)
    if choice < 0.85:
        one, other = random.sample([*range(brokers), COORDINATOR], 2)
        return _link_fault(random, one, other, times)
    if choice < 0.93:
        effect = _COORDINATOR_EFFECTS[random.randrange(len(_COORDINATOR_EFFECTS))]
        return BrokerFault(effect=effect, broker=COORDINATOR, **times)
    client = random.randrange(_CLIENTS)
    return BrokerFault(effect=BrokerEffect.KILL_CLIENT, broker=client, **times)


def _broker_fault(random: Random, effect: BrokerEffect, broker: int, times: dict[str, int]) -> Fault:
    milliseconds = None
    if effect is BrokerEffect.CLOCK_JUMP:
        milliseconds = CLOCK_JUMP_MS if random.randrange(2) else -CLOCK_JUMP_MS
    elif effect is BrokerEffect.SLOW_DISK:
        milliseconds = SLOW_DISK_MS
    elif effect is BrokerEffect.SESSION_EXPIRY:
        times = {"after_ms": times["after_ms"]}
    return BrokerFault(effect=effect, broker=broker, milliseconds=milliseconds, **times)


def _link_fault(random: Random, one: int | str, other: int | str, times: dict[str, int]) -> Fault:
    choice = random.randrange(3)
    # The coordination server's links cannot be slow: the vocabulary has requests of brokers wait, not znodes.
    is_slow = choice == 2 and COORDINATOR not in (one, other)
    return LinkFault(
        effect=LinkEffect.DELAY if is_slow else LinkEffect.CUT,
        one=one,
        other=other,
        is_one_way=choice == 1 or is_slow,
        value=SLOW_LINK_MS if is_slow else None,
        **times,
    )


def _client_link(random: Random, brokers: int, times: dict[str, int]) -> Fault:
    choice = random.random()
    broker = random.randrange(brokers)
    is_slow = choice < 0.75
    one, other = (broker, CLIENTS) if random.randrange(2) else (CLIENTS, broker)
    return LinkFault(
        effect=LinkEffect.DELAY if is_slow else LinkEffect.CUT,
        one=one,
        other=other,
        is_one_way=is_slow or choice < 0.9,
        value=SLOW_LINK_MS // (1 + 7 * random.randrange(2)) if is_slow else None,
        **times,
    )


_REQUEST_FAULTS: Final = (
    "any:drop,percent=0.5",
    "any:lose,percent=0.5",
    "any:truncate=6,percent=0.3",
    "any:hang,percent=0.05",
    "any:delay=300ms,percent=1",
    "any:drop,percent=0.5,from=brokers",
    "any:lose,percent=0.5,from=brokers",
    "produce:NOT_LEADER_OR_FOLLOWER,percent=2",
    "produce:NOT_ENOUGH_REPLICAS_AFTER_APPEND,percent=1",
    "produce:error-after=REQUEST_TIMED_OUT,percent=2",
    "produce:lose,percent=3",
    "produce:delay=200ms,percent=5",
    "fetch:NOT_LEADER_OR_FOLLOWER,percent=1",
    "fetch:lose,percent=2",
    "fetch:throttle=500ms,percent=1",
    "group:move,percent=1",
    "group:rebalance,percent=1",
    "group:lose,percent=2",
    "txn:move,percent=2",
    "txn:lose,percent=3",
    "txn:COORDINATOR_LOAD_IN_PROGRESS,percent=1",
    "EndTxn:error-after=REQUEST_TIMED_OUT,percent=5",
    "InitProducerId:lose,percent=10",
    "OffsetCommit:error-after=REQUEST_TIMED_OUT,percent=5",
    "CreateTopics+DeleteTopics+CreatePartitions:lose,percent=10",
)
_REQUESTS_PART: Final = 0.4
_CLIENT_LINKS_PART: Final = 0.4
_FLIPS_PART: Final = 0.25
_FLIPS: Final = 4
"""Most are left out, because not everything is in sync at that time."""


def _cut(one: int | str, other: int | str, at: float, lasts: float) -> Fault:
    times = _times(at, lasts)
    return LinkFault(
        effect=LinkEffect.CUT, one=one, other=other, after_ms=times["after_ms"], for_ms=times["for_ms"]
    )


# Sequences: faults that seldom meet by chance, in the order in which they do harm.


def _lag_then_fail(random: Random, brokers: int, at: float) -> Iterator[Fault]:
    """One broker cannot fetch from another for longer than it may lag; then the other one ends."""
    follower, leader = random.sample(range(brokers), 2)
    lasts = random.uniform(4.0, 14.0)
    yield _cut(follower, leader, at, lasts)
    fails = at + lasts * random.uniform(0.6, 1.05)
    yield BrokerFault(effect=BrokerEffect.KILL, broker=leader, **_times(fails, random.uniform(2.0, 12.0)))


def _replaced_while_paused(random: Random, brokers: int, at: float) -> Iterator[Fault]:
    """A broker, or the controller, stands still until others have taken its place."""
    member = CONTROLLER if random.randrange(2) else random.randrange(brokers)
    yield BrokerFault(effect=BrokerEffect.PAUSE, broker=member, **_times(at, random.uniform(6.5, 12.0)))


def _cut_off(random: Random, brokers: int, at: float) -> Iterator[Fault]:
    """A broker loses the coordination server but not its clients and followers, or all of its peers."""
    one = random.randrange(brokers)
    lasts = random.uniform(5.0, 14.0)
    others: list[int | str] = [COORDINATOR]
    if random.randrange(2):
        others += [other for other in range(brokers) if other != one]
    for other in others:
        yield _cut(one, other, at, lasts)


def _one_after_the_other(random: Random, brokers: int, at: float) -> Iterator[Fault]:
    """Every broker ends and starts again, as when settings are rolled out in haste."""
    for broker in random.sample(range(brokers), brokers):
        lasts = random.uniform(0.5, 3.0)
        yield BrokerFault(effect=BrokerEffect.KILL, broker=broker, **_times(at, lasts))
        at += lasts * random.uniform(0.5, 1.5)


def _power_while_settled(random: Random, brokers: int, at: float) -> Iterator[Fault]:
    """The coordination server loses power soon after brokers wrote to it."""
    yield BrokerFault(effect=BrokerEffect.KILL, broker=random.randrange(brokers), **_times(at, 1.0))
    effect = BrokerEffect.POWER_LOSS
    yield BrokerFault(effect=effect, broker=COORDINATOR, **_times(at + random.uniform(0.1, 2.0), 1.0))


def _late_controller(random: Random, brokers: int, at: float) -> Iterator[Fault]:
    """What a controller sent arrives after another one has taken its place and changed leaders once more."""
    yield _slow(random.randrange(brokers), at, random.uniform(3.0, 6.0))
    expiry = BrokerEffect.SESSION_EXPIRY
    for _ in range(random.randrange(2, 6)):
        at += random.uniform(0.1, 0.8)
        yield BrokerFault(effect=expiry, broker=random.randrange(brokers), after_ms=int(at * 1000))
        at += random.uniform(0.1, 0.8)
        yield BrokerFault(effect=expiry, broker=CONTROLLER, after_ms=int(at * 1000))


def _ended_before_markers(random: Random, brokers: int, at: float) -> Iterator[Fault]:
    """A broker ends while what it sends to the others, such as markers, takes long to arrive."""
    ends = random.randrange(brokers)
    yield _slow(ends, at, random.uniform(1.5, 4.0))
    at += random.uniform(0.5, 1.5)
    yield BrokerFault(effect=BrokerEffect.KILL, broker=ends, **_times(at, random.uniform(0.5, 8.0)))


def _slow(one: int, at: float, lasts: float) -> Fault:
    times = _times(at, lasts)
    return LinkFault(
        effect=LinkEffect.DELAY,
        one=one,
        other=ALL,
        is_one_way=True,
        value=SLOW_LINK_MS,
        after_ms=times["after_ms"],
        for_ms=times["for_ms"],
    )


_SEQUENCES: Final = (
    _late_controller,
    _ended_before_markers,
    _lag_then_fail,
    _lag_then_fail,
    _replaced_while_paused,
    _cut_off,
    _one_after_the_other,
    _power_while_settled,
)
_SEQUENCES_PART: Final = 0.3
