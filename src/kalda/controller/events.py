"""What the controller's core is told: readings of coordination, and the outcomes of its own effects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import StopReplica
from kalda.coordination.schema import BrokerInfo, PartitionState, TopicAssignment


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


@dataclass(frozen=True, slots=True)
class AssignmentsChanged:
    """The assignments of these topics were written again: partitions may have been added."""

    assignments: Mapping[str, TopicAssignment]


@dataclass(frozen=True, slots=True)
class TopicDeletionsRequested:
    """All topics marked for deletion, as it is now."""

    topics: frozenset[str]


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


@dataclass(frozen=True, slots=True)
class ReplicasStopped:
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
    | PartitionStatesCreated
    | PartitionStatesUpdated
    | ReplicasStopped
    | TopicsDeleted
    | BrokerFellBehind
)
