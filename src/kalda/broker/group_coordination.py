"""Builds the group coordinator of a broker: settings, runtime, metrics, and word of deleted topics."""

import uuid
from typing import TYPE_CHECKING, Final

from kalda.broker.consumer_groups import consumer_protocol_maker
from kalda.broker.metadata_cache import MetadataCache
from kalda.broker.topics.topic_names import GROUP_METADATA_TOPIC
from kalda.coordinator.group.group_config import GroupConfig
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.coordinator.group.group_coordinator_metrics import register_group_metrics
from kalda.coordinator.group.partition import GroupPartition
from kalda.coordinator.group.statistics import GroupStatistics
from kalda.coordinator.runtime.coordinator_runtime import RuntimeConfig
from kalda.records.compression import Compression

if TYPE_CHECKING:
    from kalda.broker.services import BrokerServices


def build_group_coordinator(services: "BrokerServices") -> GroupCoordinator:
    """Make the group coordinator; from now on it hears of the partitions of ``__consumer_offsets``."""
    config = services.config
    settings = config.part(GroupConfig)
    statistics = GroupStatistics()

    add_consumer_protocol = consumer_protocol_maker(services)

    def make_shard(partition: int) -> GroupPartition:
        shard = GroupPartition(partition, settings, statistics, new_id=_new_id)
        add_consumer_protocol(shard)
        return shard

    runtime = services.coordinators.add(
        make_shard,
        RuntimeConfig(
            name=GROUP_METADATA_TOPIC,
            load_buffer_bytes=config.offsets_load_buffer_size,
            compression=Compression.from_id(config.offsets_topic_compression_codec),
            write_timeout_ms=settings.offsets_commit_timeout_ms,
        ),
    )
    coordinators = services.coordinators
    coordinator = GroupCoordinator(
        runtime,
        settings,
        statistics,
        lambda group_id: coordinators.partition_for(GROUP_METADATA_TOPIC, group_id),
    )
    register_group_metrics(services.metrics, coordinator)
    services.metadata_cache.on_change(_DeletedTopics(services.metadata_cache, coordinator).on_change)
    return coordinator


class _DeletedTopics:
    """Notices topics that go, or are made anew under the same name, and has their offsets forgotten.

    Topics that went while no broker coordinated a group are not noticed: their offsets expire, as in Kafka.
    """

    def __init__(self, cache: MetadataCache, coordinator: GroupCoordinator) -> None:
        self._cache: Final = cache
        self._coordinator: Final = coordinator
        self._known: Final[dict[str, uuid.UUID]] = {}

    def on_change(self, changed: frozenset[str]) -> None:
        """Take note of topics that changed."""
        deleted = set()
        for name in changed:
            before = self._known.pop(name, None)
            topic = self._cache.topic(name)
            if topic is not None:
                self._known[name] = topic.topic_id
            if before is not None and (topic is None or topic.topic_id != before):
                deleted.add(name)
        self._coordinator.on_topics_deleted(deleted)


def _new_id() -> str:
    return str(uuid.uuid4())
