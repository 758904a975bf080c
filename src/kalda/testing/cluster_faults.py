"""Carries out a plan of faults in an in-process cluster: `ClusterFaults`.

Faults of requests are applied by the brokers themselves, which share one state. Faults of brokers and links
are begun and ended here, at once or by timers.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from kalda.common.overriding import override
from kalda.faults import (
    BrokerEffect,
    BrokerFault,
    FaultError,
    FaultPlan,
    LinkFault,
    RequestFault,
)
from kalda.faults.model import ALL, COORDINATOR
from kalda.faults.state import FaultState, RequestFacts
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.testing.cluster_files import DiskFault
from kalda.testing.cluster_network import Network
from kalda.testing.cluster_threads import BrokerThread, ClusterError

logger: Final = logging.getLogger(__name__)

_DISK_FAULTS: Final = {
    BrokerEffect.FULL_DISK: DiskFault.FULL,
    BrokerEffect.FAILING_DISK: DiskFault.FAILING,
    BrokerEffect.READ_ONLY_DISK: DiskFault.READ_ONLY,
}


class FaultyCluster(Protocol):
    """What the faults of brokers do to a cluster."""

    def controller_id(self, timeout_seconds: float = 10.0) -> int:
        """Return the id of the controller."""

    def start(self, broker_id: int) -> None:
        """Start a broker that is down."""

    def stop(self, broker_id: int) -> None:
        """Shut a broker down."""

    def kill(self, broker_id: int) -> None:
        """End a broker at once."""

    def pause(self, broker_id: int) -> None:
        """Suspend a broker."""

    def resume(self, broker_id: int) -> None:
        """Resume a paused broker."""

    def expire_session(self, broker_id: int) -> None:
        """End a broker's session."""

    def start_coordinator(self) -> None:
        """Start the coordination server that is down."""

    def kill_coordinator(self) -> None:
        """End the coordination server at once."""

    def pause_coordinator(self) -> None:
        """Suspend the coordination server."""

    def resume_coordinator(self) -> None:
        """Resume the coordination server."""


class SharedFaultState(FaultState):
    """A state of faults that several brokers, each on its own thread, count in."""

    def __init__(self, plan: FaultPlan) -> None:
        super().__init__(plan, SYSTEM_RANDOM)
        self._lock: Final = threading.Lock()

    @override
    def next(self, facts: RequestFacts) -> RequestFault | None:
        with self._lock:
            return super().next(facts)


def check_plan(plan: FaultPlan) -> None:
    """Check that a cluster of real brokers can carry a plan out.

    Raises:
        FaultError: it has a fault that only a simulation has.
    """
    for fault in plan.broker_faults:
        if fault.effect.is_simulated_only:
            raise FaultError(
                f"{FaultPlan((fault,))}: only `kalda simulate` has the fault {fault.effect.value}"
            )


class ClusterFaults:
    """The plan that is in force in a cluster."""

    def __init__(
        self, cluster: FaultyCluster, network: Network, brokers: Callable[[], dict[int, BrokerThread]]
    ) -> None:
        self._cluster: Final = cluster
        self._network: Final = network
        self._brokers: Final = brokers
        self._lock: Final = threading.RLock()
        self._timers: Final[set[threading.Timer]] = set()
        self._undo: Final[list[Callable[[], None]]] = []
        """What ends the faults that have begun, each once."""
        self.excused: Final[set[int]] = set()
        """Brokers that may end by themselves, because their disks failed."""
        self.requests: SharedFaultState | None = None
        """The faults of requests, also for a broker that starts."""

    def begin(self, plan: FaultPlan) -> None:
        """End the plan in force and begin another.

        Raises:
            FaultError: the plan has a fault that only a simulation has.
            ClusterError: a broker does not exist, or is not in the state that a fault needs.
        """
        check_plan(plan)
        with self._lock:
            self.end()
            self.requests = SharedFaultState(plan) if plan.request_faults else None
            if self.requests is not None:
                self._set_faults()
            for link in plan.link_faults:
                self._at(link.after_ms, partial(self._begin_link, link))
            for broker in plan.broker_faults:
                self._at(broker.after_ms, partial(self._begin_broker, broker))

    def end(self) -> None:
        """End the plan in force."""
        with self._lock:
            self.close()
            if self.requests is not None:
                self.requests = None
                self._set_faults()
            undo, self._undo[:] = list(self._undo), []
            for each in reversed(undo):
                each()

    def close(self) -> None:
        """Begin and end no further fault by itself."""
        with self._lock:
            for timer in self._timers:
                timer.cancel()
            self._timers.clear()

    def applied(self) -> list[int]:
        """Return to how many requests each fault applied."""
        return [] if self.requests is None else list(self.requests.applied)

    def _set_faults(self) -> None:
        for thread in self._brokers().values():
            thread.set_faults(self.requests)

    def _at(self, milliseconds: int, call: Callable[[], None]) -> None:
        """Do something now, or later on a thread of its own."""
        if not milliseconds:
            call()
            return

        def fire() -> None:
            with self._lock:
                if timer not in self._timers:
                    return
                self._timers.remove(timer)
                try:
                    call()
                except ClusterError as error:
                    logger.warning("a fault could not begin or end: %s", error)

        timer = threading.Timer(milliseconds / 1000, fire)
        timer.daemon = True
        self._timers.add(timer)
        timer.start()

    def _add_undo(self, for_ms: int | None, undo: Callable[[], None]) -> None:
        """End a fault when its time is over, and at the end of the plan at the latest."""
        self._undo.append(undo)

        def end() -> None:
            self._undo.remove(undo)
            undo()

        if for_ms is not None:
            self._at(for_ms, end)

    def _begin_link(self, fault: LinkFault) -> None:
        self._network.add_fault(fault)
        self._add_undo(fault.for_ms, partial(self._network.remove_fault, fault))

    def _begin_broker(self, fault: BrokerFault) -> None:
        if fault.broker == COORDINATOR:
            self._begin_at_coordinator(fault)
            return
        for broker_id in self._chosen(fault):
            self._begin_at(fault, broker_id)

    def _begin_at_coordinator(self, fault: BrokerFault) -> None:
        cluster = self._cluster
        if fault.effect is BrokerEffect.PAUSE:
            cluster.pause_coordinator()
            self._add_undo(fault.for_ms, cluster.resume_coordinator)
            return
        cluster.kill_coordinator()
        if fault.for_ms is not None:
            self._at(fault.for_ms, cluster.start_coordinator)

    def _begin_at(self, fault: BrokerFault, broker_id: int) -> None:
        cluster = self._cluster
        if fault.effect in (BrokerEffect.KILL, BrokerEffect.STOP):
            (cluster.kill if fault.effect is BrokerEffect.KILL else cluster.stop)(broker_id)
            if fault.for_ms is not None:
                self._at(fault.for_ms, partial(cluster.start, broker_id))
        elif fault.effect is BrokerEffect.PAUSE:
            cluster.pause(broker_id)
            self._add_undo(fault.for_ms, partial(self._resume, broker_id))
        elif fault.effect is BrokerEffect.SESSION_EXPIRY:
            cluster.expire_session(broker_id)
        else:
            thread = self._thread(broker_id)
            if fault.effect is BrokerEffect.CLOCK_JUMP:
                jump_ms = fault.milliseconds or 0
                thread.jump_clock(jump_ms)
                self._add_undo(fault.for_ms, partial(thread.jump_clock, -jump_ms))
            else:
                if fault.effect is not BrokerEffect.FULL_DISK:
                    self.excused.add(broker_id)
                thread.set_disk_fault(_DISK_FAULTS[fault.effect])
                self._add_undo(fault.for_ms, partial(thread.set_disk_fault, None))

    def _resume(self, broker_id: int) -> None:
        thread = self._brokers().get(broker_id)
        if thread is not None and thread.is_paused:
            self._cluster.resume(broker_id)

    def _thread(self, broker_id: int) -> BrokerThread:
        thread = self._brokers().get(broker_id)
        if thread is None:
            raise ClusterError(f"broker {broker_id} does not run, so that it can have no fault")
        return thread

    def _chosen(self, fault: BrokerFault) -> list[int]:
        """Return the ids of the brokers that a fault is about."""
        if isinstance(fault.broker, int):
            return [fault.broker]
        if fault.broker == ALL:
            return sorted(self._brokers())
        if fault.leader_of is None:
            return [self._cluster.controller_id()]
        topic, number = fault.leader_of
        for broker_id, thread in self._brokers().items():
            if thread.is_paused:
                continue
            for each in list(thread.server.services.replica_manager.partitions.values()):
                name = each.topic_partition
                if each.is_leader and (name.topic, name.partition) == (topic, number):
                    return [broker_id]
        raise ClusterError(f"no running broker leads {topic}-{number}, so that no fault can begin there")
