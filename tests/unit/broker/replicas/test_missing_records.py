"""How a replica gets the records back that its disk has lost, and when it stops to wait for them."""

import asyncio
import errno
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from kalda.broker.replicas.in_sync import FollowerState
from kalda.broker.replicas.missing_search import DISK_PAUSE_SECONDS, LATE_PAUSE_SECONDS, PAUSE_SECONDS
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.fetch import PartitionData
from kalda.records.batch import iter_headers, set_base_offset_and_leader_epoch
from kalda.storage.errors import RecordsMissingError
from kalda.storage.log_config import CleanupPolicy
from kalda.storage.missing_offsets import OffsetRange
from tests.unit.broker.replicas.missing_records_fakes import (
    ALL,
    HERE,
    RECORDS,
    SMALL,
    Damaged,
    damaged,
    fail_with,
    whole,
)
from tests.unit.storage.faulty_file_system import FaultyFileSystem
from tests.unit.storage.log_fixtures import Broker, QueueExecutor, append, batch


def without(*gone: int) -> list[tuple[int, bytes]]:
    return [(offset, value) for offset, value in ALL if offset not in gone]


async def test_a_gap_is_filled_from_the_leader() -> None:
    here = Damaged(damaged(5), whole(), whole())
    assert here.follow()
    with pytest.raises(RecordsMissingError):
        here.log.read(7, 1_000)
    assert await here.search() is None
    assert ALL == here.records()
    assert not here.log.missing.ranges
    assert here.settled == [here.partition]
    assert [2] == here.dialled
    assert all(each.is_closed for each in here.connections)


def diverged(first: int) -> Broker:
    """Return a replica whose records from `first` on are those of a later leader."""
    broker = whole(first)
    for number in range(first, RECORDS):
        append(broker.log, b"later %d" % number, leader_epoch=1)
    return broker


@pytest.mark.parametrize("first", [1, 4])
async def test_a_follower_truncates_where_its_leader_has_other_records_before_the_gap(first: int) -> None:
    """A power failure brought back what it had replaced; filling the gap would hide the difference."""
    here = Damaged(damaged(15), diverged(first), whole())
    here.partition.leader_epoch = 7
    assert here.follow()
    assert await here.search() is None
    assert first == here.log.log_end_offset
    assert ALL[:first] == here.records()
    assert not here.log.missing.ranges
    assert here.settled == [here.partition]
    assert [(7, 0)] == here.peers[2].epochs
    assert [2] == here.dialled


async def test_records_after_the_gap_do_not_hide_that_the_log_diverges_before_it() -> None:
    """The end of the log has the leader's epoch, so that a fetch there would find nothing wrong."""
    here = Damaged(damaged(5), diverged(3))
    here.log.leader_epochs.insert(1, 10)
    here.follow()
    assert await here.search() is None
    assert 3 == here.log.log_end_offset
    assert ALL[:3] == here.records()


async def test_a_replica_that_does_not_lead_decides_nothing_about_records_before_the_gap() -> None:
    here = Damaged(damaged(5), whole(), diverged(3))
    here.peers[2].is_alive = False
    here.follow()
    assert PAUSE_SECONDS == await here.search()
    assert RECORDS == here.log.log_end_offset
    assert {(-1, -1)} == set(here.peers[3].epochs)


async def test_a_leader_does_not_truncate_for_a_replica_with_other_records() -> None:
    here = Damaged(damaged(5), diverged(3))
    here.lead()
    await here.search()
    assert RECORDS == here.log.log_end_offset
    assert {(-1, -1)} == set(here.peers[2].epochs)


async def test_an_answer_of_a_leader_that_has_been_replaced_truncates_nothing() -> None:
    here = Damaged(damaged(5), diverged(3))

    def replaced(offset: int, data: PartitionData) -> PartitionData:
        here.partition.leader_epoch += 1
        return data

    here.peers[2].change = replaced
    here.follow()
    assert PAUSE_SECONDS == await here.search()
    assert RECORDS == here.log.log_end_offset
    assert ((5, 10),) == here.log.missing.ranges


async def test_a_leader_reads_again_without_being_followed() -> None:
    here = Damaged(damaged(5), whole())
    assert not here.lead()
    assert await here.search() is None
    assert here.log.read(7, 1_000).records.size
    assert not here.settled


async def test_the_next_replica_is_asked_for_what_the_first_lacks() -> None:
    here = Damaged(damaged(5), damaged(5), whole())
    here.peers[2].log.missing.is_withheld = True
    here.follow()
    assert await here.search() is None
    assert ALL == here.records()
    assert [2, 3] == here.dialled


@pytest.mark.parametrize("fetch_bytes", [1, 150, 10_000])
async def test_a_gap_is_filled_by_answers_of_any_size(fetch_bytes: int) -> None:
    here = Damaged(damaged(5, 10), whole(), fetch_bytes=fetch_bytes)
    here.lead()
    assert await here.search() is None
    assert ALL == here.records()


async def test_two_gaps_are_filled_in_one_round() -> None:
    here = Damaged(damaged(0, 10), whole())
    here.lead()
    assert await here.search() is None
    assert ALL == here.records()
    assert [2] == here.dialled


async def test_replicas_that_lost_different_records_complete_each_other() -> None:
    here = Damaged(damaged(0, 10), damaged(0), damaged(10))
    here.lead()
    assert await here.search() is None
    assert ALL == here.records()


async def test_what_one_replica_began_another_completes() -> None:
    """The first was asked for the beginning, which it lacks; it has the end, which the second lacks."""
    here = Damaged(damaged(5), whole(), whole())

    def lacks_five(offset: int, data: PartitionData) -> PartitionData:
        return PartitionData(error_code=ErrorCode.OFFSET_NOT_AVAILABLE) if offset == 5 else data

    def lacks_seven(offset: int, data: PartitionData) -> PartitionData:
        assert isinstance(data.records, bytes)
        if offset == 7:
            return PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
        third = [position for position, _ in iter_headers(data.records)][2]
        return replace_records(data, data.records[:third])

    here.peers[2].change, here.peers[3].change = lacks_five, lacks_seven
    here.lead()
    assert PAUSE_SECONDS == await here.search()
    assert ((7, 10),) == here.log.missing.ranges
    assert not here.log.missing.is_given_up
    assert await here.search(PAUSE_SECONDS) is None
    assert ALL == here.records()


async def test_records_behind_what_a_replica_lacks_are_taken() -> None:
    """Readers of a replica that has given up skip its gap, and so does this one."""
    here = Damaged(damaged(5), whole())

    def without_six(offset: int, data: PartitionData) -> PartitionData:
        assert isinstance(data.records, bytes)
        parts = [
            data.records[position : position + header.size]
            for position, header in iter_headers(data.records)
            if header.base_offset != 6
        ]
        return replace_records(data, b"".join(parts))

    here.peers[2].change = without_six
    here.lead()
    assert await here.search() is None
    assert without(6) == here.records()
    assert ((6, 7),) == here.log.missing.ranges
    assert here.log.missing.is_given_up


def replace_records(data: PartitionData, records: bytes) -> PartitionData:
    return PartitionData(high_watermark=data.high_watermark, records=records)


async def test_records_that_nobody_has_are_given_up(caplog: pytest.LogCaptureFixture) -> None:
    here = Damaged(damaged(5), damaged(5), damaged(5))
    assert here.follow()
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        assert await here.search() is None
    assert ["orders-0: offsets 5 to 9 are lost here and at all other replicas; readers skip them"] == [
        record.getMessage() for record in caplog.records
    ]
    assert here.settled == [here.partition]
    assert without(5, 6, 7, 8, 9) == here.records()
    assert RECORDS == here.log.log_end_offset


async def test_two_replicas_that_search_for_the_same_records_do_not_wait_for_each_other() -> None:
    """Later one of them may have got a part elsewhere, so it is asked again."""
    here = Damaged(damaged(5), damaged(5))
    here.peers[2].log.missing.is_withheld = True
    here.follow()
    assert LATE_PAUSE_SECONDS == await here.search()
    assert here.settled == [here.partition]
    here.peers[2].log = whole().log
    assert await here.search(LATE_PAUSE_SECONDS) is None
    assert ALL == here.records()


async def test_a_replica_that_lacks_one_gap_is_still_asked_for_another() -> None:
    """One replica lacks the first gap, the other the second one, which the first has not committed yet."""
    here = Damaged(damaged(0, 10), damaged(0), damaged(0, 10))
    here.peers[2].log.high_watermark = 10
    here.lead()
    assert PAUSE_SECONDS == await here.search()
    assert not here.log.missing.is_given_up
    here.peers[2].log.high_watermark = RECORDS
    await here.search(PAUSE_SECONDS)
    assert ((0, 5),) == here.log.missing.ranges


async def test_a_replica_that_does_not_answer_is_waited_for_and_asked_again_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = Damaged(damaged(5), whole())
    here.peers[2].is_alive = False
    here.lead()
    for _ in range(119):
        assert PAUSE_SECONDS == await here.search(PAUSE_SECONDS)
    assert here.log.missing.is_withheld
    with caplog.at_level(logging.ERROR):
        assert LATE_PAUSE_SECONDS == await here.search(PAUSE_SECONDS)
    assert "not all other replicas answered within 30 s" in caplog.text
    assert without(5, 6, 7, 8, 9) == here.records()
    here.peers[2].is_alive = True
    assert await here.search(LATE_PAUSE_SECONDS) is None
    assert ALL == here.records()


async def test_a_follower_waits_for_its_leader_however_long_it_takes() -> None:
    """Without the leader's answer it is not known whether it could have followed with all records."""
    here = Damaged(damaged(5), whole(), whole(3))
    here.peers[2].error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert here.follow(leader=2)
    for _ in range(10):
        assert PAUSE_SECONDS == await here.search(10)
    assert not here.settled
    here.peers[2].error = ErrorCode.NONE
    assert await here.search(PAUSE_SECONDS) is None
    assert here.settled == [here.partition]


async def test_a_follower_does_not_hold_back_the_high_watermark_that_it_waits_for() -> None:
    """With min.insync.replicas=2 of two, the leader's high watermark waits for this follower's fetches."""
    here = Damaged(damaged(5), whole())
    here.peers[2].log.high_watermark = 5
    assert here.follow()
    assert PAUSE_SECONDS == await here.search()
    assert not here.settled
    assert LATE_PAUSE_SECONDS == await here.search(30)
    assert here.settled == [here.partition]
    here.peers[2].log.high_watermark = RECORDS
    assert await here.search(LATE_PAUSE_SECONDS) is None
    assert ALL == here.records()


async def test_a_leader_waits_for_a_replica_to_learn_that_records_are_committed() -> None:
    here = Damaged(damaged(5), whole())
    here.peers[2].log.high_watermark = 7
    here.lead()
    assert PAUSE_SECONDS == await here.search()
    assert ((7, 10),) == here.log.missing.ranges
    here.peers[2].log.high_watermark = RECORDS
    assert await here.search(PAUSE_SECONDS) is None
    assert ALL == here.records()


def flip(records: bytes, position: int) -> bytes:
    content = bytearray(records)
    content[position] ^= 1
    return bytes(content)


def moved(records: bytes, by: int) -> bytes:
    content = bytearray(records)
    for position, header in list(iter_headers(records)):
        set_base_offset_and_leader_epoch(content, position, header.base_offset + by, 0)
    return bytes(content)


def of_epoch(records: bytes, epoch: int) -> bytes:
    content = bytearray(records)
    for position, header in list(iter_headers(records)):
        set_base_offset_and_leader_epoch(content, position, header.base_offset, epoch)
    return bytes(content)


def too_long(records: bytes) -> bytes:
    content = batch(*[b"x"] * 6)
    set_base_offset_and_leader_epoch(content, 0, 5, 0)
    return bytes(content)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda records: flip(records, 65), id="bad CRC"),
        pytest.param(lambda records: moved(records, -1), id="offsets below the gap"),
        pytest.param(lambda records: moved(records, 5), id="offsets above the gap"),
        pytest.param(lambda records: of_epoch(records, 1), id="another leader's records"),
        pytest.param(too_long, id="overlaps the records behind the gap"),
        pytest.param(lambda records: records[:40], id="not a whole batch"),
    ],
)
async def test_records_that_do_not_belong_in_the_gap_are_refused_and_asked_of_the_next(
    spoil: Callable[[bytes], bytes],
) -> None:
    here = Damaged(damaged(5), whole(), whole())

    def change(_: int, data: PartitionData) -> PartitionData:
        assert isinstance(data.records, bytes)
        return replace_records(data, spoil(data.records))

    here.peers[2].change = change
    here.lead()
    assert await here.search() is None
    assert ALL == here.records()
    assert [2, 3] == here.dialled
    assert not here.leftovers()


async def test_records_that_are_refused_are_not_called_lost_elsewhere(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An operator would give records up that another replica has."""
    here = Damaged(damaged(5), whole())

    def change(_: int, data: PartitionData) -> PartitionData:
        assert isinstance(data.records, bytes)
        return replace_records(data, of_epoch(data.records, 1))

    here.peers[2].change = change
    here.lead()
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        assert await here.search() is None
    (record,) = caplog.records
    expected = (
        "orders-0: offsets 5 to 9 are lost here and what the other replicas have there does not continue the "
        "records here; readers skip them"
    )
    assert expected == record.getMessage()


async def test_whole_batches_in_front_of_a_bad_one_are_kept() -> None:
    here = Damaged(damaged(5), whole())

    def change(_: int, data: PartitionData) -> PartitionData:
        assert isinstance(data.records, bytes)
        third = [position for position, _ in iter_headers(data.records)][2]
        return replace_records(data, flip(data.records, third + 65))

    here.peers[2].change = change
    here.lead()
    assert await here.search() is None
    assert ((7, 10),) == here.log.missing.ranges
    assert without(7, 8, 9) == here.records()


async def test_a_batch_of_a_compacted_topic_may_reach_over_what_compaction_removed() -> None:
    config = replace(SMALL, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    here = Damaged(damaged(5), whole())
    here.log.update_config(config)

    def compacted(_: int, data: PartitionData) -> PartitionData:
        following = here.peers[2].read(10, 10_000).records
        assert isinstance(data.records, bytes)
        assert isinstance(following, bytes)
        records = data.records + following
        parts = [
            records[position : position + header.size]
            for position, header in iter_headers(records)
            if header.base_offset in (7, 12)
        ]
        return replace_records(data, b"".join(parts))

    here.peers[2].change = compacted
    here.lead()
    assert await here.search() is None
    assert without(5, 6, 8, 9) == here.records()
    assert not here.log.missing.ranges


async def test_a_follower_cuts_a_gap_with_nothing_committed_behind_it() -> None:
    here = Damaged(damaged(15), whole())
    here.peers[2].log.high_watermark = 17
    assert here.follow()
    assert await here.search() is None
    assert 17 == here.log.log_end_offset
    assert ALL[:17] == here.records()
    assert here.settled == [here.partition]


def leading(broker: Broker, *peers: Broker, committed: int) -> Damaged:
    """Return a leader alone in the ISR, whose followers have not fetched yet."""
    here = Damaged(broker, *peers)
    here.log.high_watermark = committed
    for peer in here.peers.values():
        peer.log.high_watermark = committed
    here.partition.leader_epoch = here.partition.leader_epoch_start_offset = 0
    here.partition.isr = here.partition.maximal_isr = (HERE,)
    here.partition.followers = {number: FollowerState() for number in here.peers}
    here.lead()
    return here


async def test_a_leader_cuts_an_end_that_nobody_has_and_that_is_not_committed() -> None:
    """No follower could reach the log end, so none could join the ISR."""
    here = leading(damaged(15), whole(15), whole(12), committed=12)
    here.partition.leader_epoch_start_offset = RECORDS
    here.partition.followers[2].log_end_offset = 15
    here.partition.followers[3].log_end_offset = 12
    assert PAUSE_SECONDS == await here.search()
    assert RECORDS == here.log.log_end_offset, "a replica may still have the records"
    assert await here.search(30) is None
    assert 15 == here.log.log_end_offset == here.partition.leader_epoch_start_offset
    assert ALL[:15] == here.records()
    assert not here.log.missing.ranges
    assert 15 == append(here.log, b"next")


@pytest.mark.parametrize("end", [-1, 16, RECORDS])
async def test_a_leader_keeps_an_end_that_a_follower_may_have(end: int) -> None:
    here = leading(damaged(15), whole(15), whole(12), committed=12)
    here.partition.followers[2].log_end_offset = end
    here.partition.followers[3].log_end_offset = 12
    await here.search()
    assert LATE_PAUSE_SECONDS == await here.search(30)
    assert RECORDS == here.log.log_end_offset
    here.partition.followers[2].log_end_offset = 15
    assert await here.search(LATE_PAUSE_SECONDS) is None
    assert 15 == here.log.log_end_offset


async def test_a_leader_keeps_an_end_of_which_something_was_committed() -> None:
    here = leading(damaged(15), whole(15), committed=16)
    here.peers[2].log.high_watermark = 15
    here.partition.followers[2].log_end_offset = 15
    await here.search()
    await here.search(30)
    assert RECORDS == here.log.log_end_offset
    assert here.log.missing.is_given_up


async def test_a_gap_before_the_end_is_not_cut() -> None:
    here = leading(damaged(10), whole(10), committed=10)
    here.partition.followers[2].log_end_offset = 10
    await here.search()
    await here.search(30)
    assert RECORDS == here.log.log_end_offset


@pytest.mark.parametrize("moment", ["while a replica answers", "while the records are synced"])
async def test_a_partition_that_is_stopped_or_deleted_is_left_alone(
    moment: str, caplog: pytest.LogCaptureFixture
) -> None:
    executor = QueueExecutor()
    here = Damaged(damaged(5, executor=executor), whole())

    def delete() -> None:
        here.missing.drop(here.partition.topic_partition)
        here.partition.is_gone = True
        here.broker.manager.delete(here.partition.topic_partition)

    def answer(_: int, data: PartitionData) -> PartitionData:
        if moment == "while a replica answers":
            delete()
        return data

    here.peers[2].change = answer
    here.follow()
    caplog.clear()
    task = asyncio.create_task(here.search())
    await turns()
    if moment == "while the records are synced":
        delete()
    executor.run()
    assert await task is None
    assert not here.settled
    assert not here.leftovers()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def turns(count: int = 20) -> None:
    """Let other tasks go on until they wait for something that does not come by itself."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("offset", [0, 3, 5, 7])
async def test_a_log_that_is_cut_while_records_are_synced_stays_cut(offset: int) -> None:
    """A search that goes on late does not hold the follower back, which may be told to truncate."""
    executor = QueueExecutor()
    here = Damaged(damaged(5, executor=executor), whole())
    here.follow()
    task = asyncio.create_task(here.search())
    await turns()
    here.log.truncate_to(offset)
    executor.run()
    await turns()
    assert task.done(), "the search waits for ever"
    await task
    assert offset == here.log.log_end_offset
    assert here.records() == ALL[: min(offset, 5)]
    assert not here.leftovers()


async def test_a_new_leader_is_asked_when_the_leadership_moves_during_a_round() -> None:
    here = Damaged(damaged(5), whole(), whole())

    def move(_: int, data: PartitionData) -> PartitionData:
        here.peers[2].is_alive = False
        assert here.follow(leader=3)
        return PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)

    here.peers[2].change = move
    here.peers[3].is_alive = False
    assert here.follow(leader=2)
    assert PAUSE_SECONDS == await here.search()
    here.peers[3].is_alive = True
    assert await here.search(PAUSE_SECONDS) is None
    assert [2, 3, 3] == here.dialled
    assert ALL == here.records()


async def test_a_follower_that_is_elected_during_a_round_is_not_followed() -> None:
    here = Damaged(damaged(5), whole())

    def elect(_: int, data: PartitionData) -> PartitionData:
        assert not here.lead()
        return data

    here.peers[2].change = elect
    assert here.follow()
    assert await here.search() is None
    assert ALL == here.records()
    assert not here.settled


async def test_a_full_disk_does_not_make_readers_skip_what_others_have() -> None:
    here = Damaged(damaged(5), whole(), whole())
    here.broker.manager.resources.failures.listen(on_full=lambda directory: None)
    here.lead()
    here.files.space_left = 100
    assert DISK_PAUSE_SECONDS == await here.search()
    assert "/data" in here.broker.manager.resources.failures.full, "leaderships move, as for any write"
    for _ in range(20):
        assert DISK_PAUSE_SECONDS == await here.search(DISK_PAUSE_SECONDS)
    assert here.log.missing.is_withheld
    assert not here.leftovers()
    here.files.space_left = None
    assert await here.search(DISK_PAUSE_SECONDS) is None
    assert ALL == here.records()


@pytest.mark.parametrize(
    ("operation", "path"),
    [("sync", ""), ("rename", "tmp"), ("replace", "missing-offsets"), ("write", "")],
)
async def test_a_disk_that_fails_at_any_step_leaves_the_log_as_it_was(operation: str, path: str) -> None:
    """Two gaps, so that the list of what is missing is written again."""
    here = Damaged(damaged(0, 10), whole())
    here.lead()
    fail_with(here.files, errno.EDQUOT, operation, path=path)
    await here.search()
    assert without(0, 1, 2, 3, 4, 10, 11, 12, 13, 14) == here.records()
    assert (OffsetRange(0, 5), OffsetRange(10, 15)) == here.log.missing.ranges
    assert not here.leftovers()
    here.files.fault = None
    killed = here.broker.kill().log
    assert (0, 10) == (killed.log_start_offset, killed.missing.count)
    assert await here.search(DISK_PAUSE_SECONDS) is None
    assert ALL == here.records()
    assert ALL == Damaged(here.broker.stop()).records()


@pytest.mark.parametrize("is_power_cut", [False, True])
async def test_a_crash_at_any_step_costs_the_work_only(is_power_cut: bool) -> None:
    """Two gaps, one of them with an empty segment in the log at its beginning."""
    steps = 0
    while True:
        here = Damaged(damaged(0, 10), whole())
        here.broker.manager.resources.failures.listen(on_full=lambda directory: None)
        is_done = crash_after(here.files, steps)
        here.lead()
        await here.search()
        restarted = here.broker.cut_power() if is_power_cut else here.broker.kill()
        again = Damaged(restarted, whole())
        found = again.records()
        assert [pair for pair in ALL if pair in found] == found
        assert set(without(0, 1, 2, 3, 4, 10, 11, 12, 13, 14)) <= set(found)
        assert again.log.missing.count == RECORDS - len(found)
        again.lead()
        await again.search()
        assert ALL == again.records(), f"after a crash at step {steps}"
        if is_done():
            return
        steps += 1


def crash_after(files: FaultyFileSystem, steps: int) -> Callable[[], bool]:
    """Have everything fail after some operations that change files; tell whether nothing had to."""
    left = steps

    def fault(operation: str, name: str) -> None:
        nonlocal left
        if operation != "read":
            left -= 1
        if left < 0:
            raise OSError(errno.EDQUOT, "the process was killed", name)

    files.fault = fault
    return lambda: left >= 0


async def test_a_broker_that_cannot_be_reached_is_dialled_once_in_a_pass() -> None:
    """Else one that is cut off would hold up each partition's search in turn by a whole time-out."""
    here, other = Damaged(damaged(5), whole()), Damaged(damaged(5), whole())
    here.peers[2].is_alive = False
    here.lead()
    other.partition.topic_partition = other.partition.topic_partition._replace(partition=1)  # type: ignore[misc]
    other.partition.leader_id, other.partition.is_leader = 1, True
    here.missing.take(other.partition)
    await here.search()
    assert [2] == here.dialled
    await here.search(PAUSE_SECONDS)
    assert [2, 2] == here.dialled


async def test_the_pause_begins_when_the_round_is_over() -> None:
    here = Damaged(damaged(5), whole())
    here.peers[2].is_alive = False
    here.dial_seconds = 10
    here.lead()
    assert PAUSE_SECONDS == await here.search()


async def test_a_defect_does_not_keep_readers_waiting(caplog: pytest.LogCaptureFixture) -> None:
    here = Damaged(damaged(5), whole())

    def fail(_: int, data: PartitionData) -> PartitionData:
        raise KeyError("a defect")

    here.peers[2].change = fail
    here.lead()
    assert LATE_PAUSE_SECONDS == await here.search()
    assert "the search for missing records failed" in caplog.text
    assert here.log.missing.is_withheld
    await here.search(LATE_PAUSE_SECONDS)
    assert not here.log.missing.is_withheld


async def test_records_that_retention_deleted_are_not_searched_for() -> None:
    here = Damaged(damaged(5), whole())
    here.log.delete_records_before(7)
    assert (3, False) == (here.log.missing.count, here.log.missing.holds(6))
    here.log.delete_records_before(12)
    assert 0 == here.log.missing.count
    assert not here.follow()


async def test_a_stop_while_a_replica_answers_leaves_no_file_and_no_task() -> None:
    executor = QueueExecutor()
    here = Damaged(damaged(5, executor=executor), whole())
    here.lead()
    task = asyncio.create_task(here.missing.run())
    await turns()
    assert here.leftovers()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    executor.run()
    assert not here.leftovers()
    assert all(each.is_closed for each in here.connections)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert ((5, 10),) == here.log.missing.ranges


async def test_the_running_search_begins_when_a_partition_is_taken() -> None:
    here = Damaged(damaged(5), whole())
    task = asyncio.create_task(here.missing.run())
    await turns()
    here.lead()
    await turns()
    assert ALL == here.records()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_partition_without_other_replicas_is_not_searched_for() -> None:
    here = Damaged(damaged(5))
    assert not here.lead()
    assert await here.search() is None
    assert without(5, 6, 7, 8, 9) == here.records()
