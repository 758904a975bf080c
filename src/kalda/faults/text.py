"""Reads and writes the short form of faults: ``produce:NOT_LEADER*2,topic=orders``.

The grammar of a plan:

    plan   = fault *( ";" fault )                     a line's end separates faults as well
    fault  = target ":" effect [ "=" value ] *mark *( "," key "=" text )
    mark   = "@" where / "*" times / "~" percent "%"

`where` is which of the matching requests is the first (``@5``), or the broker or link (``@2``, ``@0>1``). In
a text, a backslash stands before ``,``, ``;`` and ``\\``. The words are those of `kalda.faults.entries`.
"""

import re
from collections.abc import Iterator
from typing import Final

from kalda.faults.entries import SELECTORS, entry_of, fault_of
from kalda.faults.model import Fault, FaultError, RequestFault

_HEAD: Final = re.compile(
    r"\s*(?P<target>[A-Za-z][A-Za-z0-9_+-]*)\s*:\s*(?P<effect>[A-Za-z][A-Za-z0-9_-]*)"
    r"(?:=(?P<value>[^@*~]*))?(?P<marks>(?:[@*~][^@*~]*)*)"
)
_MARK: Final = re.compile(r"([@*~])([^@*~]*)")
_MEMBERS: Final = frozenset(("broker", "disk", "clock", "session", "client", "link"))
_ESCAPED: Final = re.compile(r"([,;\\])")
_TEXT_BYTES_MAX: Final = 1024 * 1024
"""A plan is written by hand."""


def parse_faults(text: str) -> list[Fault]:
    """Return the faults of a plan in the short form.

    Raises:
        FaultError: a fault is not valid; the message begins with it.
    """
    if len(text) > _TEXT_BYTES_MAX:
        raise FaultError(f"a plan of {len(text)} characters is longer than {_TEXT_BYTES_MAX}")
    faults = []
    for line in text.splitlines():
        faults += [parse_fault(part) for part in _split(line, ";") if part.strip()]
    return faults


def parse_fault(text: str) -> Fault:
    """Return the fault that a text describes.

    Raises:
        FaultError: it is not valid; the message begins with the text.
    """
    text = text.strip()
    try:
        return fault_of(_entry(text))
    except FaultError as error:
        raise FaultError(f"{text!r}: {error}") from None


def _entry(text: str) -> dict[str, object]:
    head, *options = _split(text, ",")
    found = _HEAD.fullmatch(head.strip())
    if found is None:
        raise FaultError(
            "this is no fault; write TARGET:EFFECT, as in produce:NOT_LEADER*2, fetch:delay=3s or "
            "broker:kill@2"
        )
    entry: dict[str, object] = {"target": found["target"], "effect": found["effect"]}
    if found["value"] is not None:
        entry["value"] = found["value"]
    is_request = found["target"].lower() not in _MEMBERS
    names = {"@": "nth" if is_request else "at", "*": "times", "~": "percent"}
    for sign, value in _MARK.findall(found["marks"]):
        _add(entry, names[sign], value)
    for option in options:
        key, equals, value = option.partition("=")
        if not equals:
            raise FaultError(f"{option.strip()!r} has no '='; write key=value, as in topic=orders")
        _add(entry, key.strip(), _unescaped(value.strip()))
    return entry


def _add(entry: dict[str, object], key: str, value: str) -> None:
    if key in entry:
        raise FaultError(f"{key!r} is there twice")
    if not value:
        raise FaultError(f"{key!r} has no value")
    entry[key] = value


def fault_text(fault: Fault) -> str:
    """Return the short form of a fault."""
    entry = entry_of(fault)
    text = f"{entry['target']}:{entry['effect']}"
    if "value" in entry:
        text += f"={entry['value']}"
    if isinstance(fault, RequestFault):
        marks = {"nth": "@{}", "times": "*{}", "percent": "~{}%"}
        text += "".join(mark.format(entry[key]) for key, mark in marks.items() if key in entry)
        keys: tuple[str, ...] = SELECTORS
    else:
        text += f"@{entry['at']}"
        keys = ("after", "for")
    return text + "".join(f",{key}={_escaped(str(entry[key]))}" for key in keys if key in entry)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(r"\\\1", text)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _split(text: str, separator: str) -> Iterator[str]:
    """Yield the parts between separators, but for those behind a backslash, which stays."""
    part = ""
    characters = iter(text)
    for each in characters:
        if each == "\\":
            part += each + next(characters, "")
        elif each == separator:
            yield part
            part = ""
        else:
            part += each
    yield part
