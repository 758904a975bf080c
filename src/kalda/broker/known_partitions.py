"""Requests that name partitions, taken apart into those that exist and those that do not.

Offsets of a partition that does not exist are refused one by one, whatever the coordinator says of the rest.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from kalda.broker.metadata_cache import MetadataCache

__all__ = ["merge_answers", "split_known"]


class _Partition(Protocol):
    partition_index: int


class _AnsweredTopic(Protocol):
    name: str

    @property
    def partitions(self) -> list[Any]: ...


P = TypeVar("P", bound=_Partition)
T = TypeVar("T", bound=_AnsweredTopic)


def split_known(cache: MetadataCache, topic: str, partitions: Sequence[P]) -> tuple[list[P], list[P]]:
    """The partitions of a topic that exist, and those that do not."""
    count = cache.partition_count(topic)
    known: list[P] = []
    unknown: list[P] = []
    for each in partitions:
        (known if 0 <= each.partition_index < count else unknown).append(each)
    return known, unknown


def merge_answers(answered: Sequence[T], refused: Sequence[T]) -> list[T]:
    """Both lists as one that names each topic once."""
    topics = {topic.name: topic for topic in answered}
    for topic in refused:
        present = topics.setdefault(topic.name, topic)
        if present is not topic:
            present.partitions.extend(topic.partitions)
    return list(topics.values())
