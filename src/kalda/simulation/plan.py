"""Faults that happen to a simulated cluster at given times: `Fault` and `Plan`.

A plan is text as well, one fault in a line, so that a failure can be replayed and shortened:

    12.345 kill broker-1 for 4.200
    20.000 cut broker-0 broker-2 for 3.000
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kalda.runtime.random import Random

KINDS: Final = {
    "kill": 1,
    "power": 1,
    "pause": 1,
    "stop": 1,
    "expire": 1,
    "full": 1,
    "slow-disk": 1,
    "clock": 1,
    "cut": 2,
    "cut-one-way": 2,
    "slow-link": 2,
    "kill-client": 1,
}
"""Kinds of faults, and how many machines each names."""


class PlanError(ValueError):
    """A line of a plan cannot be read; the message has the line and what is allowed."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens at `at` seconds and is over `seconds` later."""

    at: float
    kind: str
    targets: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.kind} {' '.join(self.targets)} for {self.seconds:.3f}"

    @classmethod
    def parse(cls, line: str) -> "Fault":
        """Read what `str` writes.

        Raises:
            PlanError: it is something else.
        """
        words = line.split()
        if len(words) < 5 or words[-2] != "for" or words[1] not in KINDS:
            raise PlanError(f"{line!r} is no fault; one is `SECONDS KIND MACHINE… for SECONDS`, {_kinds()}")
        kind, targets = words[1], tuple(words[2:-2])
        if len(targets) != KINDS[kind]:
            raise PlanError(f"{line!r}: {kind} names {KINDS[kind]} machine(s), not {len(targets)}")
        try:
            return cls(float(words[0]), kind, targets, float(words[-1]))
        except ValueError:
            raise PlanError(f"{line!r}: a time is a number of seconds") from None


def _kinds() -> str:
    return f"and the kinds are {', '.join(KINDS)}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Faults in the order of their times."""

    faults: tuple[Fault, ...]

    @classmethod
    def parse(cls, lines: Iterable[str]) -> "Plan":
        """Read a plan; empty lines and those that begin with ``#`` count for nothing.

        Raises:
            PlanError: a line is no fault.
        """
        texts = (line.strip() for line in lines)
        return cls(tuple(sorted((Fault.parse(t) for t in texts if t and t[0] != "#"), key=lambda f: f.at)))

    def lines(self) -> list[str]:
        """Return the plan as text."""
        return [str(fault) for fault in self.faults]

    def without(self, dropped: Iterable[int]) -> "Plan":
        """Return the plan without the faults at these positions."""
        gone = set(dropped)
        return Plan(tuple(fault for index, fault in enumerate(self.faults) if index not in gone))


def random_plan(random: Random, brokers: int, seconds: float, mean_gap_seconds: float) -> Plan:
    """Draw a plan for so many seconds; faults may overlap."""
    return Plan(tuple(_draw(random, brokers, seconds, mean_gap_seconds)))


_BROKER_KINDS: Final = ("kill", "kill", "power", "pause", "stop", "expire", "full", "slow-disk", "clock")
_LINK_KINDS: Final = ("cut", "cut-one-way", "slow-link")


def _draw(random: Random, brokers: int, seconds: float, mean_gap_seconds: float) -> Iterator[Fault]:
    at = random.uniform(0.5, mean_gap_seconds)
    machines = [*(f"broker-{number}" for number in range(brokers)), "zookeeper"]
    while at < seconds:
        # Most are short, some outlast a session.
        lasts = round(0.2 + random.random() ** 2 * 14, 3)
        choice = random.random()
        if choice < 0.55:
            kind = _BROKER_KINDS[random.randrange(len(_BROKER_KINDS))]
            targets: tuple[str, ...] = (machines[random.randrange(brokers)],)
        elif choice < 0.85:
            kind = _LINK_KINDS[random.randrange(len(_LINK_KINDS))]
            targets = tuple(random.sample(machines, 2))
        elif choice < 0.93:
            kind, targets = ("kill", "pause")[random.randrange(2)], ("zookeeper",)
        else:
            kind, targets = "kill-client", (f"client-{random.randrange(8)}",)
        yield Fault(round(at, 3), kind, targets, lasts)
        at += random.uniform(0.2, 2 * mean_gap_seconds)
