"""What the group coordinator needs to know of topics: a port that the broker's metadata cache fills."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from kalda.common.types import ZERO_UUID

__all__ = ["TopicInfo", "TopicsView", "topics_of"]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic; its partitions are numbered from 0."""

    topic_id: UUID
    name: str
    partition_count: int


class TopicsView(Protocol):
    """The topics of the cluster, as this broker knows them."""

    def topic(self, name: str) -> TopicInfo | None:
        """The topic of that name, None if there is none."""
        ...

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of the topic with that id, None if there is none."""
        ...

    @property
    def generation(self) -> int:
        """Grows whenever a topic comes, goes, or gets partitions."""
        ...

    def names(self) -> Collection[str]:
        """The names of all topics."""
        ...


def topics_of(view: TopicsView, names: Collection[str]) -> Mapping[str, TopicInfo]:
    """Those of the named topics that exist, by name in order; a topic without an id cannot be assigned."""
    found: dict[str, TopicInfo] = {}
    for name in sorted(names):
        topic = view.topic(name)
        if topic is not None and topic.topic_id != ZERO_UUID and topic.partition_count > 0:
            found[name] = topic
    return found
