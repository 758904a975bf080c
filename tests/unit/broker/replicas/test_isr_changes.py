"""In-sync replicas: who leaves, who joins, and what coordination has to say about it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kalda.broker.replicas.isr_changes import ANNOUNCE_DELAY_SECONDS_MAX, ANNOUNCE_LINGER_SECONDS
from kalda.broker.replicas.leadership_check import LeadershipCheck
from kalda.cluster import paths, schema
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.zookeeper.errors import ConnectionLossError, ZooKeeperError
from kalda.zookeeper.port import Operation, OperationResult, SessionState
from tests.runtimes import seeded
from tests.unit.broker.data_path_fakes import batch, leadership
from tests.unit.broker.leading_fakes import LAG_SECONDS, Leading, pending

PARTITION = TopicPartition("orders", 0)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Leading]:
    leading = await Leading.open(tmp_path)
    yield leading
    leading.close()


def catch_up(broker: Leading, *replicas: int, index: int = 0) -> None:
    for replica in replicas:
        assert 0 == broker.follow(replica, broker.partition(index).log.log_end_offset, index)


async def shrink(broker: Leading, *alive: int) -> None:
    """Let all but some followers lag for too long, and have them removed."""
    broker.clock.advance(LAG_SECONDS / 2 + 1)
    catch_up(broker, *alive)
    broker.clock.advance(LAG_SECONDS / 2 + 1)
    broker.replicas.shrink_isrs()
    await broker.settle()


async def test_a_follower_that_lags_leaves_and_the_high_watermark_moves_on(broker: Leading) -> None:
    await broker.lead()
    broker.produce(batch(b"a"))
    catch_up(broker, 2)
    assert 0 == broker.partition().log.high_watermark
    await shrink(broker, 2)
    assert (1, 2) == broker.partition().isr == (await broker.state()).isr
    assert 1 == broker.partition().log.high_watermark
    assert 1 == broker.changes.shrinks


async def test_like_changes_of_many_partitions_are_one_log_line(
    broker: Leading, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that comes back joins the in-sync replicas of 50 partitions of __consumer_offsets at once."""
    caplog.set_level(logging.INFO, "kalda.broker.replicas.isr_changes")
    await broker.lead(*range(8))
    for index in range(8):
        broker.produce({index: batch(b"a")})
    broker.clock.advance(LAG_SECONDS + 1)
    broker.replicas.shrink_isrs()
    await broker.settle()
    assert await broker.settle()
    assert ["shrinking the in-sync replicas of 8 partitions of orders from 1, 2, 3 to 1"] == caplog.messages


async def test_a_new_leader_gives_every_member_the_whole_time_to_come(broker: Leading) -> None:
    broker.clock.advance(1000)
    await broker.lead()
    broker.produce(batch(b"a"))
    broker.clock.advance(LAG_SECONDS - 1)
    broker.replicas.shrink_isrs()
    assert broker.partition().pending_isr is None
    broker.clock.advance(2)
    broker.replicas.shrink_isrs()
    assert (1,) == pending(broker.partition()).isr


async def test_an_idle_partition_keeps_its_replicas_for_ever(broker: Leading) -> None:
    """Who has everything is in sync however long ago it fetched; the controller knows who is dead."""
    await broker.lead()
    catch_up(broker, 2, 3)
    broker.clock.advance(10 * LAG_SECONDS)
    broker.replicas.shrink_isrs()
    assert broker.partition().pending_isr is None


async def test_a_shrink_under_way_holds_the_high_watermark_back(broker: Leading) -> None:
    """Nobody knows yet whether it takes effect: if not, the lagging replica may still become leader."""
    await broker.lead()
    broker.produce(batch(b"a"))
    catch_up(broker, 2)
    broker.clock.advance(LAG_SECONDS + 1)
    catch_up(broker, 2)
    broker.replicas.shrink_isrs()
    partition = broker.partition()
    assert ((1, 2, 3), (1, 2)) == (partition.maximal_isr, pending(partition).isr)
    catch_up(broker, 2)
    assert 0 == partition.log.high_watermark
    await broker.settle()
    assert 1 == partition.log.high_watermark


async def test_a_follower_joins_once_it_has_all_that_is_committed(broker: Leading) -> None:
    await broker.lead(isr=(1,))
    broker.produce(batch(b"a"))
    broker.produce(batch(b"b"))
    assert 2 == broker.partition().log.high_watermark
    assert 0 == broker.follow(2, 1)
    assert broker.partition().pending_isr is None
    catch_up(broker, 2)
    assert (1, 2) == pending(broker.partition()).isr == broker.partition().maximal_isr
    assert (1,) == broker.partition().isr
    await broker.settle()
    assert (1, 2) == broker.partition().isr == (await broker.state()).isr
    assert 1 == broker.changes.expansions


async def test_an_expansion_under_way_already_counts_for_the_high_watermark(broker: Leading) -> None:
    await broker.lead(isr=(1,))
    catch_up(broker, 2)
    broker.produce(batch(b"a"))
    assert 0 == broker.partition().log.high_watermark
    # Even when it is gone again: the change may have taken effect.
    broker.clock.advance(LAG_SECONDS + 1)
    broker.replicas.shrink_isrs()
    assert 0 == broker.partition().log.high_watermark
    catch_up(broker, 2)
    assert 1 == broker.partition().log.high_watermark


async def test_what_the_epoch_began_with_is_needed_to_join(broker: Leading) -> None:
    """It may have been committed by the leader before, though this one does not know it yet."""
    broker.configure(min_insync_replicas=2)
    await broker.lead(isr=(1,))
    broker.produce(batch(b"a"))
    await broker.lead(leader_epoch=5, isr=(1,))
    partition = broker.partition()
    assert (1, 0) == (partition.leader_epoch_start_offset, partition.log.high_watermark)
    assert 0 == broker.follow(2, 0)
    assert partition.pending_isr is None
    catch_up(broker, 2)
    assert (1, 2) == pending(partition).isr


async def test_a_broker_that_is_not_registered_does_not_join(broker: Leading) -> None:
    await broker.lead(isr=(1, 2), replicas=(1, 2, 9))
    catch_up(broker, 9)
    assert broker.partition().pending_isr is None


async def test_the_high_watermark_waits_for_who_is_about_to_join(broker: Leading) -> None:
    """Else it would run away from a follower of a busy leader, which then could never join."""
    await broker.lead(isr=(1, 2))
    partition = broker.partition()
    catch_up(broker, 2)
    partition.update_follower(3, 0, 0, broker.clock.monotonic())
    broker.produce(batch(b"a"))
    catch_up(broker, 2)
    assert 0 == partition.log.high_watermark
    broker.clock.advance(LAG_SECONDS + 1)
    broker.replicas.shrink_isrs()
    assert 1 == partition.log.high_watermark


async def test_one_change_at_a_time_and_none_for_a_follower(broker: Leading) -> None:
    await broker.lead(isr=(1,))
    catch_up(broker, 2, 3)
    assert (1, 2) == pending(broker.partition()).isr
    assert 1 == len(broker.changes)
    await broker.settle()
    catch_up(broker, 3)
    await broker.settle()
    assert (1, 2, 3) == (await broker.state()).isr
    broker.host(leadership(leader=2, leader_epoch=9, replicas=(1, 2, 3)))
    broker.clock.advance(LAG_SECONDS * 2)
    broker.replicas.shrink_isrs()
    assert 0 == len(broker.changes)


async def test_the_controllers_epoch_and_the_leaders_stay_as_they_are(broker: Leading) -> None:
    await broker.lead(leader_epoch=7)
    before = await broker.state()
    broker.produce(batch(b"a"))
    await shrink(broker)
    after = await broker.state()
    assert (1, 7, 1) == (after.leader, after.leader_epoch, after.controller_epoch)
    assert before.version + 1 == after.version == broker.partition().partition_epoch


async def test_a_change_that_a_new_role_overtook_is_not_written(broker: Leading) -> None:
    await broker.lead()
    broker.produce(batch(b"a"))
    broker.clock.advance(LAG_SECONDS + 1)
    broker.replicas.shrink_isrs()
    broker.host(leadership(leader=2, leader_epoch=9, replicas=(1, 2, 3)))
    await broker.settle()
    assert 0 == (await broker.state()).version
    assert 0 == broker.changes.failures


async def test_waiting_produces_are_answered_when_the_isr_shrinks(broker: Leading) -> None:
    await broker.lead(0, 1)
    reply = broker.produce_request({0: batch(b"a"), 1: batch(b"b")}, acks=-1, timeout_ms=100_000)
    catch_up(broker, 2)
    catch_up(broker, 2, 3, index=1)
    assert not reply.is_done
    await shrink(broker, 2)
    answer = broker.produce_response(reply)
    assert [0, 0] == [each.error_code for each in answer.responses[0].partition_responses]


async def test_a_shrink_below_min_insync_replicas_keeps_produces_waiting(broker: Leading) -> None:
    """KIP-966: what fewer replicas have than were asked for does not become visible either."""
    broker.configure(min_insync_replicas=3)
    await broker.lead()
    reply = broker.produce_request(batch(b"a"), acks=-1, timeout_ms=100_000)
    catch_up(broker, 2)
    await shrink(broker, 2)
    assert not reply.is_done
    assert 0 == broker.partition().log.high_watermark
    assert broker.partition().is_under_min_isr
    assert ErrorCode.NOT_ENOUGH_REPLICAS == broker.produce(batch(b"b"), acks=-1).error_code
    broker.configure(min_insync_replicas=2)
    catch_up(broker, 2)
    assert 0 == broker.produce_response(reply).responses[0].partition_responses[0].error_code


class LostAnswers:
    """Coordination that does the work and loses the answer, so often."""

    def __init__(self, broker: Leading, count: int, *, does_the_work: bool) -> None:
        self._inner = broker.zookeeper.multi_many
        self._left = count
        self._does_the_work = does_the_work
        broker.zookeeper.multi_many = self.multi_many  # type: ignore[method-assign]  # a fault

    async def multi_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | ZooKeeperError]:
        if not self._left:
            return await self._inner(transactions)
        self._left -= 1
        if self._does_the_work:
            await self._inner(transactions)
        return [ConnectionLossError("the answer was lost") for _ in transactions]


@pytest.mark.parametrize("does_the_work", [True, False])
async def test_a_lost_answer_is_asked_for_again(broker: Leading, does_the_work: bool) -> None:
    """The write may or may not have taken effect; the leader assumes neither until it knows."""
    await broker.lead()
    broker.produce(batch(b"a"))
    catch_up(broker, 2)
    LostAnswers(broker, 2, does_the_work=does_the_work)
    await shrink(broker, 2)
    assert (1, 2, 3) == broker.partition().maximal_isr
    assert 0 == broker.partition().log.high_watermark
    assert not await broker.settle()
    assert await broker.settle()
    assert (1, 2) == broker.partition().isr == (await broker.state()).isr
    assert 1 == (await broker.state()).version == broker.partition().partition_epoch
    assert 1 == broker.partition().log.high_watermark


async def test_a_state_that_somebody_changed_in_our_epoch_is_taken_over(broker: Leading) -> None:
    await broker.lead()
    broker.produce(batch(b"a"))
    await broker.write_state(leadership(replicas=(1, 2, 3), isr=(1, 3)))
    await shrink(broker)
    assert (1, 3) == broker.partition().isr
    assert 1 == broker.partition().partition_epoch
    assert broker.partition().pending_isr is None
    assert 1 == broker.changes.failures


async def test_a_state_that_is_gone_leaves_the_change_pending(broker: Leading) -> None:
    """The topic is being deleted."""
    await broker.lead()
    broker.produce(batch(b"a"))
    await broker.zookeeper.delete(paths.partition_state(PARTITION))
    await shrink(broker)
    assert broker.partition().pending_isr is not None
    assert broker.partition().is_leader
    assert 0 == len(broker.changes)


async def test_thousands_of_partitions_change_in_a_few_writes(broker: Leading) -> None:
    count = 600
    await broker.lead(*range(count))
    for index in range(count):
        broker.produce({index: batch(b"a")})
    broker.clock.advance(LAG_SECONDS + 1)
    broker.replicas.shrink_isrs()
    assert count == len(broker.changes)
    assert await broker.settle()
    assert await broker.settle()
    assert 0 == len(broker.changes)
    assert {(1,)} == {partition.isr for partition in broker.replicas.partitions.values()}


# The old leader that wakes up.


async def test_a_paused_leader_steps_down_when_a_newer_one_serves(broker: Leading) -> None:
    """It slept through the election. Nothing it takes is committed, and it does not wait to be told."""
    await broker.lead()
    catch_up(broker, 2, 3)
    await broker.elect(2, 4)
    reply = broker.produce_request(batch(b"lost"), acks=-1, timeout_ms=100_000)
    assert 0 == broker.partition().log.high_watermark
    await shrink(broker)
    partition = broker.partition()
    assert (False, 2, 4) == (partition.is_leader, partition.leader_id, partition.leader_epoch)
    answer = broker.produce_response(reply).responses[0].partition_responses[0]
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == answer.error_code
    assert 0 == partition.log.high_watermark
    assert (2, 3) == (await broker.state()).isr
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == broker.produce(batch(b"b")).error_code


async def test_the_controllers_word_after_stepping_down_changes_nothing_more(broker: Leading) -> None:
    await broker.lead()
    broker.produce(batch(b"a"))
    await broker.elect(2, 4)
    await shrink(broker)
    role = leadership(leader=2, leader_epoch=4, replicas=(1, 2, 3), isr=(2, 3))
    assert {} == broker.host(role)
    assert 2 == broker.partition().leader_id
    await broker.lead(leader_epoch=5)
    assert broker.partition().is_leader


async def test_a_newer_epoch_of_our_own_waits_for_the_controller(broker: Leading) -> None:
    await broker.lead()
    broker.produce(batch(b"a"))
    await broker.elect(1, 4, (1,))
    await shrink(broker)
    partition = broker.partition()
    assert (True, 3) == (partition.is_leader, partition.leader_epoch)
    assert (1, 2, 3) == partition.maximal_isr
    await broker.lead(leader_epoch=5, isr=(1,))
    assert 1 == partition.log.high_watermark


async def test_leadership_is_checked_without_any_change(broker: Leading) -> None:
    """After a session was lost: others may have been elected meanwhile, of some partitions."""
    await broker.lead(0, 1)
    await broker.elect(2, 4, index=1)
    led = list(broker.replicas.partitions.values())
    await broker.changes.check_leadership(broker.replicas, led)
    assert [True, False] == [broker.partition(index).is_leader for index in (0, 1)]


async def test_a_partition_without_a_leader_is_led_no_longer(broker: Leading) -> None:
    await broker.lead()
    await broker.elect(schema.NO_LEADER, 4, (1,))
    await broker.changes.check_leadership(broker.replicas, [broker.partition()])
    assert (False, -1) == (broker.partition().is_leader, broker.partition().leader_id)


# Telling the controller.


async def notices(broker: Leading) -> list[frozenset[TopicPartition]]:
    found = []
    for name in await broker.zookeeper.children(paths.ISR_CHANGES):
        data, _ = await broker.zookeeper.get(f"{paths.ISR_CHANGES}/{name}")
        found.append(schema.decode_isr_change(data))
    return found


async def test_changes_are_announced_together_once_it_is_quiet(broker: Leading) -> None:
    await broker.lead(0, 1)
    for index in (0, 1):
        broker.produce({index: batch(b"a")})
    await shrink(broker)
    await broker.changes.announce()
    assert [] == await notices(broker)
    broker.clock.advance(ANNOUNCE_LINGER_SECONDS)
    await broker.changes.announce()
    await broker.changes.announce()
    assert [{PARTITION, TopicPartition("orders", 1)}] == await notices(broker)


async def test_what_may_complete_a_reassignment_is_announced_at_once(broker: Leading) -> None:
    """A controller of Apache Kafka waits for the notification; Kalda's watches the partition's state."""
    role = leadership(replicas=(1, 2, 3), isr=(1, 2))
    broker.host(await broker.write_state(replace(role, adding_replicas=(3,), removing_replicas=(2,))))
    await broker.lead(1, isr=(1, 2))
    catch_up(broker, 3)
    await broker.settle()
    await broker.changes.announce()
    assert [{PARTITION}] == await notices(broker)
    catch_up(broker, 3, index=1)
    await broker.settle()
    await broker.changes.announce()
    assert 1 == len(await notices(broker)), "the other one is not being reassigned"
    # The end of the reassignment.
    after = replace(await broker.write_state(replace(role, isr=(1, 3), leader_epoch=4)), replicas=(1, 3))
    broker.host(after)
    assert not broker.partition().is_being_reassigned


async def test_replicas_may_leave_the_assignment_before_the_isr(broker: Leading) -> None:
    """A controller of Apache Kafka ends a reassignment so. Nothing waits for the replicas that leave."""
    assert {} == await broker.lead(replicas=(1, 3), isr=(1, 2, 3))
    broker.produce(batch(b"a"))
    catch_up(broker, 3)
    assert 1 == broker.partition().log.high_watermark
    role = await broker.write_state(leadership(replicas=(1, 3), leader_epoch=4))
    assert {} == broker.host(role)
    assert (1, 3) == broker.partition().isr


async def test_a_stream_of_changes_is_announced_after_a_while_all_the_same(broker: Leading) -> None:
    await broker.lead(isr=(1, 2))
    broker.clock.advance(ANNOUNCE_DELAY_SECONDS_MAX)
    catch_up(broker, 3)
    await broker.settle()
    await broker.changes.announce()
    assert 1 == len(await notices(broker))


async def test_a_notice_that_fails_is_sent_later(broker: Leading) -> None:
    await broker.lead(isr=(1, 2))
    catch_up(broker, 3)
    await broker.settle()
    broker.clock.advance(ANNOUNCE_LINGER_SECONDS)
    create = broker.zookeeper.create

    async def fail(*_: object, **__: object) -> str:
        raise ConnectionLossError("gone")

    broker.zookeeper.create = fail  # type: ignore[method-assign]  # a fault
    await broker.changes.announce()
    broker.zookeeper.create = create  # type: ignore[method-assign]  # its end
    await broker.changes.announce()
    assert [{PARTITION}] == await notices(broker)


async def test_a_session_that_was_lost_and_is_anew_makes_leadership_doubtful(broker: Leading) -> None:
    await broker.lead(0, 1)
    await broker.elect(2, 4, index=1)
    check = LeadershipCheck(broker.replicas, broker.changes, seeded())
    task = asyncio.ensure_future(check.run())
    for state in (SessionState.SUSPENDED, SessionState.CONNECTED):
        check.on_session(state)
    await asyncio.sleep(0)
    assert broker.partition(1).is_leader
    for state in (SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED):
        check.on_session(state)
    while broker.partition(1).is_leader:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert broker.partition(0).is_leader
    task.cancel()


async def test_a_check_of_leadership_that_fails_is_due_again(broker: Leading) -> None:
    await broker.lead()

    async def fail(*_: object, **__: object) -> list[None]:
        raise ConnectionLossError("gone")

    broker.zookeeper.get_many = fail  # type: ignore[assignment,method-assign]  # a fault
    assert not await LeadershipCheck(broker.replicas, broker.changes, seeded()).check()
    assert broker.partition().is_leader
