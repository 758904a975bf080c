"""What the controller knows: a cache of coordination, read once at election and kept true by events.

Only `core.step` changes it. It holds no decisions, but it refuses illegal transitions: one would mean that
the core lost track of a partition, and a wrong answer is worse than a controller that stops.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kalda.common.types import TopicPartition
from kalda.controller import partitions, replicas
from kalda.controller.partitions import PartitionStatus
from kalda.controller.replicas import ReplicaStatus
from kalda.coordination.schema import BrokerInfo, PartitionState, TopicAssignment


class Replica(NamedTuple):
    """One copy of a partition on one broker."""

    partition: TopicPartition
    broker_id: int


class IllegalTransitionError(Exception):
    """A state machine was asked for a transition that its table does not allow: a bug of the core."""


class ControllerContext:
    """The cache. Invariants: `states` holds no partition that `assignments` does not; every partition and
    replica of `assignments` has a status, and no other has one.
    """

    def __init__(self, controller_id: int, *, is_topic_deletion_enabled: bool = True) -> None:
        self.controller_id: Final = controller_id
        self.is_topic_deletion_enabled: Final = is_topic_deletion_enabled
        self.epoch = 0
        self.live_brokers: dict[int, BrokerInfo] = {}
        self.assignments: dict[str, TopicAssignment] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        """What ZooKeeper holds, as last read or written."""
        self.partition_status: dict[TopicPartition, PartitionStatus] = {}
        self.replica_status: dict[Replica, ReplicaStatus] = {}
        self.topics_to_delete: set[str] = set()
        self.topics_vanishing: set[str] = set()
        """Topics whose replicas are gone and whose znodes are being deleted; part of `topics_to_delete`."""
        self.unclean_topics: set[str] = set()

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return a topic's partitions."""
        return [TopicPartition(topic, partition) for partition in self.assignments[topic].partitions]

    def replicas_of(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the brokers that hold a partition, in order of preference."""
        return self.assignments[partition.topic].partitions[partition.partition].replicas

    def all_partitions(self) -> Iterator[TopicPartition]:
        """Go through every partition of every topic."""
        for topic in self.assignments:
            yield from self.partitions_of(topic)

    def topic_replicas(self, topic: str) -> Iterator[Replica]:
        """Go through every replica of a topic."""
        for partition in self.partitions_of(topic):
            for broker_id in self.replicas_of(partition):
                yield Replica(partition, broker_id)

    def partitions_on(self, broker_id: int) -> list[TopicPartition]:
        """Return the partitions that have a replica on a broker."""
        return [p for p in self.all_partitions() if broker_id in self.replicas_of(p)]

    def move_partition(self, partition: TopicPartition, target: PartitionStatus) -> None:
        """Make a transition of the partition state machine.

        Raises:
            IllegalTransitionError: the table does not allow it.
        """
        current = self.partition_status.get(partition, PartitionStatus.NON_EXISTENT)
        if current not in partitions.VALID_PREVIOUS[target]:
            raise IllegalTransitionError(f"partition {partition}: {current.value} to {target.value}")
        if target is PartitionStatus.NON_EXISTENT:
            del self.partition_status[partition]
        else:
            self.partition_status[partition] = target

    def move_replica(self, replica: Replica, target: ReplicaStatus) -> None:
        """Make a transition of the replica state machine.

        Raises:
            IllegalTransitionError: the table does not allow it.
        """
        current = self.replica_status.get(replica, ReplicaStatus.NON_EXISTENT)
        if current not in replicas.VALID_PREVIOUS[target]:
            raise IllegalTransitionError(
                f"replica {replica.partition} on {replica.broker_id}: {current.value} to {target.value}"
            )
        if target is ReplicaStatus.NON_EXISTENT:
            del self.replica_status[replica]
        else:
            self.replica_status[replica] = target

    def forget_topic(self, topic: str) -> None:
        """Drop all that is known about a topic, whatever its state: ZooKeeper no longer has it."""
        assignment = self.assignments.pop(topic, None)
        if assignment is not None:
            for number, replica_assignment in assignment.partitions.items():
                partition = TopicPartition(topic, number)
                self.states.pop(partition, None)
                self.partition_status.pop(partition, None)
                for broker_id in replica_assignment.replicas:
                    self.replica_status.pop(Replica(partition, broker_id), None)
        self.topics_to_delete.discard(topic)
        self.topics_vanishing.discard(topic)
        self.unclean_topics.discard(topic)
