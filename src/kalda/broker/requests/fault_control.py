"""Puts a plan of faults in force on one broker: at its start, and by requests while it runs (`FaultControl`).

A broker has one only where ``kalda.faults.file`` or ``kalda.faults.api.enable`` is set. It carries out the
faults of requests, its own death and the jumps of its clock. Other faults need what runs several brokers:
`kalda.testing.Cluster`.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import ALTER_CLUSTER
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.faults import BrokerEffect, BrokerFault, FaultError, FaultPlan, RequestFault
from kalda.faults.model import ALL, CONTROLLER, COORDINATOR
from kalda.faults.state import Faults, FaultState
from kalda.protocol.messages.alter_faults import AlterFaultsRequest, AlterFaultsResponse
from kalda.runtime.clock import Clock, OffsetClock
from kalda.runtime.random import Random

_EFFECTS: Final = (BrokerEffect.KILL, BrokerEffect.STOP, BrokerEffect.CLOCK_JUMP)


class FaultyBroker(Protocol):
    """What the faults of one broker depend on."""

    def set_faults(self, faults: Faults | None) -> None:
        """Apply faults to requests; None ends them."""

    def leads(self, topic: str, partition: int) -> bool:
        """Return whether the broker leads a partition."""

    def is_controller(self) -> bool:
        """Return whether the broker is the controller."""


class FaultControl:
    """The plan of faults of one broker that is a process of its own."""

    def __init__(
        self,
        broker: FaultyBroker,
        broker_id: int,
        clock: Clock,
        random: Random,
        *,
        may_end: bool,
    ) -> None:
        """`may_end` says whether a fault may end the process."""
        self._may_end: Final = may_end
        self._broker: Final = broker
        self._broker_id: Final = broker_id
        self._clock: Final = clock
        self._random: Final = random
        self._state: FaultState | None = None
        self._timers: Final[set[asyncio.TimerHandle]] = set()
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
        for fault in plan.broker_faults:
            self._after(fault.after_ms, partial(self._begin_fault, fault))

    def end(self) -> None:
        """End the plan in force."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        if isinstance(self._clock, OffsetClock):
            self._clock.offset_ms = 0
        if self._state is not None:
            self._state = None
            self._broker.set_faults(None)
        self.plan = FaultPlan()

    def applied(self) -> list[int]:
        """Return to how many requests each fault of requests applied."""
        return [] if self._state is None else list(self._state.applied)

    def _check(self, plan: FaultPlan) -> None:
        for fault in plan.faults:
            if isinstance(fault, RequestFault):
                continue
            text = str(FaultPlan((fault,)))
            if not isinstance(fault, BrokerFault) or fault.effect not in _EFFECTS:
                raise FaultError(f"{text}: a broker cannot do this to itself; kalda.testing.Cluster can")
            if fault.broker == COORDINATOR:
                raise FaultError(f"{text}: a broker is not the coordination server")
            if fault.effect is BrokerEffect.CLOCK_JUMP and not isinstance(self._clock, OffsetClock):
                raise FaultError(f"{text}: this broker shares the clock of its process")
            if fault.effect is BrokerEffect.CLOCK_JUMP:
                continue
            if not self._may_end:
                raise FaultError(f"{text}: this broker is no process of its own")
            if fault.for_ms is not None:
                raise FaultError(f"{text}: a broker that has ended cannot start itself; leave out `for`")

    def _after(self, milliseconds: int, call: Callable[[], None]) -> None:
        """Do something when this turn of the loop is over, or later: a request can be answered before."""

        def fire() -> None:
            self._timers.discard(timer)
            call()

        timer = asyncio.get_running_loop().call_later(milliseconds / 1000, fire)
        self._timers.add(timer)

    def _begin_fault(self, fault: BrokerFault) -> None:
        if not self._is_chosen(fault):
            return
        if fault.effect is BrokerEffect.CLOCK_JUMP:
            jump_ms = fault.milliseconds or 0
            self._jump(jump_ms)
            if fault.for_ms is not None:
                self._after(fault.for_ms, partial(self._jump, -jump_ms))
        else:
            is_kill = fault.effect is BrokerEffect.KILL
            os.kill(os.getpid(), signal.SIGKILL if is_kill else signal.SIGTERM)

    def _jump(self, milliseconds: int) -> None:
        assert isinstance(self._clock, OffsetClock), "checked when the plan began"
        self._clock.offset_ms += milliseconds

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
