"""The nearest event that a rule allows is the cause, and it is found without looking at all others."""

import random
from collections.abc import Callable

import pytest

from kalda.events import causes
from kalda.events.causes import Evidence, Rule
from kalda.events.event import CausalEvent, EventId

Events = list[CausalEvent]


def event(number: int, time_ms: int, kind: str, group: int = 0) -> CausalEvent:
    return CausalEvent(id=EventId(1, number), time_ms=time_ms, kind=kind, subject={"group": group})


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Callable[[Rule], None]:
    return lambda rule: monkeypatch.setattr(causes, "_BY_EFFECT", {rule.effect: [rule]})


def test_the_cause_is_the_nearest_one_in_the_time_that_the_rule_allows(
    rules: Callable[[Rule], None],
) -> None:
    rule = Rule("effect", "cause", causes.same_group, before_ms=30, after_ms=10)
    rules(rule)
    for seed in range(200):
        source = random.Random(seed)
        events = [
            event(number, source.randrange(100), source.choice(["effect", "cause"]), source.randrange(3))
            for number in range(40)
        ]
        evidence = Evidence(events)
        for effect in evidence.of_kind("effect"):
            distances = [
                abs(effect.time_ms - cause.time_ms)
                for cause in evidence.of_kind("cause")
                if causes.same_group(effect, cause) and -10 <= effect.time_ms - cause.time_ms <= 30
            ]
            found = evidence.cause_of(effect)
            assert (min(distances) if distances else None) == (
                None if found is None else abs(effect.time_ms - found.time_ms)
            ), f"seed {seed}"


def test_a_flood_of_events_of_one_client_is_explained_at_once(rules: Callable[[Rule], None]) -> None:
    """A member that joins and leaves in a loop fills the ring, and the answer must come in seconds."""
    looked_at = 0

    def agree(effect: CausalEvent, cause: CausalEvent) -> bool:
        nonlocal looked_at
        looked_at += 1
        return causes.same_group(effect, cause)

    rules(Rule("effect", "cause", agree, before_ms=10**9))
    evidence = Evidence(event(number, number, ["cause", "effect"][number % 2]) for number in range(2_000))
    assert all(evidence.cause_of(each) is not None for each in evidence.of_kind("effect"))
    assert 1_000 == looked_at
