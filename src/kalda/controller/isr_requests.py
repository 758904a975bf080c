"""Decides about the in-sync replicas that leaders of Apache Kafka request (AlterPartition).

Kalda's leaders write theirs to ZooKeeper and do not use this. The errors are those of Kafka's controller in
ZooKeeper mode, because its leaders wait, retry or give up by the error. Two checks go further than its own:
only replicas that are *added* have to be online, and an epoch that names another registration of an added
replica makes it ineligible, as in KRaft (KIP-903); leaders of ZooKeeper mode name none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kalda.cluster.schema import UNKNOWN_BROKER_EPOCH, PartitionState
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.context import ControllerContext


@dataclass(frozen=True, slots=True)
class IsrRequest:
    """The ISR that a leader requests, and the state that it is based on."""

    leader_epoch: int
    partition_epoch: int
    """The version of the state's znode."""
    isr: tuple[int, ...]
    is_leader_recovering: bool = False
    broker_epochs: Mapping[int, int] = field(default_factory=dict)
    """The registrations of in-sync replicas that the leader knows, by broker."""


def decide(
    context: ControllerContext, broker_id: int, partition: TopicPartition, request: IsrRequest
) -> PartitionState | ErrorCode:
    """Return the state to store in place of the version that it names, or the error for the leader.

    A state that equals the stored one needs no write.
    """
    stored = context.states.get(partition)
    if stored is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if request.leader_epoch > stored.leader_epoch or request.partition_epoch > stored.version:
        # A later controller has written the state.
        return ErrorCode.NOT_CONTROLLER
    if request.leader_epoch < stored.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    wanted = replace(stored, isr=request.isr, leader_recovering=request.is_leader_recovering)
    isr = set(request.isr)
    is_valid = len(isr) == len(request.isr) and isr <= set(context.assignment_of(partition).replicas)
    if not is_valid or stored.leader != broker_id or broker_id not in isr:
        return ErrorCode.INVALID_REQUEST
    if isr == set(stored.isr) and wanted.leader_recovering == stored.leader_recovering:
        return stored
    if request.partition_epoch < stored.version:
        return ErrorCode.INVALID_UPDATE_VERSION
    if wanted.leader_recovering and (len(isr) > 1 or not stored.leader_recovering):
        # Others join the ISR only after the recovery, which nothing undoes but an unclean election (KIP-704).
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(context, partition, request, added) for added in isr - set(stored.isr)):
        return ErrorCode.INELIGIBLE_REPLICA
    return wanted


def _is_eligible(
    context: ControllerContext, partition: TopicPartition, request: IsrRequest, broker_id: int
) -> bool:
    if not context.is_online(partition, broker_id):
        return False
    epoch = request.broker_epochs.get(broker_id, UNKNOWN_BROKER_EPOCH)
    return epoch in (UNKNOWN_BROKER_EPOCH, context.live_brokers[broker_id].epoch)


def outcomes(
    wanted: Mapping[TopicPartition, PartitionState], conflicts: Mapping[TopicPartition, PartitionState | None]
) -> dict[TopicPartition, PartitionState | ErrorCode]:
    """Return the outcome of each conflict; a stored state as wanted was written by an earlier attempt."""
    return {
        partition: (
            found
            if found is not None and replace(found, version=wanted[partition].version) == wanted[partition]
            else ErrorCode.INVALID_UPDATE_VERSION
        )
        for partition, found in conflicts.items()
    }
