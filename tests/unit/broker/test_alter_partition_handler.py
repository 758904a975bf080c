"""AlterPartition as brokers of each release send it: by name or id, with and without broker epochs."""

from collections.abc import Collection, Mapping
from typing import Any, cast

import pytest

from kalda.broker.requests.handlers.alter_partition import handle
from kalda.cluster.schema import PartitionState
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, TopicPartition
from kalda.controller.isr_requests import IsrRequest
from kalda.protocol.messages.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from tests.unit.broker.admin_fakes import context

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID, OTHER_ID = UUID(int=1), UUID(int=2)
STORED = PartitionState(1, 5, (1, 2), 3, version=9)


class Controller:
    """Knows topic ``t``, and has an outcome for each of its partitions."""

    def __init__(self, outcomes: Mapping[TopicPartition, PartitionState | ErrorCode]) -> None:
        self.outcomes = outcomes
        self.asked: list[tuple[int, int, Mapping[TopicPartition, IsrRequest]]] = []

    def topic_names(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        return {ID: "t"} if ID in topic_ids else {}

    async def alter_in_sync_replicas(
        self, broker_id: int, broker_epoch: int, requests: Mapping[TopicPartition, IsrRequest]
    ) -> dict[TopicPartition, PartitionState | ErrorCode]:
        self.asked.append((broker_id, broker_epoch, requests))
        return {partition: self.outcomes[partition] for partition in requests}


async def altered(controller: Controller, version: int, *topics: TopicData) -> list[AlteredTopic]:
    request = AlterPartitionRequest(broker_id=1, broker_epoch=40, topics=list(topics))
    return (await handle(cast("Any", controller), request, context(version))).topics


@pytest.mark.parametrize("version", [0, 1])
async def test_older_leaders_know_no_ineligible_replicas(version: int) -> None:
    """Operation not attempted makes them put their ISR back, too."""
    controller = Controller({P0: ErrorCode.INELIGIBLE_REPLICA, P1: STORED})
    data = [
        PartitionData(partition_index=n, leader_epoch=5, new_isr=[1, 2], partition_epoch=8) for n in (0, 1)
    ]
    data[0].leader_recovery_state = 1
    found = await altered(controller, version, TopicData(topic_name="t", partitions=data))
    refused = AlteredPartition(partition_index=0, error_code=ErrorCode.OPERATION_NOT_ATTEMPTED)
    stored = AlteredPartition(partition_index=1, leader_id=1, leader_epoch=5, isr=[1, 2], partition_epoch=9)
    assert [AlteredTopic(topic_name="t", partitions=[refused, stored])] == found
    requests = {
        P0: IsrRequest(5, 8, (1, 2), is_leader_recovering=True),
        P1: IsrRequest(5, 8, (1, 2)),
    }
    assert [(1, 40, requests)] == controller.asked


async def test_topics_have_ids_and_replicas_epochs_since_version_3() -> None:
    controller = Controller({P0: ErrorCode.INELIGIBLE_REPLICA})
    isr = [BrokerState(broker_id=1, broker_epoch=40), BrokerState(broker_id=2)]
    data = PartitionData(partition_index=0, leader_epoch=5, new_isr_with_epochs=isr, partition_epoch=9)
    unknown = PartitionData(partition_index=3, leader_epoch=5, new_isr_with_epochs=isr, partition_epoch=9)
    found = await altered(
        controller,
        3,
        TopicData(topic_id=ID, partitions=[data]),
        TopicData(topic_id=OTHER_ID, partitions=[unknown]),
    )
    codes = [
        (topic.topic_id, each.partition_index, each.error_code)
        for topic in found
        for each in topic.partitions
    ]
    assert [(ID, 0, ErrorCode.INELIGIBLE_REPLICA), (OTHER_ID, 3, ErrorCode.UNKNOWN_TOPIC_ID)] == codes
    request = IsrRequest(5, 9, (1, 2), broker_epochs={1: 40, 2: -1})
    assert [(1, 40, {P0: request})] == controller.asked
