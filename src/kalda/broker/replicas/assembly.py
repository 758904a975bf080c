"""Builds the replica manager of one broker, the fetchers of followed partitions and their quotas."""

import asyncio
from dataclasses import dataclass

from kalda.broker.context.broker_context import BrokerContext
from kalda.broker.context.service_tasks import ServiceTasks
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.follower.replica_fetcher_manager import ReplicaFetcherManager
from kalda.broker.replicas.isr_changes import ANNOUNCE_CHECK_MS, IsrChanges
from kalda.broker.replicas.leadership_check import LeadershipCheck
from kalda.broker.replicas.log_dir_failures import LogDirFailures
from kalda.broker.replicas.missing_records import MissingRecords
from kalda.broker.replicas.replica_alter_log_dirs import ReplicaAlterLogDirs
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.replicas.replica_selector import make_replica_selector
from kalda.broker.replicas.replication_quota import (
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    LOG_DIR_RATE,
    RateQuota,
    ReplicationQuota,
)
from kalda.cluster.isr_store import IsrStore
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.common.types import BrokerEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """The parts of one broker that host, lead and follow replicas."""

    replica_manager: ReplicaManager
    fetchers: ReplicaFetcherManager
    isr_changes: IsrChanges
    alter_log_dirs: ReplicaAlterLogDirs
    missing_records: MissingRecords

    def run(self, tasks: ServiceTasks, context: BrokerContext) -> None:
        """Start the work that keeps ISRs current, handles failed directories and restores missing records."""
        replicas, zookeeper = self.replica_manager, context.cluster_store.zookeeper
        failures = LogDirFailures(
            context.broker_id,
            context.log_manager,
            replicas.roles,
            IsrStore(zookeeper),
            broker_epoch=lambda: context.registration.broker_epoch,
        )
        replicas.watch_recovery(failures.announce_recovery)
        check = LeadershipCheck(replicas, self.isr_changes, context.runtime.random)
        zookeeper.add_state_listener(check.on_session)
        shrink_interval_ms = max(context.config.replica_lag_time_max_ms // 2, 1)
        tasks.every("ISR expiration", shrink_interval_ms, replicas.shrink_isrs)
        tasks.every("ISR change notices", ANNOUNCE_CHECK_MS, self.isr_changes.announce)
        tasks.run("ISR changes", self.isr_changes.run(replicas))
        tasks.run("log directory failures", failures.run())
        tasks.run("leadership check", check.run())
        tasks.run("missing records", self.missing_records.run())
        tasks.run("moves between log directories", self.alter_log_dirs.run())


def build_replication(
    context: BrokerContext,
    cache: MetadataCache,
    purgatories: dict[str, DelayedOperationPurgatory],
    tasks: asyncio.TaskGroup,
) -> Replication:
    """Make the replica manager and the fetchers; `tasks` runs the fetchers.

    Raises:
        ConfigError: `replica.selector.class` names a class that does not exist here.
    """
    broker_id, config, clock = context.broker_id, context.config, context.clock

    def find_broker(broker_id: int) -> BrokerEndpoint | None:
        return cache.endpoint(broker_id, config.inter_broker_listener_name)

    missing = MissingRecords(broker_id, context.log_manager.resources, context.dialer, find_broker, clock)
    isr_changes = IsrChanges(
        IsrStore(context.cluster_store.zookeeper), clock, context.runtime.random, context.events
    )
    fetchers = ReplicaFetcherManager(
        broker_id,
        config,
        dialer=context.dialer,
        find_broker=find_broker,
        quota=_quota(context, FOLLOWER_REPLICAS),
        wake=lambda partition: replicas.wake(partition),
        broker_epoch=lambda: context.registration.broker_epoch,
        clock=clock,
        random=context.runtime.random,
        tasks=tasks,
        events=context.events,
    )
    context.config_store.on_broker_change(fetchers.on_settings_change)
    cache.on_change(fetchers.on_cluster_change)
    alter_log_dirs = ReplicaAlterLogDirs(
        context.log_manager,
        clock,
        _log_dir_quota(context),
        config.num_replica_alter_log_dirs_threads or len(context.log_manager.directories),
        find=lambda partition: replicas.partitions.get(partition),
        absence_error=lambda partition: replicas.absence_error(partition),
        is_repaired=missing.is_searching,
        on_moved_from_full=lambda partition: replicas.roles.resume_after_move(partition),
    )
    replicas = ReplicaManager(
        broker_id,
        context.log_manager,
        clock,
        purgatories["fetch"],
        purgatories["produce"],
        lambda partition: cache.partition(partition) is not None,
        cache.topic_name_by_bytes,
        fetchers,
        isr_changes=isr_changes,
        delete_purgatory=purgatories["delete_records"],
        is_alive=lambda broker_id: broker_id in cache.brokers,
        lag_seconds=config.replica_lag_time_max_ms / 1000,
        selector=make_replica_selector(config.replica_selector_class, cache.endpoint),
        leader_quota=_leader_quota(context),
        missing=missing,
        on_hosted=alter_log_dirs.begin,
    )
    return Replication(
        replica_manager=replicas,
        fetchers=fetchers,
        isr_changes=isr_changes,
        missing_records=missing,
        alter_log_dirs=alter_log_dirs,
    )


def _leader_quota(context: BrokerContext) -> ReplicationQuota:
    """Make the throttle of the bytes that followers fetch, kept at the configured rate."""
    config, quota = context.config, _quota(context, LEADER_REPLICAS)
    quota.set_rate(config.leader_replication_throttled_rate)

    def on_settings_change(names: frozenset[str]) -> None:
        if LEADER_RATE in names:
            quota.set_rate(config.leader_replication_throttled_rate)

    context.config_store.on_broker_change(on_settings_change)
    return quota


def _log_dir_quota(context: BrokerContext) -> RateQuota:
    """Make the throttle of moves between log directories, kept at the configured rate."""
    config = context.config
    quota = RateQuota(
        context.clock,
        sample_count=config.alter_log_dirs_replication_quota_window_num,
        sample_seconds=config.alter_log_dirs_replication_quota_window_size_seconds,
    )
    quota.set_rate(config.replica_alter_log_dirs_io_max_bytes_per_second)

    def on_settings_change(names: frozenset[str]) -> None:
        if LOG_DIR_RATE in names:
            quota.set_rate(config.replica_alter_log_dirs_io_max_bytes_per_second)

    context.config_store.on_broker_change(on_settings_change)
    return quota


def _quota(context: BrokerContext, setting: str) -> ReplicationQuota:
    config, store = context.config, context.config_store
    quota = ReplicationQuota(
        setting,
        context.broker_id,
        store.topic_overrides,
        context.clock,
        sample_count=config.replication_quota_window_num,
        sample_seconds=config.replication_quota_window_size_seconds,
    )
    store.on_topic_change(lambda topic, _: quota.forget_topic(topic))
    return quota
