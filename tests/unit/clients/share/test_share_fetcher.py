"""The sessions of a share consumer with a network whose answers the test gives, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kalda.clients.errors import (
    BrokerConnectionError,
    BrokerResponseError,
    ClientError,
    RequestTimedOutError,
    UnsupportedApiError,
)
from kalda.clients.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from kalda.clients.metrics.registry import ClientMetrics
from kalda.clients.metrics.share_metrics import FETCH_GROUP, ShareFetchMetrics
from kalda.clients.share.acknowledgements import (
    AcknowledgeType,
    CommitTicket,
    PartitionAcknowledgements,
    Range,
    SharePartition,
)
from kalda.clients.share.acquired_records import AcquiredRecords
from kalda.clients.share.share_config import ShareConsumerConfig
from kalda.clients.share.share_fetcher import ShareFetcher
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol.messages import share_acknowledge, share_fetch
from kalda.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from kalda.protocol.messages.share_fetch import AcquiredRecords as AcquiredRange
from kalda.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from kalda.protocol.schema import VersionRange
from kalda.records.record import RecordBatchBuilder
from tests.unit.clients.scripted_network import ScriptedNetwork, settle
from tests.virtual_time import LoopClock, run_virtual

ID = UUID(int=9)
SOURCES = [SharePartition(ID, TopicPartition("t", number)) for number in range(3)]
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def cluster() -> ClusterMetadata:
    """Return brokers 1 to 3 that lead a partition each."""
    partitions = {
        number: PartitionMetadata(TopicPartition("t", number), number + 1, 4, ErrorCode.NONE)
        for number in range(3)
    }
    topics = {"t": TopicMetadata("t", ID, False, ErrorCode.NONE, partitions)}
    return ClusterMetadata(
        1, "c", 1, {number: BrokerEndpoint(number, "h", 9092) for number in (1, 2, 3)}, topics
    )


def batch(offset: int, count: int) -> bytes:
    builder = RecordBatchBuilder(base_offset=offset)
    for _ in range(count):
        builder.append(b"k", b"v", 1)
    return bytes(builder.build())


class Sharing:
    """A fetcher for the partitions that `leaders` names."""

    def __init__(self, leaders: dict[int, list[int]], **options: Any) -> None:
        self.network = ScriptedNetwork(LoopClock(), cluster())
        self.leaders = leaders
        self.acquired: list[AcquiredRecords] = []
        self.outcomes: list[tuple[int, list[int], ClientError | None]] = []
        self.errors: list[ClientError] = []
        network: Any = self.network
        self.metrics = ClientMetrics({}, clock=self.network.clock)
        self.fetcher = ShareFetcher(
            ShareConsumerConfig.from_options({"bootstrap_servers": "h:1", "group_id": "g", **options}),
            network,
            "m",
            metrics=ShareFetchMetrics(self.metrics),
            leaders=lambda: {
                broker: {SOURCES[number]: None for number in numbers}
                for broker, numbers in self.leaders.items()
            },
            on_records=self.acquired.append,
            on_outcome=lambda partition, offsets, error: self.outcomes.append(
                (partition.partition, offsets, error)
            ),
            on_error=self.errors.append,
        )

    async def fetch(self, count: int = 500) -> None:
        self.fetcher.fetch(count)
        await settle()

    async def respond(
        self,
        *partitions: share_fetch.PartitionData,
        code: ErrorCode = ErrorCode.NONE,
        node: int = 1,
        topic: UUID = ID,
    ) -> None:
        """Answer the oldest fetch of a broker."""
        responses = [share_fetch.ShareFetchableTopicResponse(topic_id=topic, partitions=list(partitions))]
        self.network.answer(
            ShareFetchResponse(
                error_code=code,
                acquisition_lock_timeout_ms=30_000,
                responses=responses,
                node_endpoints=[share_fetch.NodeEndpoint(node_id=2, host="h", port=9092)],
            ),
            ShareFetchRequest,
            node,
        )
        await settle()

    async def confirm(
        self, code: ErrorCode = ErrorCode.NONE, *, partition_code: ErrorCode = ErrorCode.NONE, node: int = 1
    ) -> ShareAcknowledgeRequest:
        """Answer the oldest ShareAcknowledge of a broker; return it."""
        request = self.network.oldest(ShareAcknowledgeRequest, node)
        self.network.answer(
            ShareAcknowledgeResponse(
                error_code=code,
                responses=[
                    share_acknowledge.ShareAcknowledgeTopicResponse(
                        topic_id=topic.topic_id,
                        partitions=[
                            share_acknowledge.PartitionData(
                                partition_index=each.partition_index, error_code=partition_code
                            )
                            for each in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ],
            ),
            ShareAcknowledgeRequest,
            node,
        )
        await settle()
        return request

    def oldest(self, node: int = 1) -> ShareFetchRequest:
        return self.network.oldest(ShareFetchRequest, node)

    def commit(
        self, *offsets: int, kind: int = ACCEPT, timeout_s: float = 30.0
    ) -> "asyncio.Task[CommitTicket]":
        """Acknowledge offsets of the last records that were acquired, and wait for the outcome."""
        ticket = CommitTicket()

        async def wait() -> CommitTicket:
            await self.fetcher.commit(ticket, timeout_s)
            return ticket

        self.submit(*offsets, kind=kind, ticket=ticket)
        return asyncio.create_task(wait())

    def submit(self, *offsets: int, kind: int = ACCEPT, ticket: CommitTicket | None = None) -> None:
        acknowledged = PartitionAcknowledgements([Range(each, each, kind) for each in offsets], list(offsets))
        self.fetcher.submit([(self.acquired[-1], acknowledged)] if offsets else [], ticket)

    async def begin(self) -> None:
        """Open the session of broker 1, which acquires offsets 0 to 9 of partition 0."""
        await self.fetch()
        await self.respond(records(0, 0, 9))
        assert 1 == len(self.acquired)

    async def close(self) -> None:
        closing = asyncio.create_task(self.fetcher.close(1.0))
        for _ in range(10):
            await settle()
            for sent in list(self.network.in_flight):
                if isinstance(sent.request, ShareFetchRequest):
                    await self.respond(node=sent.node_id)
                else:
                    await self.confirm(node=sent.node_id)
        await closing


def records(partition: int, first: int, last: int, **fields: Any) -> share_fetch.PartitionData:
    return share_fetch.PartitionData(
        partition_index=partition,
        acquired_records=[AcquiredRange(first_offset=first, last_offset=last, delivery_count=1)],
        records=batch(first, last - first + 1),
        **fields,
    )


def run(scenario: Callable[[Sharing], Awaitable[None]], leaders: Any = None, **options: Any) -> Sharing:
    async def main() -> Sharing:
        sharing = Sharing({1: [0]} if leaders is None else leaders, **options)
        await scenario(sharing)
        await sharing.close()
        return sharing

    return run_virtual(main())


def shown(error: ClientError | None) -> ErrorCode | None:
    assert error is None or isinstance(error, BrokerResponseError)
    return None if error is None else error.code


def test_records_are_fetched_while_a_poll_waits_and_acknowledged_with_the_next_fetch() -> None:
    async def scenario(sharing: Sharing) -> None:
        await sharing.begin()
        assert 1 == sharing.network.count(ShareFetchRequest), "nothing is fetched ahead"
        assert 0 == sharing.network.update_count, "an answer without an error names no leader"
        assert (30.0, 10) == (sharing.fetcher.lock_s, sharing.acquired[0]._ranges[0][1] + 1)
        sharing.submit(0, 1)
        await sharing.fetch()
        request = sharing.oldest()
        (batch,) = request.topics[0].partitions[0].acknowledgement_batches[:1]
        assert (1, 0, [1]) == (request.share_session_epoch, batch.first_offset, batch.acknowledge_types)
        await sharing.respond(share_fetch.PartitionData(partition_index=0))
        assert [(0, [0, 1], None)] == sharing.outcomes

    run(scenario)


def test_fetches_and_acknowledgements_are_counted_under_kafkas_names() -> None:
    async def scenario(sharing: Sharing) -> None:
        def total(name: str) -> float:
            return sharing.metrics.values().value(FETCH_GROUP, name)

        await sharing.begin()
        assert (1, 10) == (total("fetch-total"), total("records-consumed-total"))
        assert (10, len(batch(0, 10))) == (total("records-per-request-max"), total("bytes-consumed-total"))
        commit = sharing.commit(0, 1, 2)
        await settle()
        await sharing.confirm()
        await commit
        assert (3, 0) == (total("acknowledgements-send-total"), total("acknowledgements-error-total"))
        commit = sharing.commit(3, 4)
        await settle()
        await sharing.confirm(partition_code=ErrorCode.INVALID_RECORD_STATE)
        await commit
        assert (5, 2) == (total("acknowledgements-send-total"), total("acknowledgements-error-total"))

    run(scenario)


def test_acknowledgements_go_alone_where_no_fetch_is_due() -> None:
    async def scenario(sharing: Sharing) -> None:
        await sharing.begin()
        commit = sharing.commit(0, 1, 2)
        await settle()
        assert 1 == (await sharing.confirm()).share_session_epoch
        assert {SOURCES[0].partition: None} == (await commit).outcomes
        commit = sharing.commit(3)
        await settle()
        assert 2 == (await sharing.confirm(partition_code=ErrorCode.INVALID_RECORD_STATE)).share_session_epoch
        (outcome,) = (await commit).outcomes.values()
        assert ErrorCode.INVALID_RECORD_STATE is shown(outcome)
        assert {} == (await sharing.commit()).outcomes, "nothing is outstanding"

    run(scenario)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    ],
)
def test_a_lost_session_is_opened_again_and_what_it_acquired_is_given_up(code: ErrorCode) -> None:
    async def scenario(sharing: Sharing) -> None:
        await sharing.begin()
        first = sharing.acquired[0]
        assert sharing.fetcher.is_held(first)
        sharing.submit(0)
        await sharing.fetch()
        sharing.submit(1)
        await sharing.respond(code=code)
        assert [[0], [1]] == [offsets for _, offsets, _ in sharing.outcomes]
        assert {code} == {shown(error) for _, _, error in sharing.outcomes}
        assert not sharing.fetcher.is_held(first)
        sharing.submit(2)
        assert ErrorCode.SHARE_SESSION_NOT_FOUND is shown(sharing.outcomes[-1][2]), "it is not sent"
        await asyncio.sleep(2)
        await settle()
        request = sharing.oldest()
        assert (0, [0]) == (
            request.share_session_epoch,
            [each.partition_index for each in request.topics[0].partitions],
        )
        await sharing.respond(records(0, 0, 9))
        assert sharing.fetcher.is_held(sharing.acquired[-1])
        assert [] == sharing.errors

    run(scenario)


def test_acknowledgements_of_a_partition_that_another_member_has_go_alone() -> None:
    """A fetch with them would have the session fetch the partition for ever, for nobody."""

    async def scenario(sharing: Sharing) -> None:
        await sharing.begin()
        sharing.leaders = {1: [1]}
        sharing.submit(0, kind=RELEASE)
        await sharing.fetch()
        released = await sharing.confirm()
        assert [0] == [each.partition_index for each in released.topics[0].partitions]
        request = sharing.oldest()
        assert [1] == [each.partition_index for each in request.topics[0].partitions]
        assert [0] == request.forgotten_topics_data[0].partitions

    run(scenario)


def test_a_lost_connection_fails_what_was_sent_and_opens_another_session() -> None:
    """Nothing shows whether the broker has taken the acknowledgement, so it is not sent again."""

    async def scenario(sharing: Sharing) -> None:
        await sharing.begin()
        commit = sharing.commit(0)
        await settle()
        await sharing.network.lose()
        await settle()
        (outcome,) = (await commit).outcomes.values()
        assert isinstance(outcome, BrokerConnectionError)
        assert 1 == sharing.network.update_count, "the leader may have died; answers before needed none"
        await sharing.fetch()
        assert 0 == sharing.oldest().share_session_epoch

    run(scenario)


def test_an_error_of_the_group_reaches_the_user() -> None:
    async def scenario(sharing: Sharing) -> None:
        await sharing.fetch()
        await sharing.respond(code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        (error,) = sharing.errors
        assert ErrorCode.GROUP_AUTHORIZATION_FAILED is shown(error)
        await asyncio.sleep(2)
        await settle()
        await sharing.respond(
            share_fetch.PartitionData(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message="no")
        )
        assert "share fetch of t-0 from broker 1 (h:9092)" in str(sharing.errors[-1])

    run(scenario)


def test_a_moved_leader_is_learnt_from_the_answer() -> None:
    async def scenario(sharing: Sharing) -> None:
        await sharing.fetch()
        moved = share_fetch.LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
        await sharing.respond(
            share_fetch.PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=moved)
        )
        found = sharing.network.metadata.snapshot.partition(TopicPartition("t", 0))
        assert found is not None
        assert (2, 5) == (found.leader_id, found.leader_epoch)
        # The session of the former leader forgets the partition; the new one gets its own.
        sharing.leaders = {2: [0]}
        await sharing.respond()
        await sharing.fetch()
        assert [0] == sharing.oldest().forgotten_topics_data[0].partitions
        assert 0 == sharing.oldest(2).share_session_epoch
        await sharing.respond(records(0, 0, 0), node=2)
        assert 2 == sharing.acquired[0].node

    run(scenario)


def test_a_renewal_goes_alone_and_before_what_follows_it() -> None:
    async def scenario(sharing: Sharing) -> None:
        await sharing.begin()
        await sharing.fetch()
        sharing.submit(0, kind=RENEW)
        commit = sharing.commit(0, 1)
        await sharing.respond()
        assert (await sharing.confirm()).is_renew_ack
        # What follows it goes with the fetch that is due.
        assert 2 == len(sharing.oldest().topics[0].partitions[0].acknowledgement_batches)
        await sharing.respond(share_fetch.PartitionData(partition_index=0))
        assert {SOURCES[0].partition: None} == (await commit).outcomes
        assert [[0], [0, 1]] == [offsets for _, offsets, _ in sharing.outcomes]

    run(scenario)


def test_a_broker_without_renewals_refuses_them_and_the_session_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ready(node_id: int, *, timeout_ms: int | None = None) -> NodeApiVersions:
        old: dict[int, VersionRange] = {
            ApiKey.SHARE_ACKNOWLEDGE: VersionRange(1, 1),
            ApiKey.SHARE_FETCH: VersionRange(1, 1),
        }
        return NodeApiVersions("b:1", old, {}, 0)

    async def scenario(sharing: Sharing) -> None:
        monkeypatch.setattr(sharing.network, "ready", ready)
        await sharing.begin()
        commit = sharing.commit(0, kind=RENEW)
        await settle()
        (outcome,) = (await commit).outcomes.values()
        assert isinstance(outcome, UnsupportedApiError)
        assert sharing.fetcher.is_held(sharing.acquired[0])
        assert [] == sharing.errors

    run(scenario)


def test_a_commit_ends_in_time() -> None:
    """What has no answer is reported; the answer that comes later changes nothing."""

    async def scenario(sharing: Sharing) -> None:
        await sharing.begin()
        commit = sharing.commit(0, timeout_s=1.5)
        (outcome,) = (await commit).outcomes.values()
        assert isinstance(outcome, RequestTimedOutError)
        assert "within 1.5 s" in str(outcome)
        await sharing.confirm()
        assert [(0, [0], None)] == sharing.outcomes

    run(scenario)


def test_fetches_under_way_together_ask_for_no_more_than_the_poll_returns() -> None:
    async def scenario(sharing: Sharing) -> None:
        await sharing.fetch(10)
        limits = {node: sharing.oldest(node).max_records for node in (1, 2, 3)}
        assert 10 >= sum(limits.values())
        assert 3 == min(limits.values())
        assert {1} == {sharing.oldest(node).share_acquire_mode for node in (1, 2, 3)}
        await sharing.respond(node=1)
        await sharing.respond(node=2)
        await sharing.respond(records(2, 0, 0), node=3)
        for sent in list(sharing.network.in_flight):
            await sharing.respond(node=sent.node_id)
        asked = []
        for _ in range(6):
            await sharing.fetch(1)
            (sent,) = sharing.network.in_flight
            asked.append(sent.node_id)
            await asyncio.sleep(0.5)
            await sharing.respond(node=sent.node_id)
        assert {1, 2, 3} == set(asked[:3]) == set(asked[3:]), "brokers take turns"

    run(scenario, {1: [0], 2: [1], 3: [2]}, share_acquire_mode="record_limit")


def test_an_answer_that_makes_no_sense_harms_nothing() -> None:
    """Ranges that overlap, topics that were not asked for, acknowledgements that are left out."""

    async def scenario(sharing: Sharing) -> None:
        await sharing.fetch()
        overlapping = [
            AcquiredRange(first_offset=first, last_offset=last, delivery_count=1)
            for first, last in ((0, 5), (5, 6))
        ]
        await sharing.respond(
            share_fetch.PartitionData(partition_index=0, acquired_records=overlapping, records=batch(0, 7))
        )
        await sharing.respond(records(0, 0, 3), topic=UUID(int=44))
        await sharing.respond(records(7, 0, 3))
        assert [] == sharing.acquired
        await asyncio.sleep(1)
        await settle()
        await sharing.respond(records(0, 0, 3))
        sharing.submit(0)
        await sharing.fetch()
        await sharing.respond()
        ((_, _, error),) = sharing.outcomes
        assert "the answer leaves it out" in str(error)

    run(scenario)


def test_a_function_of_the_user_that_raises_does_not_end_the_session() -> None:
    """Without the session's task all later polls would wait in vain."""

    async def scenario(sharing: Sharing) -> None:
        await sharing.begin()
        calls: list[list[int]] = []

        def on_outcome(_: int, offsets: list[int], __: object) -> None:
            calls.append(offsets)
            raise RuntimeError("the user's fault")

        sharing.outcomes = cast(Any, SimpleNamespace(append=lambda outcome: on_outcome(*outcome)))
        sharing.submit(0)
        await settle()
        await sharing.confirm()
        sharing.submit(1)
        await settle()
        await sharing.confirm()
        assert [[0], [1]] == calls
        assert [] == sharing.errors

    run(scenario)


def test_a_fault_of_the_client_reaches_the_user_and_the_session_starts_over() -> None:
    async def scenario(sharing: Sharing) -> None:
        await sharing.begin()
        leaders, sharing.leaders = sharing.leaders, cast(Any, None)
        sharing.submit(0)
        await settle()
        sharing.leaders = leaders
        (error,) = sharing.errors
        assert "AttributeError" in str(error)
        ((_, offsets, refusal),) = sharing.outcomes
        assert ([0], error) == (offsets, refusal)
        await sharing.fetch()
        await asyncio.sleep(1)
        await settle()
        assert 0 == sharing.oldest().share_session_epoch
        await sharing.respond(records(0, 0, 3))
        assert 2 == len(sharing.acquired)

    run(scenario)


def test_closing_sends_what_is_outstanding_and_ends_the_session() -> None:
    async def scenario(sharing: Sharing) -> None:
        await sharing.begin()
        await sharing.fetch()
        sharing.submit(0, 1)

    sharing = run(scenario)
    last = sharing.network.sent[-1].request
    assert isinstance(last, ShareAcknowledgeRequest)
    assert (-1, 0) == (
        last.share_session_epoch,
        last.topics[0].partitions[0].acknowledgement_batches[0].first_offset,
    )
    assert [(0, [0, 1], None)] == sharing.outcomes


def test_closing_does_not_wait_for_a_broker_that_does_not_answer() -> None:
    async def main() -> None:
        sharing = Sharing({1: [0]})
        await sharing.begin()
        sharing.submit(0)
        await settle()
        before = asyncio.get_running_loop().time()
        await sharing.fetcher.close(2.0)
        assert 2.0 == pytest.approx(asyncio.get_running_loop().time() - before)
        ((_, _, error),) = sharing.outcomes
        assert isinstance(error, RequestTimedOutError)

    run_virtual(main())
