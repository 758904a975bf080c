"""Defines one simulated run: what is drawn from its seed, its form as text, and its outcome."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random as SeededRandom
from typing import Any, Final

from kalda.faults import FaultError, FaultPlan
from kalda.settings.definitions.access import ACL_AUTHORIZERS
from kalda.simulation import plan as plans
from kalda.simulation.cluster import ENGINES, ZOOKEEPER
from kalda.simulation.releases import RELEASES, knows_topic_ids

BROKERS: Final = 3
CHAOS_SECONDS: Final = 60.0
CHAOS_SECONDS_MAX: Final = 3600.0

_WORKLOADS_MAX: Final = 3
_WORKLOADS_WITH_IDS: Final = ("administration",)
"""Workloads that create topics again under the names of deleted ones."""
SHARE_GROUPS: Final = "share-groups"
_LATER_WORKLOADS: Final = (SHARE_GROUPS,)
"""Workloads that came later. Each takes the place of another one in some seeds, and changes no other seed."""
_LATER_PART: Final = 0.15


class ScheduleError(ValueError):
    """The text of a schedule cannot be read; the message says what is allowed."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A run; the seed decides what the rest leaves open, such as the latency of each message."""

    seed: int
    workloads: tuple[str, ...]
    settings: Mapping[str, str]
    plan: FaultPlan
    seconds: float = CHAOS_SECONDS
    foreign: str | None = None
    """The release of Apache Kafka whose model some brokers are."""
    engine: str = ZOOKEEPER
    """What keeps the cluster's metadata, one of `ENGINES`."""

    def to_yaml(self) -> str:
        """Return a document from which `read_schedule` makes an equal schedule."""
        import yaml

        document = {
            "seed": self.seed,
            "seconds": self.seconds,
            "workloads": list(self.workloads),
            "settings": dict(self.settings),
            "faults": [plans.text(fault) for fault in self.plan.faults],
        }
        if self.foreign is not None:
            document["foreign"] = self.foreign
        if self.engine != ZOOKEEPER:
            document["coordination"] = self.engine
        dumped: str = yaml.safe_dump(document, sort_keys=False)
        return dumped


@dataclass(slots=True)
class Outcome:
    """The outcome of a run."""

    seed: int
    violations: list[str] = field(default_factory=list)
    digest: str = ""
    simulated_seconds: float = 0.0
    steps: int = 0
    trace: list[str] = field(default_factory=list)


def draw(
    seed: int,
    workload_names: Sequence[str],
    seconds: float = CHAOS_SECONDS,
    plan: FaultPlan | None = None,
    *,
    is_mixed: bool = False,
    engine: str = ZOOKEEPER,
) -> Schedule:
    """Draw a schedule.

    Args:
        seed: Fixes everything.
        workload_names: Those to choose from.
        seconds: How long faults happen.
        plan: Takes the place of the drawn plan.
        is_mixed: Whether some brokers are models of Apache Kafka's.
        engine: What keeps the cluster's metadata.
    """
    # Each part has a source of its own: a seed keeps its faults when a workload is added.
    random = SeededRandom(f"{seed}/foreign")
    foreign = random.choice(RELEASES) if is_mixed else None
    if foreign is not None and not knows_topic_ids(foreign):
        # Without ids, a topic and another one created later under its name look the same.
        workload_names = [name for name in workload_names if name not in _WORKLOADS_WITH_IDS]
    chosen = _choose(seed, [name for name in workload_names if foreign is None or name != SHARE_GROUPS])
    random = SeededRandom(f"{seed}/settings")
    settings = {
        "replica.lag.time.max.ms": random.choice(["2000", "4000", "30000"]),
        "log.segment.bytes": random.choice(["4096", "65536", "1073741824"]),
        "log.flush.interval.messages": random.choice(["1", "100", "9223372036854775807"]),
        "auto.leader.rebalance.enable": random.choice(["true", "false"]),
        "leader.imbalance.check.interval.seconds": "7",
        "replica.fetch.wait.max.ms": "500",
        "min.insync.replicas": "2",
        "log.cleaner.backoff.ms": "2000",
        "log.initial.task.delay.ms": "1000",
        "log.retention.check.interval.ms": "3000",
        "group.consumer.heartbeat.interval.ms": "2000",
        "group.consumer.min.heartbeat.interval.ms": "2000",
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.session.timeout.ms": "6000",
        "transaction.two.phase.commit.enable": "true",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }
    random = SeededRandom(f"{seed}/set-up")
    settings["log.dirs"] = random.choice(["/data", "/data-a,/data-b"])
    if random.random() < 0.5:
        # Everyone in a simulation is anonymous; what others may do is changed and looked at.
        settings["authorizer.class.name"] = ACL_AUTHORIZERS[0]
        settings["super.users"] = "User:ANONYMOUS"
    if foreign is not None and random.random() < 0.5:
        settings["kalda.controller.eligible"] = "true"
    if SHARE_GROUPS in chosen:
        random = SeededRandom(f"{seed}/share")
        settings["share.coordinator.snapshot.update.records.per.snapshot"] = random.choice(["3", "40", "500"])
        settings["share.coordinator.state.topic.prune.interval.ms"] = random.choice(["3000", "300000"])
    if plan is None:
        random = SeededRandom(f"{seed}/plan")
        gap = random.choice([2.0, 4.0, 9.0])
        further = plans.further_faults(SeededRandom(f"{seed}/further"), BROKERS, seconds)
        plan = plans.merged(plans.random_plan(random, BROKERS, seconds, gap), further)
    return Schedule(seed, chosen, settings, plan, seconds, foreign, engine)


def _choose(seed: int, names: Sequence[str]) -> tuple[str, ...]:
    random = SeededRandom(f"{seed}/workloads")
    later = [name for name in names if name in _LATER_WORKLOADS]
    first = [name for name in names if name not in _LATER_WORKLOADS] or later
    chosen = random.sample(first, random.randrange(1, min(_WORKLOADS_MAX, len(first)) + 1))
    random = SeededRandom(f"{seed}/later")
    for name in later:
        if name not in chosen and random.random() < _LATER_PART:
            chosen[-1] = name
    return tuple(sorted(chosen))


_KEYS: Final = ("seed", "seconds", "workloads", "settings", "faults", "foreign", "coordination")


def read_schedule(
    text: str, workload_names: Sequence[str], *, seed: int = 1, seconds: float = CHAOS_SECONDS
) -> Schedule:
    """Return the schedule of a YAML document with some of the keys of `Schedule.to_yaml`.

    What the document leaves out is drawn from the seed; without a list of faults there are none.

    Args:
        text: The document.
        workload_names: Those that exist.
        seed: The seed where the document has none.
        seconds: How long faults happen where the document does not say.

    Raises:
        ScheduleError: it is no such document.
    """
    import yaml

    try:
        document: Any = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ScheduleError(f"it is no YAML: {error}") from None
    if not isinstance(document, Mapping):
        raise ScheduleError(f"it is a mapping with {', '.join(_KEYS)}, found {type(document).__name__}")
    for key in document:
        if key not in _KEYS:
            raise ScheduleError(f"{key!r} is not allowed; the keys are {', '.join(_KEYS)}")
    try:
        plan = FaultPlan.from_mapping({"faults": document.get("faults") or []})
        plans.check(plan, BROKERS)
    except FaultError as error:
        raise ScheduleError(str(error)) from None
    drawn = draw(
        int(_number("seed", document.get("seed", seed), 0, 2**63 - 1)),
        workload_names,
        _number("seconds", document.get("seconds", seconds), 0, CHAOS_SECONDS_MAX),
        plan,
    )
    return Schedule(
        drawn.seed,
        known_workloads(document.get("workloads", drawn.workloads), workload_names),
        _settings(document.get("settings", drawn.settings)),
        plan,
        drawn.seconds,
        _foreign(document.get("foreign")),
        _engine(document.get("coordination", ZOOKEEPER)),
    )


def known_workloads(value: object, names: Sequence[str]) -> tuple[str, ...]:
    """Return names of workloads, checked.

    Raises:
        ScheduleError: there is none, or one does not exist.
    """
    chosen = tuple(map(str, value)) if isinstance(value, Iterable) and not isinstance(value, str) else ()
    unknown = [name for name in chosen if name not in names]
    if unknown or not chosen:
        raise ScheduleError(f"workloads, {value!r}, must be some of {', '.join(names)}")
    return chosen


def _settings(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ScheduleError(f"settings must be a mapping of names to values, found {value!r}")
    return {str(name): str(each) for name, each in value.items()}


def _foreign(value: object) -> str | None:
    if value is not None and value not in RELEASES:
        raise ScheduleError(f"foreign must be one of {', '.join(RELEASES)}, not {value!r}")
    return None if value is None else str(value)


def _engine(value: object) -> str:
    if value not in ENGINES:
        raise ScheduleError(f"coordination must be one of {', '.join(ENGINES)}, not {value!r}")
    return str(value)


def _number(name: str, value: object, least: float, most: float) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:  # type: ignore[operator]
        raise ScheduleError(f"{name} must be a number from {least:g} to {most:g}, not {value!r}")
    return value  # type: ignore[return-value]
