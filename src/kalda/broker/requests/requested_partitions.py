"""Takes partitions that do not exist out of a request, and puts their errors into its response.

OffsetCommit, TxnOffsetCommit and OffsetDelete answer UNKNOWN_TOPIC_OR_PARTITION for such a partition,
whatever the group coordinator answers for the others. OffsetCommit and OffsetFetch name topics by id from
version 10 on, TxnOffsetCommit from version 6 on.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeVar

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps
from kalda.common.types import UUID


class Topic(Protocol):
    """A topic in a request or a response of one of these APIs."""

    name: str
    partitions: list[Any]

    def __init__(self, *, name: str, partitions: list[Any]) -> None: ...


class IdentifiedTopic(Protocol):
    """A topic in a request that names topics by id."""

    name: str
    topic_id: UUID


class OfTopics(Protocol):
    """A response about topics."""

    topics: list[Any]


PARTITIONS_PER_STEP: Final = 32
"""Partitions that are put into one list or another in one step: 10 microseconds."""

T = TypeVar("T", bound=Topic)
Named = TypeVar("Named", bound=IdentifiedTopic)
R = TypeVar("R", bound=OfTopics)


def take_unnamed(cache: MetadataCache, topics: list[Named]) -> Steps[list[Named]]:
    """Set the name of each topic by its id; remove those without one, and return them."""
    named: list[Named] = []
    unnamed: list[Named] = []
    for topic in topics:
        yield
        topic.name = topic.name or cache.topic_name(topic.topic_id) or ""
        (named if topic.name else unnamed).append(topic)
    topics[:] = named
    return unnamed


def with_ids(requested: Iterable[Named], unnamed: Iterable[Any]) -> Callable[[R], R]:
    """Return what gives the topics of a response the ids of the request, and adds those without a name."""
    ids = {topic.name: topic.topic_id for topic in requested}

    def identified(response: R) -> R:
        for topic in response.topics:
            topic.topic_id = ids[topic.name]
        response.topics += unnamed
        return response

    return identified


def take_unknown(cache: MetadataCache, topics: list[T]) -> Steps[list[T]]:
    """Remove the partitions that do not exist from a request's topics and return them, grouped by topic.

    A topic without any other partition is removed too, as in Kafka.
    """
    unknown: list[T] = []
    known: list[T] = []
    for topic in topics:
        yield
        count = cache.partition_count(topic.name)
        present: list[Any] = []
        missing: list[Any] = []
        for number, each in enumerate(topic.partitions):
            if number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                yield
            (present if 0 <= each.partition_index < count else missing).append(each)
        if missing:
            unknown.append(type(topic)(name=topic.name, partitions=missing))
            topic.partitions = present
        if present:
            known.append(topic)
    topics[:] = known
    return unknown


def topic_errors(
    topics: Iterable[Topic],
    code: ErrorCode,
    topic_class: type[T],
    partition_class: Callable[..., object],
) -> Steps[list[T]]:
    """Return a response's topics with one error for each partition of a request's topics."""
    answered: list[T] = []
    for topic in topics:
        partitions: list[object] = []
        for number, each in enumerate(topic.partitions):
            if number % PARTITIONS_PER_STEP == 0:
                yield
            partitions.append(partition_class(partition_index=each.partition_index, error_code=code))
        answered.append(topic_class(name=topic.name, partitions=partitions))
    return answered


def merge_topics(answered: list[T], refused: list[T]) -> list[T]:
    """Return both lists as one that names each topic once."""
    topics = {topic.name: topic for topic in answered}
    for topic in refused:
        present = topics.setdefault(topic.name, topic)
        if present is not topic:
            present.partitions.extend(topic.partitions)
    return list(topics.values())
