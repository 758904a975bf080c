"""Builds the group coordinator of a broker: settings, runtime, metrics, and word of deleted topics."""

import uuid
from typing import TYPE_CHECKING

from kalda.broker.config import BrokerConfig
from kalda.broker.consumer_groups import consumer_protocol_maker
from kalda.broker.topic_names import GROUP_METADATA_TOPIC
from kalda.coordinator.group.config import GroupConfig
from kalda.coordinator.group.coordinator import GroupCoordinator
from kalda.coordinator.group.metrics import register_group_metrics
from kalda.coordinator.group.partition import GroupPartition
from kalda.coordinator.group.statistics import GroupStatistics
from kalda.coordinator.runtime.runtime import RuntimeConfig
from kalda.records.compression import Compression

if TYPE_CHECKING:
    from kalda.broker.services import BrokerServices

__all__ = ["build_group_coordinator", "group_config"]


def group_config(config: BrokerConfig) -> GroupConfig:
    """The coordinator's part of a broker's settings."""
    return GroupConfig(
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_max_size=config.group_max_size,
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_commit_timeout_ms=config.offsets_commit_timeout_ms,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        offsets_retention_minutes=config.offsets_retention_minutes,
    )


def build_group_coordinator(services: "BrokerServices") -> GroupCoordinator:
    """Make the group coordinator; from now on it hears of the partitions of ``__consumer_offsets``."""
    config = services.config
    settings = group_config(config)
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
    return coordinator


def _new_id() -> str:
    return str(uuid.uuid4())
