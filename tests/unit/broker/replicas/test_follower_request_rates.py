"""How often a follower asks a leader that answers with one error for ever, in virtual time."""

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from kalda.broker.replicas.follower import replica_fetcher
from kalda.broker.replicas.follower.replica_fetcher import FetcherSettings, ReplicaFetcher
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint
from kalda.protocol.fast.fetch_response import FetchResponseFields
from kalda.protocol.fetch_session import TOPIC_IDS_FROM
from kalda.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kalda.protocol.schema import Message
from tests.runtimes import seeded
from tests.unit.broker.replicas.follower_fixtures import LEADER, TOPIC_ID, VERSION, Follower, fetched
from tests.virtual_time import LoopClock, run_virtual

SECONDS = 5.0
REQUESTS_MAX = 50
ROUND_TRIP_S = 0.001


class Leader:
    """A dialer and the connection that it opens; answers fetches with one error."""

    def __init__(self, code: ErrorCode | None, *, at_top: bool, bounds: ErrorCode) -> None:
        self.code = code
        self.at_top = at_top
        self.bounds = bounds
        self.counts: Counter[str] = Counter()
        self.is_closed = True

    async def dial(self, *_: object) -> "Leader":
        self.counts["dial"] += 1
        await asyncio.sleep(ROUND_TRIP_S)
        self.is_closed = False
        return self

    def version_of(self, api_key: ApiKey) -> int:
        return VERSION

    async def request_raw(self, api_key: ApiKey, *_: object, **__: object) -> FetchResponseFields:
        self.counts["fetch"] += 1
        await asyncio.sleep(ROUND_TRIP_S)
        if self.code is None:
            raise ConnectionError("closed by the leader")
        if self.at_top:
            return FetchResponseFields(0, int(self.code), 0, [])
        return FetchResponseFields(0, 0, 77, [fetched(error=self.code)])

    async def request(self, request: Message, **_: object) -> Message:
        self.counts[type(request).__name__] += 1
        await asyncio.sleep(ROUND_TRIP_S)
        assert isinstance(request, ListOffsetsRequest), "the follower's log is empty"
        partition = ListOffsetsPartitionResponse(partition_index=0, error_code=int(self.bounds), offset=0)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[partition])])

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("at_top", [True, False])
def test_no_error_makes_a_follower_ask_without_pauses(monkeypatch: pytest.MonkeyPatch, at_top: bool) -> None:
    """A leader that refuses has a problem already."""
    assert VERSION >= TOPIC_IDS_FROM, TOPIC_ID
    monkeypatch.setattr(replica_fetcher, "parse_fetch_response", lambda frame, version: frame)

    async def scenario(leader: Leader) -> None:
        follower = Follower()
        fetcher = ReplicaFetcher(
            "fetcher",
            follower.core,
            FetcherSettings(1.0, 30.0, -1),
            broker_id=2,
            dialer=cast("Any", leader),
            find_leader=lambda: BrokerEndpoint(LEADER, "b", 9092),
            broker_epoch=lambda: 1,
            wake=lambda _: None,
            on_connected=lambda _: None,
            clock=cast("Any", LoopClock()),
            random=seeded(),
        )
        fetcher.follow(follower.replica())
        task = asyncio.get_running_loop().create_task(fetcher.run(), name="fetcher of the test")
        await asyncio.sleep(SECONDS)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    storms = {}
    for code in [*(each for each in ErrorCode if each is not ErrorCode.NONE), None]:
        for bounds in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR):
            leader = Leader(code, at_top=at_top, bounds=bounds)
            run_virtual(scenario(leader))
            if most := {what: count for what, count in leader.counts.items() if count > REQUESTS_MAX}:
                storms[code, bounds] = most
    assert {} == storms
