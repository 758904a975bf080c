"""Carries out a plan of faults in a cluster of processes: `ProcessFaults`.

Brokers and the coordination server get signals. Faults of requests and jumps of clocks are those of the
brokers themselves, which take them where ``kalda.faults.api.enable`` is set.
"""

from collections.abc import Callable
from typing import Final

from kalda.clients.admin.admin import Admin
from kalda.common.overriding import override
from kalda.faults import BrokerEffect, BrokerFault, FaultError, FaultPlan, RequestFault
from kalda.faults.model import ALL
from kalda.testing.planned_faults import FaultyCluster, PlannedFaults
from kalda.testing.process import CommandProcess

_SIGNALLED: Final = (BrokerEffect.KILL, BrokerEffect.STOP, BrokerEffect.PAUSE)


class ProcessFaults(PlannedFaults):
    """The plan that is in force in a cluster of processes."""

    def __init__(
        self,
        cluster: FaultyCluster,
        brokers: list[CommandProcess],
        open_admin: Callable[[], Admin],
    ) -> None:
        """`brokers` are the processes by id; `open_admin` connects to them as an administrator."""
        super().__init__(cluster)
        self._processes: Final = brokers
        self._open_admin: Final = open_admin
        self._has_plan = False

    @override
    def _check(self, plan: FaultPlan) -> None:
        super()._check(plan)
        for fault in plan.faults:
            text = str(FaultPlan((fault,)))
            if isinstance(fault, RequestFault):
                continue
            if not isinstance(fault, BrokerFault) or fault.effect not in (
                *_SIGNALLED,
                BrokerEffect.CLOCK_JUMP,
            ):
                raise FaultError(f"{text}: processes cannot have this fault; kalda.testing.Cluster can")
            if fault.effect in _SIGNALLED and fault.broker != ALL and fault.leader_of is not None:
                raise FaultError(f"{text}: name a broker of processes by its id, or all of them")

    @override
    def _begin_requests(self, plan: FaultPlan) -> None:
        own = FaultPlan(tuple(each for each in plan.faults if not _is_signalled(each)))
        if own.faults:
            with self._open_admin() as admin:
                admin.alter_faults(str(own))
            self._has_plan = True

    @override
    def _end_requests(self) -> None:
        if self._has_plan:
            self._has_plan = False
            running = [number for number, each in enumerate(self._processes) if each.is_running]
            with self._open_admin() as admin:
                admin.alter_faults("", running)

    def applied(self) -> list[int]:
        """Return to how many requests each fault applied, on all brokers together."""
        if not self._has_plan:
            return []
        with self._open_admin() as admin:
            found = admin.describe_faults(outcomes=True)
        counts = [each.applied for each in found.results.values()]
        return [sum(each) for each in zip(*counts, strict=True)]

    @override
    def _begin_machine(self, fault: BrokerFault, broker_id: int) -> None:
        """Do nothing: the broker has the fault in its own plan."""

    @override
    def _resume(self, broker_id: int) -> None:
        if self._processes[broker_id].is_running:
            self._processes[broker_id].resume()

    @override
    def _chosen(self, fault: BrokerFault) -> list[int]:
        if isinstance(fault.broker, int):
            return [fault.broker]
        if fault.broker == ALL:
            return [number for number, each in enumerate(self._processes) if each.is_running]
        if fault.effect not in _SIGNALLED:
            return []
        with self._open_admin() as admin:
            controller = admin.describe_cluster().controller
        return [] if controller is None else [controller.id]


def _is_signalled(fault: object) -> bool:
    return isinstance(fault, BrokerFault) and fault.effect in _SIGNALLED
