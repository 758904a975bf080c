"""Carries out a plan of faults in an in-process cluster: `ClusterFaults`.

Faults of requests are applied by the brokers themselves, which share one state.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from kalda.common.overriding import override
from kalda.faults import BrokerEffect, BrokerFault, FaultPlan, LinkFault, RequestFault
from kalda.faults.model import ALL
from kalda.faults.state import FaultState, RequestFacts
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.testing.cluster_network import Network
from kalda.testing.cluster_threads import BrokerThread, ClusterError
from kalda.testing.planned_faults import FaultyCluster, PlannedFaults


class InProcessCluster(FaultyCluster, Protocol):
    """What the faults of an in-process cluster need of it."""

    def controller_id(self, timeout_seconds: float = 30.0) -> int:
        """Return the id of the controller."""

    def expire_session(self, broker_id: int) -> None:
        """End a broker's session."""


class SharedFaultState(FaultState):
    """A state of faults that several brokers, each on its own thread, count in."""

    def __init__(self, plan: FaultPlan) -> None:
        super().__init__(plan, SYSTEM_RANDOM)
        self._lock: Final = threading.Lock()

    @override
    def next(self, facts: RequestFacts) -> RequestFault | None:
        with self._lock:
            return super().next(facts)


class ClusterFaults(PlannedFaults):
    """The plan that is in force in an in-process cluster."""

    def __init__(
        self, cluster: InProcessCluster, network: Network, brokers: Callable[[], dict[int, BrokerThread]]
    ) -> None:
        super().__init__(cluster)
        self._cluster: Final = cluster
        self._network: Final = network
        self._brokers: Final = brokers
        self.excused: Final[set[int]] = set()
        """Brokers that may end by themselves, because their disks failed."""
        self.requests: SharedFaultState | None = None
        """The faults of requests, also for a broker that starts."""

    def applied(self) -> list[int]:
        """Return to how many requests each fault applied."""
        return [] if self.requests is None else list(self.requests.applied)

    @override
    def _begin_requests(self, plan: FaultPlan) -> None:
        if plan.request_faults:
            self.requests = SharedFaultState(plan)
            self._set_faults()

    @override
    def _end_requests(self) -> None:
        if self.requests is not None:
            self.requests = None
            self._set_faults()

    def _set_faults(self) -> None:
        for thread in self._brokers().values():
            thread.set_faults(self.requests)

    @override
    def _begin_link(self, fault: LinkFault) -> None:
        self._network.add_fault(fault)
        self._add_undo(fault.for_ms, partial(self._network.remove_fault, fault))

    @override
    def _begin_machine(self, fault: BrokerFault, broker_id: int) -> None:
        if fault.effect is BrokerEffect.SESSION_EXPIRY:
            self._cluster.expire_session(broker_id)
            return
        thread = self._brokers().get(broker_id)
        if thread is None:
            raise ClusterError(f"broker {broker_id} does not run, so that it can have no fault")
        if fault.effect is BrokerEffect.CLOCK_JUMP:
            jump_ms = fault.milliseconds or 0
            thread.jump_clock(jump_ms)
            self._add_undo(fault.for_ms, partial(thread.jump_clock, -jump_ms))
            return
        if fault.effect is not BrokerEffect.FULL_DISK:
            self.excused.add(broker_id)
        thread.set_disk_fault(fault.effect)
        self._add_undo(fault.for_ms, partial(thread.set_disk_fault, None))

    @override
    def _resume(self, broker_id: int) -> None:
        thread = self._brokers().get(broker_id)
        if thread is not None and thread.is_paused:
            self._cluster.resume(broker_id)

    @override
    def _chosen(self, fault: BrokerFault) -> list[int]:
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
