"""Carries out a plan of faults in a cluster of processes: `ProcessFaults`.

Brokers and the coordination server get signals. The brokers carry out all other faults themselves, where
``kalda.faults.api.enable`` is set.
"""

from collections.abc import Callable
from typing import Final

from kalda.clients.admin.admin import Admin
from kalda.clients.network_client import BOOTSTRAP_ID_BASE
from kalda.common.overriding import override
from kalda.faults import BrokerEffect, BrokerFault, FaultError, FaultPlan, LinkFault
from kalda.faults.model import ALL
from kalda.net.client.client_errors import ClientError, UnsupportedApiError
from kalda.testing.planned_faults import FaultyCluster, PlannedFaults
from kalda.testing.process import CommandProcess, KaldaProcessError

_SIGNALLED: Final = (BrokerEffect.KILL, BrokerEffect.STOP, BrokerEffect.PAUSE)


class ProcessFaults(PlannedFaults):
    """The plan that is in force in a cluster of processes."""

    def __init__(
        self,
        cluster: FaultyCluster,
        brokers: list[CommandProcess],
        open_admin: Callable[[int | None], Admin],
    ) -> None:
        """`brokers` are the processes by id.

        `open_admin` connects as an administrator to one broker, which may be cut off from the others, or to
        all.
        """
        super().__init__(cluster)
        self._processes: Final = brokers
        self._open_admin: Final = open_admin
        self._own = FaultPlan()
        """What the brokers carry out themselves."""

    @override
    def _check(self, plan: FaultPlan) -> None:
        super()._check(plan)
        for fault in plan.broker_faults:
            if isinstance(fault.broker, int) and fault.broker >= len(self._processes):
                last = len(self._processes) - 1
                raise KaldaProcessError(
                    f"{FaultPlan((fault,))}: there is no broker {fault.broker}, only 0 to {last}"
                )

    @override
    def _begin_requests(self, plan: FaultPlan) -> None:
        own = FaultPlan(tuple(each for each in plan.faults if not _is_signalled(each)))
        if own.faults:
            self._own = own
            self._put(str(own))

    @override
    def _end_requests(self) -> None:
        if self._own.faults:
            self._own = FaultPlan()
            self._put("")

    def started(self, broker_id: int) -> None:
        """Put the plan in force on a broker that was started again; its times count from then."""
        with self._lock:
            if self._own.faults:
                self._put(str(self._own), [broker_id])

    def _put(self, plan: str, broker_ids: list[int] | None = None) -> None:
        if broker_ids is None:
            broker_ids = [number for number, each in enumerate(self._processes) if each.is_running]
        errors: dict[int, ClientError] = {}
        for broker_id in broker_ids:
            with self._open_admin(broker_id) as admin:
                # A broker that the plan cuts off may not be in the metadata any more.
                failed = admin.alter_faults(plan, [BOOTSTRAP_ID_BASE], outcomes=True).errors
            errors.update((broker_id, error) for error in failed.values())
        for broker_id, error in errors.items():
            if isinstance(error, UnsupportedApiError):
                raise FaultError(
                    f"{plan}: brokers that are processes need the setting kalda.faults.api.enable=true"
                ) from error
            # A fault of its disk may have ended it.
            if self._processes[broker_id].is_running:
                error.add_note(f"The plan was for broker {broker_id}.")
                raise error

    def applied(self) -> list[int]:
        """Return to how many requests each fault applied, on all brokers together."""
        if not self._own.request_faults:
            return []
        with self._open_admin(None) as admin:
            found = admin.describe_faults(outcomes=True)
        counts = [each.applied for each in found.results.values()]
        return [sum(each) for each in zip(*counts, strict=True)]

    @override
    def _begin_link(self, fault: LinkFault) -> None:
        """Do nothing: the brokers have the fault in their own plans."""

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
            # Each broker decides for itself whether it is meant.
            return []
        with self._open_admin(None) as admin:
            if fault.leader_of is None:
                controller = admin.describe_cluster().controller
                return [] if controller is None else [controller.id]
            topic, partition = fault.leader_of
            partitions = admin.describe_topics([topic])[topic].partitions
        leaders = [
            each.leader_id for each in partitions if each.partition == partition and each.leader_id >= 0
        ]
        if not leaders:
            raise KaldaProcessError(
                f"no running broker leads {topic}-{partition}, so that no fault can begin there"
            )
        return leaders


def _is_signalled(fault: object) -> bool:
    return isinstance(fault, BrokerFault) and fault.effect in _SIGNALLED
