"""Implements the group coordinator's view of topics, `TopicsView`, on the metadata cache."""

from collections.abc import Collection
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.common.types import UUID
from kalda.coordinator.group.consumer.topics import TopicInfo


class CachedTopics:
    """Implements the coordinator's `TopicsView` on the metadata cache.

    `generation` must increase whenever a topic is created, deleted, recreated or gets partitions, and not on
    elections: groups recompute their assignments when it changes.
    """

    def __init__(self, cache: MetadataCache) -> None:
        self._cache: Final = cache
        self._seen: Final[dict[str, tuple[UUID, int]]] = {}
        self.generation = 0
        """Increases when a topic, its id or its number of partitions changes."""
        self._on_change(cache.topic_names)
        cache.on_change(self._on_change)

    def topic(self, name: str) -> TopicInfo | None:
        """Return the topic with this name, or None if it is unknown."""
        found = self._cache.topic(name)
        return TopicInfo(found.topic_id, name, len(found.partitions)) if found is not None else None

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, or None if it is unknown."""
        return self._cache.topic_name(topic_id)

    def names(self) -> Collection[str]:
        """Return the names of all topics."""
        return self._cache.topic_names

    def _on_change(self, names: Collection[str]) -> None:
        for name in names:
            found = self._cache.topic(name)
            before = self._seen.pop(name, None)
            now = None
            if found is not None:
                now = self._seen[name] = (found.topic_id, len(found.partitions))
            if now != before:
                self.generation += 1
