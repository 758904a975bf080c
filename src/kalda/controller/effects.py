"""What the controller's core wants done: the driver performs it, in the order given.

Three of the effects are requests to brokers (`BrokerRequest`): idempotent, fenced by the controller's epoch,
performed through `ports.BrokerChannel`. The others are conditional writes to coordination, each of whose
outcome comes back to the core as an event (`kalda.controller.events`).
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kalda.common.types import TopicPartition
from kalda.controller.partition_state_machine import ElectionStrategy
from kalda.zk.client.schema import BrokerInfo, PartitionState, ReplicaAssignment


@dataclass(frozen=True, slots=True)
class PartitionLeadership:
    """Who leads a partition and who is in sync, as brokers are told.

    `partition_epoch` is the version of the partition's znode, which a leader names when it changes the ISR.
    `is_new` tells the replicas that the partition was never online before. In `UpdateMetadata` a leader of
    `schema.LEADER_DURING_DELETE` (-2) means that the topic is being deleted; `schema.NO_LEADER` (-1) that
    the partition is offline.
    """

    topic: str
    topic_id: uuid.UUID
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
    """What every broker's metadata cache is to know: these partitions and *all* live brokers.

    Partitions not listed keep what the cache has. `is_full` says that the request lists every partition of
    the cluster, or is the last part of one that does: a broker that has just registered serves clients from
    then on.
    """

    controller_id: int
    controller_epoch: int
    partitions: list[PartitionLeadership]
    brokers: list[BrokerInfo]
    is_full: bool = False


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
    """Send a request to one broker, after all that were sent to it before; do not wait for the answer."""

    broker_id: int
    request: BrokerRequest


@dataclass(frozen=True, slots=True)
class CreatePartitionStates:
    """Write the first state of new partitions (and their parents); answered by `PartitionStatesCreated`."""

    states: Mapping[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class UpdatePartitionStates:
    """Replace states whose znodes still have the `version` named; answered by `PartitionStatesUpdated`."""

    states: Mapping[TopicPartition, PartitionState]
    strategy: ElectionStrategy = ElectionStrategy.OFFLINE
    """Why; comes back with the outcome, so that what was refused is judged again in the same way."""


@dataclass(frozen=True, slots=True)
class WriteAssignments:
    """Replace where these partitions live, not their topics' others; answered by `AssignmentsWritten`."""

    changes: Mapping[TopicPartition, ReplicaAssignment]


@dataclass(frozen=True, slots=True)
class DeleteTopicZnodes:
    """Delete all that coordination holds about topics; answered by `TopicsDeleted`."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RejectTopicDeletion:
    """Remove the deletion marks of topics that cannot be deleted, e.g. that do not exist."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RevisitBrokers:
    """Feed `BrokersChanged` with these brokers, after the outcomes of all writes, and of those they lead to.

    A broker that came back before its absence was noticed is treated as dead first: what it did not sync is
    lost, so it must not be told to lead before others had the chance.
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
