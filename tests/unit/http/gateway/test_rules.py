"""What rules do with requests, and what wrong files of rules get."""

import random

import pytest

from kalda.common.errors import ErrorCode
from kalda.faults import RequestEffect
from kalda.http.gateway.rules.rules import Decision, RequestKind, RequestOfCaller, RuleError, Rules

WRITE = RequestOfCaller(RequestKind.WRITE, ("orders",), "User:shop-1")
READ = RequestOfCaller(RequestKind.STREAM, ("orders",), "User:shop-1")


def rules(text: str) -> Rules:
    return Rules.parse(text, random.Random(1))


def test_the_first_rule_that_matches_decides() -> None:
    made = rules(
        """
        rules:
          - {name: other, match: {topic: "flights*"}}
          - {name: readers, match: {api: fetch}}
          - {name: shops, match: {principal: "User:shop-*"}}
        """
    )

    assert Decision("readers", "orders") == made.decide(READ, 0.0)
    assert Decision("shops", "orders") == made.decide(WRITE, 0.0)
    assert made.decide(RequestOfCaller(RequestKind.WRITE, ("orders",), "User:x"), 0.0) is None


def test_a_weight_is_a_share_of_writes_and_keys_stay_where_they_were() -> None:
    made = rules("rules: [{route: {topic: canary, weight: 20}}]")
    decisions = [made.decide(WRITE, 0.0) for _ in range(2_000)]
    keyed = [
        {
            decision.topic
            for _ in range(3)
            if (decision := made.decide(RequestOfCaller(RequestKind.WRITE, ("orders",), "u", f"k{n}"), 0.0))
        }
        for n in range(1_000)
    ]

    routed = sum(each is not None and each.is_routed for each in decisions)
    assert 300 < routed < 500
    assert {1} == {len(topics) for topics in keyed}
    assert 130 < sum(topics == {"canary"} for topics in keyed) < 270
    read = made.decide(READ, 0.0)
    assert read is not None
    assert "orders" == read.topic


def test_a_rate_limit_has_a_burst_and_fills_again() -> None:
    made = rules("rules: [{rate_limit: {requests: 10, burst: 3}}]")

    waits = [decision.wait_s for _ in range(4) if (decision := made.decide(WRITE, 100.0)) is not None]
    later = made.decide(WRITE, 100.2)

    assert [None, None, None, 0.1] == waits
    assert later is not None
    assert later.wait_s is None


def test_faults_have_the_words_of_fault_plans() -> None:
    made = rules('rules: [{faults: "produce:NOT_LEADER*2; produce:delay=1s; fetch:drop"}]')

    effects = [made.decide(WRITE, 0.0) for _ in range(3)]

    assert [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, None] == [
        each.error for each in effects if each is not None
    ]
    assert effects[2] is not None
    assert effects[2].fault is not None
    assert (RequestEffect.DELAY, 1_000) == (effects[2].fault.effect, effects[2].fault.milliseconds)


def test_a_rule_may_be_for_one_kind_of_requests() -> None:
    made = rules(
        """
        rules:
          - {name: hooks, match: {kind: webhook}}
          - {name: polls, match: {kind: consumer, topic: "flights*"}}
          - {name: reads, match: {api: fetch}}
        """
    )

    def rule(kind: RequestKind, *topics: str) -> str | None:
        decision = made.decide(RequestOfCaller(kind, topics, "User:x"), 0.0)
        return None if decision is None else decision.rule

    assert "hooks" == rule(RequestKind.WEBHOOK, "orders")
    assert "polls" == rule(RequestKind.CONSUMER, "orders", "flights-2"), "of several topics one matches"
    assert "reads" == rule(RequestKind.CONSUMER, "orders")
    assert "reads" == rule(RequestKind.STREAM, "flights")
    assert rule(RequestKind.WRITE, "orders") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "are not `rules:`"),
        ("rules: {}", "are not `rules:`"),
        ("{rules: [], more: 1}", "are not `rules:`"),
        ("rules: [", "are not YAML"),
        ("[" * 5_000, "are not YAML"),
        ("rules: [1]", r"rules\[0\] is no mapping"),
        ("rules: [{naem: x}]", r"rules\[0\].naem is no field"),
        ("rules: [{name: 1}]", r"rules\[0\].name=1"),
        ("rules: [{name: a}, {name: a}]", "two rules have the name a"),
        ("rules: [{match: {api: admin}}]", "match.api='admin'"),
        ("rules: [{match: {kind: poll}}]", "match.kind='poll' is not allowed: one of write, stream"),
        ("rules: [{match: {topic: 5}}]", "match.topic=5"),
        ("rules: [{route: {weight: 5}}]", "route has no topic"),
        ("rules: [{route: {topic: t, weight: 101}}]", "route.weight=101"),
        ("rules: [{rate_limit: {}}]", "rate_limit.requests=0"),
        ("rules: [{rate_limit: {requests: yes}}]", "rate_limit.requests=True"),
        ("rules: [{faults: 'produce:explode'}]", "faults"),
        ("rules: [{faults: 'broker:kill@1'}]", "is no fault of requests"),
        ("rules: [{faults: 'produce:route=x'}]", "has an effect that requests over HTTP do not have"),
    ],
)
def test_wrong_rules_are_named(text: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        rules(text)
