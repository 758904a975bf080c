"""What the controller sends is applied in order, whole, and without keeping others waiting."""

import asyncio
import uuid
from typing import cast

import pytest

from kalda.broker.controller_requests import PARTITIONS_PER_SLICE, ControllerRequests
from kalda.broker.replica_manager import ReplicaManager
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import LeaderAndIsr, PartitionLeadership, StopReplica
from kalda.coordination.cluster import Cluster
from tests.unit.broker.admin_fakes import AdminWorld


class Replicas:
    """Takes note of what it is told; the last partition of a request fails."""

    def __init__(self) -> None:
        self.applied: list[TopicPartition] = []
        self.slices: list[int] = []

    def apply_leader_and_isr(self, request: LeaderAndIsr) -> dict[TopicPartition, ErrorCode]:
        return self._note([leadership.topic_partition for leadership in request.partitions])

    def apply_stop_replica(self, request: StopReplica) -> dict[TopicPartition, ErrorCode]:
        return self._note(request.partitions)

    def _note(self, partitions: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        self.applied += partitions
        self.slices.append(len(partitions))
        return {partitions[-1]: ErrorCode.KAFKA_STORAGE_ERROR}


def leadership(partition: TopicPartition) -> PartitionLeadership:
    return PartitionLeadership(partition.topic, uuid.UUID(int=1), partition.partition, 1, 0, 0, (0,), 0, (0,))


def receiver(
    world: AdminWorld, replicas: Replicas, *, broker_epoch: int = 5, has_logs: bool = True
) -> ControllerRequests:
    return ControllerRequests(
        cast("Cluster", world.cluster),
        world.store,
        cast("ReplicaManager", replicas),
        world.cache,
        has_log=lambda _: has_logs,
        broker_epoch=lambda: broker_epoch,
    )


@pytest.mark.parametrize("stops", [False, True])
async def test_thousands_of_partitions_leave_turns_to_others(stops: bool) -> None:
    world, replicas = AdminWorld(), Replicas()
    requests = receiver(world, replicas)
    partitions = [TopicPartition("a", number) for number in range(10 * PARTITIONS_PER_SLICE + 1)]
    turns = 0

    async def other() -> None:
        nonlocal turns
        while len(replicas.applied) < len(partitions):
            turns += 1
            await asyncio.sleep(0)

    request = (
        StopReplica(0, 1, partitions, delete=True, leader_epochs={})
        if stops
        else LeaderAndIsr(0, 1, [leadership(partition) for partition in partitions])
    )
    errors, _ = await asyncio.gather(requests.apply(request), other())

    assert partitions == replicas.applied
    assert [PARTITIONS_PER_SLICE] * 10 + [1] == replicas.slices
    assert 11 == len(errors)
    assert turns >= 10
