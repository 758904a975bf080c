"""Finds what a request names, and takes out or puts together what a fault is about, in messages of any API.

The schemas name topics, partitions and groups in a few ways, which the tables below list. A request that
names topics by id gets their names from `TopicNames`.
"""

import copy
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, Protocol, TypeAlias

from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, ZERO_UUID
from kalda.protocol.schema import Message, Struct

_TOPIC_ARRAYS: Final = (
    "topics",
    "topic_data",
    "v3_and_below_topics",
    "topic_partitions",
    "topic_names",
    "responses",
)
_PARTITION_ARRAYS: Final = (
    "partitions",
    "partition_data",
    "partition_indexes",
    "partition_responses",
)
_CONTAINERS: Final = ("groups", "transactions", "markers", "dirs")
"""Arrays whose elements have arrays of topics."""
_NAMES: Final = ("name", "topic", "topic_name")
_INDEXES: Final = ("partition", "partition_index", "index")
_KEYS: Final = ("group_id", "transactional_id", "key", "member_id")

Choice: TypeAlias = Callable[[str, Any], bool]
"""Returns whether a partition of a topic is meant; the partition's element is None for a whole topic."""


class TopicNames(Protocol):
    """Knows the ids of topics."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with an id, or None."""
        ...

    def topic_id(self, name: str) -> UUID:
        """Return the id of a topic; zeros if there is none."""
        ...


def topics_of(message: Message, names: TopicNames) -> dict[str, Collection[int]]:
    """Return the topics that a request names with their partitions; none where it names only the topic."""
    found: dict[str, set[int]] = {}
    for topic in _topics(message):
        partitions = found.setdefault(name_of(topic, names), set())
        partitions.update(index_of(each) for each in partitions_of(topic))
    found.pop("", None)
    return dict(found)


def groups_of(message: Message) -> list[str]:
    """Return the groups that a request names."""
    found = _values(message, "group_id", ("groups",), ("groups_names",))
    return found + _coordinator_keys(message, 0)


def transactional_ids_of(message: Message) -> list[str]:
    """Return the transactional ids that a request names."""
    plain = ("transactional_ids",)
    ids = _values(message, "transactional_id", ("transactions",), plain)
    # Its first versions have the field beside the list of the later ones.
    ids += _values(message, "v3_and_below_transactional_id", (), ())
    return ids + _coordinator_keys(message, 1)


def name_of(topic: Any, names: TopicNames) -> str:
    """Return the name of a topic in a message; an empty one if its id is not known."""
    if isinstance(topic, str):
        return topic
    name = _name(topic)
    return name or names.topic_name(getattr(topic, "topic_id", ZERO_UUID)) or ""


def partitions_of(topic: Any) -> list[Any]:
    """Return the partitions of a topic in a message, as elements or as numbers."""
    array = _partition_array(topic)
    return list(getattr(topic, array)) if array is not None else []


def index_of(partition: Any) -> int:
    """Return the number of a partition in a message."""
    if isinstance(partition, int):
        return partition
    return next((getattr(partition, each) for each in _INDEXES if hasattr(partition, each)), -1)


def can_be_divided(message: Message) -> bool:
    """Return whether a request names topics outside of groups and transactions."""
    return any(getattr(message, each, None) for each in _TOPIC_ARRAYS) and not any(
        getattr(message, each, None) for each in _CONTAINERS
    )


def part_of(message: Any, names: TopicNames, choose: Choice) -> Any:
    """Return a copy of a request or response with the chosen partitions only; None if there are none."""
    part = copy.copy(message)
    is_empty = True
    for array in _TOPIC_ARRAYS:
        topics = getattr(message, array, None)
        if not topics or not isinstance(topics, list):
            continue
        chosen = [each for each in (_part(topic, names, choose) for topic in topics) if each is not None]
        setattr(part, array, chosen)
        is_empty = is_empty and not chosen
    return None if is_empty else part


def _part(topic: Any, names: TopicNames, choose: Choice) -> Any:
    name = name_of(topic, names)
    array = _partition_array(topic) if isinstance(topic, Struct) else None
    partitions = getattr(topic, array) if array is not None else None
    if not partitions:
        return topic if choose(name, None) else None
    chosen = [each for each in partitions if choose(name, each)]
    if not chosen:
        return None
    part = copy.copy(topic)
    assert array is not None, "partitions are in an array"
    setattr(part, array, chosen)
    return part


def merge(whole: Any, part: Any) -> None:
    """Put the elements of a response's arrays into another response, in the place of those they are about."""
    for field in part.FIELDS:
        more = getattr(part, field.name)
        if not isinstance(more, list) or not more or not isinstance(more[0], Struct):
            continue
        elements = getattr(whole, field.name)
        if elements is None:
            elements = []
            setattr(whole, field.name, elements)
        for each in more:
            _merge_element(elements, each)


def _merge_element(elements: list[Any], each: Any) -> None:
    for index, other in enumerate(elements):
        if not _is_same(other, each):
            continue
        if _partition_array(each) is not None and partitions_of(each):
            merge(other, each)
        else:
            elements[index] = each
        return
    elements.append(each)


def _is_same(one: Any, other: Any) -> bool:
    first, second = _name(one), _name(other)
    if first or second:
        if first != second:
            return False
    elif getattr(one, "topic_id", ZERO_UUID) != getattr(other, "topic_id", ZERO_UUID):
        return False
    return index_of(one) == index_of(other) and all(
        getattr(one, key, None) == getattr(other, key, None) for key in _KEYS
    )


def set_topic_errors(response: Any, code: ErrorCode, is_meant: Callable[[Any], bool]) -> None:
    """Give topics of a Metadata response an error; their partitions are not listed then."""
    for topic in response.topics:
        if is_meant(topic):
            topic.error_code = code
            topic.partitions = []


def _topics(message: Any) -> Iterator[Any]:
    for array in _TOPIC_ARRAYS:
        yield from getattr(message, array, None) or ()
    for array in _CONTAINERS:
        for each in getattr(message, array, None) or ():
            yield from _topics(each)


def _values(message: Any, name: str, arrays: tuple[str, ...], plain: tuple[str, ...]) -> list[str]:
    found = [getattr(message, name, None)]
    for array in arrays:
        found += [
            each if isinstance(each, str) else getattr(each, name, None) for each in _list(message, array)
        ]
    for array in plain:
        found += [each for each in _list(message, array) if isinstance(each, str)]
    return [each for each in found if each]


def _coordinator_keys(message: Any, key_type: int) -> list[str]:
    """Return what a FindCoordinator request asks for: 0 stands for groups, 1 for transactional ids."""
    if getattr(message, "key_type", None) != key_type or not hasattr(message, "coordinator_keys"):
        return []
    return [key for key in (message.key, *message.coordinator_keys) if key]


def _list(message: Any, name: str) -> list[Any]:
    value = getattr(message, name, None)
    return value if isinstance(value, list) else []


def _name(topic: Any) -> str:
    return next((value for each in _NAMES if (value := getattr(topic, each, None))), "")


def _partition_array(topic: Any) -> str | None:
    return next((each for each in _PARTITION_ARRAYS if isinstance(getattr(topic, each, None), list)), None)
