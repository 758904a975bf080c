"""Keeps virtual time and chooses which process runs next: `Scheduler`.

Every process of a simulation has an event loop of its own, as on a real machine. One thread runs them all:
the scheduler lets one loop after the other do an iteration, and moves the time forward when no loop has
anything to do. Where several loops could run, its random source chooses, so a seed fixes the order of all.
"""

import itertools
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Protocol

from kalda.runtime.random import Random


class Cancellable(Protocol):
    """An event that can be cancelled."""

    def cancelled(self) -> bool:
        """Whether the event was cancelled."""
        ...


class Runnable(Protocol):
    """A process as the scheduler sees it."""

    def enter(self) -> None:
        """Make this the running process; another one, or none, was running before."""
        ...

    def run_once(self) -> None:
        """Do one iteration of its event loop."""
        ...

    def leave(self) -> None:
        """End being the running process."""
        ...


class StepsExceededError(Exception):
    """The processes do not come to rest: they run without an end while the time stands still."""


class Scheduler:
    """Owns the virtual time, in seconds from 0, and the events that are due at some time."""

    def __init__(self, random: Random) -> None:
        self.now = 0.0
        self.steps = 0
        """Iterations of event loops so far."""
        self._random: Final = random
        self._events: Final[list[tuple[float, int, Callable[..., None], Cancellable | None]]] = []
        self._sequence: Final = itertools.count()
        self.runnable: Final[list[Runnable]] = []
        """The processes that are to run, each once; a process adds itself."""

    def call_at(self, when: float, callback: Callable[[], None]) -> None:
        """Call `callback` at a time; events of one time keep their order."""
        self.call_unless_cancelled(when, callback, None)

    def call_unless_cancelled(
        self, when: float, callback: Callable[..., None], timer: Cancellable | None
    ) -> None:
        """Call `callback` with `timer`, or alone if that is None, at a time unless the timer is cancelled."""
        assert when == when, "an event has a time"  # it is no NaN
        now = self.now
        heappush(self._events, (when if when > now else now, next(self._sequence), callback, timer))

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        """Call `callback` after so many seconds."""
        self.call_unless_cancelled(self.now + delay, callback, None)

    def run_until(
        self, is_done: Callable[[], bool] | None, seconds: float, steps_max: int = 10_000_000
    ) -> bool:
        """Run everything until `is_done` after a step, or until so much time has passed; return which.

        Raises:
            StepsExceededError: more than `steps_max` steps were needed.
        """
        end = self.now + seconds
        last = self.steps + steps_max
        runnable, events, random = self.runnable, self._events, self._random.random
        running: Runnable | None = None
        try:
            while is_done is None or not is_done():
                if runnable:
                    process = runnable.pop()
                    if runnable:
                        # The chosen one changes places with the last: a shift of the list would cost more.
                        index = int(random() * (len(runnable) + 1))
                        if index < len(runnable):
                            process, runnable[index] = runnable[index], process
                    self.steps += 1
                    if self.steps > last:
                        raise StepsExceededError(f"{steps_max} steps were not enough at {self.now:.6f} s")
                    if process is not running:
                        process.enter()
                        running = process
                    process.run_once()
                    continue
                if not events or events[0][0] > end:
                    self.now = max(self.now, end)
                    return False
                when, _, callback, timer = heappop(events)
                if timer is None:
                    self.now = when
                    callback()
                elif not timer.cancelled():
                    self.now = when
                    callback(timer)
            return True
        finally:
            if running is not None:
                running.leave()
