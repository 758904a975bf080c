"""Defines the port through which the group coordinator reads the cluster's topics."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from kalda.common.types import UUID


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic; its partitions are numbered from 0."""

    topic_id: UUID
    name: str
    partition_count: int


class TopicsView(Protocol):
    """The topics of the cluster, in the metadata cache of this broker."""

    def topic(self, name: str) -> TopicInfo | None:
        """Return the topic of that name, None if there is none."""
        ...

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with that id, None if there is none."""
        ...

    @property
    def generation(self) -> int:
        """A number that grows whenever a topic is created, deleted, or gets partitions."""
        ...

    def names(self) -> Collection[str]:
        """Return the names of all topics."""
        ...
