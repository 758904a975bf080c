"""The smallest schedule that still breaks a rule."""

from collections.abc import Callable

from kalda.faults import FaultPlan
from kalda.simulation import plan as plans
from kalda.simulation.schedule import Outcome, Schedule
from kalda.simulation.shrink import Shrinker, broken_rule

FAULTS = [f"broker:kill@{number % 3},after={number}s,for=1s" for number in range(1, 41)]


def _shrunk(is_bad: Callable[[Schedule], bool], rule: str = "rule") -> tuple[Schedule, int]:
    """Shrink a schedule of 40 faults and 3 workloads; return the result and how many schedules it took."""
    tried = 0

    def find_first(candidates: list[Schedule], is_wanted: Callable[[Outcome], bool]) -> int | None:
        nonlocal tried
        for index, each in enumerate(candidates):
            tried += 1
            violations = [f"{rule}: at {each.seconds}"] if is_bad(each) else ["another rule: 1"]
            if is_wanted(Outcome(each.seed, violations)):
                return index
        return None

    schedule = Schedule(1, ("a", "b", "c"), {}, FaultPlan.parse(FAULTS), 60.0)
    assert is_bad(schedule)
    return Shrinker(find_first, "rule").shrink(schedule), tried


def test_the_faults_that_matter_are_left() -> None:
    needed = [FAULTS[3], FAULTS[17], FAULTS[29]]

    found, tried = _shrunk(lambda each: set(needed) <= {plans.text(fault) for fault in each.plan.faults})

    assert FaultPlan.parse(needed) == found.plan
    assert tried < 250


def test_the_workload_and_the_time_that_matter_are_left() -> None:
    found, _ = _shrunk(lambda each: "b" in each.workloads and each.seconds >= 12.0)

    assert ("b",) == found.workloads
    assert 12.0 <= found.seconds < 14.0
    assert not found.plan.faults


def test_faults_behind_the_end_are_left_out_with_the_time() -> None:
    found, _ = _shrunk(lambda each: FAULTS[4] in {plans.text(fault) for fault in each.plan.faults})

    assert [FAULTS[4]] == [plans.text(fault) for fault in found.plan.faults]
    assert 5.0 < found.seconds < 8.0


def test_another_rule_does_not_count() -> None:
    found, _ = _shrunk(lambda _: True, rule="another rule")

    assert 40 == len(found.plan.faults)


def test_the_broken_rule_is_the_first_one() -> None:
    assert "order" == broken_rule(Outcome(1, ["order: 3 before 2", "loss: 4"]))
    assert broken_rule(Outcome(1)) is None
