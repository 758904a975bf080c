"""Every plan survives its text, its mapping and YAML; no text raises anything but `FaultError`."""

import contextlib
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.faults import (
    BrokerEffect,
    BrokerFault,
    Condition,
    Fault,
    FaultError,
    FaultPlan,
    LinkEffect,
    LinkFault,
    RequestEffect,
    RequestFault,
)
from kalda.faults.model import ALL_APIS, API_GROUPS, CODES

NAMES = st.text(min_size=1).filter(lambda text: text == text.strip() and text.isprintable())
TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True)
DURATIONS = st.integers(1, 604_800_000)
NUMBERS = st.integers(0, 2**31 - 1)
TIMES = {"after_ms": st.just(0) | DURATIONS, "for_ms": st.none() | DURATIONS}


def _optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def request_faults(draw: st.DrawFn) -> Fault:
    effect = draw(st.sampled_from(RequestEffect))
    values: dict[str, Any] = {}
    apis = draw(
        st.sampled_from(list(API_GROUPS.values()))
        | st.lists(st.sampled_from(ALL_APIS), min_size=1, max_size=4, unique=True).map(tuple)
    )
    if effect in (RequestEffect.ERROR, RequestEffect.ERROR_AFTER):
        code = draw(st.sampled_from([*ErrorCode, *Condition]).filter(lambda each: each != ErrorCode.NONE))
        values["code"] = code
        if isinstance(code, Condition):
            apis = draw(st.sampled_from([tuple(CODES[code]), API_GROUPS["any"]]))
    elif effect in (RequestEffect.DELAY, RequestEffect.THROTTLE):
        values["milliseconds"] = draw(DURATIONS)
    elif effect is RequestEffect.TRUNCATE:
        values["size"] = draw(NUMBERS)
    elif effect is RequestEffect.ROUTE:
        apis, values["to"] = (ApiKey.PRODUCE,), draw(TOPICS)
    if apis == (ApiKey.PRODUCE,):
        values["header"] = draw(_optional(NAMES))
    return RequestFault(
        apis=apis,
        effect=effect,
        client=draw(_optional(NAMES)),
        topic=draw(_optional(NAMES)),
        partition=draw(_optional(NUMBERS)),
        group=draw(_optional(NAMES)),
        transactional_id=draw(_optional(NAMES)),
        broker=draw(_optional(NUMBERS)),
        source=draw(st.sampled_from(["clients", "brokers", "all"])),
        nth=draw(st.integers(1, 100)),
        times=draw(_optional(st.integers(1, 100))),
        percent=draw(st.floats(0, 100, exclude_min=True)),
        **values,
    )


@st.composite
def broker_faults(draw: st.DrawFn) -> Fault:
    effect = draw(st.sampled_from(BrokerEffect))
    times: dict[str, Any] = {name: draw(strategy) for name, strategy in TIMES.items()}
    jump = None
    if effect is BrokerEffect.CLOCK_JUMP:
        jump = draw(st.integers(-DURATIONS_MAX, DURATIONS_MAX))
    if effect is BrokerEffect.SESSION_EXPIRY:
        times["for_ms"] = None
    leaders = st.builds(lambda topic, number: f"leader/{topic}/{number}", TOPICS, st.integers(0, 1000))
    if effect is BrokerEffect.SLOW_DISK:
        jump = draw(DURATIONS)
    broker = draw(NUMBERS | st.sampled_from(["controller", "all"]) | leaders)
    if effect is BrokerEffect.KILL_CLIENT:
        broker = draw(NUMBERS)
    return BrokerFault(effect=effect, broker=broker, milliseconds=jump, **times)


DURATIONS_MAX = 604_800_000


@st.composite
def link_faults(draw: st.DrawFn) -> Fault:
    effect = draw(st.sampled_from(LinkEffect))
    members: list[int | str] = [0, 1, 2, "all", "clients"]
    value = None
    if effect is LinkEffect.CUT:
        members.append("coordinator")
    else:
        value = draw(DURATIONS if effect is LinkEffect.DELAY else st.integers(1, 100))
    one, other = draw(st.permutations(members))[:2]
    is_one_way = draw(st.booleans())
    times: dict[str, Any] = {name: draw(strategy) for name, strategy in TIMES.items()}
    return LinkFault(effect=effect, one=one, other=other, is_one_way=is_one_way, value=value, **times)


PLANS = st.lists(request_faults() | broker_faults() | link_faults(), max_size=5).map(
    lambda faults: FaultPlan(tuple(faults))
)


@given(PLANS)
def test_text_of_a_plan_is_the_plan(plan: FaultPlan) -> None:
    assert plan == FaultPlan.parse(str(plan))


@given(PLANS)
def test_mapping_and_yaml_of_a_plan_are_the_plan(plan: FaultPlan) -> None:
    assert plan == FaultPlan.from_mapping(plan.to_mapping())
    assert plan == FaultPlan.from_yaml(yaml.safe_dump(plan.to_mapping(), allow_unicode=True))
    shorts: dict[str, object] = {"faults": [str(FaultPlan((fault,))) for fault in plan.faults]}
    assert plan == FaultPlan.from_mapping(shorts)


@given(st.text() | st.from_regex(r"[a-z]+:[a-z-]+(=[0-9a-z]*)?([@*~][0-9a-z%>-]*)*(,[a-z]+=.*)*"))
def test_any_text_is_a_plan_or_a_fault_error(text: str) -> None:
    with contextlib.suppress(FaultError):
        FaultPlan.parse(text)
        FaultPlan.from_yaml(text)


@given(PLANS, st.data())
def test_changed_text_is_a_plan_or_a_fault_error(plan: FaultPlan, data: st.DataObject) -> None:
    text = str(plan)
    start = data.draw(st.integers(0, len(text)))
    with contextlib.suppress(FaultError):
        FaultPlan.parse(text[:start] + data.draw(st.text(max_size=3)) + text[start + 1 :])
