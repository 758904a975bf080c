"""Requests that name partitions, taken apart into those that exist and those that do not.

Offsets of a partition that does not exist are refused one by one, whatever the coordinator says of the rest.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from kalda.broker.metadata.metadata_cache import MetadataCache

__all__ = ["merge_answers", "take_known"]


class _Topic(Protocol):
    name: str

    @property
    def partitions(self) -> list[Any]: ...


T = TypeVar("T", bound=_Topic)
Q = TypeVar("Q", bound=_Topic)


def take_known(
    cache: MetadataCache,
    topics: Sequence[Q],
    narrow: Callable[[str, list[Any]], Q],
    refuse: Callable[[str, list[Any]], T],
) -> tuple[list[Q], list[T]]:
    """Return the topics with the partitions that exist, and what to answer for the others.

    A topic without any is left out, as in Kafka. `narrow` makes a topic of a request of some of its
    partitions, `refuse` an answer of them.
    """
    known: list[Q] = []
    refused: list[T] = []
    for topic in topics:
        count = cache.partition_count(topic.name)
        good: list[Any] = []
        bad: list[Any] = []
        for each in topic.partitions:
            (good if 0 <= each.partition_index < count else bad).append(each)
        if good:
            known.append(narrow(topic.name, good) if bad else topic)
        if bad:
            refused.append(refuse(topic.name, bad))
    return known, refused


def merge_answers(answered: Sequence[T], refused: Sequence[T]) -> list[T]:
    """Both lists as one that names each topic once."""
    topics = {topic.name: topic for topic in answered}
    for topic in refused:
        present = topics.setdefault(topic.name, topic)
        if present is not topic:
            present.partitions.extend(topic.partitions)
    return list(topics.values())
