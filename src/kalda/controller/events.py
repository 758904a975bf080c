"""What the controller's core is told: readings of coordination, and the outcomes of its own effects."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import LeaderAndIsr, StopReplica
from kalda.controller.partition_state_machine import ElectionStrategy
from kalda.zk.client.schema import BrokerInfo, PartitionState, ReplicaAssignment, TopicAssignment


class ElectionType(IntEnum):
    """What kind of leader an operator asks for; the numbers are ElectLeaders'."""

    PREFERRED = 0
    """The first replica of the assignment."""
    UNCLEAN = 1
    """Any replica that lives, for a partition that has no leader."""


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """This broker became controller; here is all that coordination holds."""

    epoch: int
    brokers: Mapping[int, BrokerInfo]
    assignments: Mapping[str, TopicAssignment]
    states: Mapping[TopicPartition, PartitionState]
    topics_to_delete: frozenset[str] = frozenset()
    unclean_topics: frozenset[str] = frozenset()
    """Topics with ``unclean.leader.election.enable``."""


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """The set of live brokers, as it is now. A new epoch under an old id: the broker restarted."""

    brokers: Mapping[int, BrokerInfo]


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The set of topics, as it is now, and the assignments of those not known yet."""

    topics: frozenset[str]
    added: Mapping[str, TopicAssignment]
    unclean_topics: frozenset[str] = frozenset()
    """Those of the added topics with ``unclean.leader.election.enable``."""


@dataclass(frozen=True, slots=True)
class AssignmentsChanged:
    """The assignments of these topics were written again: partitions may have been added."""

    assignments: Mapping[str, TopicAssignment]


@dataclass(frozen=True, slots=True)
class TopicDeletionsRequested:
    """All topics marked for deletion, as it is now."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class DeletionCompletionRequested:
    """Topics are to be created whose deletion may wait for dead brokers: complete it without those."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionStatesCreated:
    """Outcome of `CreatePartitionStates`: what ZooKeeper now holds, whoever wrote it."""

    states: Mapping[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class PartitionStatesUpdated:
    """Outcome of `UpdatePartitionStates`: what was written, with its new version, and what others wrote.

    None among the conflicts: the znode is gone.
    """

    updated: Mapping[TopicPartition, PartitionState]
    conflicts: Mapping[TopicPartition, PartitionState | None]
    strategy: ElectionStrategy = ElectionStrategy.OFFLINE
    """That of the `UpdatePartitionStates` answered."""


@dataclass(frozen=True, slots=True)
class PartitionStatesRead:
    """What ZooKeeper holds for these partitions: leaders may have changed their ISR."""

    states: Mapping[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class ReassignmentsRequested:
    """Move partitions, or cancel their moves, as `reassignment.validate_reassignments` has allowed."""

    changes: Mapping[TopicPartition, ReplicaAssignment]


@dataclass(frozen=True, slots=True)
class AssignmentsWritten:
    """Outcome of `WriteAssignments`, without the partitions that ZooKeeper no longer has."""

    changes: Mapping[TopicPartition, ReplicaAssignment]


@dataclass(frozen=True, slots=True)
class LeaderElectionRequested:
    """Elect leaders of these partitions. Judged before, by `elections.validate_elections`."""

    election: ElectionType
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class LeaderImbalanceCheckDue:
    """See whether too many partitions are not led by their preferred replica."""


@dataclass(frozen=True, slots=True)
class ControlledShutdownRequested:
    """This broker is about to stop and wants to lead nothing any more."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class LogDirFailuresNotified:
    """These brokers lost log directories; which replicas went with them is to be asked."""

    broker_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponseReceived:
    """A broker's answer to `LeaderAndIsr`; a partition without an error went well."""

    broker_id: int
    broker_epoch: int
    request: LeaderAndIsr
    errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class UncleanElectionChanged:
    """Whether these topics have ``unclean.leader.election.enable``, as it is now."""

    topics: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class StopReplicaResponseReceived:
    """A broker's answer to `StopReplica`; a partition without an error went well."""

    broker_id: int
    request: StopReplica
    errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Outcome of `DeleteTopicZnodes`."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokerFellBehind:
    """Requests to this broker were dropped because too many waited; it must be told everything anew."""

    broker_id: int


Event: TypeAlias = (
    ControllerElected
    | BrokersChanged
    | TopicsChanged
    | AssignmentsChanged
    | TopicDeletionsRequested
    | DeletionCompletionRequested
    | PartitionStatesCreated
    | PartitionStatesUpdated
    | PartitionStatesRead
    | ReassignmentsRequested
    | AssignmentsWritten
    | LeaderElectionRequested
    | LeaderImbalanceCheckDue
    | ControlledShutdownRequested
    | LogDirFailuresNotified
    | LeaderAndIsrResponseReceived
    | UncleanElectionChanged
    | StopReplicaResponseReceived
    | TopicsDeleted
    | BrokerFellBehind
)
