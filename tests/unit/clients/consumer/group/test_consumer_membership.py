"""The member of KIP-848 on a network whose answers the test gives: reconciling, fenced, and leaving."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kalda.clients.consumer.group.consumer_membership import ConsumerMembership
from kalda.clients.consumer.rebalance_listener import RebalanceEvent
from kalda.clients.errors import BrokerResponseError, error_for
from kalda.clients.fetch_position import FetchPosition
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.unit.clients.consumer.group_fixtures import (
    MAX_POLL_INTERVAL_MS,
    T0,
    T1,
    TOPIC_ID,
    GroupMember,
)
from tests.unit.clients.scripted_network import settle
from tests.virtual_time import run_virtual

ASSIGNED, REVOKED, LOST = RebalanceEvent.ASSIGNED, RebalanceEvent.REVOKED, RebalanceEvent.LOST
BACKOFF_S = 0.1
HEARTBEAT_S = 5.0
LEAVE_EPOCH = -1


class Member(GroupMember):
    """A member without an instance id."""

    def __init__(self) -> None:
        super().__init__()
        self.member = ConsumerMembership(
            self.client, self.subscription, self, self.options(), member_id="m", server_assignor=None
        )
        self.member.start()

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        return self.network.oldest(ConsumerGroupHeartbeatRequest)

    @property
    def count(self) -> int:
        """How many heartbeats were sent."""
        return self.network.count(ConsumerGroupHeartbeatRequest)

    async def answer(
        self,
        *partitions: TopicPartition,
        epoch: int = 1,
        code: ErrorCode = ErrorCode.NONE,
        same: bool = False,
    ) -> None:
        """Answer a heartbeat with the target that these partitions are; `same` leaves the target out."""
        numbers = [each.partition for each in partitions]
        target = Assignment(topic_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=numbers)])
        response = ConsumerGroupHeartbeatResponse(
            error_code=int(code),
            member_id="m",
            member_epoch=epoch,
            heartbeat_interval_ms=round(HEARTBEAT_S * 1000),
            assignment=None if same or code is not ErrorCode.NONE else target,
        )
        self.network.answer(response, ConsumerGroupHeartbeatRequest)
        await settle()

    async def join(self, *partitions: TopicPartition) -> None:
        """Join with the next poll, own the partitions, and say so."""
        await self.poll()
        await self.answer(*partitions)
        await self.poll()
        await self.answer(same=True)
        await self.poll()


def member(scenario: Callable[[Member], Awaitable[None]]) -> None:
    """Run a scenario; its member is closed in the end without a request."""

    async def run() -> None:
        made = Member()
        await scenario(made)
        await made.member.close(1.0, leave_group=False)

    run_virtual(run())


def test_a_member_joins_with_its_first_poll_and_acknowledges_its_partitions() -> None:
    async def scenario(it: Member) -> None:
        await settle()
        assert 0 == it.count
        await it.poll()
        assert (0, ["t"]) == (it.heartbeat().member_epoch, it.heartbeat().subscribed_topic_names)
        await it.answer(T0)
        await it.poll()
        assert [(ASSIGNED, [T0])] == it.events
        assert [T0] == it.subscription.assigned()
        assert 1 == it.heartbeat().member_epoch
        owned = it.heartbeat().topic_partitions or []
        assert [(TOPIC_ID, [0])] == [(each.topic_id, each.partitions) for each in owned]

    member(scenario)


def test_heartbeats_follow_the_interval_of_the_coordinator() -> None:
    async def scenario(it: Member) -> None:
        await it.join(T0)
        assert 2 == it.count
        await it.pass_time(HEARTBEAT_S * 0.9)
        assert 2 == it.count
        await it.pass_time(HEARTBEAT_S * 0.2)
        assert 3 == it.count
        assert it.heartbeat().topic_partitions is None, "nothing has changed"

    member(scenario)


def test_a_new_target_revokes_before_it_is_acknowledged() -> None:
    async def scenario(it: Member) -> None:
        await it.join(T0)
        it.take_events()
        await it.pass_time(HEARTBEAT_S * 1.1)
        await it.answer(T1, epoch=2)
        await it.poll()
        assert [(REVOKED, [T0]), (ASSIGNED, [T1])] == it.take_events()
        assert [T1] == it.subscription.assigned()
        owned = it.heartbeat().topic_partitions or []
        assert [[1]] == [each.partitions for each in owned]

    member(scenario)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_loses_its_partitions_and_joins_with_the_next_poll(code: ErrorCode) -> None:
    async def scenario(it: Member) -> None:
        await it.join(T0)
        it.take_events()
        await it.pass_time(HEARTBEAT_S * 1.1)
        before = it.wake_count
        epoch = it.member.metadata().generation_id
        await it.answer(code=code)
        assert epoch == it.member.metadata().generation_id > 0, "offsets of this epoch must be refused"
        assert before < it.wake_count, "a poll that waits has to look"
        assert [] == it.network.in_flight
        await it.poll()
        assert [(LOST, [T0])] == it.take_events()
        assert [] == it.subscription.assigned()
        assert 0 == it.heartbeat().member_epoch

    member(scenario)


def test_a_coordinator_that_moved_is_looked_up_after_the_back_off() -> None:
    async def scenario(it: Member) -> None:
        await it.join(T0)
        await it.pass_time(HEARTBEAT_S * 1.1)
        await it.answer(code=ErrorCode.NOT_COORDINATOR)
        assert (1, 3) == (it.network.forget_count, it.count)
        await it.pass_time(BACKOFF_S * 0.9)
        assert 3 == it.count
        await it.pass_time(BACKOFF_S * 0.2)
        assert 4 == it.count
        assert [T0] == it.subscription.assigned()

    member(scenario)


def test_a_join_that_finds_no_coordinator_is_tried_again_after_the_back_off() -> None:
    """Joining is urgent, and yet not without a pause."""

    async def scenario(it: Member) -> None:
        it.network.coordinator_errors.append(error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "look-up"))
        await it.poll()
        assert 0 == it.count
        await it.pass_time(BACKOFF_S * 0.9)
        assert 0 == it.count
        await it.pass_time(BACKOFF_S * 0.2)
        assert 1 == it.count

    member(scenario)


def test_a_heartbeat_whose_connection_is_lost_is_followed_by_one_with_all_fields() -> None:
    async def scenario(it: Member) -> None:
        await it.join(T0)
        await it.pass_time(HEARTBEAT_S * 1.1)
        await it.network.lose()
        await it.pass_time(BACKOFF_S * 1.1)
        assert (1, ["t"]) == (it.heartbeat().member_epoch, it.heartbeat().subscribed_topic_names)

    member(scenario)


def test_an_error_that_trying_again_does_not_cure_comes_out_of_each_poll() -> None:
    async def scenario(it: Member) -> None:
        await it.join(T0)
        it.take_events()
        await it.pass_time(HEARTBEAT_S * 1.1)
        await it.answer(code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for _ in range(2):
            await it.poll()
            assert isinstance(it.member.take_error(), BrokerResponseError)
        assert [(LOST, [T0])] == it.events
        await it.pass_time(HEARTBEAT_S * 3)
        assert 3 == it.count

    member(scenario)


def test_a_member_that_is_not_polled_leaves_and_joins_with_the_next_poll() -> None:
    async def scenario(it: Member) -> None:
        await it.join(T0)
        it.take_events()
        end = it.network.clock.monotonic() + MAX_POLL_INTERVAL_MS / 1000 + 1.0
        while it.network.clock.monotonic() < end:
            await it.pass_time(1.0)
            if it.network.in_flight and it.heartbeat().member_epoch > 0:
                await it.answer(same=True)
        assert LEAVE_EPOCH == it.heartbeat().member_epoch
        await it.answer(same=True, epoch=LEAVE_EPOCH)
        left = it.count
        await it.pass_time(HEARTBEAT_S * 3)
        assert left == it.count
        it.subscription.seek(T0, FetchPosition(0))
        (fetched,) = it.subscription.fetchable(0.0)
        it.member.polled(it.network.clock.monotonic())
        # Another member may read the partition: already this poll returns none of its records.
        assert not it.subscription.advance(T0, fetched.generation, FetchPosition(1))
        await it.poll()
        assert [(LOST, [T0])] == it.take_events()
        assert 0 == it.heartbeat().member_epoch

    member(scenario)


def test_close_revokes_and_leaves() -> None:
    async def scenario(it: Member) -> None:
        await it.join(T0)
        it.take_events()
        closing = asyncio.ensure_future(it.member.close(5.0))
        await settle()
        assert [(REVOKED, [T0])] == it.take_events()
        assert LEAVE_EPOCH == it.heartbeat().member_epoch
        await it.answer(same=True, epoch=LEAVE_EPOCH)
        await closing
        await it.pass_time(HEARTBEAT_S * 3)
        assert [] == it.network.in_flight
        assert [] == it.network.metadata.on_update

    member(scenario)


def test_close_waits_for_a_coordinator_that_does_not_answer_for_its_time_only() -> None:
    async def scenario(it: Member) -> None:
        await it.join(T0)
        before, count = it.network.clock.monotonic(), it.count
        await it.member.close(5.0)
        assert count + 1 == it.count
        assert 5.0 == pytest.approx(it.network.clock.monotonic() - before, abs=0.1)

    member(scenario)
