"""The order of a cut-over's phases, and where failures lead."""

from dataclasses import replace

import pytest

from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.pipelines.cutover.journal import FENCED, Fence, FenceMethod, Journal, Phase
from kalda.pipelines.cutover.machine import ENDS, ROUNDS_MAX, Outcome, advance

ACL = AclBinding(
    ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL),
    AccessControlEntry("User:*", "*", AclOperation.WRITE, PermissionType.DENY),
)


def at(phase: Phase) -> Journal:
    fence = Fence(acls=(ACL,)) if phase in FENCED else Fence()
    return Journal(flow="a->b", source_id="1", target_id="2", phase=phase, fence=fence)


def test_the_phases_follow_each_other_and_the_pause_is_measured() -> None:
    journal, now_ms, seen = at(Phase.CHECK), 1_000, []
    while journal.phase not in ENDS:
        seen.append(journal.phase.value)
        now_ms += 100
        journal = advance(journal, Outcome.DONE, now_ms)
    expected = "check prepare follow,plan fence fence drain groups verify settle".replace(",", " ")
    assert expected == " ".join(seen)
    assert (Phase.SWITCHED, 500) == (journal.phase, journal.pause_ms)


@pytest.mark.parametrize("phase", sorted(FENCED - {Phase.RELEASE}))
@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.STOPPED])
def test_writers_that_may_be_held_are_let_go(phase: Phase, outcome: Outcome) -> None:
    journal = advance(at(phase), outcome, 5, "the target is full")
    assert (Phase.RELEASE, "the target is full") == (journal.phase, journal.reason)
    journal = advance(replace(journal, fence=Fence()), Outcome.DONE, 9)
    assert (Phase.ABORTED, "the target is full", 9) == (journal.phase, journal.reason, journal.open_ms)


@pytest.mark.parametrize("phase", [Phase.CHECK, Phase.PREPARE, Phase.FOLLOW, Phase.PLAN_FENCE])
def test_a_failure_before_the_fence_needs_no_release(phase: Phase) -> None:
    assert Phase.ABORTED is advance(at(phase), Outcome.FAILED, 5, "no").phase


def test_the_next_method_is_tried_behind_the_fence_of_the_first() -> None:
    """Also a failure of its plan has to let writers go: the first fence stands."""
    journal = replace(at(Phase.FENCE), methods=(FenceMethod.QUOTA,))
    planning = advance(journal, Outcome.NOT_HELD, 5, "records still arrive")
    assert Phase.PLAN_FENCE is planning.phase
    assert Phase.RELEASE is advance(planning, Outcome.FAILED, 6, "no quotas").phase
    last = advance(at(Phase.FENCE), Outcome.NOT_HELD, 5, "records still arrive")
    assert (Phase.RELEASE, "records still arrive") == (last.phase, last.reason)


def test_records_behind_the_cut_are_copied_a_few_times() -> None:
    journal = at(Phase.VERIFY)
    for _ in range(ROUNDS_MAX):
        journal = advance(journal, Outcome.MOVED, 5, "records arrived")
        assert Phase.DRAIN is journal.phase
        journal = replace(journal, phase=Phase.VERIFY)
    journal = advance(journal, Outcome.MOVED, 5, "records arrived")
    assert (Phase.RELEASE, "records arrived") == (journal.phase, journal.reason)


def test_a_release_that_fails_is_not_forgotten() -> None:
    journal = at(Phase.RELEASE)
    assert journal == advance(journal, Outcome.FAILED, 5, "the source is away")
