"""Puts the follower's side together for one broker: quotas, fetchers, and what they listen for."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kalda.broker.replication.follower.manager import ReplicaFetcherManager
from kalda.broker.replication.follower.ports import LeaderDialer
from kalda.broker.replication.missing_records import MissingRecords
from kalda.broker.replication.quota import (
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    ReplicationQuota,
)
from kalda.common.types import BrokerEndpoint

if TYPE_CHECKING:
    from kalda.broker.services import BrokerServices

UNKNOWN_BROKER_EPOCH: Final = -1
"""Of a broker that does not say which of its registrations it fetches for."""


def build_leader_quota(services: "BrokerServices") -> ReplicationQuota:
    """Make the throttle of what followers are served, kept to what the settings say."""
    config, quota = services.config, _quota(services, LEADER_REPLICAS)
    quota.set_rate(config.leader_replication_throttled_rate)

    def on_settings_change(names: frozenset[str]) -> None:
        if LEADER_RATE in names:
            quota.set_rate(config.leader_replication_throttled_rate)

    services.config_store.on_broker_change(on_settings_change)
    return quota


def build_replica_fetchers(
    services: "BrokerServices",
    dialer: LeaderDialer,
    tasks: asyncio.TaskGroup,
    broker_epoch: Callable[[], int] = lambda: UNKNOWN_BROKER_EPOCH,
) -> ReplicaFetcherManager:
    """Make the fetchers; needs settings, logs and the metadata cache, and later the replica manager.

    `broker_epoch` tells leaders which registration of this broker it is that fetches (KIP-903).
    """
    config, cache = services.config, services.metadata_cache

    def find_broker(broker_id: int) -> BrokerEndpoint | None:
        return cache.endpoint(broker_id, config.inter_broker_listener_name)

    services.missing_records = MissingRecords(
        services.broker_id, services.log_manager.resources, dialer, find_broker, services.clock
    )
    fetchers = ReplicaFetcherManager(
        services.broker_id,
        config,
        dialer=dialer,
        find_broker=find_broker,
        quota=_quota(services, FOLLOWER_REPLICAS),
        wake=lambda partition: services.replica_manager.wake(partition),
        broker_epoch=broker_epoch,
        clock=services.clock,
        tasks=tasks,
    )
    services.config_store.on_broker_change(fetchers.on_settings_change)
    cache.on_change(fetchers.on_cluster_change)
    return fetchers


def _quota(services: "BrokerServices", setting: str) -> ReplicationQuota:
    config, store = services.config, services.config_store
    quota = ReplicationQuota(
        setting,
        services.broker_id,
        store.topic_overrides,
        services.clock,
        sample_count=config.replication_quota_window_num,
        sample_seconds=config.replication_quota_window_size_seconds,
    )
    store.on_topic_change(lambda topic, _: quota.forget_topic(topic))
    return quota
