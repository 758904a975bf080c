"""Converts faults to and from mappings, which have the words of a plan as their keys.

    {"target": "produce", "effect": "NOT_LEADER_OR_FOLLOWER", "times": 2, "topic": "orders"}

A value may be a text as in the short form, or a number where it is one.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from kalda.common.errors import ErrorCode
from kalda.faults.model import (
    ALL,
    BrokerEffect,
    BrokerFault,
    Condition,
    Fault,
    FaultError,
    LinkEffect,
    LinkFault,
    RequestEffect,
    RequestFault,
)
from kalda.faults.values import apis_text, duration_text, read_apis, read_duration, read_error

Entry = Mapping[str, object]

_SLOW: Final = "broker:slow"
"""Another word for a delay of all requests to a broker."""

SELECTORS: Final = ("client", "topic", "partition", "group", "transactional-id", "header", "broker", "from")
"""The keys of a fault of requests that say which ones it matches."""
COUNTS: Final = ("nth", "times", "percent")
_COMMON: Final = ("target", "effect", "value")
_REQUEST_KEYS: Final = (*_COMMON, *COUNTS, *SELECTORS)
_MEMBER_KEYS: Final = (*_COMMON, "at", "after", "for")
_MEMBER_TARGETS: Final = ("broker", "disk", "clock", "session", "client", "link")

_DEFAULT_TRUNCATED_BYTES: Final = 6
"""The size of the answer and half of its correlation id."""


def fault_of(entry: Entry) -> Fault:
    """Return the fault that a mapping describes.

    Raises:
        FaultError: a key or a value is not allowed, or one is missing.
    """
    for key in ("target", "effect"):
        if not isinstance(entry.get(key), str) or not entry[key]:
            raise FaultError(f"{key!r} is missing: a fault has a target and an effect, as in produce:drop")
    target = str(entry["target"]).lower()
    if target == "link":
        return _link_fault(entry)
    if target in _MEMBER_TARGETS:
        return _slow_fault(entry) if _title(entry) == _SLOW else _broker_fault(entry)
    return _request_fault(entry)


def entry_of(fault: Fault) -> dict[str, object]:
    """Return the mapping that describes a fault; keys with their default are left out."""
    if isinstance(fault, RequestFault):
        return _request_entry(fault)
    target, _, effect = fault.effect.value.partition(":")
    entry: dict[str, object] = {"target": target, "effect": effect}
    if isinstance(fault, BrokerFault):
        if fault.milliseconds is not None:
            entry["value"] = duration_text(fault.milliseconds)
        entry["at"] = fault.broker
    else:
        if fault.value is not None:
            is_delay = fault.effect is LinkEffect.DELAY
            entry["value"] = duration_text(fault.value) if is_delay else f"{fault.value}%"
        entry["at"] = f"{fault.one}{'>' if fault.is_one_way else '-'}{fault.other}"
    if fault.after_ms:
        entry["after"] = duration_text(fault.after_ms)
    if fault.for_ms is not None:
        entry["for"] = duration_text(fault.for_ms)
    return entry


# Requests.


def _request_fault(entry: Entry) -> RequestFault:
    apis = read_apis(str(entry["target"]))
    _check_keys(entry, _REQUEST_KEYS)
    word = str(entry["effect"])
    value = entry.get("value")
    values: dict[str, Any] = {}
    effect = next((each for each in RequestEffect if each.value == word.lower()), None)
    if effect in (None, RequestEffect.ERROR, RequestEffect.ERROR_AFTER):
        # The error alone is enough: produce:NOT_LEADER is produce:error=NOT_LEADER.
        if effect is None and value is not None:
            raise FaultError(f"the effect {word} does not take a value, found {value!r}; {_effects()}")
        values["code"] = _read_code(word if effect is None else str(value or ""))
        effect = effect or RequestEffect.ERROR
    elif effect in (RequestEffect.DELAY, RequestEffect.THROTTLE):
        values["milliseconds"] = read_duration(f"the value of {effect.value}", value)
    elif effect is RequestEffect.TRUNCATE:
        values["size"] = _DEFAULT_TRUNCATED_BYTES if value is None else _whole("the bytes to send", value)
    elif effect is RequestEffect.ROUTE:
        values["to"] = str(value or "")
    elif value is not None:
        raise FaultError(f"the effect {effect.value} does not take a value, found {value!r}")
    assert effect is not None, "an unknown effect is an error code"
    for key, name, read in _REQUEST_VALUES:
        if entry.get(key) is not None:
            values[name] = read(key, entry[key])
    if "nth" in values:
        values.setdefault("times", 1)
    return RequestFault(apis=apis, effect=effect, **values)


def _request_entry(fault: RequestFault) -> dict[str, object]:
    effect = fault.effect
    entry: dict[str, object] = {"target": apis_text(fault.apis), "effect": effect.value}
    if fault.code is not None:
        word = fault.code.value if isinstance(fault.code, Condition) else fault.code.name
        entry |= {"effect": word} if effect is RequestEffect.ERROR else {"value": word}
    elif fault.milliseconds is not None:
        entry["value"] = duration_text(fault.milliseconds)
    elif fault.size is not None:
        entry["value"] = fault.size
    elif fault.to is not None:
        entry["value"] = fault.to
    if fault.nth != 1:
        entry["nth"] = fault.nth
    if fault.times != (None if fault.nth == 1 else 1):
        entry["times"] = _ALWAYS if fault.times is None else fault.times
    if fault.percent != 100:
        entry["percent"] = int(fault.percent) if fault.percent.is_integer() else fault.percent
    for key, name in (
        *((key, key.replace("-", "_")) for key in SELECTORS[:-1]),
        *((("from", "source"),) if fault.source != "clients" else ()),
    ):
        if getattr(fault, name) is not None:
            entry[key] = getattr(fault, name)
    return entry


_ALWAYS: Final = "always"


def _read_code(word: str) -> ErrorCode | Condition:
    if not word:
        raise FaultError(f"the effect error needs an error code; {_effects()}")
    for condition in Condition:
        if condition.value == word.lower():
            return condition
    try:
        return read_error(word)
    except FaultError as error:
        close = get_close_matches(word.lower(), [each.value for each in RequestEffect], 1)
        hint = f"did you mean {close[0]}?" if close else _effects()
        raise FaultError(f"{error}; {hint}") from None


def _effects() -> str:
    words = ", ".join(each.value for each in (*RequestEffect, *Condition))
    return f"the effects on requests are the name of an error, and {words}"


def _whole(key: str, value: object) -> int:
    if isinstance(value, bool) or not str(value).isdecimal() or not str(value).isascii():
        raise FaultError(f"{key} must be a whole number, not {value!r}")
    return int(str(value))


def _times(key: str, value: object) -> int | None:
    return None if value == _ALWAYS else _whole(key, value)


def _percent(key: str, value: object) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(str(value).removesuffix("%"))
    except ValueError:
        raise FaultError(f"{key} must be a number up to 100, not {value!r}") from None


def _text(key: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise FaultError(f"{key} must be a text, not {value!r}")
    return str(value)


_REQUEST_VALUES: Final[tuple[tuple[str, str, Callable[[str, object], object]], ...]] = (
    ("nth", "nth", _whole),
    ("times", "times", _times),
    ("percent", "percent", _percent),
    ("client", "client", _text),
    ("topic", "topic", _text),
    ("partition", "partition", _whole),
    ("group", "group", _text),
    ("transactional-id", "transactional_id", _text),
    ("header", "header", _text),
    ("broker", "broker", _whole),
    ("from", "source", _text),
)


# Brokers and links.


def _slow_fault(entry: Entry) -> RequestFault:
    _check_keys(entry, (*_COMMON, "at"))
    rest = {} if entry.get("at") in (None, ALL) else {"broker": entry["at"]}
    value = entry.get("value")
    delay = {"target": "any", "effect": "delay", "value": value, "from": ALL}
    return _request_fault({**delay, **rest})


def _broker_fault(entry: Entry) -> BrokerFault:
    effect = _member_effect(entry, BrokerEffect)
    _check_keys(entry, _MEMBER_KEYS)
    at, value = entry.get("at"), entry.get("value")
    if at is None:
        raise FaultError(f"{effect.value} needs a broker, as in {effect.value}@2 or @controller")
    milliseconds = None
    if value is not None:
        if effect not in (BrokerEffect.CLOCK_JUMP, BrokerEffect.SLOW_DISK):
            raise FaultError(f"the effect {effect.value} does not take a value, found {value!r}")
        milliseconds = read_duration(f"the value of {effect.value}", value)
    return BrokerFault(effect=effect, broker=_member(at), milliseconds=milliseconds, **_begin_and_end(entry))


def _link_fault(entry: Entry) -> LinkFault:
    effect = _member_effect(entry, LinkEffect)
    _check_keys(entry, _MEMBER_KEYS)
    at, value = str(entry.get("at") or ""), entry.get("value")
    one, sign, other = at.partition(">" if ">" in at else "-")
    if not one or not other:
        raise FaultError(f"{effect.value} needs two ends, as in {effect.value}@0-1, or @0>1 for one way")
    number = None
    if effect is LinkEffect.DELAY:
        number = read_duration("the delay of a link", value)
    elif effect is LinkEffect.LOSS:
        number = _whole("the loss of a link in percent", str(value).removesuffix("%"))
    elif value is not None:
        raise FaultError(f"the effect {effect.value} does not take a value, found {value!r}")
    return LinkFault(
        effect=effect,
        one=_member(one),
        other=_member(other),
        is_one_way=sign == ">",
        value=number,
        **_begin_and_end(entry),
    )


def _title(entry: Entry) -> str:
    return f"{entry['target']}:{entry['effect']}".lower()


def _member_effect(entry: Entry, effects: Any) -> Any:
    title = _title(entry)
    for each in effects:
        if each.value == title:
            return each
    target = title.partition(":")[0]
    known = [each.value for each in (*BrokerEffect, *LinkEffect)] + [_SLOW]
    allowed = ", ".join(each for each in known if each.startswith(f"{target}:"))
    raise FaultError(f"there is no {title}; there are {allowed}")


def _member(value: object) -> int | str:
    text = str(value)
    return int(text) if text.isdecimal() and text.isascii() else text


def _begin_and_end(entry: Entry) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if entry.get("after") is not None:
        found["after_ms"] = read_duration("after", entry["after"])
    if entry.get("for") is not None:
        found["for_ms"] = read_duration("for", entry["for"])
    return found


def _check_keys(entry: Entry, allowed: tuple[str, ...]) -> None:
    for key in entry:
        if key not in allowed:
            names = ", ".join(each for each in allowed if each not in _COMMON)
            raise FaultError(f"{key!r} is not allowed with {entry['target']}; allowed are {names}")
