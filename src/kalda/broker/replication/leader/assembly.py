"""Puts the leader's side of replication together from the services of a broker, and runs its upkeep."""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from kalda.broker.log_dir_failures import LogDirFailures
from kalda.broker.replica_manager import ReplicaManager
from kalda.broker.replication.follower.assembly import build_leader_quota
from kalda.broker.replication.leader.isr_changes import ANNOUNCE_CHECK_MS, IsrChanges
from kalda.broker.replication.leader.replica_selector import make_replica_selector
from kalda.broker.upkeep import Upkeep
from kalda.zk.client.isr_store import IsrStore
from kalda.zk.client.port import SessionState
from kalda.zk.client.zookeeper_errors import ZooKeeperError

if TYPE_CHECKING:
    from kalda.broker.services import BrokerServices

logger: Final = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
"""Pause before leadership is checked again after an error of coordination."""


def build_replica_manager(services: "BrokerServices") -> ReplicaManager:
    """Make the replica manager; needs settings, logs, purgatories, metadata cache and fetchers.

    Raises:
        ConfigError: `replica.selector.class` names a class that does not exist here.
    """
    config, cache = services.config, services.metadata_cache
    services.isr_changes = IsrChanges(IsrStore(services.cluster_store.zookeeper), services.clock)
    return ReplicaManager(
        services.broker_id,
        services.log_manager,
        services.clock,
        services.purgatories["fetch"],
        services.purgatories["produce"],
        lambda partition: cache.partition(partition) is not None,
        cache.topic_name_by_bytes,
        services.replica_fetchers,
        isr_changes=services.isr_changes,
        delete_purgatory=services.purgatories["delete_records"],
        is_alive=lambda broker_id: broker_id in cache.brokers,
        lag_seconds=config.replica_lag_time_max_ms / 1000,
        selector=make_replica_selector(config.replica_selector_class, cache.endpoint),
        leader_quota=build_leader_quota(services),
        missing=services.missing_records,
    )


def start_leader_upkeep(services: "BrokerServices", upkeep: Upkeep) -> None:
    """Keep ISRs current and act on failed log directories."""
    replicas, changes = services.replica_manager, services.isr_changes
    zookeeper = services.cluster_store.zookeeper
    failures = LogDirFailures(services.broker_id, services.log_manager, replicas, IsrStore(zookeeper))
    replicas.watch_recovery(failures.announce_recovery)
    check = LeadershipCheck(services)
    zookeeper.add_state_listener(check.on_session)
    upkeep.every("ISR expiration", max(services.config.replica_lag_time_max_ms // 2, 1), replicas.shrink_isrs)
    upkeep.every("ISR change notices", ANNOUNCE_CHECK_MS, changes.announce)
    upkeep.run("ISR changes", changes.run(replicas))
    upkeep.run("log directory failures", failures.run())
    upkeep.run("leadership check", check.run())
    upkeep.run("missing records", services.missing_records.run())


class LeadershipCheck:
    """Looks, after a session was lost, whether this broker still leads what it believes to lead.

    While a process is paused its session ends and others are elected. When it goes on it would serve until
    the controller's word reaches it; so it asks coordination itself, first thing.
    """

    def __init__(self, services: "BrokerServices") -> None:
        self._services: Final = services
        self._is_due: Final = asyncio.Event()
        self._was_lost = False

    def on_session(self, state: SessionState) -> None:
        """Take note of how the session stands."""
        if state is SessionState.EXPIRED:
            self._was_lost = True
        elif state is SessionState.CONNECTED and self._was_lost:
            self._was_lost = False
            self._is_due.set()

    async def run(self) -> None:
        """Check whenever it is due, until cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            if not await self.check():
                self._is_due.set()
                await asyncio.sleep(RETRY_SECONDS)

    async def check(self) -> bool:
        """Step down where another broker was elected; tell whether everything could be looked at."""
        replicas = self._services.replica_manager
        led = [partition for partition in replicas.partitions.values() if partition.is_leader]
        try:
            await self._services.isr_changes.check_leadership(replicas, led)
        except ZooKeeperError as error:
            logger.warning("leadership of %d partitions not checked: %s", len(led), error)
            return False
        return True
