"""Runs a coordinator runtime for each internal topic and finds the coordinators of groups and transactions.

The broker that leads a partition of ``__consumer_offsets`` or ``__transaction_state`` coordinates what the
partition keeps. `InternalTopics` forwards changes of roles and high watermarks from the replica manager to
the runtime of the topic, and it creates an internal topic at the first request for a coordinator. What a
coordinator decides is in `kalda.coordinator`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from kalda.broker.internal_topics.replica_log import ReplicaLog
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.broker.topics.topic_names import (
    CLUSTER_HISTORY_TOPIC,
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.metrics import Metrics, metric_name
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.coordinator.partitioning import partition_of
from kalda.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, PartitionState, RuntimeConfig
from kalda.coordinator.runtime.coordinator_shard import CoordinatorShard, Loop
from kalda.runtime.clock import Clock
from kalda.settings import BrokerConfig
from kalda.zookeeper.errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard)

_METRICS_TYPE: Final = {
    GROUP_METADATA_TOPIC: "group-coordinator-metrics",
    TRANSACTION_STATE_TOPIC: "transaction-coordinator-metrics",
    CLUSTER_HISTORY_TOPIC: "cluster-history-metrics",
    SHARE_GROUP_STATE_TOPIC: "share-coordinator-metrics",
}


class InternalTopics:
    """The runtimes of one broker by internal topic, and the coordinators of the cluster."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        cache: MetadataCache,
        replicas: ReplicaManager,
        topic_admin: TopicAdmin,
        loop: Loop | None = None,
    ) -> None:
        """`loop` runs the timers of the runtimes; it is the running event loop by default."""
        self._clock: Final = clock
        self._cache: Final = cache
        self._replicas: Final = replicas
        self._topic_admin: Final = topic_admin
        self._loop: Final = loop or asyncio.get_running_loop()
        self._partition_counts: Final = {
            GROUP_METADATA_TOPIC: config.offsets_topic_num_partitions,
            TRANSACTION_STATE_TOPIC: config.transaction_state_log_num_partitions,
            SHARE_GROUP_STATE_TOPIC: config.share_coordinator_state_topic_num_partitions,
        }
        self._runtimes: Final[dict[str, CoordinatorRuntime[Any]]] = {}
        self._being_created: Final[set[str]] = set()
        self._is_closed = False
        replicas.listen(self)

    def add(
        self, make_shard: Callable[[int], S], config: RuntimeConfig, metrics: Metrics
    ) -> CoordinatorRuntime[S]:
        """Make the runtime of the topic that `config` names and forward changes of its partitions to it."""
        topic = config.name
        runtime = CoordinatorRuntime(
            ReplicaLog(topic, self._replicas), make_shard, self._clock, self._loop, config
        )
        self._runtimes[topic] = runtime
        register_runtime_metrics(metrics, _METRICS_TYPE[topic], runtime)
        return runtime

    def close(self) -> None:
        """Stop coordinating: requests that wait are answered with NOT_COORDINATOR."""
        self._is_closed = True
        for runtime in self._runtimes.values():
            runtime.close()

    # `PartitionListener`, called by the replica manager.

    def on_role(self, partition: Partition) -> None:
        """Load a partition that this broker now leads, or unload one that it no longer leads."""
        name = partition.topic_partition
        runtime = self._runtimes.get(name.topic)
        if runtime is None or self._is_closed:
            return
        if partition.is_gone:
            # The topic may be created again, with leader epochs that start from 0.
            runtime.resign(name.partition)
        elif partition.is_leader:
            runtime.become_leader(name.partition, partition.leader_epoch)
        else:
            runtime.resign(name.partition, partition.leader_epoch)

    def on_high_watermark(self, partition: Partition) -> None:
        """Complete the writes of a partition whose high watermark may have advanced."""
        name = partition.topic_partition
        runtime = self._runtimes.get(name.topic)
        if runtime is not None:
            runtime.on_high_watermark(name.partition)

    def complete_transaction(
        self, topic: str, partition: int, producer_id: int, producer_epoch: int, committed: bool
    ) -> None:
        """Apply the end of a transaction whose marker was appended to a partition that this broker leads."""
        runtime = self._runtimes.get(topic)
        if runtime is not None:
            # The caller that appended the marker waits for the high watermark itself.
            runtime.complete_transaction(partition, producer_id, producer_epoch, committed)

    # Finding coordinators.

    def is_served(self, topic: str) -> bool:
        """Whether this broker can coordinate the partitions of the topic."""
        return topic in self._runtimes

    def partition_for(self, topic: str, key: str) -> int:
        """Return the partition for a group id or transactional id, whether or not the topic exists."""
        return partition_of(key, self.partition_count(topic))

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """Return the partition that keeps the offsets of a group."""
        return TopicPartition(GROUP_METADATA_TOPIC, self.partition_for(GROUP_METADATA_TOPIC, group_id))

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of an internal topic, or the configured number before it exists."""
        return self._cache.partition_count(topic) or self._partition_counts[topic]

    def coordinator(self, topic: str, key: str, listener: str) -> BrokerEndpoint | None:
        """Return the address of the coordinator of `key`, or None if its partition has no leader."""
        cache = self._cache
        led = cache.partition(TopicPartition(topic, self.partition_for(topic, key)))
        return cache.endpoint(led.leader, listener) if led is not None else None

    async def create_topic(self, topic: str) -> None:
        """Create an internal topic unless it exists; log a failure, because clients retry the request."""
        if topic in self._cache or topic in self._being_created:
            return
        self._being_created.add(topic)
        try:
            codes = await self._topic_admin.auto_create([topic])
        except (ZooKeeperError, ApiError) as error:
            logger.warning("cannot create internal topic %s now: %s", topic, error)
        else:
            code = codes.get(topic, ErrorCode.NONE)
            if code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                logger.warning(
                    "cannot create internal topic %s: %s; its replication factor may exceed the live brokers",
                    topic,
                    code.name,
                )
        finally:
            self._being_created.discard(topic)


def register_runtime_metrics(metrics: Metrics, kind: str, runtime: CoordinatorRuntime[Any]) -> None:
    """Publish the counters of a runtime under the names of Kafka's coordinator runtime."""
    statistics = runtime.statistics

    def name(metric: str) -> str:
        return metric_name("kafka.server", kind, metric)

    for state in PartitionState:

        def count(state: PartitionState = state) -> float:
            return sum(each is state for each in runtime.states().values())

        metrics.gauge(
            name("num-partitions"), "Partitions coordinated here, by state.", count, state=state.value
        )
    metrics.gauge(
        name("partition-load-time-max"),
        "The longest load of a partition, in milliseconds.",
        lambda: statistics.load_seconds_max * 1000,
    )
    metrics.counter_function(
        name("partition-load-count"), "Partitions that were loaded.", lambda: statistics.loads
    )
    metrics.counter_function(
        name("partition-load-failures"), "Loads that failed.", lambda: statistics.load_failures
    )
    metrics.counter_function(
        name("records-loaded"), "Records replayed by loads.", lambda: statistics.records_loaded
    )
    metrics.counter_function(name("records-written"), "Records appended.", lambda: statistics.records_written)
    metrics.counter_function(
        name("append-failures"), "Appends that the log refused.", lambda: statistics.append_failures
    )
    metrics.gauge(
        name("event-queue-size"), "Answers that wait for the high watermark.", runtime.waiting_count
    )
