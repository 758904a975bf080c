"""Applies a plan of faults to the disk, clock and network of one broker process: `FaultyMachine`."""

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kalda.broker.process.faulty_disk import FaultyFileSystem
from kalda.broker.process.faulty_links import OwnLinks
from kalda.faults import BrokerEffect, BrokerFault, LinkFault
from kalda.faults.model import CLIENTS, COORDINATOR
from kalda.runtime.background import Background
from kalda.runtime.clock import OffsetClock
from kalda.runtime.runtime import Runtime
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.runtime import system_runtime
from kalda.zookeeper.port import ZooKeeperClient

_PAUSE: Final = "(kill -STOP $0; sleep $1; kill -CONT $0) &"


class FaultyMachine:
    """The clock, disk, links and session of the broker of this process."""

    def __init__(self) -> None:
        self._clock: Final = OffsetClock(SystemClock())
        self._files: Final = FaultyFileSystem()
        self._links: Final = OwnLinks()
        self._session: ZooKeeperClient | None = None
        self.endpoint: Final = self._links.endpoint
        """Opens the connections of the broker."""

    def use_session(self, session: ZooKeeperClient) -> None:
        """Expire this session; it is one with a coordination server of another process."""
        self._session = session

    def runtime(self, background: Background) -> Runtime:
        """Return the ports of this machine."""
        return replace(system_runtime(background, self._files), clock=self._clock)

    def join(self, broker_id: int, find: Callable[[str, int], int | None]) -> None:
        """Start as a broker; `find` returns which broker has an address."""
        self._links.join(broker_id, find)

    def refusal(self, fault: BrokerFault | LinkFault) -> str | None:
        """Return why this machine cannot have a fault; None if it can."""
        if isinstance(fault, LinkFault):
            if fault.is_simulated_only:
                return f"only `kalda simulate` has links of {CLIENTS}"
            concerns_session = COORDINATOR in (fault.one, fault.other)
        elif fault.effect.is_simulated_only:
            return f"only `kalda simulate` has the fault {fault.effect.value}"
        elif fault.broker == COORDINATOR:
            return "a broker is not the coordination server"
        elif fault.effect in (BrokerEffect.KILL, BrokerEffect.STOP) and fault.for_ms is not None:
            return "a broker that has ended cannot start itself; leave out `for`"
        else:
            concerns_session = fault.effect is BrokerEffect.SESSION_EXPIRY
        if concerns_session and self._session is None:
            return "the coordination server is in the broker's own process; start it with --brokers 2 or more"
        return None

    def end(self, *, in_order: bool) -> None:
        """End the process, by SIGTERM or by SIGKILL."""
        os.kill(os.getpid(), signal.SIGTERM if in_order else signal.SIGKILL)

    def pause(self, milliseconds: int | None) -> None:
        """Suspend the process by SIGSTOP; without a time until it gets SIGCONT from somewhere."""
        if milliseconds is None:
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        # A process that is suspended cannot resume itself.
        subprocess.run(
            ["/bin/sh", "-c", _PAUSE, str(os.getpid()), str(milliseconds / 1000)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=True,
        )

    def set_disk_fault(self, effect: BrokerEffect | None) -> None:
        """Make calls for the log directories fail, or succeed again."""
        self._files.fault = effect

    def jump_clock(self, milliseconds: int) -> None:
        """Set the wall clock forward or back."""
        self._clock.offset_ms += milliseconds

    def add_link_fault(self, fault: LinkFault) -> None:
        """Put a fault of a link in force."""
        self._links.add_fault(fault)

    def remove_link_fault(self, fault: LinkFault) -> None:
        """End a fault of a link."""
        self._links.remove_fault(fault)

    async def expire_session(self) -> None:
        """End the session with the coordination server; the broker's own connection finds it over."""
        session = self._session
        assert session is not None, "checked when the plan began"
        key = session.session_key
        if key is not None:
            await session.end_session(key)
