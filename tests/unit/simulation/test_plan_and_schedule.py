"""Plans are drawn in the words of `kalda.faults`, and schedules are text that is read back."""

from random import Random

import pytest

from kalda.faults import BrokerEffect, BrokerFault, FaultError, FaultPlan, LinkFault
from kalda.simulation import plan as plans
from kalda.simulation.releases import RELEASES
from kalda.simulation.schedule import BROKERS, Schedule, ScheduleError, draw, read_schedule

WORKLOADS = ("produce", "transactions", "groups")


@pytest.mark.parametrize("seed", range(20))
def test_a_drawn_plan_is_one_that_a_simulation_takes(seed: int) -> None:
    drawn = plans.random_plan(Random(seed), BROKERS, 60.0, 2.0)
    further = plans.further_faults(Random(seed), BROKERS, 60.0)

    plans.check(further, BROKERS)
    assert further == FaultPlan.parse([plans.text(fault) for fault in further.faults])
    plan = drawn
    plans.check(plan, BROKERS)
    begins = [plans.begin(fault) for fault in plan.faults]
    assert sorted(begins) == begins
    assert all(0.5 <= each < 90.0 for each in begins)
    assert all(0.2 <= plans.duration(fault) <= 14.2 for fault in plan.faults)
    assert plan == FaultPlan.parse([plans.text(fault) for fault in plan.faults])


def test_plans_have_every_kind_of_fault() -> None:
    drawn = [fault for seed in range(30) for fault in plans.random_plan(Random(seed), BROKERS, 60, 2).faults]
    further = [
        fault for seed in range(30) for fault in plans.further_faults(Random(seed), BROKERS, 60).faults
    ]

    assert {True} == {each.is_simulated_only for each in further if isinstance(each, LinkFault)}
    assert 3 == len({type(each) for each in further})
    drawn += further
    effects = {fault.effect for fault in drawn if isinstance(fault, BrokerFault)}
    assert set(BrokerEffect) - {BrokerEffect.FAILING_DISK, BrokerEffect.READ_ONLY_DISK} == effects


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("produce:NOT_LEADER,broker=3", "there is no broker 3; they are 0 to 2"),
        ("broker:kill@3", "there is no broker 3; they are 0 to 2"),
        ("link:cut@0-7", "there is no broker 7; they are 0 to 2"),
        ("link:loss=5%@0-1", "a link can be cut or delayed"),
    ],
)
def test_what_a_simulation_cannot_carry_out_is_named(text: str, problem: str) -> None:
    with pytest.raises(FaultError, match=problem):
        plans.check(FaultPlan.parse(text), BROKERS)


def test_a_client_has_any_number() -> None:
    plans.check(FaultPlan.parse("client:kill@9; broker:kill@controller; broker:pause@coordinator"), BROKERS)


def test_without_leaves_faults_out_by_position() -> None:
    plan = FaultPlan.parse("broker:kill@0; broker:kill@1; broker:kill@2")

    assert FaultPlan.parse("broker:kill@1") == plans.without(plan, [0, 2])


def test_a_seed_fixes_a_schedule_and_other_seeds_give_others() -> None:
    assert draw(7, WORKLOADS) == draw(7, WORKLOADS)
    assert draw(7, WORKLOADS).plan != draw(8, WORKLOADS).plan


def test_another_workload_changes_no_seeds_faults_or_settings() -> None:
    one, other = draw(7, ("produce",)), draw(7, WORKLOADS)

    assert (one.plan, one.settings) == (other.plan, other.settings)


def test_a_later_workload_takes_the_place_of_one_in_some_seeds_and_changes_no_other() -> None:
    before = [draw(seed, WORKLOADS) for seed in range(200)]
    after = [draw(seed, (*WORKLOADS, "share-groups")) for seed in range(200)]

    changed = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert 10 < len(changed) < 60
    for one, other in changed:
        assert "share-groups" in other.workloads
        assert len(one.workloads) == len(other.workloads)
        assert one.plan == other.plan
        assert one.settings.items() < other.settings.items()
    assert ("share-groups",) == draw(1, ("share-groups",)).workloads


def test_share_groups_need_brokers_that_know_them() -> None:
    mixed = [draw(seed, (*WORKLOADS, "share-groups"), is_mixed=True) for seed in range(100)]

    assert not any("share-groups" in each.workloads for each in mixed)


@pytest.mark.parametrize("seed", range(5))
def test_a_schedule_is_read_back_from_its_text(seed: int) -> None:
    schedule = draw(seed, WORKLOADS, 12.5)

    assert schedule == read_schedule(schedule.to_yaml(), WORKLOADS)


@pytest.mark.parametrize("seed", range(4))
def test_a_mixed_schedule_is_read_back_from_its_text(seed: int) -> None:
    schedule = draw(seed, WORKLOADS, is_mixed=True)

    assert schedule.foreign in RELEASES
    assert schedule == read_schedule(schedule.to_yaml(), WORKLOADS)


def test_brokers_without_topic_ids_have_no_topics_created_again() -> None:
    drawn = [draw(seed, (*WORKLOADS, "administration"), is_mixed=True) for seed in range(60)]

    assert {"3.9"} == {each.foreign for each in drawn if "administration" in each.workloads}
    assert set(RELEASES) == {each.foreign for each in drawn}


def test_what_a_text_leaves_out_is_drawn_from_the_seed() -> None:
    drawn = draw(5, WORKLOADS, 20.0, FaultPlan.parse("broker:kill@1,after=3s,for=2s"))

    found = read_schedule('faults: ["broker:kill@1,after=3s,for=2s"]', WORKLOADS, seed=5, seconds=20.0)

    assert drawn == found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[", "it is no YAML"),
        ("foreign: 1.0", "foreign must be one of 2.7, 3.9, not 1.0"),
        (
            "[]",
            "it is a mapping with seed, seconds, workloads, settings, faults, foreign, coordination, found l",
        ),
        ("faulty: []", "'faulty' is not allowed; the keys are seed"),
        ("faults: [broker:kil@1]", "fault 1: .* there is no broker:kil"),
        ("seed: -1", "seed must be a number from 0 to .*, not -1"),
        ("seconds: soon", "seconds must be a number from 0 to 3600, not 'soon'"),
        ("workloads: [prodcue]", "workloads, .*, must be some of produce, transactions, groups"),
        ("workloads: produce", "must be some of produce"),
        ("settings: []", "settings must be a mapping"),
    ],
)
def test_a_wrong_text_is_refused_with_what_is_allowed(text: str, problem: str) -> None:
    with pytest.raises(ScheduleError, match=problem):
        read_schedule(text, WORKLOADS)


def test_a_schedule_is_a_value() -> None:
    schedule = draw(1, WORKLOADS)

    assert isinstance(schedule, Schedule)
    assert schedule != draw(1, WORKLOADS, 10.0)
