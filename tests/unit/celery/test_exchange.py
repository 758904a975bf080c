"""What a connection of Celery does where other processes create the same topics."""

from typing import Any, cast

import pytest

from kalda.celery.exchange import REPLIES, Exchange
from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.created_topics import TRIES_MAX, describe_created
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.partitions import ListOffsetsResultInfo
from kalda.clients.admin.topics import TopicDescription, TopicPartitionInfo
from kalda.clients.errors import ClientError, UnknownTopicOrPartitionError, error_for
from kalda.clients.share.task_topics import TaskTopics
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from tests.virtual_time import run_virtual


class LateAdmin:
    """Brokers that know each topic as another process's, and describe it from the third request on."""

    def __init__(self, unknown: int = 2) -> None:
        self.unknown_left = unknown

    async def create_topics(self, topics: list[Any], *, outcomes: bool) -> Outcomes[str, None]:
        assert outcomes
        return Outcomes({}, {each.name: _error(ErrorCode.TOPIC_ALREADY_EXISTS) for each in topics})

    async def describe_topics(
        self, topics: list[str], *, timeout_ms: int | None = None
    ) -> Outcomes[str, TopicDescription]:
        if self.unknown_left:
            self.unknown_left -= 1
            raise _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = TopicPartitionInfo(0, 0, 0, (0,), (0,))
        return Outcomes({each: TopicDescription(each, None, False, (partition,)) for each in topics})

    async def list_offsets(self, specs: dict[TopicPartition, Any]) -> dict[TopicPartition, Any]:
        return {each: ListOffsetsResultInfo(7, -1, None) for each in specs}


def _error(code: ErrorCode) -> ClientError:
    return error_for(code, "a topic")


def test_a_temporary_queue_waits_for_a_topic_that_another_process_has_just_created() -> None:
    """Two workers that start together create the topic of replies; one of them finds that it exists."""

    async def main() -> None:
        exchange = Exchange("space", {}, {}, TaskTopics(None, None, {}, {}))
        exchange._admin = cast("AsyncAdmin", LateAdmin())
        await exchange.declare_temporary("replies-of-a")
        assert {TopicPartition(REPLIES, 0): 7} == exchange._temporary["replies-of-a"].starts

    run_virtual(main())


def test_a_topic_that_does_not_appear_is_an_error() -> None:
    admin = LateAdmin(TRIES_MAX + 1)
    with pytest.raises(UnknownTopicOrPartitionError):
        run_virtual(describe_created(cast("AsyncAdmin", admin), "t"))
    assert 0 == admin.unknown_left
