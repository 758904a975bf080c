"""Schedules in child processes."""

import contextlib
import os
import signal
from typing import NoReturn

import pytest

from kalda.faults import FaultPlan
from kalda.simulation.runner import Limits, run_apart, run_many
from kalda.simulation.schedule import Outcome, Schedule

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


def _schedule(seed: int) -> Schedule:
    return Schedule(seed, ("none",), {}, FaultPlan())


def _seed_and_process(schedule: Schedule) -> Outcome:
    return Outcome(schedule.seed, digest=str(os.getpid()))


def test_every_schedule_runs_once_in_a_process_of_its_own() -> None:
    finished = [
        each for each in run_many(map(_schedule, range(12)), _seed_and_process, jobs=3) if each is not None
    ]

    assert list(range(12)) == sorted(schedule.seed for schedule, _ in finished)
    assert all(schedule.seed == outcome.seed for schedule, outcome in finished)
    assert 12 == len({outcome.digest for _, outcome in finished} - {str(os.getpid())})


def test_a_large_outcome_arrives_whole() -> None:
    outcome = run_apart(_schedule(1), lambda each: Outcome(each.seed, trace=["x" * 1000] * 2000))

    assert 2000 == len(outcome.trace)


def test_an_exception_is_a_violation_with_its_traceback() -> None:
    def fail(schedule: Schedule) -> NoReturn:
        raise ValueError("a bug of the simulator")

    (violation,) = run_apart(_schedule(1), fail).violations

    assert violation.startswith("a schedule ends: Traceback")
    assert "a bug of the simulator" in violation


def test_a_process_that_dies_is_a_violation() -> None:
    def die(schedule: Schedule) -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    assert ["a schedule ends: its process ended by SIGKILL"] == run_apart(_schedule(1), die).violations


def test_a_schedule_that_spins_is_ended() -> None:
    def spin(schedule: Schedule) -> NoReturn:
        while True:
            pass

    outcome = run_apart(_schedule(5), spin, Limits(processor_seconds=1))

    assert 5 == outcome.seed
    assert ["a schedule ends: it took more than 1 s of processor time"] == outcome.violations


def test_a_schedule_that_takes_too_much_memory_fails() -> None:
    def take(schedule: Schedule) -> Outcome:
        return Outcome(len(bytearray(8 * 1024**3)))

    (violation,) = run_apart(_schedule(1), take).violations

    assert "MemoryError" in violation


def test_closing_ends_the_children() -> None:
    reader, writer = os.pipe()

    def wait(schedule: Schedule) -> NoReturn:
        os.write(writer, b"%d\n" % os.getpid())
        signal.pause()
        raise AssertionError

    with contextlib.closing(run_many(map(_schedule, range(2)), wait, jobs=2)) as runs:
        # Nothing has ended, so this is the notice of each second.
        assert next(runs) is None
    started = b""
    while started.count(b"\n") < 2:
        started += os.read(reader, 100)
    os.close(reader)
    os.close(writer)

    for pid in map(int, started.split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
