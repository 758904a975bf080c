"""Counts the controller's statistics, named after the metrics of Kafka's controller."""

from dataclasses import dataclass

from kalda.cluster.schema import NO_LEADER, PartitionState
from kalda.controller import elections
from kalda.controller.context import ControllerContext
from kalda.controller.partition_state_machine import PartitionStatus


@dataclass(frozen=True, slots=True)
class ControllerStatistics:
    """Counts of the cluster; all 0 on a broker that is not the active controller."""

    active_controller_count: int = 0
    offline_partitions_count: int = 0
    """Partitions without a leader, those under deletion aside."""
    preferred_replica_imbalance_count: int = 0
    global_topic_count: int = 0
    global_partition_count: int = 0
    """Partitions that have or had a leader."""
    topics_to_delete_count: int = 0
    active_broker_count: int = 0
    reassigning_partitions_count: int = 0


class ElectionCounts:
    """The number of leader elections by this broker in all its terms as controller."""

    __slots__ = ("elections", "unclean")

    def __init__(self) -> None:
        self.elections = 0
        self.unclean = 0
        """Elections of a replica that was not in sync: records may have been lost."""

    def note(self, before: PartitionState | None, after: PartitionState) -> None:
        """Count a change of a partition's state if it changed the leader."""
        if after.leader != NO_LEADER and (before is None or after.leader != before.leader):
            self.elections += 1
            if after.leader_recovering:
                self.unclean += 1


def statistics_of(context: ControllerContext) -> ControllerStatistics:
    """Return the statistics of the active controller's context."""
    return ControllerStatistics(
        active_controller_count=1,
        offline_partitions_count=sum(
            status is not PartitionStatus.ONLINE and partition.topic not in context.topics_to_delete
            for partition, status in context.partition_status.items()
        ),
        preferred_replica_imbalance_count=elections.imbalance_count(context),
        global_topic_count=len(context.assignments),
        global_partition_count=len(context.states),
        topics_to_delete_count=len(context.topics_to_delete),
        active_broker_count=len(context.live_brokers),
        reassigning_partitions_count=len(context.reassigning),
    )
