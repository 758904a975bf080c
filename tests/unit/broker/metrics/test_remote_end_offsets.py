"""Ends of partitions that other brokers lead, for the lag of groups."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.metrics.remote_end_offsets import (
    AGE_SECONDS_MAX,
    REFRESH_SECONDS,
    RemoteEndOffsets,
)
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.effects import UpdateMetadata
from kalda.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kalda.runtime.clock import ManualClock
from tests.runtimes import seeded
from tests.unit.broker.data_path_fakes import TOPIC, leadership

A, B, UNKNOWN = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1), TopicPartition("gone", 0)


class FakePeer:
    """The leader of all partitions; partition 1 it does not lead any more."""

    def __init__(self) -> None:
        self.end = 100
        self.is_down = False
        self.is_closed = False
        self.asked: list[list[int]] = []

    async def dial(self, *_: object) -> "FakePeer":
        return self

    async def request(self, request: ListOffsetsRequest, **_: object) -> ListOffsetsResponse:
        if self.is_down:
            raise ConnectionError("gone")
        self.asked.append([each.partition_index for topic in request.topics for each in topic.partitions])
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=self.end),
                        ListOffsetsPartitionResponse(
                            partition_index=1, error_code=int(ErrorCode.NOT_LEADER_OR_FOLLOWER), offset=-1
                        ),
                    ],
                )
                for topic in request.topics
            ]
        )

    def close(self) -> None:
        self.is_closed = True


class Scraped:
    """Broker 1, and a scraper."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.peer = FakePeer()
        cache = MetadataCache()
        brokers = [
            BrokerInfo(each, (ListenerEndpoint("PLAINTEXT", f"host{each}", 9092),), None) for each in (1, 2)
        ]
        cache.apply(
            UpdateMetadata(1, 1, [leadership(index, leader=2, replicas=(2,)) for index in (0, 1)], brokers)
        )
        self.ends = RemoteEndOffsets(
            1, cache, self.clock, cast("Any", self.peer), seeded(), listener="PLAINTEXT", timeout_ms=1000
        )

    async def scrape(self) -> list[int | None]:
        """Read the ends twice, as the tables of offsets and of sums do; return what the second saw."""
        for _ in range(2):
            found = [self.ends.get(each) for each in (A, B, UNKNOWN)]
        for _ in range(20):
            await asyncio.sleep(0)
        return found


@pytest.fixture
async def scraped() -> AsyncIterator[Scraped]:
    broker = Scraped()
    task = asyncio.create_task(broker.ends.run())
    yield broker
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_second_scrape_knows_the_ends(scraped: Scraped) -> None:
    assert [None, None, None] == await scraped.scrape()
    assert [100, None, None] == await scraped.scrape()
    assert [[0, 1]] == scraped.peer.asked


async def test_leaders_are_asked_no_more_often_than_the_limit(scraped: Scraped) -> None:
    for _ in range(10):
        await scraped.scrape()
    assert 1 == len(scraped.peer.asked)
    scraped.peer.end = 200
    scraped.clock.advance(REFRESH_SECONDS)
    await scraped.scrape()
    assert [200, None, None] == await scraped.scrape()
    assert 2 == len(scraped.peer.asked)


async def test_nobody_is_asked_while_nobody_scrapes(scraped: Scraped) -> None:
    await scraped.scrape()
    scraped.clock.advance(3600)
    for _ in range(20):
        await asyncio.sleep(0)
    assert 1 == len(scraped.peer.asked)


async def test_an_end_that_cannot_be_read_again_is_forgotten(scraped: Scraped) -> None:
    """A lag that stands still looks like a group that keeps up."""
    await scraped.scrape()
    assert 100 == (await scraped.scrape())[0]
    scraped.peer.is_down = True
    scraped.clock.advance(AGE_SECONDS_MAX - 1)
    assert 100 == (await scraped.scrape())[0]
    scraped.clock.advance(REFRESH_SECONDS)
    assert (await scraped.scrape())[0] is None
    scraped.peer.is_down = False
    scraped.clock.advance(REFRESH_SECONDS)
    await scraped.scrape()
    assert 100 == (await scraped.scrape())[0]
