"""Reads and writes the values in a plan: durations, error codes, APIs."""

import re
from typing import Final

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.faults.model import API_GROUPS, FaultError

_DURATION: Final = re.compile(r"(-?)(\d{1,12})(ms|s|m|h|d)")
_UNITS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}

_OLDER_NAMES: Final = {
    "NOT_LEADER": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "NOT_LEADER_FOR_PARTITION": ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "GROUP_COORDINATOR_NOT_AVAILABLE": ErrorCode.COORDINATOR_NOT_AVAILABLE,
    "NOT_COORDINATOR_FOR_GROUP": ErrorCode.NOT_COORDINATOR,
    "GROUP_LOAD_IN_PROGRESS": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}

_SQUEEZED: Final = {key.name.lower().replace("_", ""): key for key in ApiKey}


def read_duration(what: str, text: object) -> int:
    """Return a duration in milliseconds.

    Raises:
        FaultError: it is no number with a unit.
    """
    found = _DURATION.fullmatch(str(text))
    if found is None:
        raise FaultError(f"{what} is a duration such as 500ms, 3s, 2m, 1h or 1d, not {text!r}")
    sign = -1 if found[1] else 1
    return sign * int(found[2]) * _UNITS[found[3]]


def duration_text(milliseconds: int) -> str:
    """Return a duration with the largest unit that has no fraction.

    >>> duration_text(3000), duration_text(-3_600_000), duration_text(1500), duration_text(0)
    ('3s', '-1h', '1500ms', '0ms')
    """
    for unit, size in _UNITS.items():
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def read_error(text: str) -> ErrorCode:
    """Return the code with a name, an older name, or the beginning of exactly one name.

    Raises:
        FaultError: there is none, or several begin so.
    """
    name = text.upper().replace("-", "_")
    found = _OLDER_NAMES.get(name)
    if found is not None:
        return found
    matches = [each for each in ErrorCode if each.name.startswith(name)]
    exact = [each for each in matches if each.name == name]
    if exact or len(matches) == 1:
        return (exact or matches)[0]
    if matches:
        raise FaultError(f"{text} is the beginning of several errors: {', '.join(m.name for m in matches)}")
    raise FaultError(f"{text} is no error of Kafka's protocol, such as NOT_LEADER_OR_FOLLOWER")


def read_apis(text: str) -> tuple[ApiKey, ...]:
    """Return the APIs that a target stands for: ``produce``, ``list-offsets+Fetch``, ``group``, ``any``.

    Raises:
        FaultError: there is no such API.
    """
    found: dict[ApiKey, None] = {}
    for word in text.split("+"):
        if word.lower() in API_GROUPS:
            found |= dict.fromkeys(API_GROUPS[word.lower()])
            continue
        key = _SQUEEZED.get(word.lower().replace("-", "").replace("_", ""))
        if key is None:
            raise FaultError(
                f"the target {word!r} is no API such as produce or find-coordinator, and none of "
                f"{', '.join(API_GROUPS)}, broker, disk, clock, session, client, link"
            )
        found[key] = None
    return tuple(found)


def apis_text(apis: tuple[ApiKey, ...]) -> str:
    """Return the target that stands for APIs.

    >>> apis_text((ApiKey.LIST_OFFSETS, ApiKey.FETCH))
    'list-offsets+fetch'
    """
    for name, group in API_GROUPS.items():
        if apis == group:
            return name
    return "+".join(key.name.lower().replace("_", "-") for key in apis)
