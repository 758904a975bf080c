"""Decides about the in-sync replicas that leaders of Apache Kafka request (AlterPartition).

Kalda's leaders write theirs to ZooKeeper and do not use this.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kalda.cluster.schema import PartitionState
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.context import ControllerContext


@dataclass(frozen=True, slots=True)
class IsrRequest:
    """What a leader wants, and the state that it knows."""

    leader_epoch: int
    partition_epoch: int
    """The version of the state's znode."""
    isr: tuple[int, ...]
    is_leader_recovering: bool = False


def decide(
    context: ControllerContext, broker_id: int, partition: TopicPartition, request: IsrRequest
) -> PartitionState | ErrorCode:
    """Return the state to store in place of the version that it names, or the error for the leader.

    A state that equals the stored one needs no write.
    """
    stored = context.states.get(partition)
    if stored is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if request.leader_epoch < stored.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.leader_epoch > stored.leader_epoch:
        # A later controller has elected the leader.
        return ErrorCode.NOT_CONTROLLER
    wanted = replace(stored, isr=request.isr, leader_recovering=request.is_leader_recovering)
    isr = set(request.isr)
    is_valid = len(isr) == len(request.isr) and isr <= set(context.assignment_of(partition).replicas)
    if not is_valid or stored.leader != broker_id or broker_id not in isr:
        return ErrorCode.INVALID_REQUEST
    if isr == set(stored.isr) and wanted.leader_recovering == stored.leader_recovering:
        return stored
    if request.partition_epoch != stored.version:
        return ErrorCode.INVALID_UPDATE_VERSION
    if not isr - set(stored.isr) <= context.live_brokers.keys() - context.shutting_down:
        return ErrorCode.INELIGIBLE_REPLICA
    return wanted


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
