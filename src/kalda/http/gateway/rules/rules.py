"""Reads rules, and decides what happens to a request. It has no clock and does no I/O.

A file of rules::

    rules:
      - name: orders
        match: {kind: write, topic: "orders*", principal: "User:shop-*"}
        route: {topic: orders-canary, weight: 5}
        rate_limit: {requests: 100, burst: 200}
        faults: "produce:delay=300ms~10%; produce:NOT_LEADER*2"

The first rule that matches a request decides. A route concerns writes: of 100 requests about `weight` go to
the other topic, and those with the same ``Idempotency-Key`` go the same way. The faults have the words of
fault plans; ``produce`` stands for writes and ``fetch`` for what reads: streams, polls of consumers, and
requests of webhooks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any, Final
from zlib import crc32

import yaml

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.faults.model import FaultError, RequestEffect, RequestFault, code_for
from kalda.faults.plan import FaultPlan
from kalda.faults.state import FaultState, RequestFacts
from kalda.runtime.random import Random

RULES_MAX: Final = 1_000

_EFFECTS: Final = (
    RequestEffect.ERROR,
    RequestEffect.ERROR_AFTER,
    RequestEffect.DELAY,
    RequestEffect.DROP,
    RequestEffect.LOSE,
    RequestEffect.HANG,
    RequestEffect.THROTTLE,
)
_APIS: Final[Mapping[str, ApiKey]] = {"produce": ApiKey.PRODUCE, "fetch": ApiKey.FETCH}
_VERSIONS: Final[Mapping[ApiKey, int]] = {ApiKey.PRODUCE: 11, ApiKey.FETCH: 17}
"""Those of present clients, which have all errors."""


class RuleError(ValueError):
    """A file of rules is not valid; the message has the rule and the field."""


class RequestKind(Enum):
    """The kinds of requests that rules name; the value is the word in a rule."""

    WRITE = "write"
    STREAM = "stream"
    """Opens a stream, as server-sent events or over a WebSocket."""
    CONSUMER = "consumer"
    """Polls a consumer of a group."""
    WEBHOOK = "webhook"
    """An attempt to send a record to a webhook."""

    @property
    def api(self) -> ApiKey:
        """The API that faults name."""
        return ApiKey.PRODUCE if self is RequestKind.WRITE else ApiKey.FETCH


@dataclass(frozen=True, slots=True)
class RequestOfCaller:
    """The properties of a request that rules match."""

    kind: RequestKind
    topics: tuple[str, ...]
    """At least one; only a consumer may have several."""
    principal: str
    """Who sends the request; who made the webhook."""
    key: str | None = None
    """The idempotency key."""


_KINDS: Final[Mapping[str, RequestKind]] = {each.value: each for each in RequestKind}


@dataclass(frozen=True, slots=True)
class Decision:
    """The effect of the rules on a request."""

    rule: str
    topic: str
    """The topic that takes the place of a write's."""
    wait_s: float | None = None
    """How long the caller has to wait, where it is above its rate."""
    fault: RequestFault | None = None
    error: ErrorCode | None = None
    """The error of a fault that has one."""
    is_routed: bool = False
    """Whether the topic is another one than the request's."""


@dataclass(slots=True)
class _Bucket:
    """A rate limit: `burst` requests at once, and `rate` each second."""

    rate: float
    burst: float
    left: float
    at: float = 0.0

    def take(self, now: float) -> float | None:
        """Take a request at a time; return how long to wait if there is none left."""
        self.left = min(self.burst, self.left + max(now - self.at, 0.0) * self.rate)
        self.at = now
        if self.left >= 1:
            self.left -= 1
            return None
        return (1 - self.left) / self.rate


@dataclass(slots=True)
class _Rule:
    name: str
    api: ApiKey | None
    kind: RequestKind | None
    topic: str
    principal: str
    to: str | None
    weight: float
    bucket: _Bucket | None
    faults: FaultState
    requests: int = field(default=0)

    def matches(self, request: RequestOfCaller) -> bool:
        return (
            (self.api is None or self.api is request.kind.api)
            and (self.kind is None or self.kind is request.kind)
            and any(fnmatchcase(topic, self.topic) for topic in request.topics)
            and fnmatchcase(request.principal, self.principal)
        )


class Rules:
    """The rules of a process."""

    def __init__(self, rules: Sequence[_Rule], random: Random) -> None:
        self._rules: Final = rules
        self._random: Final = random

    @classmethod
    def parse(cls, text: str, random: Random) -> "Rules":
        """Read a file of rules.

        Raises:
            RuleError: it is not valid.
        """
        try:
            document = yaml.safe_load(text)
        except (yaml.YAMLError, RecursionError) as error:
            raise RuleError(f"the rules are not YAML: {error}") from None
        if not isinstance(document, dict) or not isinstance(document.get("rules"), list) or len(document) > 1:
            raise RuleError("the rules are not `rules:` with a list")
        if len(document["rules"]) > RULES_MAX:
            raise RuleError(f"there are {len(document['rules'])} rules; at most {RULES_MAX} are allowed")
        rules = [_read_rule(each, number, random) for number, each in enumerate(document["rules"])]
        names = [rule.name for rule in rules]
        for name in names:
            if names.count(name) > 1:
                raise RuleError(f"two rules have the name {name}")
        return cls(rules, random)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def decide(self, request: RequestOfCaller, now: float) -> Decision | None:
        """Return what happens to a request at a time in seconds; None where no rule matches."""
        rule = next((each for each in self._rules if each.matches(request)), None)
        if rule is None:
            return None
        rule.requests += 1
        wait_s = None if rule.bucket is None else rule.bucket.take(now)
        if wait_s is not None:
            return Decision(rule.name, request.topics[0], wait_s)
        api = request.kind.api
        fault = rule.faults.next(
            RequestFacts(
                api_key=api,
                version=_VERSIONS[api],
                broker=-1,
                client=request.principal,
                topics=dict.fromkeys(request.topics, ()),
            )
        )
        error = None
        if fault is not None and fault.code is not None:
            error = code_for(fault.code, api, _VERSIONS[api])
        topic = self._route(rule, request)
        return Decision(rule.name, topic, None, fault, error, topic != request.topics[0])

    def _route(self, rule: _Rule, request: RequestOfCaller) -> str:
        topic = request.topics[0]
        if rule.to is None or request.kind is not RequestKind.WRITE:
            return topic
        if request.key is None:
            drawn = self._random.random() * 100
        else:
            drawn = crc32(f"{request.principal}/{request.key}".encode()) / 2**32 * 100
        return rule.to if drawn < rule.weight else topic


def _read_rule(given: object, number: int, random: Random) -> _Rule:
    where = f"rules[{number}]"
    fields = _fields(given, where, ("name", "match", "route", "rate_limit", "faults"))
    match = _fields(fields.get("match", {}), f"{where}.match", ("api", "kind", "topic", "principal"))
    name = fields.get("name", f"rule-{number}")
    for what, value in (("name", name), *((f"match.{each}", match[each]) for each in match)):
        if not isinstance(value, str) or not 0 < len(value) <= 300:
            raise RuleError(f"{where}.{what}={value!r:.80} is no text of 1 to 300 characters")
    api = match.get("api")
    if api is not None and api not in _APIS:
        raise RuleError(f"{where}.match.api={api!r:.80} is not allowed: one of {', '.join(_APIS)}")
    kind = match.get("kind")
    if kind is not None and kind not in _KINDS:
        raise RuleError(f"{where}.match.kind={kind!r:.80} is not allowed: one of {', '.join(_KINDS)}")
    route = _fields(fields.get("route", {}), f"{where}.route", ("topic", "weight"))
    if route and not isinstance(route.get("topic"), str):
        raise RuleError(f"{where}.route has no topic")
    return _Rule(
        name,
        None if api is None else _APIS[api],
        None if kind is None else _KINDS[kind],
        match.get("topic", "*"),
        match.get("principal", "*"),
        route.get("topic"),
        _number(route, "weight", 100.0, 0.0, 100.0, f"{where}.route"),
        _bucket(fields.get("rate_limit"), f"{where}.rate_limit"),
        FaultState(_plan(fields.get("faults", ""), f"{where}.faults"), random),
    )


def _bucket(given: object, where: str) -> _Bucket | None:
    if given is None:
        return None
    fields = _fields(given, where, ("requests", "burst"))
    rate = _number(fields, "requests", 0.0, 0.001, 1e9, where)
    burst = _number(fields, "burst", max(rate, 1.0), 1.0, 1e9, where)
    return _Bucket(rate, burst, burst)


def _plan(given: object, where: str) -> FaultPlan:
    if not isinstance(given, str):
        raise RuleError(f"{where} is no text such as produce:delay=1s~10%")
    try:
        plan = FaultPlan.parse(given)
    except FaultError as error:
        raise RuleError(f"{where}: {error}") from None
    for fault in plan.faults:
        if not isinstance(fault, RequestFault):
            raise RuleError(f"{where}: {fault} is no fault of requests")
        if fault.effect not in _EFFECTS:
            allowed = ", ".join(each.value for each in _EFFECTS)
            raise RuleError(f"{where}: {fault} has an effect that requests over HTTP do not have: {allowed}")
    return plan


def _fields(given: object, where: str, names: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise RuleError(f"{where} is no mapping with {', '.join(names)}")
    for name in given:
        if name not in names:
            raise RuleError(f"{where}.{name!s:.80} is no field; the fields are {', '.join(names)}")
    return given


def _number(
    given: Mapping[str, Any], name: str, default: float, low: float, high: float, where: str
) -> float:
    value = given.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise RuleError(f"{where}.{name}={value!r:.80} is not allowed: a number from {low:g} to {high:g}")
    return float(value)
