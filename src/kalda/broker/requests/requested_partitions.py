"""Takes partitions that do not exist out of a request, and puts their errors into its response.

OffsetCommit, TxnOffsetCommit and OffsetDelete answer UNKNOWN_TOPIC_OR_PARTITION for such a partition,
whatever the group coordinator answers for the others.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps


class Topic(Protocol):
    """A topic in a request or a response of one of these APIs."""

    name: str
    partitions: list[Any]

    def __init__(self, *, name: str, partitions: list[Any]) -> None: ...


T = TypeVar("T", bound=Topic)


def take_unknown(cache: MetadataCache, topics: list[T]) -> Steps[list[T]]:
    """Remove the partitions that do not exist from a request's topics and return them, grouped by topic.

    A topic without any other partition is removed too, as in Kafka.
    """
    unknown: list[T] = []
    for topic in topics:
        yield
        count = cache.partition_count(topic.name)
        missing = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        if missing:
            unknown.append(type(topic)(name=topic.name, partitions=missing))
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
    topics[:] = [topic for topic in topics if topic.partitions]
    return unknown


def topic_errors(
    topics: Iterable[Topic],
    code: ErrorCode,
    topic_class: type[T],
    partition_class: Callable[..., object],
) -> list[T]:
    """Return a response's topics with one error for each partition of a request's topics."""
    return [
        topic_class(
            name=topic.name,
            partitions=[
                partition_class(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ],
        )
        for topic in topics
    ]


def merge_topics(answered: list[T], refused: list[T]) -> list[T]:
    """Return both lists as one that names each topic once."""
    topics = {topic.name: topic for topic in answered}
    for topic in refused:
        present = topics.setdefault(topic.name, topic)
        if present is not topic:
            present.partitions.extend(topic.partitions)
    return list(topics.values())
