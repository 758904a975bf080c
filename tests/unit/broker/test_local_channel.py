"""What the controller sends to its own broker is applied whole, and without keeping others waiting."""

import asyncio
import uuid
from typing import cast

from kalda.broker.local_channel import PARTITIONS_PER_SLICE, LocalChannel
from kalda.broker.replica_manager import ReplicaManager
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import LeaderAndIsr, PartitionLeadership
from kalda.coordination.cluster import Cluster
from tests.unit.broker.admin_fakes import AdminWorld


class Replicas:
    """Takes note of what it is told; the last partition of a request fails."""

    def __init__(self) -> None:
        self.applied: list[TopicPartition] = []
        self.slices: list[int] = []

    def apply_leader_and_isr(self, request: LeaderAndIsr) -> dict[TopicPartition, ErrorCode]:
        self.applied += [leadership.topic_partition for leadership in request.partitions]
        self.slices.append(len(request.partitions))
        return {request.partitions[-1].topic_partition: ErrorCode.KAFKA_STORAGE_ERROR}


async def test_thousands_of_new_partitions_leave_turns_to_others() -> None:
    world, replicas = AdminWorld(), Replicas()
    channel = LocalChannel(
        0, cast("Cluster", world.cluster), world.store, cast("ReplicaManager", replicas), world.cache
    )
    count = 10 * PARTITIONS_PER_SLICE + 1
    partitions = [
        PartitionLeadership("a", uuid.UUID(int=1), number, 1, 0, 0, (0,), 0, (0,)) for number in range(count)
    ]
    turns = 0

    async def other() -> None:
        nonlocal turns
        while len(replicas.applied) < count:
            turns += 1
            await asyncio.sleep(0)

    errors, _ = await asyncio.gather(channel.send(0, LeaderAndIsr(0, 1, partitions)), other())

    assert [TopicPartition("a", number) for number in range(count)] == replicas.applied
    assert [PARTITIONS_PER_SLICE] * 10 + [1] == replicas.slices
    assert 11 == len(errors)
    assert turns >= 10
