"""Caches the cluster for the controller: brokers, assignments, partition states, state machines.

It is read from ZooKeeper once, at election, and then kept up to date by events; only `core.step` changes it.
It makes no decisions, but it refuses illegal transitions: one would mean that the core has lost track of a
partition, and a controller that acts on a wrong cache is worse than one that stops.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from kalda.cluster.schema import BrokerInfo, PartitionState, ReplicaAssignment, TopicAssignment
from kalda.common.types import TopicPartition
from kalda.controller import partition_state_machine, replica_state_machine
from kalda.controller.partition_state_machine import PartitionStatus
from kalda.controller.replica_state_machine import ReplicaStatus

_NOWHERE: Final = ReplicaAssignment(())

_DELETION: Final = (
    ReplicaStatus.DELETION_STARTED,
    ReplicaStatus.DELETION_SUCCESSFUL,
    ReplicaStatus.DELETION_INELIGIBLE,
)


class Replica(NamedTuple):
    """One copy of a partition on one broker."""

    partition: TopicPartition
    broker_id: int


class IllegalTransitionError(Exception):
    """A transition that the table of a state machine does not allow: a bug of the core."""


class ControllerContext:
    """The cache of one term. Invariants (see `check_invariants`): every partition in `states` is assigned;
    exactly the assigned partitions have a status; so do exactly the assigned replicas and those in
    `removed_replicas`.
    """

    def __init__(
        self,
        controller_id: int,
        *,
        is_topic_deletion_enabled: bool = True,
        leader_imbalance_percentage: int = 10,
    ) -> None:
        self.controller_id: Final = controller_id
        self.is_topic_deletion_enabled: Final = is_topic_deletion_enabled
        self.leader_imbalance_percentage: Final = leader_imbalance_percentage
        """``leader.imbalance.per.broker.percentage``."""
        self.epoch = 0
        self.live_brokers: dict[int, BrokerInfo] = {}
        self.shutting_down: set[int] = set()
        """Live brokers that requested a controlled shutdown; each stays here until it is gone."""
        self.offline_dirs: dict[int, set[TopicPartition]] = {}
        """Replicas in failed log directories, by live broker."""
        self.full_dirs: dict[int, set[TopicPartition]] = {}
        """Replicas that serve reads but cannot be written, by live broker: their log directories are full."""
        self.assignments: dict[str, TopicAssignment] = {}
        """Changed by `assign` and `forget_topic` only, which maintain the index by broker."""
        self.reassigning: dict[TopicPartition, None] = {}
        """The partitions whose assignment is being changed (KIP-455), as an ordered set."""
        self.removed_replicas: dict[TopicPartition, tuple[int, ...]] = {}
        """Replicas that left an assignment, until the next partition state has them deleted."""
        self.pending_deletions: dict[int, dict[TopicPartition, int | None]] = {}
        """Removed replicas whose deletion is not confirmed, by broker. A broker that comes back is sent the
        deletion again, with this leader epoch or, where it is None, with the partition's current one.
        Invariant: none of these replicas is assigned, or it would be deleted while it serves.
        """
        self.states: dict[TopicPartition, PartitionState] = {}
        """The partition states as last read from or written to ZooKeeper."""
        self.returned: dict[TopicPartition, frozenset[int]] = {}
        """In-sync replicas whose brokers registered after the partition's state was written, where others are
        in sync that did not. Such a broker may have restarted without the end of its log, which a loss of
        power took, while there was no controller. It is neither elected nor kept in sync.
        """
        self.partition_status: dict[TopicPartition, PartitionStatus] = {}
        self.replica_status: dict[Replica, ReplicaStatus] = {}
        self.topics_to_delete: set[str] = set()
        self.topics_without_replicas: set[str] = set()
        """Topics without replicas whose znodes are being deleted; a subset of `topics_to_delete`."""
        self.unclean_topics: set[str] = set()
        self.steps_unchecked = 0
        """Steps since the last `check_invariants`; see `step_invariants`."""
        self._partitions_on: dict[int, dict[TopicPartition, None]] = {}
        # Ordered sets. Invariant: exactly the replicas of `assignments`.

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return a topic's partitions."""
        return [TopicPartition(topic, partition) for partition in self.assignments[topic].partitions]

    def assignment_of(self, partition: TopicPartition) -> ReplicaAssignment:
        """Return a partition's assignment; one without replicas if the partition does not exist."""
        topic = self.assignments.get(partition.topic)
        return _NOWHERE if topic is None else topic.partitions.get(partition.partition, _NOWHERE)

    def replicas_of(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the brokers that hold a partition, in order of preference."""
        return self.assignments[partition.topic].partitions[partition.partition].replicas

    def all_partitions(self) -> Iterator[TopicPartition]:
        """Iterate over every partition of every topic."""
        for topic in self.assignments:
            yield from self.partitions_of(topic)

    def topic_replicas(self, topic: str) -> Iterator[Replica]:
        """Iterate over every replica of a topic."""
        for partition in self.partitions_of(topic):
            for broker_id in self.replicas_of(partition):
                yield Replica(partition, broker_id)

    def partitions_on(self, broker_id: int) -> list[TopicPartition]:
        """Return the partitions that have a replica on a broker."""
        return list(self._partitions_on.get(broker_id, ()))

    def is_serving(self, partition: TopicPartition, broker_id: int) -> bool:
        """Whether a replica is available: its broker is live and its log directory works."""
        return broker_id in self.live_brokers and partition not in self.offline_dirs.get(broker_id, ())

    def is_online(self, partition: TopicPartition, broker_id: int) -> bool:
        """Whether a replica may be leader and in sync.

        It is available, its log directory is not full, and its broker is not shutting down.
        """
        return (
            broker_id not in self.shutting_down
            and partition not in self.full_dirs.get(broker_id, ())
            and self.is_serving(partition, broker_id)
        )

    def has_unfit_replicas(self, broker_id: int) -> bool:
        """Whether any replica of a broker is in a log directory that failed or is full."""
        return bool(self.offline_dirs.get(broker_id) or self.full_dirs.get(broker_id))

    def assign(self, topic: TopicAssignment, changes: Mapping[int, ReplicaAssignment]) -> None:
        """Record the assignments of some partitions of a topic, known or new; its other partitions stay."""
        known = self.assignments.get(topic.topic)
        before = known.partitions if known else {}
        for number, assignment in changes.items():
            partition = TopicPartition(topic.topic, number)
            for broker_id in before.get(number, _NOWHERE).replicas:
                self._partitions_on[broker_id].pop(partition, None)
            for broker_id in assignment.replicas:
                self._partitions_on.setdefault(broker_id, {})[partition] = None
                self.pending_deletions.get(broker_id, {}).pop(partition, None)
            self.reassigning.pop(partition, None)
            if assignment.is_being_reassigned:
                self.reassigning[partition] = None
        self.assignments[topic.topic] = replace(topic, partitions={**before, **changes})

    def move_partition(self, partition: TopicPartition, target: PartitionStatus) -> None:
        """Make a transition of the partition state machine.

        Raises:
            IllegalTransitionError: the table does not allow it.
        """
        current = self.partition_status.get(partition, PartitionStatus.NON_EXISTENT)
        if current not in partition_state_machine.VALID_PREVIOUS[target]:
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
        if current not in replica_state_machine.VALID_PREVIOUS[target]:
            raise IllegalTransitionError(
                f"replica {replica.partition} on {replica.broker_id}: {current.value} to {target.value}"
            )
        if target is ReplicaStatus.NON_EXISTENT:
            del self.replica_status[replica]
        else:
            self.replica_status[replica] = target

    def forget_topic(self, topic: str) -> None:
        """Remove a topic, whatever its state: ZooKeeper no longer has it."""
        assignment = self.assignments.pop(topic, None)
        if assignment is not None:
            for number, replica_assignment in assignment.partitions.items():
                partition = TopicPartition(topic, number)
                self.states.pop(partition, None)
                self.returned.pop(partition, None)
                self.partition_status.pop(partition, None)
                self.reassigning.pop(partition, None)
                for broker_id in (*replica_assignment.replicas, *self.removed_replicas.pop(partition, ())):
                    self.replica_status.pop(Replica(partition, broker_id), None)
                    self._partitions_on.get(broker_id, {}).pop(partition, None)
        for unfit in (*self.offline_dirs.values(), *self.full_dirs.values()):
            unfit.difference_update([each for each in unfit if each.topic == topic])
        self.topics_to_delete.discard(topic)
        self.topics_without_replicas.discard(topic)
        self.unclean_topics.discard(topic)

    def check_invariants(self) -> None:
        """Assert what holds between two steps; walks over all partitions and replicas."""
        live = self.live_brokers.keys()
        partitions = list(self.all_partitions())
        hosted: dict[int, set[TopicPartition]] = {}
        moving = set()
        for partition in partitions:
            assignment = self.assignment_of(partition)
            brokers = assignment.replicas
            assert len(brokers) == len(set(brokers)) > 0, f"{partition} is assigned to {brokers}"
            if assignment.is_being_reassigned:
                moving.add(partition)
            for broker_id in brokers:
                hosted.setdefault(broker_id, set()).add(partition)
                self._check_replica(Replica(partition, broker_id))
            self._check_partition(partition)
        indexed = {broker_id: set(found) for broker_id, found in self._partitions_on.items() if found}
        assert hosted == indexed, f"hosted {hosted}, indexed {indexed}"
        assert moving == self.reassigning.keys(), f"{moving} move, marked {self.reassigning.keys()}"
        known = self.partition_status.keys()
        assert known == set(partitions), f"{known ^ set(partitions)} have a status or an assignment, not both"
        assert self.states.keys() <= known, f"{self.states.keys() - known} have a state, but no assignment"
        removed = {Replica(p, broker_id) for p, ids in self.removed_replicas.items() for broker_id in ids}
        expected = sum(map(len, hosted.values())) + len(removed)
        assert expected == len(self.replica_status), f"{len(self.replica_status)} replicas, not {expected}"
        for broker_id, deleted in self.pending_deletions.items():
            wrong = deleted.keys() & hosted.get(broker_id, set())
            assert not wrong, f"broker {broker_id} would delete the assigned {wrong} when it is back"
        assert self.topics_to_delete <= self.assignments.keys(), f"{self.topics_to_delete} are to be deleted"
        assert self.topics_without_replicas <= self.topics_to_delete, f"{self.topics_without_replicas} vanish"
        assert self.shutting_down <= live, f"{self.shutting_down} shut down, {live} are live"
        unfit = self.offline_dirs.keys() | self.full_dirs.keys()
        assert unfit <= live, f"{unfit} have log directories that fail, {live} are live"

    def _check_partition(self, partition: TopicPartition) -> None:
        state, status = self.states.get(partition), self.partition_status[partition]
        if state is None:
            assert status is PartitionStatus.NEW, f"{partition} has no state, but status {status}"
            return
        is_led = self.is_serving(partition, state.leader)
        assert is_led == (status is PartitionStatus.ONLINE), f"{partition} has status {status}, state {state}"
        assert state.controller_epoch <= self.epoch, f"{partition} has {state}, the epoch is {self.epoch}"

    def _check_replica(self, replica: Replica) -> None:
        status = self.replica_status.get(replica)
        assert status is not None, f"{replica} is assigned, but has no status"
        if status in _DELETION:
            topic = replica.partition.topic
            assert topic in self.topics_to_delete, f"{replica} has status {status}, its topic stays"
        if status is ReplicaStatus.ONLINE:
            assert self.is_serving(*replica), f"{replica} is online, but cannot be reached"
        if status is ReplicaStatus.DELETION_STARTED:
            assert replica.broker_id in self.live_brokers, f"{replica} is to be deleted by a dead broker"
        if replica.partition.topic in self.topics_without_replicas:
            assert status is ReplicaStatus.DELETION_SUCCESSFUL, f"{replica} has status {status}"
