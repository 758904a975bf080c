"""What a leader does for followers: what it reads to them, refuses them, and learns from their fetches."""

import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kalda.broker.replicas.replica_selector import (
    LEADER_ONLY,
    RACK_AWARE,
    RackAwareReplicaSelector,
    make_replica_selector,
)
from kalda.broker.replicas.replication_quota import LEADER_REPLICAS, ReplicationQuota
from kalda.broker.requests.api import Pending
from kalda.broker.requests.handlers import delete_records
from kalda.common.config_def import ConfigError
from kalda.common.errors import ErrorCode
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.common.types import ZERO_UUID, BrokerEndpoint
from kalda.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kalda.protocol.messages.fetch import ReplicaState
from kalda.runtime.clock import Clock, ManualClock
from tests.unit.broker.data_path_fakes import TOPIC, TOPIC_ID, DataPath, batch, leadership, records_of
from tests.unit.broker.handler_parts import finished
from tests.unit.broker.leading_fakes import BROKER_ID, Leading

RACKS = {1: "a", 2: "b", 3: "c"}


def endpoint_of(broker_id: int, listener: str) -> BrokerEndpoint | None:
    if listener != "PLAINTEXT" or broker_id not in RACKS:
        return None
    return BrokerEndpoint(broker_id, "host", 9092, RACKS[broker_id])


class Counted:
    """Counts how often waiting operations are asked."""

    def __init__(self, purgatory: DelayedOperationPurgatory, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keys: list[object] = []
        check = purgatory.check_and_complete

        def counting(key: object) -> int:
            self.keys.append(key)
            return check(key)

        monkeypatch.setattr(purgatory, "check_and_complete", counting)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Leading]:
    leading = await Leading.open(tmp_path, selector=RackAwareReplicaSelector(endpoint_of))
    yield leading
    leading.close()


async def test_a_follower_reads_to_the_end_and_a_consumer_to_the_high_watermark(broker: Leading) -> None:
    await broker.lead()
    broker.produce(batch(b"a"))
    assert b"" == records_of(broker.fetch().responses[0].partitions[0])
    answer = broker.fetch(version=12, replica_id=2, current_leader_epoch=3).responses[0].partitions[0]
    assert b"" != records_of(answer)


@pytest.mark.parametrize(
    ("epoch", "code"), [(3, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
)
async def test_a_broker_that_is_no_replica_is_refused(broker: Leading, epoch: int, code: ErrorCode) -> None:
    """A replica that a reassignment adds may ask before this leader knows of it: it tries again."""
    await broker.lead(replicas=(1, 2))
    assert code == broker.follow(3, 0, current_leader_epoch=epoch)


@pytest.mark.parametrize(
    ("epoch", "code"), [(2, ErrorCode.FENCED_LEADER_EPOCH), (4, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
async def test_a_fetch_of_another_epoch_tells_the_leader_nothing(
    broker: Leading, epoch: int, code: ErrorCode
) -> None:
    """The follower has yet to truncate, or this leader to learn that it leads no more."""
    await broker.lead()
    broker.produce(batch(b"a"))
    for replica in (2, 3):
        assert code == broker.follow(replica, 1, current_leader_epoch=epoch)
    assert -1 == broker.partition().followers[2].log_end_offset
    assert 0 == broker.partition().log.high_watermark


async def test_a_log_that_parts_from_the_leaders_is_not_counted(broker: Leading) -> None:
    await broker.lead(leader_epoch=3)
    broker.produce(batch(b"a"))
    await broker.lead(leader_epoch=5)
    broker.produce(batch(b"b"))
    answer = broker.fetch(
        {0: 2}, version=12, replica_id=2, current_leader_epoch=5, last_fetched_epoch=3
    ).responses[0]
    diverging = answer.partitions[0].diverging_epoch
    assert (3, 1) == (diverging.epoch, diverging.end_offset)
    assert -1 == broker.partition().followers[2].log_end_offset


async def test_an_offset_out_of_range_is_not_counted(broker: Leading) -> None:
    await broker.lead()
    assert ErrorCode.OFFSET_OUT_OF_RANGE == broker.follow(2, 99)
    assert -1 == broker.partition().followers[2].log_end_offset


def follow_as(broker: Leading, offset: int, broker_epoch: int) -> int:
    state = ReplicaState(replica_id=2, replica_epoch=broker_epoch)
    answer = broker.fetch({0: offset}, version=15, replica_state=state, topic_id=TOPIC_ID)
    return int(answer.responses[0].partitions[0].error_code)


async def test_a_fetch_from_an_earlier_life_of_a_broker_is_refused(broker: Leading) -> None:
    """It may have lost records in between: what the old one said it had must not count (KIP-903)."""
    await broker.lead()
    broker.produce(batch(b"a"))
    assert 0 == follow_as(broker, 0, 20)
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == follow_as(broker, 1, 10)
    assert 0 == broker.partition().followers[2].log_end_offset
    assert 0 == follow_as(broker, 1, 21)


async def test_a_followers_answer_carries_the_high_watermark_that_its_fetch_moved(broker: Leading) -> None:
    await broker.lead(replicas=(1, 2))
    broker.produce(batch(b"a"))
    answer = broker.fetch({0: 1}, version=12, replica_id=2, current_leader_epoch=3)
    assert 1 == answer.responses[0].partitions[0].high_watermark


# Waiting.


async def test_an_append_wakes_followers_and_not_consumers(broker: Leading) -> None:
    await broker.lead()
    consumer = broker.fetch_request(max_wait_ms=1000)
    follower = broker.fetch_request(version=12, max_wait_ms=1000, replica_id=2, current_leader_epoch=3)
    broker.produce(batch(b"a"))
    assert follower.is_done
    assert not consumer.is_done
    for replica in (2, 3):
        broker.follow(replica, 1)
    answer = broker.fetch_response(consumer).responses[0].partitions[0]
    assert b"" != records_of(answer)


async def test_what_concerns_consumers_does_not_ask_followers(
    broker: Leading, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.lead()
    partition = broker.partition()
    counted = Counted(broker.purgatories["fetch"], monkeypatch)
    broker.produce(batch(b"a"))
    assert [partition.log_end_key] == counted.keys
    counted.keys.clear()
    for replica in (2, 3):
        broker.follow(replica, 1)
    assert [partition] == counted.keys


async def test_a_consumer_of_many_partitions_gets_all_that_one_follower_fetch_moved(broker: Leading) -> None:
    await broker.lead(0, 1, 2, replicas=(1, 2))
    for index in range(3):
        broker.produce({index: batch(b"a")})
    consumer = broker.fetch_request(dict.fromkeys(range(3), 0), max_wait_ms=1000)
    broker.fetch(dict.fromkeys(range(3), 1), version=12, replica_id=2, current_leader_epoch=3)
    answers = broker.fetch_response(consumer).responses[0].partitions
    assert [True] * 3 == [len(records_of(answer)) > 0 for answer in answers]


async def test_enough_bytes_in_all_partitions_together_end_the_wait(broker: Leading) -> None:
    await broker.lead(0, 1, replicas=(1,))
    size = len(batch(b"a"))
    waiting = broker.fetch_request({0: 0, 1: 0}, max_wait_ms=1000, min_bytes=2 * size + 1)
    broker.produce({0: batch(b"a")})
    broker.produce({1: batch(b"a")})
    assert not waiting.is_done
    broker.produce({1: batch(b"a")})
    assert waiting.is_done


@pytest.mark.parametrize("replica", [2, -1])
async def test_a_new_role_ends_every_wait(broker: Leading, replica: int) -> None:
    await broker.lead()
    waiting = broker.fetch_request(version=12, max_wait_ms=1000, replica_id=replica, current_leader_epoch=3)
    await broker.lead(leader_epoch=4)
    answer = broker.fetch_response(waiting, 12).responses[0].partitions[0]
    assert ErrorCode.FENCED_LEADER_EPOCH == answer.error_code


async def test_a_produce_of_many_partitions_waits_for_the_last(broker: Leading) -> None:
    count = 20
    await broker.lead(*range(count), replicas=(1, 2))
    reply = broker.produce_request(dict.fromkeys(range(count), batch(b"a")), acks=-1, timeout_ms=9000)
    for index in range(count):
        assert not reply.is_done
        broker.follow(2, 1, index)
    assert {0} == {
        each.error_code for each in broker.produce_response(reply).responses[0].partition_responses
    }


async def test_a_produce_that_times_out_tells_which_partitions_are_done(broker: Leading) -> None:
    await broker.lead(0, 1, replicas=(1, 2))
    reply = broker.produce_request({0: batch(b"a"), 1: batch(b"b")}, acks=-1, timeout_ms=1000)
    broker.follow(2, 1, 1)
    broker.advance(1001)
    codes = [each.error_code for each in broker.produce_response(reply).responses[0].partition_responses]
    assert [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE] == codes


async def test_too_few_replicas_after_the_append_are_told(broker: Leading) -> None:
    """The records are in the log of whoever is left; the producer decides whether to send them again."""
    await broker.lead(replicas=(1, 2))
    reply = broker.produce_request(batch(b"a"), acks=-1, timeout_ms=1000)
    partition = broker.partition()
    partition.log.advance_high_watermark(1)
    broker.configure(min_insync_replicas=2)
    partition.isr = partition.maximal_isr = (1,)
    broker.replicas.wake(partition)
    code = broker.produce_response(reply).responses[0].partition_responses[0].error_code
    assert ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND == code


async def test_another_leader_in_between_ends_a_waiting_produce(broker: Leading) -> None:
    await broker.lead()
    reply = broker.produce_request(batch(b"a"), acks=-1, timeout_ms=1000)
    role = await broker.write_state(leadership(leader=2, leader_epoch=4, replicas=(1, 2, 3)))
    broker.host(role)
    code = broker.produce_response(reply).responses[0].partition_responses[0].error_code
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == code


# Reading near by (KIP-392).


async def test_a_consumer_is_sent_to_the_replica_in_its_rack(broker: Leading) -> None:
    await broker.lead()
    broker.produce(batch(b"a"))
    for replica in (2, 3):
        broker.follow(replica, 1)
    answer = broker.fetch(rack_id="b", max_wait_ms=1000).responses[0].partitions[0]
    assert (0, 2, b"") == (answer.error_code, answer.preferred_read_replica, records_of(answer))
    for rack in ("a", "x", ""):
        answer = broker.fetch(rack_id=rack).responses[0].partitions[0]
        assert (-1, True) == (answer.preferred_read_replica, len(records_of(answer)) > 0)


@pytest.mark.parametrize("lacks", ["isr", "offset"])
async def test_nobody_is_sent_to_a_replica_that_has_not_what_he_wants(broker: Leading, lacks: str) -> None:
    await broker.lead(isr=(1, 3) if lacks == "isr" else (1, 2, 3))
    broker.produce(batch(b"a"))
    broker.follow(3, 1)
    if lacks == "isr":
        broker.follow(2, 0)
    answer = broker.fetch({0: 1}, rack_id="b").responses[0].partitions[0]
    assert -1 == answer.preferred_read_replica


async def test_a_follower_serves_consumers_up_to_its_high_watermark(broker: Leading) -> None:
    await broker.lead()
    broker.produce(batch(b"a"))
    broker.produce(batch(b"b"))
    partition = broker.partition()
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2, 3)))
    assert b"" == records_of(broker.fetch().responses[0].partitions[0])
    waiting = broker.fetch_request(max_wait_ms=1000)
    partition.log.advance_high_watermark(1)
    broker.replicas.wake(partition)
    answer = broker.fetch_response(waiting).responses[0].partitions[0]
    assert (0, 1) == (answer.error_code, answer.high_watermark)
    assert len(batch(b"a")) == len(records_of(answer))
    old = broker.fetch(version=10).responses[0].partitions[0]
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER == old.error_code


def test_only_kafkas_own_selectors_have_names() -> None:
    assert make_replica_selector(None, endpoint_of) is None
    assert make_replica_selector(LEADER_ONLY, endpoint_of) is None
    assert isinstance(make_replica_selector(RACK_AWARE, endpoint_of), RackAwareReplicaSelector)
    with pytest.raises(ConfigError, match=r"com\.example\.Mine"):
        make_replica_selector("com.example.Mine", endpoint_of)


# Throttling (KIP-73).


def quota(clock: Clock) -> ReplicationQuota:
    made = ReplicationQuota(
        LEADER_REPLICAS,
        BROKER_ID,
        lambda _: {LEADER_REPLICAS: "*"},
        clock,
        sample_count=11,
        sample_seconds=1,
    )
    made.set_rate(10)
    return made


@pytest.fixture
async def throttled(tmp_path: Path) -> AsyncIterator[Leading]:
    leading = await Leading.open(tmp_path, leader_quota=_LateQuota(quota))
    yield leading
    leading.close()


class _LateQuota:
    """A quota by the clock of the data path, which is made later."""

    def __init__(self, make: Callable[[Clock], ReplicationQuota]) -> None:
        self._quota = make(ManualClock())

    def __getattr__(self, name: str) -> object:
        return getattr(self._quota, name)


async def test_a_replica_that_is_moved_is_throttled_and_one_in_sync_never(throttled: Leading) -> None:
    await throttled.lead(isr=(1, 2))
    throttled.produce(batch(b"a" * 1000))
    options: dict[str, Any] = {"version": 12, "current_leader_epoch": 3}
    first = throttled.fetch(replica_id=3, **options).responses[0].partitions[0]
    assert b"" != records_of(first)
    assert b"" == records_of(throttled.fetch(replica_id=3, **options).responses[0].partitions[0])
    assert b"" != records_of(throttled.fetch(replica_id=2, **options).responses[0].partitions[0])
    waiting = throttled.fetch_request(replica_id=3, max_wait_ms=500, **options)
    throttled.produce(batch(b"b"))
    assert not waiting.is_done
    throttled.advance(501)
    assert waiting.is_done


# Roles in bulk.


def test_a_partition_epoch_that_goes_back_is_ignored(tmp_path: Path) -> None:
    broker = DataPath(tmp_path)
    broker.host(replace(leadership(replicas=(1, 2)), partition_epoch=5))
    stale = replace(leadership(leader=2, leader_epoch=4, replicas=(1, 2)), partition_epoch=4)
    assert {} == broker.host(stale)
    assert broker.partition().is_leader
    broker.close()


def test_the_same_role_twice_changes_nothing(tmp_path: Path) -> None:
    broker = DataPath(tmp_path)
    broker.host(leadership(replicas=(1, 2)))
    followers = broker.partition().followers
    assert {} == broker.host(leadership(replicas=(1, 2)))
    assert followers is broker.partition().followers
    broker.close()


def test_a_first_request_sets_logs_of_earlier_topics_aside(tmp_path: Path) -> None:
    """The topic was deleted and made anew while this broker was down: other records under the same name."""
    broker = DataPath(tmp_path)
    broker.host(leadership())
    broker.produce(batch(b"old"))
    new = leadership(topic_id=uuid.UUID(int=99), leader_epoch=0)
    assert [ErrorCode.INCONSISTENT_TOPIC_ID] == list(broker.host(new).values())
    assert {} == broker.host(new, is_full=True)
    assert (0, 0) == (broker.partition().log.log_end_offset, broker.partition().leader_epoch)
    assert 1 == len(list(tmp_path.glob("orders-0.*-stray")))
    broker.close()


@pytest.mark.parametrize("is_full", [True, False])
def test_a_topic_whose_id_comes_later_keeps_its_records(tmp_path: Path, *, is_full: bool) -> None:
    """A controller with an inter-broker protocol below 2.8 sends no ids; one that is upgraded does."""
    broker = DataPath(tmp_path)
    assert {} == broker.host(leadership(topic_id=ZERO_UUID))
    broker.produce(batch(b"a"))
    assert {} == broker.host(leadership(), is_full=is_full)
    answer = broker.fetch(version=13).responses[0].partitions[0]
    assert (ErrorCode.NONE, 1) == (answer.error_code, answer.high_watermark)
    assert TOPIC_ID == broker.partition().log.topic_id
    assert {} == broker.host(leadership(topic_id=ZERO_UUID, leader_epoch=4))
    assert ErrorCode.NONE == broker.fetch(version=13).responses[0].partitions[0].error_code
    broker.close()

    broker = DataPath(tmp_path)
    assert {} == broker.host(leadership(topic_id=ZERO_UUID, leader_epoch=5), is_full=True)
    assert 1 == broker.partition().log.log_end_offset
    another = leadership(topic_id=uuid.UUID(int=99), leader_epoch=6)
    assert [ErrorCode.INCONSISTENT_TOPIC_ID] == list(broker.host(another).values())
    assert [] == list(tmp_path.glob("*-stray"))
    broker.close()


def test_a_log_with_the_zero_id_of_an_earlier_version_is_no_stray(tmp_path: Path) -> None:
    broker = DataPath(tmp_path)
    broker.host(leadership(topic_id=ZERO_UUID), leadership(partition=1, topic_id=ZERO_UUID))
    broker.produce({0: batch(b"a"), 1: batch(b"b")})
    broker.close()
    for index in (0, 1):
        path = tmp_path / f"orders-{index}" / "partition.metadata"
        path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")

    broker = DataPath(tmp_path)
    assert {} == broker.host(leadership(), is_full=True)
    broker.replicas.roles.set_unassigned_strays_aside({"orders": TOPIC_ID}.__getitem__)
    assert [] == list(tmp_path.glob("*-stray"))
    assert {} == broker.host(leadership(partition=1))
    assert [1, 1] == [broker.partition(index).log.log_end_offset for index in (0, 1)]
    broker.close()


def test_a_follower_names_a_topic_as_the_controller_does(tmp_path: Path) -> None:
    """Without the controller's ids the leader knows no topic by its id."""
    asked: list[bool] = []
    fetching = SimpleNamespace(
        follow=lambda partitions: asked.extend(each.is_named_by_id for each in partitions),
        unfollow=lambda _: None,
    )
    broker = DataPath(tmp_path, fetching=fetching)
    for topic_id in (ZERO_UUID, TOPIC_ID, ZERO_UUID):
        assert {} == broker.host(leadership(topic_id=topic_id, leader=2, replicas=(1, 2)))
    assert [False, True, False] == asked
    broker.close()


def test_a_log_without_a_role_gives_way_to_a_new_topic_of_its_name(tmp_path: Path) -> None:
    """The topic was created again while this broker was down, and gets a replica here only now."""
    broker = DataPath(tmp_path)
    broker.host(leadership())
    broker.produce(batch(b"old"))
    broker.close()

    broker = DataPath(tmp_path)
    assert {} == broker.host(leadership(topic_id=uuid.UUID(int=99), leader_epoch=0))
    assert 0 == broker.partition().log.log_end_offset
    assert 1 == len(list(tmp_path.glob("orders-0.*-stray")))
    broker.close()


def test_logs_without_a_role_are_set_aside_only_where_their_topic_has_another_id(tmp_path: Path) -> None:
    """A topic that the cluster does not know may be under deletion, which goes on with its log."""
    broker = DataPath(tmp_path)
    broker.host(leadership(), leadership(partition=1))
    broker.close()

    broker = DataPath(tmp_path)
    broker.host(leadership())
    for topic_id in (broker.partition().topic_id, ZERO_UUID):
        broker.replicas.roles.set_unassigned_strays_aside({"orders": topic_id}.__getitem__)
    assert [] == list(tmp_path.glob("*-stray"))
    broker.replicas.roles.set_unassigned_strays_aside({"orders": uuid.UUID(int=99)}.__getitem__)
    assert [1] == [int(path.name[7]) for path in tmp_path.glob("*-stray")]
    broker.close()


def test_a_new_leader_keeps_the_high_watermark_it_had(tmp_path: Path) -> None:
    broker = DataPath(tmp_path)
    broker.host(leadership(replicas=(1, 2), isr=(1,)))
    broker.produce(batch(b"a"))
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    broker.host(leadership(leader_epoch=5, replicas=(1, 2)))
    assert 1 == broker.partition().log.high_watermark
    broker.close()


# Deleting records.


def delete(broker: Leading, *offsets: int) -> Pending[DeleteRecordsResponse]:
    """Have each partition deleted up to its offset."""
    partitions = [
        DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in enumerate(offsets)
    ]
    topic = DeleteRecordsTopic(name=TOPIC, partitions=partitions)
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
    return finished(
        delete_records.handle(
            broker.replicas, broker.purgatories["delete_records"], request, broker.context(2)
        )
    )


def outcomes(reply: Pending[DeleteRecordsResponse]) -> list[tuple[int, int]]:
    return [(each.error_code, each.low_watermark) for each in reply.value.topics[0].partitions]


async def test_records_are_deleted_once_every_live_replica_has(broker: Leading) -> None:
    """One that becomes leader before it has raised its start would show them again."""
    await broker.lead(0, 1, replicas=(1, 2, 9), isr=(1, 2))
    for index in (0, 1):
        broker.produce({index: batch(b"a")})
        broker.follow(2, 1, index)
    reply = delete(broker, 1, 1)
    assert not reply.is_done
    broker.follow(2, 1, 0, log_start_offset=1)
    assert not reply.is_done
    broker.follow(2, 1, 1, log_start_offset=1)
    assert [(0, 1), (0, 1)] == outcomes(reply)


async def test_a_replica_that_does_not_follow_in_time_is_told(broker: Leading) -> None:
    await broker.lead(0, 1, replicas=(1, 2))
    for index in (0, 1):
        broker.produce({index: batch(b"a")})
        broker.follow(2, 1, index)
    reply = delete(broker, 1, 1)
    broker.follow(2, 1, 1, log_start_offset=1)
    broker.advance(1001)
    assert [(ErrorCode.REQUEST_TIMED_OUT, -1), (0, 1)] == outcomes(reply)


async def test_a_deletion_ends_with_the_leadership(broker: Leading) -> None:
    await broker.lead(replicas=(1, 2))
    broker.produce(batch(b"a"))
    broker.follow(2, 1)
    reply = delete(broker, 1)
    broker.host(leadership(leader=2, leader_epoch=4, replicas=(1, 2)))
    assert [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)] == outcomes(reply)
