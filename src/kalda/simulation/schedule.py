"""One simulated run: what is drawn from a seed, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random as SeededRandom
from typing import Final

from kalda.simulation.plan import Plan, random_plan

BROKERS: Final = 3
CHAOS_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Schedule:
    """A run, as drawn from its seed; `plan` may be another than the seed's, to replay a part of it."""

    seed: int
    workloads: tuple[str, ...]
    settings: Mapping[str, str]
    plan: Plan
    seconds: float = CHAOS_SECONDS


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    seed: int
    violations: list[str] = field(default_factory=list)
    digest: str = ""
    simulated_seconds: float = 0.0
    steps: int = 0
    trace: list[str] = field(default_factory=list)


def draw(
    seed: int, workload_names: tuple[str, ...], seconds: float = CHAOS_SECONDS, plan: Plan | None = None
) -> Schedule:
    """Draw a schedule; `workload_names` are those to choose from."""
    random = SeededRandom(f"{seed}/schedule")
    count = random.randrange(1, min(3, len(workload_names)) + 1)
    chosen = tuple(sorted(random.sample(workload_names, count)))
    settings = {
        "replica.lag.time.max.ms": random.choice(["3000", "10000", "30000"]),
        "log.segment.bytes": random.choice(["4096", "65536", "1073741824"]),
        "log.flush.interval.messages": random.choice(["1", "100", "9223372036854775807"]),
        "auto.leader.rebalance.enable": random.choice(["true", "false"]),
        "leader.imbalance.check.interval.seconds": "7",
        "replica.fetch.wait.max.ms": "500",
        "min.insync.replicas": "2",
        "transaction.two.phase.commit.enable": "true",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }
    gap = random.choice([2.0, 4.0, 9.0])
    drawn = random_plan(random, BROKERS, seconds, gap)
    return Schedule(seed, chosen, settings, drawn if plan is None else plan, seconds)
