"""What one broker does of a plan, and when: `FaultControl` over a machine that only notes."""

import asyncio
from collections.abc import Callable

import pytest

from kalda.broker.requests.fault_control import FaultControl
from kalda.faults import BrokerEffect, BrokerFault, FaultError, FaultPlan, LinkFault
from kalda.faults.state import Faults
from kalda.runtime.system.random import SYSTEM_RANDOM
from tests.virtual_time import run_virtual


class Broker:
    """Broker 1, which leads orders-0 and is not the controller."""

    def __init__(self) -> None:
        self.faults: Faults | None = None

    def set_faults(self, faults: Faults | None) -> None:
        self.faults = faults

    def leads(self, topic: str, partition: int) -> bool:
        return (topic, partition) == ("orders", 0)

    def is_controller(self) -> bool:
        return False

    def find(self, host: str, port: int) -> int | None:
        return port


class Notes:
    """A machine that notes what is done to it, with the time in milliseconds."""

    def __init__(self) -> None:
        self.broker_id = -1
        self.done: list[tuple[int, str]] = []

    def join(self, broker_id: int, find: Callable[[str, int], int | None]) -> None:
        self.broker_id = broker_id

    def refusal(self, fault: BrokerFault | LinkFault) -> str | None:
        return "not here" if isinstance(fault, BrokerFault) and fault.effect.is_simulated_only else None

    def end(self, *, in_order: bool) -> None:
        self._note("stop" if in_order else "kill")

    def pause(self, milliseconds: int | None) -> None:
        self._note(f"pause {milliseconds}")

    def set_disk_fault(self, effect: BrokerEffect | None) -> None:
        self._note("disk mended" if effect is None else effect.value)

    def jump_clock(self, milliseconds: int) -> None:
        self._note(f"clock {milliseconds:+}")

    def add_link_fault(self, fault: LinkFault) -> None:
        self._note(f"{fault.effect.value} {fault.one}-{fault.other}")

    def remove_link_fault(self, fault: LinkFault) -> None:
        self._note(f"no {fault.effect.value} {fault.one}-{fault.other}")

    async def expire_session(self) -> None:
        self._note("session")

    def _note(self, what: str) -> None:
        self.done.append((round(asyncio.get_running_loop().time() * 1000) - START_MS, what))


START_MS = 1_000_000


def play(*plans: str, seconds: float = 10) -> list[tuple[int, str]]:
    """Put each plan in force for some seconds; return what was done to the machine."""
    notes = Notes()

    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            control = FaultControl(Broker(), 1, SYSTEM_RANDOM, notes, tasks)
            for plan in plans:
                control.begin(FaultPlan.parse(plan))
                await asyncio.sleep(seconds)
            control.end()

    run_virtual(main())
    assert 1 == notes.broker_id
    return notes.done


def test_faults_begin_and_end_at_their_times() -> None:
    done = play("disk:full@1,after=1s,for=2s; clock:jump=-1h@1,for=500ms; link:cut@0-1,after=2s,for=1s")
    assert [
        (0, "clock -3600000"),
        (500, "clock +3600000"),
        (1000, "disk:full"),
        (2000, "link:cut 0-1"),
        (3000, "disk mended"),
        (3000, "no link:cut 0-1"),
    ] == done


def test_next_plan_ends_what_has_begun() -> None:
    done = play("link:cut@1-all; disk:read-only@1; broker:kill@1,after=1h", "fetch:delay=1ms")
    assert [
        (0, "disk:read-only"),
        (0, "link:cut 1-all"),
        (10_000, "no link:cut 1-all"),
        (10_000, "disk mended"),
    ] == done


@pytest.mark.parametrize(
    ("plan", "done"),
    [
        ("session:expire@1", "session"),
        ("broker:stop@leader/orders/0", "stop"),
        ("broker:kill@all", "kill"),
        ("broker:pause@1,for=3s", "pause 3000"),
        ("broker:pause@1", "pause None"),
    ],
)
def test_faults_of_this_broker(plan: str, done: str) -> None:
    assert [(0, done)] == play(plan)


@pytest.mark.parametrize("plan", ["session:expire@0", "disk:full@leader/orders/1", "broker:kill@controller"])
def test_faults_of_others_are_left_to_them(plan: str) -> None:
    assert [] == play(plan)


def test_refused_plan_leaves_the_one_in_force() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            broker = Broker()
            control = FaultControl(broker, 1, SYSTEM_RANDOM, Notes(), tasks)
            control.begin(FaultPlan.parse("fetch:delay=1ms"))
            with pytest.raises(FaultError, match=r"broker:power@1: not here"):
                control.begin(FaultPlan.parse("produce:drop; broker:power@1"))
            assert "fetch:delay=1ms" == str(control.plan)
            assert broker.faults is not None
            control.end()
            assert broker.faults is None

    run_virtual(main())


def test_broker_of_a_shared_process_has_faults_of_requests_only() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as tasks:
            control = FaultControl(Broker(), 1, SYSTEM_RANDOM, None, tasks)
            control.begin(FaultPlan.parse("fetch:delay=1ms"))
            for plan in ("clock:jump=1s@1", "link:cut@0-1"):
                with pytest.raises(FaultError, match="this broker is no process of its own"):
                    control.begin(FaultPlan.parse(plan))
            control.end()

    run_virtual(main())
