"""Makes the schedule of a failure as small as it can be: `Shrinker`.

Less time first, since shorter schedules take less of it to carry out; then delta debugging over the faults,
then over the workloads. A smaller schedule counts if it
breaks the same rule. Messages arrive at other moments when a fault is left out, so a smaller schedule may
keep the rule by chance; the result is minimal in the sense that no single step makes it smaller.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from kalda.faults import FaultPlan
from kalda.simulation import plan as plans
from kalda.simulation.schedule import Outcome, Schedule

FindFirst: TypeAlias = Callable[[list[Schedule], Callable[[Outcome], bool]], int | None]
"""Carries out schedules and returns the position of the first whose outcome is wanted, or None."""

_SECONDS_LEAST: Final = 1.0


def broken_rule(outcome: Outcome) -> str | None:
    """Return the rule that was violated first; None if all hold."""
    return outcome.violations[0].partition(":")[0] if outcome.violations else None


class Shrinker:
    """Tries smaller schedules.

    Args:
        find_first: Carries schedules out; several at a time, so that it may use several processors.
        rule: The rule that must still be violated.
        on_step: Called with each smaller schedule that is found.
    """

    def __init__(
        self, find_first: FindFirst, rule: str, on_step: Callable[[Schedule], None] = lambda _: None
    ) -> None:
        self._find_first: Final = find_first
        self._rule: Final = rule
        self._on_step: Final = on_step

    def shrink(self, schedule: Schedule) -> Schedule:
        """Return the smallest schedule found that breaks the rule, which the given one does."""
        while True:
            before = schedule
            schedule = self._with_less_time(schedule)
            schedule = self._with_fewer_faults(schedule)
            schedule = self._with_fewer_workloads(schedule)
            if schedule == before:
                return schedule

    def _first(self, schedules: Iterable[Schedule]) -> Schedule | None:
        candidates = list(schedules)
        index = self._find_first(candidates, self._is_wanted) if candidates else None
        if index is None:
            return None
        self._on_step(candidates[index])
        return candidates[index]

    def _is_wanted(self, outcome: Outcome) -> bool:
        # A rule is violated in several words of the same kind; the first one need not be the same.
        return any(each.partition(":")[0] == self._rule for each in outcome.violations)

    def _with_fewer_faults(self, schedule: Schedule) -> Schedule:
        pieces = 1
        while count := len(schedule.plan.faults):
            pieces = min(pieces, count)
            chunks = list(_chunks(count, pieces))
            smaller = self._first(
                replace(schedule, plan=plans.without(schedule.plan, chunk)) for chunk in chunks
            )
            if smaller is not None:
                schedule = smaller
                pieces = max(pieces - 1, 1)
            elif pieces == count:
                break
            else:
                pieces *= 2
        return schedule

    def _with_fewer_workloads(self, schedule: Schedule) -> Schedule:
        while len(schedule.workloads) > 1:
            smaller = self._first(
                replace(schedule, workloads=tuple(each for each in schedule.workloads if each != left_out))
                for left_out in schedule.workloads
            )
            if smaller is None:
                break
            schedule = smaller
        return schedule

    def _with_less_time(self, schedule: Schedule) -> Schedule:
        """Halve the time as long as the rule is violated, then take off an eighth."""
        for factor in (0.5, 0.875):
            while schedule.seconds * factor >= _SECONDS_LEAST:
                smaller = self._first([_shorter(schedule, round(schedule.seconds * factor, 3))])
                if smaller is None:
                    break
                schedule = smaller
        return schedule


def _shorter(schedule: Schedule, seconds: float) -> Schedule:
    faults = tuple(fault for fault in schedule.plan.faults if plans.begin(fault) < seconds)
    return replace(schedule, seconds=seconds, plan=FaultPlan(faults))


def _chunks(count: int, pieces: int) -> Iterator[range]:
    """Yield the positions up to `count` in so many pieces of about the same length.

    >>> [list(chunk) for chunk in _chunks(5, 2)]
    [[0, 1], [2, 3, 4]]
    """
    for number in range(pieces):
        yield range(count * number // pieces, count * (number + 1) // pieces)
