"""Defines the events of the controller's core: reads of ZooKeeper, requests, and outcomes of effects."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from kalda.cluster.schema import BrokerInfo, LogDirEvent, PartitionState, ReplicaAssignment, TopicAssignment
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import LeaderAndIsr, StopReplica
from kalda.controller.partition_state_machine import ElectionStrategy


class ElectionType(IntEnum):
    """The kind of leader that an operator requests; the numbers are those of the ElectLeaders API."""

    PREFERRED = 0
    """The first replica of the assignment."""
    UNCLEAN = 1
    """Any live replica, for a partition without a leader."""


@dataclass(frozen=True, slots=True)
class ControllerElected:
    """This broker became controller; the fields hold everything read from ZooKeeper."""

    epoch: int
    brokers: Mapping[int, BrokerInfo]
    assignments: Mapping[str, TopicAssignment]
    states: Mapping[TopicPartition, PartitionState]
    topics_to_delete: frozenset[str] = frozenset()
    unclean_topics: frozenset[str] = frozenset()
    """Topics with ``unclean.leader.election.enable``."""


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """The current set of live brokers. A new epoch under a known id means that the broker restarted."""

    brokers: Mapping[int, BrokerInfo]


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """The current set of topics, and the assignments of the new ones."""

    topics: frozenset[str]
    added: Mapping[str, TopicAssignment]
    unclean_topics: frozenset[str] = frozenset()
    """Those of the added topics with ``unclean.leader.election.enable``."""


@dataclass(frozen=True, slots=True)
class AssignmentsChanged:
    """The assignments of these topics changed: partitions may have been added."""

    assignments: Mapping[str, TopicAssignment]


@dataclass(frozen=True, slots=True)
class TopicDeletionsRequested:
    """The topics that are currently marked for deletion."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class DeletionCompletionRequested:
    """New topics reuse these names: complete deletions that wait for dead brokers without those brokers."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionStatesCreated:
    """Outcome of `CreatePartitionStates`: the states in ZooKeeper, written by us or by another controller."""

    states: Mapping[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class PartitionStatesUpdated:
    """Outcome of `UpdatePartitionStates`: the written states with their new versions, and the conflicts.

    A conflict is the state that another writer stored first, or None if the znode is gone.
    """

    updated: Mapping[TopicPartition, PartitionState]
    conflicts: Mapping[TopicPartition, PartitionState | None]
    strategy: ElectionStrategy = ElectionStrategy.OFFLINE
    """The strategy of the `UpdatePartitionStates` whose outcome this is."""


@dataclass(frozen=True, slots=True)
class PartitionStatesRead:
    """Partition states read from ZooKeeper: leaders may have changed their ISR."""

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
    """Elect leaders of these partitions, as `elections.validate_elections` has allowed."""

    election: ElectionType
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class LeaderImbalanceCheckDue:
    """Check whether too many partitions are not led by their preferred replica."""


@dataclass(frozen=True, slots=True)
class ControlledShutdownRequested:
    """A broker is about to stop: move its leaderships to other brokers."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class LogDirFailuresNotified:
    """Log directories of these brokers failed; LeaderAndIsr responses will name the affected replicas."""

    broker_ids: frozenset[int]
    ended: tuple[LogDirEvent, ...] = ()
    """From brokers that end because no log directory is left: there is nothing to ask them."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsrResponseReceived:
    """A broker's response to `LeaderAndIsr`; a partition without an error succeeded."""

    broker_id: int
    broker_epoch: int
    request: LeaderAndIsr
    errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class UncleanElectionChanged:
    """The current ``unclean.leader.election.enable`` of these topics."""

    topics: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class StopReplicaResponseReceived:
    """A broker's response to `StopReplica`; a partition without an error succeeded."""

    broker_id: int
    request: StopReplica
    errors: Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Outcome of `DeleteTopicZnodes`."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokerFellBehind:
    """Requests to a broker were dropped because too many waited; the broker needs the full state again."""

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
