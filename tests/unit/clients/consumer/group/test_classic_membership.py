"""The classic member on a network whose answers the test gives: joins, lost memberships, and leaving."""

import asyncio
from collections.abc import Awaitable, Callable, Collection

import pytest

from kalda.clients.consumer.assignors.partition_assignor import Assignment
from kalda.clients.consumer.assignors.range_assignor import RangeAssignor
from kalda.clients.consumer.group.classic_membership import ClassicMembership
from kalda.clients.consumer.group.classic_subscription import read_assignment, write_assignment
from kalda.clients.consumer.group.errors import FencedInstanceIdError
from kalda.clients.consumer.rebalance_listener import RebalanceEvent
from kalda.clients.errors import BrokerResponseError, error_for
from kalda.clients.fetch_position import FetchPosition, LeaderAndEpoch
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kalda.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kalda.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kalda.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.unit.clients.consumer.group_fixtures import MAX_POLL_INTERVAL_MS, T0, T1, GroupMember
from tests.unit.clients.scripted_network import settle
from tests.virtual_time import run_virtual

ASSIGNED, REVOKED, LOST = RebalanceEvent.ASSIGNED, RebalanceEvent.REVOKED, RebalanceEvent.LOST
BACKOFF_S = 0.1
HEARTBEAT_S = 3.0
SESSION_S = 10.0


class Classic(GroupMember):
    """A member with the range assignor."""

    def __init__(self, *, is_static: bool = False, auto_commit_ms: int | None = None) -> None:
        super().__init__()
        self.member = ClassicMembership(
            self.client,
            self.subscription,
            self,
            self.options(is_static=is_static, auto_commit_ms=auto_commit_ms),
            [RangeAssignor()],
            session_timeout_ms=round(SESSION_S * 1000),
            heartbeat_interval_ms=round(HEARTBEAT_S * 1000),
        )
        self.member.start()

    async def answer_join(
        self, code: ErrorCode = ErrorCode.NONE, *, generation: int = 1, leader: str = "other"
    ) -> None:
        request = self.network.oldest(JoinGroupRequest)
        member_id = request.member_id or "m"
        members = (
            [JoinGroupResponseMember(member_id=member_id, metadata=request.protocols[0].metadata)]
            if leader == member_id
            else []
        )
        response = JoinGroupResponse(
            error_code=int(code),
            generation_id=generation,
            protocol_type="consumer",
            protocol_name="range",
            leader=leader,
            member_id=member_id,
            members=members,
        )
        self.network.answer(response, JoinGroupRequest)
        await settle()

    async def answer_sync(self, *partitions: TopicPartition, code: ErrorCode = ErrorCode.NONE) -> None:
        response = SyncGroupResponse(
            error_code=int(code),
            protocol_type="consumer",
            protocol_name="range",
            assignment=write_assignment(Assignment(partitions)),
        )
        self.network.answer(response, SyncGroupRequest)
        await settle()

    async def answer_heartbeat(self, code: ErrorCode = ErrorCode.NONE) -> None:
        self.network.answer(HeartbeatResponse(error_code=int(code)), HeartbeatRequest)
        await settle()

    async def join(self, *partitions: TopicPartition, generation: int = 1) -> None:
        """Take part in a rebalance from the next poll on."""
        await self.poll()
        await self.answer_join(generation=generation)
        await self.answer_sync(*partitions)
        await self.poll()


def classic(scenario: Callable[[Classic], Awaitable[None]], it: Callable[[], Classic] = Classic) -> None:
    """Run a scenario; its member is closed in the end without a request."""

    async def run() -> None:
        made = it()
        await scenario(made)
        await made.member.close(1.0, leave_group=False)

    run_virtual(run())


def test_a_member_joins_with_its_first_poll_and_gets_its_partitions() -> None:
    async def scenario(it: Classic) -> None:
        await settle()
        assert [] == it.network.sent
        await it.poll()
        assert ("", -1) == (it.network.oldest(JoinGroupRequest).member_id, it.member.metadata().generation_id)
        await it.answer_join()
        assert ("m", 1) == (
            it.network.oldest(SyncGroupRequest).member_id,
            it.network.oldest(SyncGroupRequest).generation_id,
        )
        await it.answer_sync(T0)
        assert [(ASSIGNED, [T0])] == it.events
        assert [T0] == it.subscription.assigned()
        await it.poll()
        assert 1 == it.network.count(JoinGroupRequest)

    classic(scenario)


def test_the_leader_assigns() -> None:
    async def scenario(it: Classic) -> None:
        await it.poll()
        await it.answer_join(leader="m")
        (assignment,) = it.network.oldest(SyncGroupRequest).assignments
        assert "m" == assignment.member_id
        assert (T0, T1) == read_assignment(assignment.assignment).partitions
        await it.answer_sync(T0, T1)
        assert [T0, T1] == it.subscription.assigned()

    classic(scenario)


def test_a_new_member_joins_again_at_once_with_the_id_that_it_was_given() -> None:
    """KIP-394."""

    async def scenario(it: Classic) -> None:
        await it.poll()
        await it.answer_join(ErrorCode.MEMBER_ID_REQUIRED)
        assert "m" == it.network.oldest(JoinGroupRequest).member_id

    classic(scenario)


def test_a_coordinator_that_moved_is_looked_up_after_the_back_off() -> None:
    async def scenario(it: Classic) -> None:
        await it.poll()
        await it.answer_join(ErrorCode.NOT_COORDINATOR)
        assert 1 == it.network.forget_count
        await it.pass_time(BACKOFF_S * 0.9)
        assert 1 == it.network.count(JoinGroupRequest)
        await it.pass_time(BACKOFF_S * 0.2)
        assert 2 == it.network.count(JoinGroupRequest)

    classic(scenario)


def test_a_coordinator_that_is_not_there_yet_is_looked_up_again() -> None:
    async def scenario(it: Classic) -> None:
        it.network.coordinator_errors.append(error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "look-up"))
        await it.poll()
        assert [] == it.network.sent
        await it.pass_time(BACKOFF_S * 1.1)
        assert 1 == it.network.count(JoinGroupRequest)

    classic(scenario)


def test_a_join_whose_connection_is_lost_is_sent_again() -> None:
    async def scenario(it: Classic) -> None:
        await it.poll()
        await it.network.lose()
        await it.pass_time(BACKOFF_S * 1.1)
        assert (1, 2) == (it.network.forget_count, it.network.count(JoinGroupRequest))

    classic(scenario)


@pytest.mark.parametrize(
    ("code", "member_id"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, "m"),
        (ErrorCode.ILLEGAL_GENERATION, "m"),
        (ErrorCode.UNKNOWN_MEMBER_ID, ""),
    ],
)
def test_a_sync_that_is_refused_is_followed_by_a_join(code: ErrorCode, member_id: str) -> None:
    async def scenario(it: Classic) -> None:
        await it.poll()
        await it.answer_join()
        await it.answer_sync(code=code)
        assert member_id == it.network.oldest(JoinGroupRequest).member_id
        assert [] == it.events

    classic(scenario)


def test_an_error_that_joining_again_does_not_cure_comes_out_of_poll() -> None:
    async def scenario(it: Classic) -> None:
        await it.poll()
        await it.answer_join(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        error = it.member.take_error()
        assert isinstance(error, BrokerResponseError)
        assert it.member.take_error() is None
        assert 1 == it.network.count(JoinGroupRequest), "the next poll decides"

    classic(scenario)


def test_heartbeats_follow_the_interval_one_at_a_time() -> None:
    async def scenario(it: Classic) -> None:
        await it.join(T0)
        await it.pass_time(HEARTBEAT_S * 0.9)
        assert 0 == it.network.count(HeartbeatRequest)
        await it.pass_time(HEARTBEAT_S * 0.2)
        assert ("m", 1) == (
            it.network.oldest(HeartbeatRequest).member_id,
            it.network.oldest(HeartbeatRequest).generation_id,
        )
        await it.pass_time(HEARTBEAT_S * 1.1)
        assert 1 == it.network.count(HeartbeatRequest)
        await it.answer_heartbeat()
        assert 2 == it.network.count(HeartbeatRequest)

    classic(scenario)


def test_a_heartbeat_that_reports_a_rebalance_revokes_and_joins_with_the_next_poll() -> None:
    async def scenario(it: Classic) -> None:
        await it.join(T0, T1)
        await it.pass_time(HEARTBEAT_S * 1.1)
        before = it.wake_count
        await it.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
        assert before < it.wake_count, "a poll that waits has to join"
        assert 1 == it.network.count(JoinGroupRequest)
        it.take_events()
        await it.poll()
        assert [(REVOKED, [T0, T1])] == it.take_events()
        assert "m" == it.network.oldest(JoinGroupRequest).member_id
        await it.answer_join(generation=2)
        await it.answer_sync(T1)
        assert [(ASSIGNED, [T1])] == it.take_events()

    classic(scenario)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_member_that_was_removed_loses_its_partitions_and_joins(code: ErrorCode) -> None:
    async def scenario(it: Classic) -> None:
        await it.join(T0)
        await it.pass_time(HEARTBEAT_S * 1.1)
        await it.answer_heartbeat(code)
        assert (1, "m") == (it.member.metadata().generation_id, it.member.metadata().member_id)
        it.take_events()
        await it.poll()
        assert [(LOST, [T0])] == it.take_events()
        assert [] == it.subscription.assigned()
        assert 2 == it.network.count(JoinGroupRequest)

    classic(scenario)


def test_a_static_member_that_was_replaced_fails() -> None:
    async def scenario(it: Classic) -> None:
        await it.join(T0)
        await it.pass_time(HEARTBEAT_S * 1.1)
        await it.answer_heartbeat(ErrorCode.FENCED_INSTANCE_ID)
        assert isinstance(it.member.take_error(), FencedInstanceIdError)

    classic(scenario, lambda: Classic(is_static=True))


def test_heartbeats_whose_connection_is_lost_go_on_after_the_back_off() -> None:
    async def scenario(it: Classic) -> None:
        await it.join(T0)
        await it.pass_time(HEARTBEAT_S * 1.1)
        await it.network.lose()
        await it.pass_time(BACKOFF_S * 1.1)
        assert (1, 2) == (it.network.forget_count, it.network.count(HeartbeatRequest))
        await it.answer_heartbeat()
        assert it.member.take_error() is None
        assert [T0] == it.subscription.assigned()

    classic(scenario)


def test_a_generation_without_an_assignment_is_not_that_of_records() -> None:
    """Coordinators may begin a generation again, for other members, when they cannot store an assignment."""

    async def scenario(it: Classic) -> None:
        await it.join(T0)
        it.member.request_rejoin("a test")
        await it.poll()
        await it.answer_join(generation=2)
        assert 1 == it.member.metadata().generation_id
        await it.answer_sync(T0)
        assert 2 == it.member.metadata().generation_id

    classic(scenario)


def test_a_member_that_is_not_polled_leaves_and_joins_with_the_next_poll() -> None:
    async def scenario(it: Classic) -> None:
        await it.join(T0)
        while it.network.clock.monotonic() < 1000.0 + MAX_POLL_INTERVAL_MS / 1000 + 1.0:
            await it.pass_time(1.0)
            if any(isinstance(each.request, HeartbeatRequest) for each in it.network.in_flight):
                await it.answer_heartbeat()
        (member,) = it.network.oldest(LeaveGroupRequest).members
        assert "m" == member.member_id
        assert "poll timeout" in (member.reason or "")
        it.network.answer(LeaveGroupResponse(), LeaveGroupRequest)
        await settle()
        # The coordinator accepts offsets without an identity in a transaction; it must refuse these.
        assert (1, "m") == (it.member.metadata().generation_id, it.member.metadata().member_id)
        heartbeats = it.network.count(HeartbeatRequest)
        await it.pass_time(HEARTBEAT_S * 3)
        assert heartbeats == it.network.count(HeartbeatRequest)
        it.take_events()
        it.subscription.seek(T0, FetchPosition(0))
        (fetched,) = it.subscription.fetchable(0.0)
        it.member.polled(it.network.clock.monotonic())
        # Another member may read the partition: already this poll returns none of its records.
        assert not it.subscription.advance(T0, fetched.generation, FetchPosition(1))
        await it.poll()
        assert [(LOST, [T0])] == it.take_events()
        assert "" == it.network.oldest(JoinGroupRequest).member_id

    classic(scenario)


def test_close_revokes_and_leaves() -> None:
    async def scenario(it: Classic) -> None:
        await it.join(T0)
        it.take_events()
        closing = asyncio.ensure_future(it.member.close(5.0))
        await settle()
        assert [(REVOKED, [T0])] == it.take_events()
        (member,) = it.network.oldest(LeaveGroupRequest).members
        assert "m" == member.member_id
        it.network.answer(LeaveGroupResponse(), LeaveGroupRequest)
        await closing
        await it.pass_time(HEARTBEAT_S * 2)
        assert [] == it.network.in_flight
        assert [] == it.network.metadata.on_update

    classic(scenario)


def test_a_deleted_topic_does_not_delay_the_rebalance() -> None:
    """Until the member has joined again, an eager one returns no records of any topic."""

    async def scenario(it: Classic) -> None:
        await it.join(T0, T1)
        for each in (T0, T1):
            it.subscription.seek(each, FetchPosition(7, -1, LeaderAndEpoch(1, 0)))
        await it.pass_time(HEARTBEAT_S)
        await it.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
        await it.poll()
        before = it.network.clock.monotonic()
        unknown = [
            OffsetCommitResponsePartition(partition_index=each.partition, error_code=code)
            for each, code in ((T0, ErrorCode.NONE), (T1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        ]
        topic = OffsetCommitResponseTopic(name="t", partitions=unknown)
        it.network.answer(OffsetCommitResponse(topics=[topic]), OffsetCommitRequest)
        await settle()
        assert 2 == it.network.count(JoinGroupRequest)
        assert before == it.network.clock.monotonic()

    classic(scenario, lambda: Classic(auto_commit_ms=3_600_000))


def test_the_commit_of_a_rebalance_leaves_time_to_join() -> None:
    """The coordinator removes a member that has not joined within the rebalance time-out."""

    async def scenario(it: Classic) -> None:
        await it.join(T0)
        it.subscription.seek(T0, FetchPosition(7, -1, LeaderAndEpoch(1, 0)))
        await it.pass_time(HEARTBEAT_S)
        await it.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
        await it.poll()
        loading = OffsetCommitResponsePartition(
            partition_index=0, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        )
        answer = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[loading])])
        began = it.network.clock.monotonic()
        while it.network.count(JoinGroupRequest) == 1:
            for sent in list(it.network.in_flight):
                if isinstance(sent.request, OffsetCommitRequest):
                    it.network.answer(answer, OffsetCommitRequest)
                elif isinstance(sent.request, HeartbeatRequest):
                    await it.answer_heartbeat()
            await it.pass_time(0.5)
            await it.poll()
        assert MAX_POLL_INTERVAL_MS / 2000 >= it.network.clock.monotonic() - began - 1.0

    classic(scenario, lambda: Classic(auto_commit_ms=3_600_000))


def test_the_calls_of_a_listener_have_the_time_of_the_close() -> None:
    """A commit in `on_partitions_revoked` would retry for a minute, whatever `close` was given."""
    left: list[int | None] = []

    class Asked(Classic):
        async def invoke(self, event: RebalanceEvent, partitions: Collection[TopicPartition]) -> None:
            left.append(self.member.listener_time_left_ms)
            await asyncio.sleep(3.0)
            left.append(self.member.listener_time_left_ms)

    async def scenario(it: Classic) -> None:
        await it.poll()
        await it.answer_join()
        await it.answer_sync(T0)
        await it.pass_time(3.0)
        left.clear()
        assert it.member.listener_time_left_ms is None
        await it.member.close(5.0)
        assert [5000, 2000] == left

    classic(scenario, Asked)


def test_close_waits_for_a_coordinator_that_does_not_answer_for_its_time_only() -> None:
    async def scenario(it: Classic) -> None:
        await it.join(T0)
        before = it.network.clock.monotonic()
        await it.member.close(5.0)
        assert 1 == it.network.count(LeaveGroupRequest)
        assert 5.0 == pytest.approx(it.network.clock.monotonic() - before, abs=0.1)

    classic(scenario)


def test_close_of_a_member_that_joins_ends_the_join() -> None:
    """The coordinator has given it no id yet, so there is nothing to leave with."""

    async def scenario(it: Classic) -> None:
        await it.poll()
        before = it.network.clock.monotonic()
        await it.member.close(5.0)
        assert before == it.network.clock.monotonic()
        assert it.network.in_flight[0].future.cancelled()
        assert 1 == len(it.network.sent)

    classic(scenario)


def test_a_static_member_stays_in_the_group_when_it_closes() -> None:
    """KIP-345: its session goes on, so that a restart needs no rebalance."""

    async def scenario(it: Classic) -> None:
        await it.join(T0)
        await it.member.close(5.0)
        assert 0 == it.network.count(LeaveGroupRequest)

    classic(scenario, lambda: Classic(is_static=True))
