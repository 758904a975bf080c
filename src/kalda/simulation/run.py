"""Carries out one schedule: `run`."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from kalda.common import invariants
from kalda.faults import RequestFault
from kalda.faults.state import FaultState
from kalda.simulation import plan as plans
from kalda.simulation.checks.observer import Observer
from kalda.simulation.checks.stored import StoredState
from kalda.simulation.cluster import ZOOKEEPER, SimulatedCluster
from kalda.simulation.operator import Operator
from kalda.simulation.schedule import BROKERS, Outcome, Schedule, draw
from kalda.simulation.scheduler import StepsExceededError
from kalda.simulation.workloads.administration import Administration
from kalda.simulation.workloads.cleaning import Cleaning
from kalda.simulation.workloads.coordination import Registers
from kalda.simulation.workloads.exactly_once import Billing
from kalda.simulation.workloads.groups import Readers
from kalda.simulation.workloads.produce import CountingProducers
from kalda.simulation.workloads.sharing import Sharers
from kalda.simulation.workloads.transactions import Ledgers
from kalda.simulation.world import Workload, World

WORKLOADS: Final[dict[str, Callable[[World], Workload]]] = {
    "administration": Administration,
    "cleaning": Cleaning,
    "coordination": Registers,
    "exactly-once": Billing,
    "groups": Readers,
    "produce": CountingProducers,
    "share-groups": Sharers,
    "transactions": Ledgers,
}
"""The workloads by name."""

START_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 180.0
"""How long after the last fault clients may take to end, and after that the cluster to come to rest."""

_FAR: Final = 0.3
"""The part of schedules whose clients are far away, so that several batches of one are on their way."""
_FAR_SECONDS: Final = (0.02, 0.3)

LOOK_SECONDS: Final = 0.05
_KEPT: Final[list[World]] = []
"""What has run in this process. Its tasks were never ended, and would be one by one if it were collected."""
_WARM_UP_SECONDS: Final = 5.0
_LOOKS_PER_READ: Final = 10
_STEPS_MAX: Final = 3_000_000


class _BugLog(logging.Handler):
    """Reports what brokers log about bugs of their own: violated invariants and unexpected exceptions."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world: Final = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OSError):
            self._world.history.violate("no bug is logged", f"{record.getMessage()}: {error!r}")


def run(schedule: Schedule) -> Outcome:
    """Carry out a schedule in this process, which should end after it: what it made is never closed."""
    invariants.enable_by_default()
    cluster = SimulatedCluster(
        str(schedule.seed), BROKERS, schedule.settings, schedule.foreign, schedule.engine
    )
    world = World(str(schedule.seed), cluster)
    _KEPT.append(world)
    handler = _BugLog(world)
    log = logging.getLogger("kalda")
    log.addHandler(handler)
    try:
        _Run(schedule, world).run()
    except StepsExceededError as error:
        world.history.violate("the cluster does not spin", str(error))
    finally:
        log.removeHandler(handler)
    return Outcome(
        seed=schedule.seed,
        violations=world.history.violations,
        digest=world.history.digest,
        simulated_seconds=cluster.scheduler.now,
        steps=cluster.scheduler.steps,
        trace=world.history.lines,
    )


def warm_up() -> None:
    """Carry out a short schedule with every workload, before child processes are forked for many.

    What is made at its first use, such as the functions that encode messages, is made once then and not in
    each child. Nothing of it changes what a schedule does.
    """
    schedule = draw(0, tuple(WORKLOADS), _WARM_UP_SECONDS)
    run(replace(schedule, workloads=tuple(WORKLOADS)))


class _Run:
    """The phases of a run."""

    def __init__(self, schedule: Schedule, world: World) -> None:
        self._schedule: Final = schedule
        self._world: Final = world
        self._cluster: Final = world.cluster
        self._cluster.on_foreign_start = world.history.note
        self._cluster.internet.on_delivery = world.history.delivered
        self._observer: Final = Observer(self._cluster, world.history)
        self._stored: Final = StoredState(self._cluster, world.history)
        self._operator: Final = Operator(self._cluster, world.history, world.kill_client)
        self._workloads: Final = [WORKLOADS[name](world) for name in schedule.workloads]
        random = world.random("distance")
        is_far = random.random() < _FAR
        self._distance: Final = random.uniform(*_FAR_SECONDS) if is_far else 0.0
        """How long a message between a client and a broker takes besides the latency of all links."""
        self._looks = 0

    def run(self) -> None:
        """Start the cluster and the workloads, carry out the faults, end them, and check."""
        history = self._world.history
        history.note(f"seed {self._schedule.seed}, workloads {' '.join(self._schedule.workloads)}")
        if self._schedule.engine != ZOOKEEPER:
            history.note(f"coordination by {self._schedule.engine}")
        if self._schedule.foreign is not None:
            history.note(f"mixed with brokers of Kafka {self._schedule.foreign}")
        for name, value in self._schedule.settings.items():
            history.note(f"setting {name}={value}")
        if self._distance:
            history.note(f"clients are {self._distance * 1000:.0f} ms away")
        self._start()
        if history.violations:
            return
        self._hurt()
        self._heal()
        if not history.violations:
            self._check()

    def _start(self) -> None:
        cluster = self._cluster
        cluster.start_zookeeper()
        for broker_id in range(BROKERS):
            cluster.start_broker(broker_id)
        if not self._until(lambda: all(map(cluster.is_serving, cluster.brokers)), START_SECONDS):
            failures = [process.failure for process in cluster.brokers.values()]
            self._world.history.violate("the cluster starts", f"{failures}")
            return
        for workload in self._workloads:
            self._world.run(workload.set_up, START_SECONDS)

    def _hurt(self) -> None:
        begin = self._world.now
        self._cluster.set_client_distance(self._distance)
        self._cluster.set_engine_faults(True)
        for workload in self._workloads:
            workload.start()
        seconds = self._schedule.seconds
        plan = self._schedule.plan
        if plan.request_faults:
            self._cluster.set_faults(FaultState(plan, self._world.random("requests")))
        for fault in plan.faults:
            if isinstance(fault, RequestFault) or plans.begin(fault) >= seconds:
                continue
            self._cluster.scheduler.call_at(
                begin + plans.begin(fault), partial(self._operator.carry_out, fault)
            )
        self._until(lambda: bool(self._world.history.violations), self._schedule.seconds)

    def _heal(self) -> None:
        world = self._world
        world.history.note("every fault ends")
        self._cluster.set_faults(None)
        self._cluster.set_engine_faults(False)
        self._operator.end_all()
        self._cluster.set_client_distance(0.0)
        self._operator.restart_ended()
        world.is_stopping = True
        self._until(world.have_clients_ended, SETTLE_SECONDS)
        world.check_clients()
        if not self._until(self._observer.is_at_rest, SETTLE_SECONDS):
            world.history.violate("the cluster comes to rest", self._observer.what_unrest())

    def _check(self) -> None:
        self._observer.read_committed()
        self._observer.check_replicas()
        for workload in self._workloads:
            self._world.run(workload.check, SETTLE_SECONDS)
        for error in self._cluster.errors:
            self._world.history.violate("no error is left unhandled", error)

    def _until(self, is_done: Callable[[], bool], seconds: float) -> bool:
        """Advance time until a condition holds; observe the brokers meanwhile."""
        end = self._world.now + seconds
        scheduler = self._cluster.scheduler
        while not is_done():
            if self._world.now >= end:
                return False
            scheduler.run_until(None, LOOK_SECONDS, _STEPS_MAX)
            self._operator.restart_ended()
            hosted = self._cluster.partitions()
            self._observer.look(hosted)
            self._stored.look(hosted)
            self._looks += 1
            if self._looks % _LOOKS_PER_READ == 0:
                self._observer.read_committed()
        return True
