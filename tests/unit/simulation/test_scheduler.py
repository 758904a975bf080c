"""Virtual time and the order of processes."""

from random import Random

import pytest

from kalda.simulation.scheduler import Scheduler, StepsExceededError


class Process:
    """Does nothing but note that it ran."""

    def __init__(self, name: str, ran: list[str], scheduler: Scheduler | None = None) -> None:
        self.name = name
        self.ran = ran
        self.scheduler = scheduler

    def enter(self) -> None:
        pass

    def leave(self) -> None:
        pass

    def run_once(self) -> None:
        self.ran.append(self.name)
        if self.scheduler is not None:
            self.scheduler.runnable.append(self)


class Cancelled:
    def cancelled(self) -> bool:
        return True


def _never() -> bool:
    return False


def test_time_moves_to_the_next_event_and_no_further_than_asked() -> None:
    scheduler = Scheduler(Random(1))
    seen: list[float] = []
    for when in (3.0, 1.0, 7.0):
        scheduler.call_at(when, lambda: seen.append(scheduler.now))

    assert not scheduler.run_until(None, 5.0)

    assert [1.0, 3.0] == seen
    assert 5.0 == scheduler.now


def test_events_of_one_time_keep_their_order_and_the_past_is_now() -> None:
    scheduler = Scheduler(Random(1))
    scheduler.run_until(None, 2.0)
    seen: list[tuple[str, float]] = []
    for name in "abc":
        scheduler.call_at(1.0, lambda name=name: seen.append((name, scheduler.now)))  # type: ignore[misc]

    scheduler.run_until(None, 1.0)

    assert [("a", 2.0), ("b", 2.0), ("c", 2.0)] == seen


def test_a_cancelled_event_neither_happens_nor_moves_the_time() -> None:
    scheduler = Scheduler(Random(1))
    scheduler.call_unless_cancelled(1.0, lambda timer: pytest.fail("it was cancelled"), Cancelled())

    assert not scheduler.run_until(None, 0.5)
    assert 0.5 == scheduler.now


def test_processes_run_before_time_moves() -> None:
    scheduler = Scheduler(Random(1))
    ran: list[str] = []
    scheduler.call_later(1.0, lambda: ran.append("event"))
    scheduler.runnable.append(Process("process", ran))

    scheduler.run_until(lambda: len(ran) == 2, 2.0)

    assert ["process", "event"] == ran


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_fixes_the_order_of_processes(seed: int) -> None:
    def order() -> list[str]:
        scheduler, ran = Scheduler(Random(seed)), []  # type: ignore[var-annotated]
        for name in "abcdefgh":
            scheduler.runnable.append(Process(name, ran))
        scheduler.run_until(None, 0.0)
        return ran

    assert order() == order()
    assert sorted(order()) == list("abcdefgh")


def test_processes_that_spin_are_an_error() -> None:
    scheduler = Scheduler(Random(1))
    scheduler.runnable.append(Process("busy", [], scheduler))

    with pytest.raises(StepsExceededError, match="100 steps"):
        scheduler.run_until(None, 1.0, steps_max=100)
