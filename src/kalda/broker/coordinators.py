"""Runs the coordinators on this broker: one runtime per internal topic, fed by the roles of its partitions.

A partition of an internal topic is coordinated by the broker that leads it. The replica manager tells of
every change of role and every high watermark that moved; both are passed on here. What is not here: what the
coordinators do (`kalda.coordinator`), and requests.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kalda.broker.internal_log import ReplicaLog
from kalda.broker.partition import Partition
from kalda.broker.topics.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.metrics import Metrics, metric_name
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.coordinator.partitioning import partition_of
from kalda.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, PartitionState, RuntimeConfig
from kalda.coordinator.runtime.coordinator_shard import CoordinatorShard, Loop
from kalda.zk.client.zookeeper_errors import ZooKeeperError

if TYPE_CHECKING:
    from kalda.broker.services import BrokerServices

logger: Final = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard)

_METRICS_TYPE: Final = {
    GROUP_METADATA_TOPIC: "group-coordinator-metrics",
    TRANSACTION_STATE_TOPIC: "transaction-coordinator-metrics",
}


class Coordinators:
    """The runtimes of one broker, and who coordinates what in the cluster."""

    def __init__(self, services: "BrokerServices", loop: Loop) -> None:
        """Needs settings, clock, metrics, metadata cache, replica manager and topic administration."""
        self._services: Final = services
        self._loop: Final = loop
        config = services.config
        self._partition_counts: Final = {
            GROUP_METADATA_TOPIC: config.offsets_topic_num_partitions,
            TRANSACTION_STATE_TOPIC: config.transaction_state_log_num_partitions,
        }
        self._runtimes: Final[dict[str, CoordinatorRuntime[Any]]] = {}
        self._being_created: Final[set[str]] = set()
        self._is_closed = False

    def add(self, make_shard: Callable[[int], S], config: RuntimeConfig) -> CoordinatorRuntime[S]:
        """Make the runtime of the topic that `config` names; from now on it hears of its partitions."""
        services = self._services
        topic = config.name
        runtime = CoordinatorRuntime(
            ReplicaLog(topic, services.replica_manager),
            make_shard,
            services.clock,
            self._loop,
            config,
        )
        self._runtimes[topic] = runtime
        register_runtime_metrics(services.metrics, _METRICS_TYPE[topic], runtime)
        return runtime

    def close(self) -> None:
        """Give everything up: whatever waits is told to look for another coordinator."""
        self._is_closed = True
        for runtime in self._runtimes.values():
            runtime.close()

    # What the replica manager tells.

    def on_role(self, partition: Partition) -> None:
        """Take note that a partition is led here, followed here, or gone."""
        name = partition.topic_partition
        runtime = self._runtimes.get(name.topic)
        if runtime is None or self._is_closed:
            return
        if partition.is_gone:
            # Its topic may be made anew, with leader epochs that begin again.
            runtime.resign(name.partition)
        elif partition.is_leader:
            runtime.become_leader(name.partition, partition.leader_epoch)
        else:
            runtime.resign(name.partition, partition.leader_epoch)

    def on_high_watermark(self, partition: Partition) -> None:
        """Take note that a high watermark may have moved."""
        name = partition.topic_partition
        runtime = self._runtimes.get(name.topic)
        if runtime is not None:
            runtime.on_high_watermark(name.partition)

    def complete_transaction(
        self, topic: str, partition: int, producer_id: int, producer_epoch: int, committed: bool
    ) -> None:
        """Take note that a transaction's marker was appended to a partition that is led here."""
        runtime = self._runtimes.get(topic)
        if runtime is not None:
            # Whoever appended it waits for the high watermark himself.
            runtime.complete_transaction(partition, producer_id, producer_epoch, committed)

    # Who coordinates what.

    def is_served(self, topic: str) -> bool:
        """Whether brokers of this version coordinate what the topic keeps."""
        return topic in self._runtimes

    def partition_for(self, topic: str, key: str) -> int:
        """The partition that a group or a transactional id belongs to, whether the topic exists or not."""
        return partition_of(key, self.partition_count(topic))

    def partition_count(self, topic: str) -> int:
        """How many partitions an internal topic has, or shall have."""
        return self._services.metadata_cache.partition_count(topic) or self._partition_counts[topic]

    def coordinator(self, topic: str, key: str, listener: str) -> BrokerEndpoint | None:
        """The broker that leads the partition of `key`, if there is one and it has this listener."""
        cache = self._services.metadata_cache
        led = cache.partition(TopicPartition(topic, self.partition_for(topic, key)))
        return cache.endpoint(led.leader, listener) if led is not None else None

    async def create_topic(self, topic: str) -> None:
        """Create an internal topic unless it exists; failures are logged, whoever asks will ask again."""
        if topic in self._services.metadata_cache or topic in self._being_created:
            return
        self._being_created.add(topic)
        try:
            codes = await self._services.topic_admin.auto_create([topic])
        except (ZooKeeperError, ApiError) as error:
            logger.warning("%s cannot be created now: %s", topic, error)
        else:
            code = codes.get(topic, ErrorCode.NONE)
            if code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                logger.warning(
                    "%s cannot be created: %s; are there as many live brokers as it is to have replicas?",
                    topic,
                    code.name,
                )
        finally:
            self._being_created.discard(topic)


def build_coordinators(services: "BrokerServices") -> Coordinators:
    """Make the coordinators of a broker and have the replica manager tell them of partitions."""
    coordinators = services.coordinators = Coordinators(services, asyncio.get_running_loop())
    services.replica_manager.listen(coordinators)
    return coordinators


def register_runtime_metrics(metrics: Metrics, kind: str, runtime: CoordinatorRuntime[Any]) -> None:
    """Publish what a runtime counts, under the names of Kafka's coordinator runtime."""
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
