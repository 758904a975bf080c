"""Caches the topics of Metadata responses: a request for all topics costs little more than its encoding.

A topic is built when a client first requests it and dropped when the topic, the live brokers or the
controller change. What it looks like depends on the client's listener and on the version of the request.
"""

from collections.abc import Collection
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache, TopicMetadata
from kalda.broker.requests.partition_metadata import partition_metadata
from kalda.broker.topics.topic_names import is_internal_topic
from kalda.common.turns import Steps
from kalda.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

_PARTITIONS_PER_STEP: Final = 16
_RACKS_FROM: Final = 1
_LISTENER_NOT_FOUND_FROM: Final = 6


class TopicResponses:
    """The topics of one metadata cache as Metadata returns them. Responses share them: do not change one."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache: Final = cache
        self._generation = cache.brokers_generation
        self._responses: Final[dict[tuple[str, bool], dict[str, MetadataResponseTopic]]] = {}
        """By listener and whether the version has LISTENER_NOT_FOUND, then by topic."""
        cache.on_change(self._on_change)

    def find(self, topic: TopicMetadata, listener: str, version: int) -> MetadataResponseTopic | None:
        """Return a topic for a client on a listener, or None if `make` has to make it."""
        if version < _RACKS_FROM:
            return None
        responses = self._responses.get((listener, version >= _LISTENER_NOT_FOUND_FROM))
        return None if responses is None else responses.get(topic.name)

    def make(self, topic: TopicMetadata, listener: str, version: int) -> Steps[MetadataResponseTopic]:
        """Make a topic in steps of some partitions, and keep it unless something changes meanwhile."""
        generation, brokers = self._generation, self._cache.brokers
        partitions = []
        for number, partition in enumerate(topic.partitions.values(), 1):
            if number % _PARTITIONS_PER_STEP == 0:
                yield
            partitions.append(
                partition_metadata(
                    MetadataResponsePartition,
                    partition,
                    brokers,
                    listener,
                    has_listener_error=version >= _LISTENER_NOT_FOUND_FROM,
                    hides_unreachable=version < _RACKS_FROM,
                )
            )
        response = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal_topic(topic.name),
            partitions=partitions,
        )
        if (
            version >= _RACKS_FROM
            and generation == self._generation
            and self._cache.topic(topic.name) is topic
        ):
            kept = self._responses.setdefault((listener, version >= _LISTENER_NOT_FOUND_FROM), {})
            kept[topic.name] = response
        return response

    def _on_change(self, topics: Collection[str]) -> None:
        if self._generation != self._cache.brokers_generation:
            self._generation = self._cache.brokers_generation
            self._responses.clear()
        for responses in self._responses.values():
            for topic in topics:
                responses.pop(topic, None)
