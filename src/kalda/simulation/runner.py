"""Runs schedules in child processes, several at a time: `run_many`.

Each schedule has a process of its own, forked from this one: what a run makes is never closed, and clients
count in module variables. A child that takes too much processor time or memory, or dies, is an outcome with a
violation like any other.
"""

import contextlib
import gc
import multiprocessing
import os
import pickle
import resource
import selectors
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from kalda.simulation.schedule import Outcome, Schedule

Run: TypeAlias = Callable[[Schedule], Outcome]

PROCESSOR_SECONDS_MAX: Final = 120
"""For one schedule; a usual one takes less than two seconds for a simulated minute."""

MEMORY_BYTES_MAX: Final = 4 * 1024**3
"""Of addresses, for one schedule; a usual one has a tenth."""

_COLLECTION_THRESHOLDS: Final = (1_000_000, 50, 50)
_WAIT_SECONDS: Final = 1.0
_READ_BYTES: Final = 1024 * 1024
_TRACEBACK_CHARACTERS: Final = 4000


@dataclass(frozen=True, slots=True)
class Limits:
    """The time and memory that one schedule may take."""

    processor_seconds: int = PROCESSOR_SECONDS_MAX
    memory_bytes: int = MEMORY_BYTES_MAX


class _Child:
    """A process that carries out a schedule."""

    def __init__(self, schedule: Schedule, run: Run, limits: Limits) -> None:
        self.schedule: Final = schedule
        self._limits: Final = limits
        self._data: Final = bytearray()
        self.reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self.reader)
            _be_child(schedule, run, limits, writer)
        os.close(writer)

    def has_ended(self) -> bool:
        """Read the child's output so far; return whether it has ended."""
        data = os.read(self.reader, _READ_BYTES)
        self._data.extend(data)
        return not data

    def outcome(self) -> Outcome:
        """Return the outcome of the run; the child must have ended."""
        os.close(self.reader)
        _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            outcome = pickle.loads(self._data)
            assert isinstance(outcome, Outcome), outcome
            return outcome
        if code == -signal.SIGXCPU:
            how = f"it took more than {self._limits.processor_seconds} s of processor time"
        else:
            how = f"its process ended by {_signal_name(-code)}" if code < 0 else self._data.decode()
        return Outcome(self.schedule.seed, [f"a schedule ends: {how}"])

    def kill(self) -> None:
        """Kill the child."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.close(self.reader)
        os.waitpid(self._pid, 0)


def _be_child(schedule: Schedule, run: Run, limits: Limits, writer: int) -> NoReturn:
    # Ctrl-C goes to the whole group; the parent ends its children itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    used = int(time.process_time()) + 1
    resource.setrlimit(
        resource.RLIMIT_CPU, (used + limits.processor_seconds, used + limits.processor_seconds + 5)
    )
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    # A schedule keeps most of what it makes, so collections would visit it again and again for little.
    gc.set_threshold(*_COLLECTION_THRESHOLDS)
    code = 1
    try:
        data = pickle.dumps(run(schedule))
        code = 0
    except BaseException:
        data = traceback.format_exc()[-_TRACEBACK_CHARACTERS:].encode()
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(writer, view) :]
    finally:
        os._exit(code)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def processors() -> int:
    """Return how many schedules should run at a time by default."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else multiprocessing.cpu_count()


def run_many(
    schedules: Iterable[Schedule], run: Run, *, jobs: int, limits: Limits | None = None
) -> Generator[tuple[Schedule, Outcome] | None, None, None]:
    """Carry schedules out in child processes and yield each with its outcome as it ends.

    None is yielded about once a second meanwhile, so that the caller can report progress or give up. Closing
    the iterator, or an exception such as `KeyboardInterrupt`, ends the children at once.

    Args:
        schedules: What to carry out; it is read as needed.
        run: Carries one out, in the child.
        jobs: How many run at a time.
        limits: What each may take.
    """
    limits = limits or Limits()
    waiting = iter(schedules)
    children: set[_Child] = set()
    # What exists now is not looked at in the children, so its memory stays shared.
    gc.collect()
    gc.freeze()
    with selectors.DefaultSelector() as selector:
        try:
            while True:
                while len(children) < jobs and (schedule := next(waiting, None)) is not None:
                    child = _Child(schedule, run, limits)
                    children.add(child)
                    selector.register(child.reader, selectors.EVENT_READ, child)
                if not children:
                    return
                ready = [key.data for key, _ in selector.select(_WAIT_SECONDS)]
                for child in ready:
                    if child.has_ended():
                        selector.unregister(child.reader)
                        children.discard(child)
                        yield child.schedule, child.outcome()
                if not ready:
                    yield None
        finally:
            gc.unfreeze()
            for child in children:
                child.kill()


def run_apart(schedule: Schedule, run: Run, limits: Limits | None = None) -> Outcome:
    """Carry out one schedule in a child process."""
    return next(each for each in run_many([schedule], run, jobs=1, limits=limits) if each is not None)[1]
