"""Draws plans of faults in the words of `kalda.faults`: `random_plan`, and which plans a simulation takes."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

from kalda.faults import BrokerEffect, BrokerFault, Fault, FaultError, FaultPlan, LinkEffect, LinkFault
from kalda.faults.model import COORDINATOR
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
    assert isinstance(fault, (BrokerFault, LinkFault)), "a plan for a simulation has been checked"
    return fault.after_ms / 1000


def duration(fault: Fault) -> float:
    """Return how many seconds a fault lasts: a second if the plan does not say."""
    assert isinstance(fault, (BrokerFault, LinkFault)), "a plan for a simulation has been checked"
    return (_LASTS_MS if fault.for_ms is None else fault.for_ms) / 1000


def check(plan: FaultPlan, brokers: int) -> None:
    """Check that a simulation with so many brokers can carry out a plan.

    Raises:
        FaultError: it cannot; the message has the fault.
    """
    for fault in plan.faults:
        if not isinstance(fault, (BrokerFault, LinkFault)):
            raise FaultError(f"{text(fault)}: a simulation has faults of brokers, clients and links only")
        if isinstance(fault, LinkFault):
            if fault.effect is LinkEffect.LOSS:
                raise FaultError(f"{text(fault)}: in a simulation, a link can be cut or delayed")
            named: Iterable[int | str] = (fault.one, fault.other)
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


def random_plan(random: Random, brokers: int, seconds: float, mean_gap_seconds: float) -> FaultPlan:
    """Draw a plan for so many seconds; faults may overlap."""
    drawn = _draw(random, brokers, seconds, mean_gap_seconds)
    return FaultPlan(tuple(itertools.islice(drawn, FAULTS_MAX)))


def _draw(random: Random, brokers: int, seconds: float, mean_gap_seconds: float) -> Iterator[Fault]:
    members: list[int | str] = [*range(brokers), COORDINATOR]
    at = random.uniform(0.5, mean_gap_seconds)
    while at < seconds:
        # Most are short, some outlast a session.
        times = {"after_ms": int(at * 1000), "for_ms": int((0.2 + random.random() ** 2 * 14) * 1000)}
        choice = random.random()
        if choice < 0.55:
            effect = _BROKER_EFFECTS[random.randrange(len(_BROKER_EFFECTS))]
            yield _broker_fault(random, effect, random.randrange(brokers), times)
        elif choice < 0.85:
            one, other = random.sample(members, 2)
            yield _link_fault(random, one, other, times)
        elif choice < 0.93:
            effect = _COORDINATOR_EFFECTS[random.randrange(len(_COORDINATOR_EFFECTS))]
            yield BrokerFault(effect=effect, broker=COORDINATOR, **times)
        else:
            client = random.randrange(_CLIENTS)
            yield BrokerFault(effect=BrokerEffect.KILL_CLIENT, broker=client, **times)
        at += random.uniform(0.2, 2 * mean_gap_seconds)


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
