"""The vocabulary of faults: the short form, mappings, YAML, and errors that say what is wrong."""

import random
from typing import Any

import pytest

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.faults import (
    BrokerEffect,
    BrokerFault,
    Condition,
    FaultError,
    FaultPlan,
    LinkEffect,
    LinkFault,
    RequestEffect,
    RequestFault,
)
from kalda.faults.model import ALL_APIS, GROUP_APIS, TRANSACTION_APIS
from kalda.faults.state import FaultState, RequestFacts

PRODUCE = (ApiKey.PRODUCE,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "produce:NOT_LEADER*2",
            RequestFault(
                apis=PRODUCE, effect=RequestEffect.ERROR, code=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2
            ),
        ),
        ("fetch:delay=3s", RequestFault(apis=(ApiKey.FETCH,), effect=RequestEffect.DELAY, milliseconds=3000)),
        (
            "group:rebalance@5",
            RequestFault(
                apis=GROUP_APIS, effect=RequestEffect.ERROR, code=Condition.REBALANCE, nth=5, times=1
            ),
        ),
        (
            "txn:fence",
            RequestFault(apis=TRANSACTION_APIS, effect=RequestEffect.ERROR, code=Condition.FENCE),
        ),
        (
            "Produce + Fetch:drop".replace(" ", ""),
            RequestFault(apis=(ApiKey.PRODUCE, ApiKey.FETCH), effect=RequestEffect.DROP),
        ),
        (
            "find_coordinator:lose~12.5%,client=app-*,broker=1,from=all",
            RequestFault(
                apis=(ApiKey.FIND_COORDINATOR,),
                effect=RequestEffect.LOSE,
                percent=12.5,
                client="app-*",
                broker=1,
                source="all",
            ),
        ),
        (
            "produce:error-after=TOPIC_AUTH@2*always,topic=a,partition=3",
            RequestFault(
                apis=PRODUCE,
                effect=RequestEffect.ERROR_AFTER,
                code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                nth=2,
                topic="a",
                partition=3,
            ),
        ),
        (
            "produce:route=canary~5%,topic=orders,header=canary=yes",
            RequestFault(
                apis=PRODUCE,
                effect=RequestEffect.ROUTE,
                to="canary",
                percent=5,
                topic="orders",
                header="canary=yes",
            ),
        ),
        (
            "broker:slow=20ms@1",
            RequestFault(apis=ALL_APIS, effect=RequestEffect.DELAY, milliseconds=20, broker=1, source="all"),
        ),
        ("broker:kill@2", BrokerFault(effect=BrokerEffect.KILL, broker=2)),
        ("broker:pause@coordinator", BrokerFault(effect=BrokerEffect.PAUSE, broker="coordinator")),
        ("broker:power@1", BrokerFault(effect=BrokerEffect.POWER_LOSS, broker=1)),
        ("disk:slow=500ms@1", BrokerFault(effect=BrokerEffect.SLOW_DISK, broker=1, milliseconds=500)),
        ("disk:flip@1", BrokerFault(effect=BrokerEffect.FLIPPED_BIT, broker=1)),
        ("client:kill@3", BrokerFault(effect=BrokerEffect.KILL_CLIENT, broker=3)),
        (
            "disk:full@leader/orders/0,after=1s,for=2m",
            BrokerFault(
                effect=BrokerEffect.FULL_DISK, broker="leader/orders/0", after_ms=1000, for_ms=120_000
            ),
        ),
        (
            "clock:jump=-1h@0",
            BrokerFault(effect=BrokerEffect.CLOCK_JUMP, broker=0, milliseconds=-3_600_000),
        ),
        ("link:cut@0-1", LinkFault(effect=LinkEffect.CUT, one=0, other=1)),
        (
            "link:loss=10%@0>all",
            LinkFault(effect=LinkEffect.LOSS, one=0, other="all", is_one_way=True, value=10),
        ),
    ],
)
def test_short_form(text: str, expected: Any) -> None:
    assert (expected,) == FaultPlan.parse(text).faults


def test_plan_has_several_faults() -> None:
    plan = FaultPlan.parse("produce:drop*1; fetch:drop\n\n  broker:kill@0 ; link:cut@0-1")
    assert (2, 1, 1) == (len(plan.request_faults), len(plan.broker_faults), len(plan.link_faults))
    assert plan == FaultPlan.parse(["produce:drop*1; fetch:drop", *plan.faults[2:]])
    assert plan == FaultPlan.parse(plan)
    assert "produce:drop*1; fetch:drop; broker:kill@0; link:cut@0-1" == str(plan)
    assert FaultPlan() == FaultPlan.parse("")


def test_yaml() -> None:
    plan = FaultPlan.from_yaml(
        """
        faults:
          - produce:NOT_LEADER*2
          - target: produce
            effect: not-leader
            times: 2
            topic: orders
            partition: 0
          - {target: broker, effect: pause, at: 1, for: 5s}
        """
    )
    assert [
        "produce:NOT_LEADER_OR_FOLLOWER*2",
        "produce:NOT_LEADER_OR_FOLLOWER*2,topic=orders,partition=0",
        "broker:pause@1,for=5s",
    ] == str(plan).split("; ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("produce", "'produce': this is no fault; write TARGET:EFFECT"),
        ("produc:drop", "the target 'produc' is no API such as produce"),
        ("produce:droop", "droop is no error of Kafka's protocol.*did you mean drop"),
        ("produce:NOT_", "beginning of several errors: NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR"),
        ("produce:error", "the effect error needs an error code"),
        ("produce:NONE", "the code NONE is no error"),
        ("produce:drop=1", "the effect drop does not take a value, found '1'"),
        ("produce:NOT_LEADER=1", "the effect NOT_LEADER does not take a value"),
        ("fetch:delay", "delay is a duration such as 500ms.*not None"),
        ("fetch:delay=3", "delay is a duration such as 500ms, 3s, 2m, 1h or 1d, not '3'"),
        ("fetch:delay=8d", "the duration in milliseconds, 691200000, is outside of 1 to 604800000"),
        ("produce:truncate=x", "the bytes to send must be a whole number, not 'x'"),
        ("produce:drop*0", "times, 0, is outside of 1 to"),
        ("produce:drop@x", "nth must be a whole number, not 'x'"),
        ("produce:drop*", "'times' has no value"),
        ("produce:drop*1*2", "'times' is there twice"),
        ("produce:drop~200%", "percent=200 is outside of 0"),
        ("produce:drop~x", "percent must be a number up to 100, not 'x'"),
        ("produce:drop,foo=1", "'foo' is not allowed with produce; allowed are nth, times, percent, client"),
        ("produce:drop,topic", "'topic' has no '='"),
        ("produce:drop,from=me", "from=me is none of clients, brokers, all"),
        ("group:fence", "fence is a condition that only these report: Produce"),
        ("fetch:route=x", "only Produce requests can be routed"),
        ("produce:route", "the topic of a route, '', must be"),
        ("fetch:drop,header=a", "only Produce requests have headers"),
        ("broker:die@1", "there is no broker:die; there are broker:kill, broker:stop, broker:pause"),
        ("broker:kill", "broker:kill needs a broker, as in broker:kill@2"),
        ("broker:kill=1@1", "the effect broker:kill does not take a value"),
        ("broker:kill@x", "the broker @x is neither an id nor controller"),
        ("broker:kill@1,topic=a", "'topic' is not allowed with broker; allowed are at, after, for"),
        ("session:expire@1,for=1s", "session:expire has no end"),
        ("clock:jump@1", "the effect clock:jump needs a duration"),
        ("link:cut@1", "link:cut needs two ends"),
        ("link:cut@1-1", "a link has two ends, 1 and 1 are the same"),
        ("link:cut@1-x", "the member x is neither a broker's id nor coordinator"),
        ("link:loss=0%@1-2", "the loss in percent, 0, is outside of 1 to 100"),
        ("link:delay=1s@0-coordinator", "a link to the coordinator can only be cut"),
    ],
)
def test_error_names_the_fault_the_value_and_what_is_allowed(text: str, expected: str) -> None:
    with pytest.raises(FaultError, match=expected) as caught:
        FaultPlan.parse(text)
    assert str(caught.value).startswith(repr(text))


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("[", "the plan is no YAML"),
        ("- produce:drop", "a plan is a mapping with the key 'faults', found list"),
        ("fault: []", "found 'fault'"),
        ("faults: produce:drop", "must be a list of faults, found 'produce:drop'"),
        ("faults: [1]", "fault 1: a fault is a text or a mapping, found 1"),
        ("faults: ['fetch:drop', {target: fetch}]", "fault 2: 'effect' is missing"),
        ("faults: [{target: fetch, effect: drop, times: true}]", "times must be a whole number, not True"),
        ("faults: [{target: fetch, effect: drop, topic: [a]}]", r"topic must be a text, not \['a'\]"),
        ("faults: [{target: fetch, effect: drop, client: ' a'}]", "without white space around it"),
    ],
)
def test_errors_of_documents(document: str, expected: str) -> None:
    with pytest.raises(FaultError, match=expected):
        FaultPlan.from_yaml(document)


def test_plan_has_a_bound() -> None:
    with pytest.raises(FaultError, match="a plan of 1001 faults; at most 1000"):
        FaultPlan.parse(["produce:drop"] * 1001)


def facts(key: ApiKey = ApiKey.PRODUCE, version: int = 9, **values: Any) -> RequestFacts:
    return RequestFacts(api_key=key, version=version, broker=values.pop("broker", 0), **values)


def applied(plan: str, requests: list[RequestFacts]) -> list[str | None]:
    """The effect on each request, or None."""
    state = FaultState(FaultPlan.parse(plan), random.Random(7))
    found = [state.next(each) for each in requests]
    return [None if fault is None else fault.effect.value for fault in found]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ("produce:drop", ["drop"] * 5),
        ("produce:drop*2", ["drop", "drop", None, None, None]),
        ("produce:drop@3", [None, None, "drop", None, None]),
        ("produce:drop@1", ["drop", None, None, None, None]),
        ("produce:drop@2*2", [None, "drop", "drop", None, None]),
        ("produce:drop@4*always", [None, None, None, "drop", "drop"]),
        ("produce:drop*1; produce:lose*1", ["drop", "lose", None, None, None]),
        ("produce:drop@2; produce:lose@2", [None, "drop", "lose", None, None]),
        ("fetch:drop", [None] * 5),
    ],
)
def test_nth_and_times(plan: str, expected: list[str | None]) -> None:
    assert expected == applied(plan, [facts()] * 5)


def test_probability_is_drawn_for_each_request() -> None:
    found = applied("produce:drop~25%", [facts()] * 1000)
    assert 200 < found.count("drop") < 300
    assert found == applied("produce:drop~25%", [facts()] * 1000)
    assert 3 == applied("produce:drop~25%*3", [facts()] * 1000).count("drop")


def test_route_is_chosen_for_each_client() -> None:
    """The records of one client stay in their order, and an idempotent producer's numbers without a gap."""
    state = FaultState(FaultPlan.parse("produce:route=canary~25%"), random.Random(7))
    routed = [{state.next(facts(client=f"app-{number}")) for _ in range(5)} for number in range(400)]
    assert all(1 == len(each) for each in routed)
    assert 60 < sum(None not in each for each in routed) < 140


@pytest.mark.parametrize(
    ("fault", "matching", "other"),
    [
        ("produce:drop,client=app-*", facts(client="app-1"), facts(client="other")),
        ("produce:drop,client=a", facts(client="a"), facts(client=None)),
        ("produce:drop,topic=ord*", facts(topics={"a": [0], "orders": [1]}), facts(topics={"a": [0]})),
        (
            "produce:drop,topic=orders,partition=1",
            facts(topics={"orders": [0, 1]}),
            facts(topics={"orders": [0], "b": [1]}),
        ),
        ("produce:drop,partition=1", facts(topics={"b": [1]}), facts(topics={"orders": [0]})),
        ("produce:drop,broker=1", facts(broker=1), facts(broker=2)),
        ("produce:drop", facts(), facts(is_of_broker=True)),
        ("fetch:drop,from=brokers", facts(ApiKey.FETCH, is_of_broker=True), facts(ApiKey.FETCH)),
        ("produce:drop,header=a=1", facts(has_header=lambda each: each == "a=1"), facts()),
        ("group:drop,group=g", facts(ApiKey.HEARTBEAT, groups=["g"]), facts(ApiKey.HEARTBEAT, groups=["h"])),
        ("txn:fence", facts(transactional_ids=["t"]), facts()),
        ("txn:fence", facts(ApiKey.END_TXN, transactional_ids=["t"]), facts(ApiKey.INIT_PRODUCER_ID)),
        (
            "txn:drop,transactional-id=t",
            facts(ApiKey.END_TXN, transactional_ids=["t"]),
            facts(ApiKey.END_TXN, transactional_ids=["u"]),
        ),
        ("group:rebalance", facts(ApiKey.HEARTBEAT), facts(ApiKey.JOIN_GROUP)),
    ],
)
def test_selectors(fault: str, matching: RequestFacts, other: RequestFacts) -> None:
    state = FaultState(FaultPlan.parse(fault), random.Random(7))
    assert state.next(other) is None
    assert state.next(matching) is not None
    assert ([1], [1]) == (state.matched, state.applied)
