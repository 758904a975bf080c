"""Defines `World`, a simulation as its workloads see it, and `Workload`, their interface."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random as SeededRandom
from typing import Any, Final, Protocol

from kalda.runtime.runtime import Runtime
from kalda.simulation.cluster import SimulatedCluster
from kalda.simulation.event_loop import SimulatedEventLoop
from kalda.simulation.history import History
from kalda.simulation.machine import SimulatedProcess

ClientMain = Callable[[], Coroutine[Any, Any, None]]


class World:
    """A cluster, its history, and the processes of clients."""

    def __init__(self, seed: str, cluster: SimulatedCluster) -> None:
        self.seed: Final = seed
        self.cluster: Final = cluster
        self.history: Final = History(cluster.scheduler)
        self.is_stopping = False
        """Whether workloads should come to an end."""
        self._clients: Final[list[tuple[str, ClientMain, list[SimulatedProcess]]]] = []

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self.cluster.scheduler.now

    @property
    def is_mixed(self) -> bool:
        """Whether some brokers are models of Apache Kafka's, without features and KIP-848."""
        return self.cluster.foreign is not None

    @property
    def knows_topic_ids(self) -> bool:
        """Whether all brokers know topic ids, and what else came later."""
        return self.cluster.knows_topic_ids

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers."""
        return self.cluster.bootstrap

    def random(self, name: str) -> SeededRandom:
        """Return a source of randomness of its own for each name."""
        return SeededRandom(f"{self.seed}/{name}")

    def start_client(self, name: str, main: ClientMain) -> None:
        """Run `main` in a process; a fault may end it at any time, and then it is run again."""
        self._clients.append((name, main, [self._start(name, main)]))

    def kill_client(self, number: int, seconds: float) -> bool:
        """End the client of a number at once, and start it again later; return whether one runs."""
        if not self._clients:
            return False
        name, main, processes = self._clients[number % len(self._clients)]
        if processes[-1].has_ended or self.is_stopping:
            return False
        processes[-1].kill()
        self.history.note(f"{name} is killed")

        def restart() -> None:
            processes.append(self._start(name, main))

        self.cluster.scheduler.call_later(seconds, restart)
        return True

    async def stand_still(self, seconds: float) -> None:
        """Let the process that calls this stand still for so long, as a suspended machine does.

        It goes on where it was, before any of its timers and what has arrived meanwhile.
        """
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedEventLoop), f"no process of a simulation runs {loop}"
        self.history.note(f"a client stands still for {seconds:.1f} s")
        loop.hold()
        self.cluster.scheduler.call_later(seconds, loop.release)
        await asyncio.sleep(0)

    def have_clients_ended(self) -> bool:
        """Whether every client has come to its end."""
        return all(processes[-1].has_ended for _, _, processes in self._clients)

    def check_clients(self) -> None:
        """Report the clients that ended by an error, or do not end."""
        for name, _, processes in self._clients:
            if not processes[-1].has_ended:
                self.history.violate("clients end", f"{name} still runs {self.now:.1f} s after the start")
            for process in processes:
                if process.failure is not None:
                    self.history.violate("clients do not fail", f"{name}: {process.failure!r}")

    def run(self, main: ClientMain, seconds: float) -> None:
        """Run `main` to its end in a process; a violation if it fails or takes longer."""
        process = self._start("setup", main)
        if not self.cluster.scheduler.run_until(lambda: process.has_ended, seconds):
            self.history.violate("setup", f"{main} takes more than {seconds:g} s")
        elif process.failure is not None:
            self.history.violate("setup", f"{process.failure!r}")

    def _start(self, name: str, main: ClientMain) -> SimulatedProcess:
        self.history.note(f"{name} starts")
        return self.cluster.start_client(partial(_without_runtime, main))


class Workload(Protocol):
    """A program of one or more clients."""

    async def set_up(self) -> None:
        """Create topics and settings; runs in a client's process while the cluster is healthy."""
        ...

    def start(self) -> None:
        """Start the clients; they end when `World.is_stopping` is set."""
        ...

    async def check(self) -> None:
        """Report violations; runs in a client's process when the cluster is healthy again."""
        ...


async def _without_runtime(main: ClientMain, runtime: Runtime) -> None:
    await main()
