"""The controller's figures, under Kafka's names."""

from dataclasses import dataclass

from kalda.controller import elections
from kalda.controller.context import ControllerContext
from kalda.controller.partition_state_machine import PartitionStatus
from kalda.zk.client.schema import NO_LEADER, PartitionState


@dataclass(frozen=True, slots=True)
class ControllerStatistics:
    """How the cluster stands; all 0 on a broker that is not its controller."""

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
    """How many leaders this broker elected while it was controller, in all its terms."""

    __slots__ = ("elections", "unclean")

    def __init__(self) -> None:
        self.elections = 0
        self.unclean = 0
        """Of these, elections of a replica that was not in sync: records may have been lost."""

    def note(self, before: PartitionState | None, after: PartitionState) -> None:
        """Count the change of a partition's state, if it brought another leader."""
        if after.leader != NO_LEADER and (before is None or after.leader != before.leader):
            self.elections += 1
            if after.leader_recovering:
                self.unclean += 1


def statistics_of(context: ControllerContext) -> ControllerStatistics:
    """Count what a controller in office knows."""
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
