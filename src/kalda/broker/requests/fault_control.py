"""Puts a plan of faults in force on one broker: at its start, and by requests while it runs (`FaultControl`).

A broker has one only where ``kalda.faults.file`` or ``kalda.faults.api.enable`` is set. It carries out the
faults that are its own; the other brokers of a cluster have the same plan.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import ALTER_CLUSTER
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.faults import BrokerEffect, BrokerFault, FaultError, FaultPlan, LinkFault
from kalda.faults.model import ALL, CONTROLLER
from kalda.faults.state import Faults, FaultState
from kalda.protocol.messages.alter_faults import AlterFaultsRequest, AlterFaultsResponse
from kalda.runtime.random import Random


class Machine(Protocol):
    """What fails beneath a broker: its process, disk, clock, links and session."""

    def join(self, broker_id: int, find: Callable[[str, int], int | None]) -> None:
        """Start as a broker; `find` returns which broker has an address."""

    def refusal(self, fault: BrokerFault | LinkFault) -> str | None:
        """Return why it cannot have a fault; None if it can."""

    def end(self, *, in_order: bool) -> None:
        """End the process."""

    def pause(self, milliseconds: int | None) -> None:
        """Suspend the process, for a time or until something else resumes it."""

    def set_disk_fault(self, effect: BrokerEffect | None) -> None:
        """Make calls for the log directories fail, or succeed again."""

    def jump_clock(self, milliseconds: int) -> None:
        """Set the wall clock forward or back."""

    def add_link_fault(self, fault: LinkFault) -> None:
        """Put a fault of a link in force."""

    def remove_link_fault(self, fault: LinkFault) -> None:
        """End a fault of a link."""

    async def expire_session(self) -> None:
        """End the session with the coordination server."""


class FaultyBroker(Protocol):
    """The port by which faults act on one broker."""

    def set_faults(self, faults: Faults | None) -> None:
        """Apply faults to requests; None ends them."""

    def leads(self, topic: str, partition: int) -> bool:
        """Return whether the broker leads a partition."""

    def is_controller(self) -> bool:
        """Return whether the broker is the controller."""

    def find(self, host: str, port: int) -> int | None:
        """Return which broker has an address; None if it is none that is known."""


class FaultControl:
    """The plan of faults of one broker."""

    def __init__(
        self,
        broker: FaultyBroker,
        broker_id: int,
        random: Random,
        machine: Machine | None,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """`machine` is that of a broker which is a process of its own; `tasks` are those of the broker."""
        self._machine: Final = machine
        self._broker: Final = broker
        self._broker_id: Final = broker_id
        self._random: Final = random
        self._tasks: Final = tasks
        self._state: FaultState | None = None
        self._timers: Final[set[asyncio.TimerHandle]] = set()
        self._undo: Final[list[Callable[[], None]]] = []
        """What ends the faults of the machine that have begun, each once."""
        if machine is not None:
            machine.join(broker_id, broker.find)
        self.plan = FaultPlan()
        """The plan in force."""

    def begin(self, plan: FaultPlan) -> None:
        """Put a plan in force, in place of the earlier one.

        Raises:
            FaultError: it has a fault that a single process cannot carry out; nothing has changed.
        """
        self._check(plan)
        self.end()
        self.plan = plan
        if plan.request_faults:
            self._state = FaultState(plan, self._random)
            self._broker.set_faults(self._state)
        if self._machine is not None:
            for broker in plan.broker_faults:
                self._after(broker.after_ms, partial(self._begin_fault, self._machine, broker))
            for link in plan.link_faults:
                self._after(link.after_ms, partial(self._begin_link, self._machine, link))

    def end(self) -> None:
        """End the plan in force."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        undo, self._undo[:] = list(self._undo), []
        for each in reversed(undo):
            each()
        if self._state is not None:
            self._state = None
            self._broker.set_faults(None)
        self.plan = FaultPlan()

    def applied(self) -> list[int]:
        """Return to how many requests each fault of requests applied."""
        return [] if self._state is None else list(self._state.applied)

    def _check(self, plan: FaultPlan) -> None:
        machine = self._machine
        faults: list[BrokerFault | LinkFault] = [*plan.broker_faults, *plan.link_faults]
        for fault in faults:
            reason = "this broker is no process of its own" if machine is None else machine.refusal(fault)
            if reason is not None:
                raise FaultError(f"{FaultPlan((fault,))}: {reason}")

    def _after(self, milliseconds: int, call: Callable[[], None]) -> None:
        """Do something when this turn of the loop is over, or later: a request can be answered before."""

        def fire() -> None:
            self._timers.discard(timer)
            call()

        timer = asyncio.get_running_loop().call_later(milliseconds / 1000, fire)
        self._timers.add(timer)

    def _begin_link(self, machine: Machine, fault: LinkFault) -> None:
        machine.add_link_fault(fault)
        self._end_after(fault.for_ms, partial(machine.remove_link_fault, fault))

    def _begin_fault(self, machine: Machine, fault: BrokerFault) -> None:
        if not self._is_chosen(fault):
            return
        if fault.effect is BrokerEffect.CLOCK_JUMP:
            jump_ms = fault.milliseconds or 0
            machine.jump_clock(jump_ms)
            self._end_after(fault.for_ms, partial(machine.jump_clock, -jump_ms))
        elif fault.effect is BrokerEffect.SESSION_EXPIRY:
            self._tasks.create_task(machine.expire_session(), name="session expiry")
        elif fault.effect is BrokerEffect.PAUSE:
            machine.pause(fault.for_ms)
        elif fault.effect in (BrokerEffect.KILL, BrokerEffect.STOP):
            machine.end(in_order=fault.effect is BrokerEffect.STOP)
        else:
            machine.set_disk_fault(fault.effect)
            self._end_after(fault.for_ms, partial(machine.set_disk_fault, None))

    def _end_after(self, for_ms: int | None, undo: Callable[[], None]) -> None:
        """End a fault when its time is over, and at the end of the plan at the latest."""
        self._undo.append(undo)

        def end() -> None:
            self._undo.remove(undo)
            undo()

        if for_ms is not None:
            self._after(for_ms, end)

    def _is_chosen(self, fault: BrokerFault) -> bool:
        if fault.leader_of is not None:
            return self._broker.leads(*fault.leader_of)
        if fault.broker == CONTROLLER:
            return self._broker.is_controller()
        return fault.broker in (ALL, self._broker_id)


def alter_faults(
    control: FaultControl, request: AlterFaultsRequest, context: RequestContext
) -> AlterFaultsResponse:
    """Replace or describe the plan in force."""
    if request.plan is not None:
        try:
            control.begin(FaultPlan.parse(request.plan))
        except FaultError as error:
            return AlterFaultsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error))
    return AlterFaultsResponse(plan=str(control.plan), applied=control.applied())


def fault_handler(control: FaultControl) -> ApiHandler:
    """Return the handler of AlterFaults, which is not among those that every broker has."""
    return ApiHandler(
        key=ApiKey.ALTER_FAULTS,
        versions=(0, 0),
        build=lambda services: partial(alter_faults, control),
        error_response=lambda request, code: AlterFaultsResponse(error_code=code),
        access=ALTER_CLUSTER,
        is_throttled=False,
        audit=lambda request: () if request.plan is None else ("faults",),
    )
