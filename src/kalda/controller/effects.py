"""Defines the effects that the controller's core returns; the driver performs them in the order given.

`Send` carries a request to a broker (`BrokerRequest`), which is idempotent and fenced by the controller
epoch. The other effects are conditional writes to ZooKeeper, whose outcomes come back to the core as events
(`kalda.controller.events`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kalda.cluster.schema import BrokerInfo, PartitionState, ReplicaAssignment
from kalda.common.types import UUID, TopicPartition
from kalda.controller.partition_state_machine import ElectionStrategy


@dataclass(frozen=True, slots=True)
class PartitionLeadership:
    """A partition's leader, ISR and assignment, as requests to brokers carry them.

    `partition_epoch` is the version of the partition's znode, which a leader names when it changes the ISR.
    `is_new` means that the partition was never online before. In `UpdateMetadata` a leader of
    `schema.LEADER_DURING_DELETE` (-2) means that the topic is being deleted; `schema.NO_LEADER` (-1) that
    the partition is offline.
    """

    topic: str
    topic_id: UUID
    partition: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    is_new: bool = False
    offline_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition's name."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """Become leader or follower of these partitions; only partitions with a replica on the receiver.

    `is_full` marks a new controller's first request to a broker: it lists *every* partition that the
    broker should hold.
    """

    controller_id: int
    controller_epoch: int
    partitions: list[PartitionLeadership]
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class UpdateMetadata:
    """Update a broker's metadata cache with these partitions and *all* live brokers.

    Partitions that are not listed keep their cached metadata. `is_full` means that the request lists every
    partition of the cluster, or is the last part of one that does: a broker that has just registered serves
    clients from then on. It is None if the request does not say, as in versions below 8.
    """

    controller_id: int
    controller_epoch: int
    partitions: list[PartitionLeadership]
    brokers: list[BrokerInfo]
    is_full: bool | None = False


@dataclass(frozen=True, slots=True)
class StopReplica:
    """Stop serving these partitions; with `delete`, also delete their logs.

    `leader_epochs` fences a replica that has moved on: `schema.LEADER_DURING_DELETE` (-2) overrides any.
    """

    controller_id: int
    controller_epoch: int
    partitions: list[TopicPartition]
    delete: bool
    leader_epochs: Mapping[TopicPartition, int]


BrokerRequest: TypeAlias = LeaderAndIsr | UpdateMetadata | StopReplica


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request to one broker behind all earlier requests to it, without waiting for the response."""

    broker_id: int
    request: BrokerRequest


@dataclass(frozen=True, slots=True)
class CreatePartitionStates:
    """Create the state znodes of new partitions (and their parents); yields `PartitionStatesCreated`."""

    states: Mapping[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class UpdatePartitionStates:
    """Replace states whose znodes still have the named `version`; yields `PartitionStatesUpdated`."""

    states: Mapping[TopicPartition, PartitionState]
    strategy: ElectionStrategy = ElectionStrategy.OFFLINE
    """Why; the outcome carries it too, so that a refused write is decided again in the same way."""


@dataclass(frozen=True, slots=True)
class WriteAssignments:
    """Replace the assignments of these partitions in their topics' znodes; yields `AssignmentsWritten`."""

    changes: Mapping[TopicPartition, ReplicaAssignment]


@dataclass(frozen=True, slots=True)
class DeleteTopicZnodes:
    """Delete all znodes of topics; yields `TopicsDeleted`."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RejectTopicDeletion:
    """Remove the deletion marks of topics that cannot be deleted, e.g. that do not exist."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RevisitBrokers:
    """Feed `BrokersChanged` with these brokers after the outcomes of all writes and of their follow-ups.

    A broker that restarted before its absence was noticed is treated as dead first: records that it did not
    sync are lost, so it must not become leader before the other in-sync replicas had the chance.
    """

    brokers: Mapping[int, BrokerInfo]


Effect: TypeAlias = (
    Send
    | CreatePartitionStates
    | UpdatePartitionStates
    | WriteAssignments
    | DeleteTopicZnodes
    | RejectTopicDeletion
    | RevisitBrokers
)
