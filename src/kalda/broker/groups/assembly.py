"""Builds the group coordinator of a broker: for the classic and the consumer protocol, and share groups."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kalda.broker.context.broker_context import BrokerContext
from kalda.broker.groups.cached_topics import CachedTopics
from kalda.broker.groups.stored_group_times import StoredGroupTimes
from kalda.broker.internal_topics.internal_topics import InternalTopics
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.share.stored_share_settings import StoredShareSettings
from kalda.broker.topics.topic_names import GROUP_METADATA_TOPIC
from kalda.common.config_def import ConfigError
from kalda.common.types import UUID, is_other_topic, uuid_to_text
from kalda.coordinator.group.classic.classic_protocol import ClassicProtocol
from kalda.coordinator.group.consumer.consumer_group_config import ConsumerGroupConfig
from kalda.coordinator.group.consumer.consumer_group_coordinator import ConsumerGroupCoordinator
from kalda.coordinator.group.consumer.consumer_protocol import ConsumerProtocol
from kalda.coordinator.group.group_config import GroupConfig
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.coordinator.group.group_coordinator_metrics import register_group_metrics
from kalda.coordinator.group.group_shard import GroupShard, GroupStatistics
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.group.member_memory import MemberMemory
from kalda.coordinator.group.share.share_group_config import ShareGroupConfig
from kalda.coordinator.runtime.coordinator_runtime import RuntimeConfig
from kalda.records.compression import Compression
from kalda.runtime.random import new_uuid
from kalda.settings import BrokerConfig

if TYPE_CHECKING:
    from kalda.coordinator.group.share.share_protocol import ShareProtocol


def consumer_group_config(config: BrokerConfig) -> ConsumerGroupConfig:
    """Read and check the settings of consumer groups.

    Raises:
        ConfigError: they contradict each other, or name an assignor that there is not.
    """
    try:
        return config.part(ConsumerGroupConfig)
    except ValueError as error:
        raise ConfigError("group.consumer", str(error)) from None


def share_group_config(config: BrokerConfig) -> ShareGroupConfig:
    """Read and check the settings of share groups.

    Raises:
        ConfigError: they contradict each other.
    """
    try:
        return config.part(ShareGroupConfig)
    except ValueError as error:
        raise ConfigError("group.share", str(error)) from None


def check_groups(trial: BrokerConfig) -> None:
    """Check settings of consumer groups and share groups that may change while the broker runs.

    Raises:
        ConfigError: a value is out of its bounds.
    """
    consumer_group_config(trial)
    share_group_config(trial)


def build_group_coordinator(
    context: BrokerContext,
    cache: MetadataCache,
    internal_topics: InternalTopics,
    share_settings: StoredShareSettings,
) -> GroupCoordinator:
    """Make the group coordinator and its runtime for ``__consumer_offsets``."""
    config, metrics, random = context.config, context.metrics, context.runtime.random
    settings, consumer_settings = config.part(GroupConfig), consumer_group_config(config)
    statistics, topics = GroupStatistics(), CachedTopics(cache)
    times = StoredGroupTimes(config, context.config_store)

    def make_consumer(shard: GroupShardState, classic: ClassicProtocol) -> ConsumerProtocol:
        # Member ids are random, as in Kafka: a client that has one can act for the member.
        return ConsumerProtocol(
            shard,
            classic,
            consumer_settings,
            topics,
            lambda: uuid_to_text(new_uuid(random)),
            times,
        )

    share_config = share_group_config(config)

    def make_share(shard: GroupShardState) -> "ShareProtocol":
        # Imported when a cluster has share groups.
        from kalda.coordinator.group.share.share_protocol import ShareProtocol

        return ShareProtocol(shard, share_config, topics, share_settings)

    memory = MemberMemory(settings, lambda: coordinator.held_bytes())

    def make_shard(partition: int) -> GroupShard:
        return GroupShard(
            partition,
            settings,
            statistics,
            lambda: str(new_uuid(random)),
            make_consumer,
            memory,
            context.events,
            make_share,
        )

    runtime = internal_topics.add(
        make_shard,
        RuntimeConfig(
            name=GROUP_METADATA_TOPIC,
            load_buffer_bytes=config.offsets_load_buffer_size,
            compression=Compression.from_id(config.offsets_topic_compression_codec),
            write_timeout_ms=settings.offsets_commit_timeout_ms,
        ),
        metrics,
    )
    coordinator = GroupCoordinator(
        runtime,
        settings,
        statistics,
        lambda group_id: internal_topics.partition_for(GROUP_METADATA_TOPIC, group_id),
    )
    register_group_metrics(metrics, coordinator)
    cache.on_change(DeletedTopics(cache, coordinator).on_change)
    return coordinator


def build_consumer_group_coordinator(
    context: BrokerContext, groups: GroupCoordinator
) -> ConsumerGroupCoordinator:
    """Make the coordinator of KIP-848.

    It refuses requests unless the protocol ``consumer`` is enabled and ``group.version`` is finalized: before
    that, a broker to which the cluster goes back may not know the records that the protocol writes. It ends
    memberships while a broker of Apache Kafka is registered: that could become the coordinator.
    """
    is_set = "consumer" in context.config.group_coordinator_rebalance_protocols
    brokers, features = context.brokers, context.features
    return ConsumerGroupCoordinator(
        groups.run_consumer,
        is_enabled=lambda: is_set and features.group_version > 0,
        is_served=lambda: not brokers.has_kafka,
    )


class DeletedTopics:
    """Removes the committed offsets of topics that were deleted, or deleted and created again.

    Offsets of a topic that is deleted while no broker coordinates the group expire later, as in Kafka.
    """

    def __init__(self, cache: MetadataCache, coordinator: GroupCoordinator) -> None:
        self._cache: Final = cache
        self._coordinator: Final = coordinator
        self._known: Final[dict[str, UUID]] = {}

    def on_change(self, changed: Collection[str]) -> None:
        """Compare the ids of changed topics with those seen before and report the deleted topics."""
        deleted = set()
        deleted_ids = set()
        for name in changed:
            before = self._known.pop(name, None)
            topic = self._cache.topic(name)
            if topic is not None:
                self._known[name] = topic.topic_id
            if before is not None and (topic is None or is_other_topic(topic.topic_id, before)):
                deleted.add(name)
                deleted_ids.add(before)
        self._coordinator.on_topics_deleted(deleted, deleted_ids)
