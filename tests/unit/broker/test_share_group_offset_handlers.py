"""Requests about the offsets of share groups that name partitions which do not exist, or one twice."""

import asyncio
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from kalda.broker.requests.share import alter_share_group_offsets, describe_share_group_offsets
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import ZERO_UUID
from kalda.coordinator.group.share.share_group_coordinator import StartOffset
from kalda.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest, RequestPartition
from kalda.protocol.messages.alter_share_group_offsets import RequestTopic as AlteredTopic
from kalda.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    RequestGroup,
    RequestTopic,
)
from tests.unit.broker.admin_fakes import context

TOPIC_ID = UUID(int=7)
MANY = 50_000
CACHE: Any = SimpleNamespace(
    partition_count=lambda name: 2 if name == "t" else 0,
    topic_id=lambda name: TOPIC_ID if name == "t" else ZERO_UUID,
    topic_name=lambda topic_id: "t",
)


class Coordinator:
    """Takes note of the partitions that it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def is_enabled(self) -> bool:
        return True

    def alter_offsets(self, group_id: str, topics: Any, author: object) -> Pending[dict[Any, Any]]:
        self.asked.append(topics)
        return Pending.of({})

    def start_offsets(
        self, group_id: str, wanted: Mapping[UUID, Collection[int]]
    ) -> Pending[dict[UUID, list[StartOffset]]]:
        self.asked.append(wanted)
        return Pending.of({each: [StartOffset(number) for number in wanted[each]] for each in wanted})


def test_an_alteration_may_name_very_many_partitions_that_do_not_exist() -> None:
    """Nobody else is served meanwhile: time must not grow with the square of their count."""
    coordinator: Any = Coordinator()
    partitions = [RequestPartition(partition_index=number, start_offset=-4) for number in range(-1, MANY)]
    topic = AlteredTopic(topic_name="t", partitions=partitions)
    request = AlterShareGroupOffsetsRequest(group_id="g", topics=[topic])
    found: Any = alter_share_group_offsets.handle(coordinator, CACHE, request, context(0))
    assert [{"t": {0: 0, 1: 0}}] == coordinator.asked
    (unknown,) = found.value.responses
    assert MANY - 1 == len(unknown.partitions)
    assert {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} == {each.error_code for each in unknown.partitions}


def test_only_partitions_that_exist_are_asked_for_each_once() -> None:
    """Each costs a look at its share coordinator."""
    coordinator: Any = Coordinator()
    topics = [
        RequestTopic(topic_name="t", partitions=[1, 1, -1, 2**31 - 1, 0, 1]),
        RequestTopic(topic_name="none", partitions=[0]),
    ]
    request = DescribeShareGroupOffsetsRequest(groups=[RequestGroup(group_id="g", topics=topics)])

    async def describe() -> Any:
        ends: Any = None
        return await describe_share_group_offsets.handle(coordinator, CACHE, ends, request, context(1))

    (group,) = asyncio.run(describe()).groups
    assert [{TOPIC_ID: [1, 0]}] == coordinator.asked
    assert {
        ("t", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 2**31 - 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, ErrorCode.NONE),
        ("t", 0, ErrorCode.NONE),
    } == {
        (topic.topic_name, each.partition_index, each.error_code)
        for topic in group.topics
        for each in topic.partitions
    }
