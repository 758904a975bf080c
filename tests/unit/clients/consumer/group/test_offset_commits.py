import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, cast
from uuid import UUID

import pytest

from kalda.clients.consumer.group import offset_commits
from kalda.clients.consumer.group.errors import (
    CommitFailedError,
    RetriableCommitFailedError,
    StaleMemberEpochError,
)
from kalda.clients.consumer.group.offset_commits import OffsetCommits
from kalda.clients.consumer.group.requests import GroupRequests
from kalda.clients.consumer.offset_requests import CommitIdentity, Offsets
from kalda.clients.consumer.offset_reset import parse_offset_reset
from kalda.clients.consumer.subscription_state import SubscriptionState
from kalda.clients.errors import BrokerConnectionError, ClientError, UnknownTopicOrPartitionError
from kalda.clients.fetch_position import FetchPosition, LeaderAndEpoch
from kalda.clients.metadata import EMPTY, ClusterMetadata, Metadata, PartitionMetadata, TopicMetadata
from kalda.clients.values import OffsetAndMetadata
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kalda.protocol.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from kalda.runtime.clock import ManualClock

PARTITION = TopicPartition("t", 0)
TOPIC_ID = UUID(int=1)


def at(offset: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {PARTITION: OffsetAndMetadata(offset)}


class Client:
    """What commits use of a network client: time, back-off and retries without waits."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.retry_backoff = ExponentialBackoff(100, 100, lambda low, high: 1.0)
        self.metadata = Metadata()

    async def retry(self, what: str, attempt: Callable[[], Awaitable[Any]], *, timeout_ms: int) -> Any:
        for _ in range(5):
            try:
                return await attempt()
            except ClientError as error:
                if not error.is_retriable:
                    raise
        raise AssertionError(what)


class Coordinator:
    """Answers commits with the codes that a test wants; notes what came."""

    group_id = "g"

    def __init__(self, *codes: ErrorCode | ClientError) -> None:
        self.client = Client()
        self.codes = list(codes)
        self.committed: list[int] = []
        self.forgotten = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def send(self, request: VersionedRequest, response_class: type[Any], **_: Any) -> Any:
        message = request.build(9)
        assert isinstance(message, OffsetCommitRequest)
        await self.gate.wait()
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        if isinstance(code, ClientError):
            raise code
        self.committed.append(message.topics[0].partitions[0].committed_offset)
        partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])])

    def coordinator_text(self) -> str:
        return "broker 1 (h:9092)"

    def forget_coordinator(self) -> None:
        self.forgotten += 1


class Member:
    """A member whose epoch a test sets."""

    def __init__(self) -> None:
        self.identity = CommitIdentity(1, "m")

    def commit_identity(self) -> CommitIdentity:
        return self.identity

    def fetch_identity(self) -> CommitIdentity:
        return self.identity

    def on_commit_refused(self, code: ErrorCode, sent: CommitIdentity) -> ClientError:
        if code is ErrorCode.STALE_MEMBER_EPOCH:
            self.identity = CommitIdentity(sent.generation_id + 1, "m")
            return StaleMemberEpochError("old")
        return CommitFailedError(code.name)


def commits_of(
    coordinator: Coordinator, interval_ms: int | None = None, seen: list[Offsets] | None = None
) -> tuple[OffsetCommits, SubscriptionState]:
    subscriptions = SubscriptionState(parse_offset_reset("earliest"))
    subscriptions.topic_id_of = lambda _: TOPIC_ID
    subscriptions.subscribe(["t"])
    subscriptions.assign_from_subscribed([PARTITION])
    commits = OffsetCommits(
        cast(GroupRequests, coordinator),
        subscriptions,
        Member(),
        auto_commit_interval_ms=interval_ms,
        on_committed=(seen if seen is not None else []).append,
    )
    return commits, subscriptions


def move_to(subscriptions: SubscriptionState, offset: int) -> None:
    subscriptions.seek(PARTITION, FetchPosition(offset, -1, LeaderAndEpoch(0, 0)))


def snapshot_with(partition: TopicPartition) -> ClusterMetadata:
    known = PartitionMetadata(partition, 1, 0, ErrorCode.NONE, (1,), (1,))
    topic = TopicMetadata(partition.topic, TOPIC_ID, False, ErrorCode.NONE, {partition.partition: known})
    return dataclasses.replace(EMPTY, topics={partition.topic: topic})


async def test_commits_reach_the_coordinator_in_the_order_of_the_calls() -> None:
    """An older offset that overtakes a newer one would have records processed twice."""
    coordinator = Coordinator()
    commits, _ = commits_of(coordinator)
    coordinator.gate.clear()
    for offset in range(5):
        commits.commit_nowait(at(offset), None)
    last = asyncio.create_task(commits.commit(at(5), timeout_ms=1000))
    await asyncio.sleep(0)
    coordinator.gate.set()
    await last
    assert [0, 1, 2, 3, 4, 5] == coordinator.committed


async def test_a_commit_with_waiting_is_retried() -> None:
    """A new coordinator is looked up where the old one says that it is not one any more."""
    seen: list[Offsets] = []
    coordinator = Coordinator(
        ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, BrokerConnectionError("gone")
    )
    commits, _ = commits_of(coordinator, seen=seen)
    await commits.commit(at(7), timeout_ms=1000)
    assert [7, 7, 7] == coordinator.committed
    assert 1 == coordinator.forgotten
    assert [at(7)] == seen


async def test_a_stale_epoch_is_retried_with_the_next_one() -> None:
    """The coordinator raises the epoch before the heartbeat that says so (KIP-848)."""
    coordinator = Coordinator(ErrorCode.STALE_MEMBER_EPOCH)
    commits, _ = commits_of(coordinator)
    await commits.commit(at(7), timeout_ms=1000)
    assert [7, 7] == coordinator.committed


async def test_a_member_that_was_removed_cannot_commit() -> None:
    """Its partitions belong to others, whose commits must not be overwritten."""
    commits, _ = commits_of(Coordinator(ErrorCode.UNKNOWN_MEMBER_ID))
    with pytest.raises(CommitFailedError, match="UNKNOWN_MEMBER_ID"):
        await commits.commit(at(7), timeout_ms=1000)


@pytest.mark.parametrize("code", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
async def test_committed_offsets_are_asked_for_again_when_the_epoch_is_over(code: ErrorCode) -> None:
    """The member was fenced, or has another epoch; the heartbeat brings that, and poll needs no error."""

    class Refusing(Coordinator):
        async def send(self, request: VersionedRequest, response_class: type[Any], **_: Any) -> Any:
            group = OffsetFetchResponseGroup(group_id="g", topics=[], error_code=code)
            return OffsetFetchResponse(groups=[group])

    commits, _ = commits_of(Refusing())
    with pytest.raises(StaleMemberEpochError) as caught:
        await commits.committed([PARTITION])
    assert caught.value.is_retriable


async def test_a_commit_without_waiting_is_tried_once() -> None:
    """A later commit replaces it, and a repeated older one would come too late."""
    results: list[tuple[Offsets, ClientError | None]] = []
    commits, _ = commits_of(Coordinator(ErrorCode.NOT_COORDINATOR))
    commits.commit_nowait(at(1), lambda offsets, error: results.append((offsets, error)))
    commits.commit_nowait(at(2), lambda offsets, error: results.append((offsets, error)))
    await commits.close(1000)
    assert [at(1), at(2)] == [offsets for offsets, _ in results]
    assert isinstance(results[0][1], RetriableCommitFailedError)
    assert results[1][1] is None


async def test_pending_commits_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that commits faster than the coordinator answers gets an error, not a full memory."""
    monkeypatch.setattr(offset_commits, "PENDING_COMMITS_MAX", 2)
    coordinator = Coordinator()
    coordinator.gate.clear()
    commits, _ = commits_of(coordinator)
    commits.commit_nowait(at(1), None)
    commits.commit_nowait(at(2), None)
    with pytest.raises(CommitFailedError, match="2 commits wait"):
        commits.commit_nowait(at(3), None)
    await commits.close(1)


async def test_a_negative_offset_is_refused() -> None:
    """It would be stored, and the next consumer would start there."""
    commits, _ = commits_of(Coordinator())
    with pytest.raises(ValueError, match="offset -1 of t-0"):
        commits.commit_nowait(at(-1), None)


async def test_auto_commit_takes_the_positions_at_a_poll() -> None:
    """What a poll returns after that has not been processed yet."""
    coordinator = Coordinator()
    commits, subscriptions = commits_of(coordinator, interval_ms=1000)
    move_to(subscriptions, 10)
    commits.polled(100.0)
    commits.polled(100.9)
    await asyncio.sleep(0)
    assert [] == coordinator.committed

    commits.polled(101.0)
    move_to(subscriptions, 20)
    for _ in range(3):
        await asyncio.sleep(0)
    assert [10] == coordinator.committed
    assert 102.0 == commits.next_auto_commit_at

    await commits.close(1000)
    assert [10, 20] == coordinator.committed


async def test_auto_commit_that_fails_comes_again_soon() -> None:
    """Not only after the whole interval."""
    coordinator = Coordinator(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    commits, subscriptions = commits_of(coordinator, interval_ms=60_000)
    move_to(subscriptions, 10)
    commits.polled(0.0)
    commits.polled(60.0)
    coordinator.client.clock.advance(60.0)
    for _ in range(3):
        await asyncio.sleep(0)
    assert 60.1 == commits.next_auto_commit_at


async def test_one_automatic_commit_is_under_way_at_a_time() -> None:
    """A slow coordinator must not collect a queue of them."""
    coordinator = Coordinator()
    coordinator.gate.clear()
    commits, subscriptions = commits_of(coordinator, interval_ms=1000)
    move_to(subscriptions, 10)
    for now in (0.0, 1.0, 2.0, 3.0):
        commits.polled(now)
        await asyncio.sleep(0)
        assert now + 1.0 == commits.next_auto_commit_at, "else a poll would be due over and over"
    coordinator.gate.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert [10] == coordinator.committed


async def test_a_failed_commit_before_a_revocation_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    """The group waits for this member; records may be consumed twice, which the log says."""
    commits, _ = commits_of(Coordinator(ErrorCode.UNKNOWN_MEMBER_ID), interval_ms=1000)
    await commits.commit_before_revocation(at(3), timeout_ms=1000)
    assert "records may be consumed twice" in caplog.text


async def test_a_deleted_topic_does_not_hold_a_revocation_up(caplog: pytest.LogCaptureFixture) -> None:
    """The coordinator has committed all other offsets; the group waits for this member (KAFKA-16224)."""
    coordinator = Coordinator(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    commits, _ = commits_of(coordinator, interval_ms=1000)
    await commits.commit_before_revocation(at(3), timeout_ms=1000)
    assert [3] == coordinator.committed
    assert "records may be consumed twice" not in caplog.text


async def test_a_commit_for_a_topic_that_was_deleted_fails_at_once() -> None:
    """A listener that commits holds its group up; the topic was there, so it is not just new."""
    coordinator = Coordinator(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    commits, subscriptions = commits_of(coordinator)
    move_to(subscriptions, 7)
    subscriptions.topic_id_of = lambda _: ZERO_UUID
    with pytest.raises(UnknownTopicOrPartitionError, match="for t-0 at"):
        await commits.commit(at(7), timeout_ms=1000)
    assert [7] == coordinator.committed


@pytest.mark.parametrize("is_consumed", [True, False])
async def test_a_commit_for_a_topic_that_the_coordinator_does_not_know_yet_is_retried(
    is_consumed: bool,
) -> None:
    """Brokers learn of a new topic one after the other (KAFKA-6829)."""
    coordinator = Coordinator(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    commits, subscriptions = commits_of(coordinator)
    if is_consumed:
        move_to(subscriptions, 7)
        coordinator.client.metadata.snapshot = snapshot_with(PARTITION)
    coordinator.client.metadata.next_request(0.0)
    await commits.commit(at(7), timeout_ms=1000)
    assert [7, 7] == coordinator.committed
    assert coordinator.client.metadata.is_update_requested
