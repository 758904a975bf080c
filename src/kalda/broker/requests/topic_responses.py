"""Caches the topics of Metadata responses: a request for all topics costs little more than its encoding.

A topic is built when a client first requests it and dropped when the topic, the live brokers or the
controller change. What it looks like depends on the client's listener and on the version of the request.
"""

from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache, TopicMetadata
from kalda.broker.requests.partition_metadata import partition_metadata
from kalda.broker.topics.topic_names import is_internal_topic
from kalda.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

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

    def get(self, topic: TopicMetadata, listener: str, version: int) -> MetadataResponseTopic:
        """Return a topic for a client on a listener."""
        if version < _RACKS_FROM:
            return self._make(topic, listener, version)
        responses = self._responses.setdefault((listener, version >= _LISTENER_NOT_FOUND_FROM), {})
        response = responses.get(topic.name)
        if response is None:
            response = responses[topic.name] = self._make(topic, listener, version)
        return response

    def _make(self, topic: TopicMetadata, listener: str, version: int) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal_topic(topic.name),
            partitions=[
                partition_metadata(
                    MetadataResponsePartition,
                    partition,
                    self._cache.brokers,
                    listener,
                    has_listener_error=version >= _LISTENER_NOT_FOUND_FROM,
                    hides_unreachable=version < _RACKS_FROM,
                )
                for partition in topic.partitions.values()
            ],
        )

    def _on_change(self, topics: frozenset[str]) -> None:
        if self._generation != self._cache.brokers_generation:
            self._generation = self._cache.brokers_generation
            self._responses.clear()
        for responses in self._responses.values():
            for topic in topics:
                responses.pop(topic, None)
