"""Begins and ends the faults of a plan in a cluster, at once or by timers: `PlannedFaults`.

What a fault needs of a cluster in this process or of processes is in `cluster_faults` and `process_faults`.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from kalda.faults import BrokerEffect, BrokerFault, FaultError, FaultPlan, LinkFault
from kalda.faults.model import CLIENTS, COORDINATOR
from kalda.net.client.client_errors import ClientError
from kalda.testing.cluster_threads import ClusterError
from kalda.testing.process import KaldaProcessError

logger: Final = logging.getLogger(__name__)


class FaultyCluster(Protocol):
    """A cluster whose members end, pause and go on."""

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

    def start_coordinator(self) -> None:
        """Start the coordination server that is down."""

    def kill_coordinator(self) -> None:
        """End the coordination server at once."""

    def pause_coordinator(self) -> None:
        """Suspend the coordination server."""

    def resume_coordinator(self) -> None:
        """Resume the coordination server."""


class PlannedFaults:
    """The plan that is in force in a cluster."""

    def __init__(self, members: FaultyCluster) -> None:
        self._members: Final = members
        self._lock: Final = threading.RLock()
        self._timers: Final[set[threading.Timer]] = set()
        self._undo: Final[list[Callable[[], None]]] = []
        """What ends the faults that have begun, each once."""

    def begin(self, plan: FaultPlan) -> None:
        """End the plan in force and begin another.

        Raises:
            FaultError: the plan has a fault that the cluster cannot have.
            ClusterError, KaldaProcessError: a broker does not exist, or is not in the state that a fault
                needs.
        """
        self._check(plan)
        with self._lock:
            self.end()
            self._begin_requests(plan)
            for link in plan.link_faults:
                self._at(link.after_ms, partial(self._begin_link, link))
            for broker in plan.broker_faults:
                self._at(broker.after_ms, partial(self._begin_broker, broker))

    def end(self) -> None:
        """End the plan in force."""
        with self._lock:
            self.close()
            undo, self._undo[:] = list(self._undo), []
            for each in reversed(undo):
                each()
            # A broker that was paused can be asked now.
            self._end_requests()

    def close(self) -> None:
        """Begin and end no further fault by itself."""
        with self._lock:
            for timer in self._timers:
                timer.cancel()
            self._timers.clear()

    # What a subclass provides.

    def _check(self, plan: FaultPlan) -> None:
        """Check that the cluster can have the faults of a plan.

        Raises:
            FaultError: it cannot.
        """
        for fault in plan.broker_faults:
            if fault.effect.is_simulated_only:
                text = str(FaultPlan((fault,)))
                raise FaultError(f"{text}: only `kalda simulate` has the fault {fault.effect.value}")
        for link in plan.link_faults:
            if link.is_simulated_only:
                raise FaultError(f"{FaultPlan((link,))}: only `kalda simulate` has links of {CLIENTS}")

    def _begin_requests(self, plan: FaultPlan) -> None:
        raise NotImplementedError

    def _end_requests(self) -> None:
        raise NotImplementedError

    def _begin_link(self, fault: LinkFault) -> None:
        raise NotImplementedError

    def _begin_machine(self, fault: BrokerFault, broker_id: int) -> None:
        """Begin a fault of a broker's disk, clock or session."""
        raise NotImplementedError

    def _resume(self, broker_id: int) -> None:
        """Resume a broker if it is paused."""
        raise NotImplementedError

    def _chosen(self, fault: BrokerFault) -> list[int]:
        """Return the ids of the brokers that a fault is about."""
        raise NotImplementedError

    # Internals.

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
                except (ClusterError, KaldaProcessError, ClientError) as error:
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

    def _begin_broker(self, fault: BrokerFault) -> None:
        if fault.broker == COORDINATOR:
            self._begin_at_coordinator(fault)
            return
        for broker_id in self._chosen(fault):
            self._begin_at(fault, broker_id)

    def _begin_at_coordinator(self, fault: BrokerFault) -> None:
        members = self._members
        if fault.effect is BrokerEffect.PAUSE:
            members.pause_coordinator()
            self._add_undo(fault.for_ms, members.resume_coordinator)
            return
        members.kill_coordinator()
        if fault.for_ms is not None:
            self._at(fault.for_ms, members.start_coordinator)

    def _begin_at(self, fault: BrokerFault, broker_id: int) -> None:
        members = self._members
        if fault.effect in (BrokerEffect.KILL, BrokerEffect.STOP):
            (members.kill if fault.effect is BrokerEffect.KILL else members.stop)(broker_id)
            if fault.for_ms is not None:
                self._at(fault.for_ms, partial(members.start, broker_id))
        elif fault.effect is BrokerEffect.PAUSE:
            members.pause(broker_id)
            self._add_undo(fault.for_ms, partial(self._resume, broker_id))
        else:
            self._begin_machine(fault, broker_id)
