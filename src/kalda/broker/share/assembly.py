"""Builds the parts of share groups and starts their background work.

`kalda.broker.share.lazy_share` imports this module, and with it all that only share groups need.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from kalda.broker.context.broker_context import BrokerContext
from kalda.broker.context.service_tasks import ServiceTasks
from kalda.broker.internal_topics.internal_topics import InternalTopics
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.share.dead_letters import DeadLetters
from kalda.broker.share.end_offsets import EndOffsets
from kalda.broker.share.fresh_settings import FreshSettings
from kalda.broker.share.share_partitions import SharePartitions
from kalda.broker.share.share_states import ShareStates
from kalda.broker.share.stored_share_settings import StoredShareSettings
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.broker.topics.topic_names import SHARE_GROUP_STATE_TOPIC
from kalda.common.errors import ApiError
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.common.types import TopicPartition
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.coordinator.group.share.share_group_config import ShareGroupConfig
from kalda.coordinator.group.share.share_group_coordinator import ShareGroupCoordinator
from kalda.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from kalda.coordinator.runtime.timers import make_timers
from kalda.coordinator.share.share_config import ShareCoordinatorConfig
from kalda.coordinator.share.share_coordinator import ShareCoordinator
from kalda.coordinator.share.share_shard import ShareShard
from kalda.storage.errors import LOG_ERRORS

logger: Final = logging.getLogger(__name__)

_DELETION_RETRY_MS: Final = 30_000
"""Between attempts to delete the state of deleted topics; each is repeated for some seconds by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The parts of one broker that only share groups need."""

    coordinator: ShareCoordinator
    states: ShareStates
    groups: ShareGroupCoordinator
    partitions: SharePartitions
    letters: DeadLetters
    ends: EndOffsets
    replicas: ReplicaManager
    fresh_settings: FreshSettings

    def run(self, tasks: ServiceTasks, config: ShareCoordinatorConfig) -> None:
        """Start the background work of share groups."""
        tasks.run("share state", self.states.run())
        tasks.run("share group end offsets", self.ends.run())
        tasks.run("dead letters", self.letters.run())
        tasks.run("settings of share groups", self.fresh_settings.run())
        tasks.every("share state deletions", _DELETION_RETRY_MS, self.groups.retry_deletions)
        tasks.every("share state pruning", config.share_coordinator_state_topic_prune_interval_ms, self.prune)

    def prune(self) -> None:
        """Delete the records of share state that later snapshots have made redundant."""
        for number, offset in self.coordinator.redundant_offsets().items():
            partition = self.replicas.partitions.get(TopicPartition(SHARE_GROUP_STATE_TOPIC, number))
            if partition is None or not partition.is_leader:
                continue
            offset = min(offset, partition.log.high_watermark)
            if offset <= partition.log.log_start_offset:
                continue
            try:
                partition.log.delete_records_before(offset)
            except (ApiError, *LOG_ERRORS) as error:
                logger.warning("%s-%d cannot be pruned: %s", SHARE_GROUP_STATE_TOPIC, number, error)


def build_share(
    context: BrokerContext,
    cache: MetadataCache,
    replicas: ReplicaManager,
    topic_admin: TopicAdmin,
    internal_topics: InternalTopics,
    runtime: CoordinatorRuntime[ShareShard],
    groups: GroupCoordinator,
    purgatory: DelayedOperationPurgatory,
    settings: StoredShareSettings,
) -> Share:
    """Make the parts of share groups.

    `runtime` is that of the topic with their state; `purgatory` has the fetches that wait for records.
    """
    config, features = context.config, context.features
    share_config, group_config = config.part(ShareCoordinatorConfig), config.part(ShareGroupConfig)
    coordinator = ShareCoordinator(
        runtime, share_config, lambda key: internal_topics.partition_for(SHARE_GROUP_STATE_TOPIC, key)
    )
    states = ShareStates(
        context.broker_id,
        cache,
        internal_topics,
        coordinator,
        context.dialer,
        context.runtime.random,
        listener=config.inter_broker_listener_name,
        timeout_ms=config.request_timeout_ms,
    )
    share_groups = ShareGroupCoordinator(
        groups.run_share, states, is_enabled=lambda: features.share_version > 0
    )
    letters = DeadLetters(
        context.broker_id,
        config,
        context.config_store,
        context.cluster_store,
        cache,
        topic_admin,
        settings,
        context.dialer,
        context.clock,
        context.runtime.random,
        context.runtime.background,
        context.access.throttle.namespace_of,
    )
    fresh_settings = FreshSettings(context.config_store, context.cluster_store)
    partitions = SharePartitions(
        replicas,
        states,
        letters,
        settings,
        fresh_settings.load,
        context.clock,
        make_timers(context.clock, asyncio.get_running_loop()),
        purgatory,
        context.runtime.background,
        lambda: group_config.group_share_max_share_sessions,
    )
    return Share(
        coordinator=coordinator,
        states=states,
        groups=share_groups,
        partitions=partitions,
        letters=letters,
        ends=EndOffsets(
            context.broker_id,
            cache,
            replicas,
            context.dialer,
            context.runtime.random,
            listener=config.inter_broker_listener_name,
            timeout_ms=config.request_timeout_ms,
        ),
        replicas=replicas,
        fresh_settings=fresh_settings,
    )
