"""Makes the response to a refused request of many elements in steps: `refused_in_steps`.

Each handler can make the response that has one error for everything requested, in one piece. Here it makes
responses to parts of the request, which are put together.
"""

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps
from kalda.protocol.schema import Struct

if TYPE_CHECKING:
    from kalda.broker.requests.api import ApiHandler

_ELEMENTS_PER_STEP: Final = 16

_PARTITIONS: Final = frozenset(
    ("partitions", "partition_indexes", "partition_errors", "results_by_partition")
)
"""Arrays of a topic's partitions. A response has one place for each topic."""

_UNDIVIDED: Final = "dirs"
"""An array whose elements may name the same topics."""


def refused_in_steps(handler: "ApiHandler", request: Any, code: ErrorCode, version: int) -> Steps[Any]:
    """Do what `ApiHandler.refusal` does in steps. Neighbours of the same topic become one."""
    response = None
    for part in _parts(request):
        refusal = handler.refusal(part, code, version)
        if response is None:
            response = refusal
        elif refusal is not None:
            _add(response, refusal)
        yield
    return response


def _parts(struct: Any) -> Iterator[Any]:
    """Yield copies of a struct, each with some elements of its longest array.

    The first one has all other arrays.
    """
    values = {name: getattr(struct, name) for name in _names(struct)}
    arrays = {name: value for name, value in values.items() if isinstance(value, list)}
    longest = max(arrays, key=lambda name: len(arrays[name]), default=_UNDIVIDED)
    if longest == _UNDIVIDED or not arrays[longest]:
        yield struct
        return
    part = copy.copy(struct)
    for some in _slices(arrays[longest]):
        setattr(part, longest, some)
        yield part
        part = copy.copy(struct)
        for name in arrays:
            setattr(part, name, [])


def _slices(elements: list[Any]) -> Iterator[list[Any]]:
    if not _PARTITIONS.isdisjoint(_names(elements[0])):
        for each in elements:
            for part in _parts(each):
                yield [part]
        return
    for start in range(0, len(elements), _ELEMENTS_PER_STEP):
        yield elements[start : start + _ELEMENTS_PER_STEP]


def _names(value: Any) -> list[str]:
    return [field.name for field in value.FIELDS] if isinstance(value, Struct) else []


def _add(whole: Any, part: Any) -> None:
    """Add the elements of a struct's arrays to those of another; its other fields are the same."""
    for name in _names(part):
        more = getattr(part, name)
        if not isinstance(more, list) or not more:
            continue
        elements = getattr(whole, name)
        if elements and _is_same(elements[-1], more[0]):
            _add(elements[-1], more[0])
            elements += more[1:]
        else:
            elements += more


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two elements of an array are of the same topic, with different partitions."""
    names = _names(one)
    others = [name for name in names if name not in _PARTITIONS]
    return len(others) < len(names) and all(getattr(one, name) == getattr(other, name) for name in others)
