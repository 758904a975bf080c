"""Simulates a machine and the processes on it: clock, background work, and `SimulatedProcess`."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from random import Random as SeededRandom
from typing import Any, Final, TypeVar

from kalda.runtime.background import Done, Work, finish
from kalda.runtime.runtime import RUNTIME, ClientNumbers, Runtime
from kalda.simulation.disk import SimulatedDisk, SimulatedFileSystem
from kalda.simulation.event_loop import SimulatedEventLoop, new_simulated_loop
from kalda.simulation.network import SimulatedInternet, SimulatedNetwork
from kalda.simulation.scheduler import Scheduler

T = TypeVar("T")

EPOCH_MS: Final = 1_700_000_000_000
"""The wall clock's time at the beginning of a simulation."""


class SimulatedClock:
    """The clock of a machine; `offset_ms` is how much the wall clock is wrong."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler: Final = scheduler
        self.offset_ms = 0
        self.has_jumped = False

    def time_ms(self) -> int:
        """Return the wall clock's milliseconds."""
        now_ms = EPOCH_MS + self.offset_ms + int(self._scheduler.now * 1000)
        return now_ms if now_ms > 0 else 0

    def time_ns(self) -> int:
        """Return the wall clock's nanoseconds."""
        return (EPOCH_MS + self.offset_ms) * 1_000_000 + int(self._scheduler.now * 1e9)

    def monotonic(self) -> float:
        """Return the virtual time."""
        return self._scheduler.now

    def jump(self, milliseconds: int) -> None:
        """Set the wall clock forward or back."""
        self.offset_ms += milliseconds
        self.has_jumped = True


class SimulatedBackground:
    """Runs background work on the loop, one after the other, each after a while."""

    has_processes = False

    def __init__(self, loop: SimulatedEventLoop, random: SeededRandom) -> None:
        self._loop: Final = loop
        self._random: Final = random
        self._queue: Final[deque[tuple[Work, Done | None]]] = deque()
        self.seconds_more = 0.0
        """How much longer each work takes, on a slow disk."""

    def submit(self, work: Work, done: Done | None = None) -> None:
        """Schedule background work for later."""
        self._queue.append((work, done))
        if len(self._queue) == 1:
            self._begin()

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function after a random delay, and return its result."""
        await asyncio.sleep(self._delay())
        return function()

    def run_all(self, works: Sequence[Work]) -> list[BaseException | None]:
        """Run calls one after the other."""
        return [_error_of(work) for work in works]

    async def start_process(
        self, *arguments: str, environment: Mapping[str, str], line_bytes_max: int
    ) -> asyncio.subprocess.Process:
        """Refuse: `has_processes` is False."""
        raise AssertionError(f"no process is started for {arguments}")

    def _delay(self) -> float:
        return 0.0002 + self._random.random() ** 3 * 0.005 + self.seconds_more

    def _begin(self) -> None:
        self._loop.call_later(self._delay(), self._run)

    def _run(self) -> None:
        work, done = self._queue[0]
        error = _error_of(work)
        self._queue.popleft()
        if self._queue:
            self._begin()
        finish(done, error)


def _error_of(work: Work) -> BaseException | None:
    try:
        work()
    except Exception as raised:
        return raised
    return None


class Machine:
    """A host with a clock and a disk, over the processes that run there one after the other."""

    def __init__(self, host: str, seed: str, scheduler: Scheduler, internet: SimulatedInternet) -> None:
        self.host: Final = host
        self.scheduler: Final = scheduler
        self.internet: Final = internet
        self.clock: Final = SimulatedClock(scheduler)
        self.disk: Final = SimulatedDisk(SeededRandom(f"{seed}/{host}/disk"), self.clock.time_ms)
        self.client_numbers: Final = ClientNumbers()
        self._seed: Final = seed
        self.starts = 0
        """How many processes have run."""

    def start(self, main: Callable[[Runtime], Coroutine[Any, Any, None]]) -> "SimulatedProcess":
        """Start a process that runs `main` with its ports."""
        self.starts += 1
        return SimulatedProcess(self, f"{self._seed}/{self.host}/{self.starts}", main)


class SimulatedProcess:
    """A process: its loop, its ports, and how it ended."""

    def __init__(
        self, machine: Machine, seed: str, main: Callable[[Runtime], Coroutine[Any, Any, None]]
    ) -> None:
        self.machine: Final = machine
        self.loop: Final = new_simulated_loop(machine.scheduler, machine.internet.watched)
        self.background: Final = SimulatedBackground(self.loop, SeededRandom(f"{seed}/background"))
        self._network: Final = SimulatedNetwork(machine.internet, self.loop, machine.host)
        self._files: Final = SimulatedFileSystem(machine.disk)
        self.runtime: Final = Runtime(
            clock=machine.clock,
            random=SeededRandom(f"{seed}/process"),
            network=self._network,
            file_system=self._files,
            background=self.background,
            client_numbers=machine.client_numbers,
        )
        self.failure: BaseException | None = None
        """What the main coroutine raised."""
        self.has_ended = False
        self._context: Final = copy_context()
        self._context.run(RUNTIME.set, self.runtime)
        self._spawned: Final[list[object]] = []
        self.spawn(self._run(main))

    async def _run(self, main: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
        try:
            await main(self.runtime)
        except Exception as error:
            self.failure = error
        finally:
            self._end()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Start another task in the process."""
        # Kept with the process: a loop knows its tasks by weak references only.
        self._spawned.append(self._context.run(self.loop.create_task, coroutine, context=self._context))

    def kill(self) -> None:
        """End the process at once: nothing of it runs any more, its connections break."""
        if not self.has_ended:
            self._end()

    def _end(self) -> None:
        self.has_ended = True
        self._network.end()
        self._files.end()
        # After its last callback: an exit closes the loop, a kill finds it between two.
        self.loop.end()
