"""What the log keeps up to date beside the records: indexes, epochs, checkpoints, caches, what is synced."""

import errno
import os

import pytest

from kalda.common.types import TopicPartition
from kalda.records.batch import iter_headers, read_header
from kalda.records.control import ControlRecordType
from kalda.storage.checkpoints import read_offset_checkpoint
from kalda.storage.errors import LogStorageError, OutOfOrderSequenceError
from kalda.storage.log_caches import FifoCache
from kalda.storage.log_config import LogConfig
from kalda.storage.log_types import FetchIsolation
from kalda.storage.offset_index import PENDING_ENTRIES_MAX, OffsetIndex, OffsetPosition
from kalda.storage.offsets_for_times import offset_for_max_timestamp, offset_for_timestamp
from kalda.storage.producer_snapshot import format_snapshot
from kalda.storage.transaction_index import AbortedTransaction, TransactionIndex
from tests.unit.storage.faulty_file_system import FaultyFileSystem, Node
from tests.unit.storage.log_fixtures import (
    DIRECTORY,
    NOW_MS,
    PARTITION,
    Broker,
    QueueExecutor,
    append,
    batch,
    read_all,
)
from tests.unit.storage.test_producer_state_manager import ABORT, end_transaction, produce

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=0)
PATH = f"{DIRECTORY}/orders-0"


def test_after_a_flush_every_file_is_on_the_device() -> None:
    broker = Broker(SMALL)
    synced: list[str] = []
    broker.file_system.fault = lambda operation, path: synced.append(path) if operation == "sync" else None
    for number in range(20):
        append(broker.log, b"%d" % number, leader_epoch=number // 5)
    broker.log.flush()
    assert 20 == broker.log.recovery_point
    assert not any(segment.offset_index.has_pending for segment in broker.log.segments)
    for name in broker.file_names():
        node = broker.file_system.nodes[f"{PATH}/{name}"]
        assert broker.file_system.durable_names.get(f"{PATH}/{name}") is node, name
        assert node.durable == bytes(node.content), name
    assert 1 == synced.count(DIRECTORY), "the partition's own name is made durable once"


def test_what_recovery_read_still_counts_as_not_synced() -> None:
    broker = Broker()
    append(broker.log, b"a")
    assert 0 == broker.kill().log.recovery_point


def test_truncation_takes_the_recovery_point_down() -> None:
    log = Broker(SMALL).log
    for _ in range(20):
        append(log, b"x")
    log.flush()
    log.truncate_to(7)
    assert 7 == log.recovery_point


def test_truncation_drops_index_entries_in_memory_and_on_disk() -> None:
    broker = Broker(LogConfig(index_interval_bytes=0))
    for number in range(150):
        append(broker.log, b"%d" % number, timestamp=NOW_MS + number)
    (segment,) = broker.log.segments
    assert segment.offset_index.written > 100
    assert segment.offset_index.has_pending
    for offset in (145, 100):
        broker.log.truncate_to(offset)
        assert offset - 1 == segment.offset_index.last().offset
        assert (NOW_MS + offset - 1, offset - 1) == segment.time_index.last()
        assert (NOW_MS + offset - 1, offset - 1) == segment.largest
    append(broker.log, b"earlier", timestamp=NOW_MS)
    append(broker.log, b"later", timestamp=NOW_MS + 101)
    assert 101 == segment.offset_index.last().offset
    assert (NOW_MS + 101, 101) == segment.time_index.last()


def test_reads_after_a_truncation_do_not_use_old_positions() -> None:
    log = Broker().log
    for _ in range(10):
        append(log, b"x")
    log.truncate_to(5)
    append(log, *[b"long" * 20] * 4)
    append(log, b"y")
    stored = log.read(7, 1000).records.read()
    assert (5, 8) == (read_header(stored).base_offset, read_header(stored).last_offset)


def test_truncation_drops_leader_epochs() -> None:
    log = Broker().log
    for epoch in range(4):
        append(log, b"a", b"b", leader_epoch=epoch)
    log.truncate_to(5)
    assert ((0, 0), (1, 2), (2, 4)) == log.leader_epochs.entries


def test_a_start_brings_stale_leader_epochs_to_the_start_offset() -> None:
    broker = Broker()
    for epoch in range(4):
        append(broker.log, b"a", b"b", leader_epoch=epoch)
    stale = bytes(broker.file_system.nodes[f"{PATH}/leader-epoch-checkpoint"].content)
    broker.log.delete_records_before(5)
    broker.manager.checkpoint_log_start_offsets()
    after = broker.file_system.crash()
    after.nodes[f"{PATH}/leader-epoch-checkpoint"] = Node(stale)
    assert ((2, 5), (3, 6)) == Broker(file_system=after).log.leader_epochs.entries


def test_a_log_ends_at_its_high_watermark_at_least() -> None:
    """What is below was acknowledged: another record at its offset would be taken for it."""
    broker = Broker()
    for _ in range(3):
        append(broker.log, b"x")
    broker.manager.checkpoint_high_watermarks()
    after = broker.file_system.crash()
    del after.nodes[f"{PATH}/{0:020d}.log"].content[-1:]
    restarted = Broker(file_system=after)
    assert (3, 3) == (restarted.log.high_watermark, restarted.log.log_end_offset)
    assert ((2, 3),) == restarted.log.missing.ranges
    assert 3 == append(restarted.log, b"x")


def test_an_index_that_cannot_belong_to_its_log_is_rebuilt() -> None:
    broker = Broker(SMALL)
    for number in range(20):
        append(broker.log, b"%d" % number)
    broker.manager.close()
    after = broker.file_system.crash()
    index = after.nodes[f"{PATH}/{0:020d}.index"]
    good = bytes(index.content)
    index.content[-4:] = (10_000).to_bytes(4)
    restarted = Broker(SMALL, after)
    assert good == bytes(index.content)
    assert list(range(20)) == [offset for offset, _ in read_all(restarted.log)]


@pytest.mark.parametrize("kill_at", range(4, 8))
def test_a_kill_does_not_shift_the_index_entries_that_follow(kill_at: int) -> None:
    config = LogConfig(index_interval_bytes=150)
    whole, killed = Broker(config), Broker(config)
    for number in range(20):
        if number == kill_at:
            killed = killed.kill()
        append(whole.log, b"x", timestamp=NOW_MS + number)
        append(killed.log, b"x", timestamp=NOW_MS + number)
    whole.log.segments[0].write_pending()
    killed.log.segments[0].write_pending()
    path = f"{PATH}/{0:020d}.index"
    assert whole.file_system.nodes[path].content == killed.file_system.nodes[path].content


def test_a_follower_indexes_each_batch_of_an_append() -> None:
    """The entries are then the leader's, and `dump-log` finds at each position the offset of its entry."""
    config = LogConfig(index_interval_bytes=150)
    leader, follower = Broker(config), Broker(config)
    for number in range(20):
        # The times do not ascend.
        append(leader.log, b"x" * number, timestamp=NOW_MS + number ^ 1)
    copied = leader.log.read(0, 100_000, FetchIsolation.LOG_END).records.read()
    batches = iter_headers(copied)
    end = next(position for position, header in batches if header.base_offset == 13)
    follower.log.append_as_follower(bytearray(copied[:end]))
    follower.log.append_as_follower(bytearray(copied[end:]))
    leader.log.segments[0].finish_indexes()
    follower.log.segments[0].finish_indexes()
    for suffix in ("index", "timeindex"):
        path = f"{PATH}/{0:020d}.{suffix}"
        assert leader.file_system.nodes[path].content == follower.file_system.nodes[path].content
    assert follower.log.segments[0].offset_index.entries > 5
    assert leader.log.segments[0].largest == follower.log.segments[0].largest


def test_a_follower_fills_an_index_no_further_than_its_size() -> None:
    leader = Broker(LogConfig(index_interval_bytes=0))
    for _ in range(20):
        append(leader.log)
    copied = leader.log.read(0, 100_000, FetchIsolation.LOG_END).records.read()
    follower = Broker(LogConfig(index_interval_bytes=0, segment_index_bytes=48))
    follower.log.append_as_follower(bytearray(copied))
    assert 3 == follower.log.segments[0].offset_index.entries
    append(follower.log)
    assert [0, 20] == [segment.base_offset for segment in follower.log.segments]


@pytest.mark.parametrize("restart", ["kill", "stop"])
def test_the_largest_timestamp_survives_a_restart(restart: str) -> None:
    """Retention and time-based rolling go by it; the last time index entry must be there."""
    broker = Broker(LogConfig(retention_ms=1000))
    append(broker.log, b"a", timestamp=NOW_MS + 5)
    append(broker.log, b"b", timestamp=NOW_MS + 1)
    restarted = broker.kill() if restart == "kill" else broker.stop()
    restarted.log.advance_high_watermark(2)
    assert (NOW_MS + 5, 0) == restarted.log.segments[0].largest
    restarted.clock.advance(1.005)
    assert 0 == restarted.log.delete_old_segments()
    restarted.clock.advance(0.001)
    assert 1 == restarted.log.delete_old_segments()


@pytest.mark.parametrize("damage", ["emptied", "zeroed", "cut", "of another time"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_time_index_that_does_not_fit_its_log_is_made_again(number: int, damage: str) -> None:
    """A copy or a file system check may leave such a file: look-ups and retention must not believe it."""
    config = LogConfig(segment_bytes=800, index_interval_bytes=100)
    broker = Broker(config)
    for offset in range(30):
        append(broker.log, b"x" * 30, timestamp=NOW_MS + offset)
    assert len(broker.log.segments) > 3
    segment = broker.log.segments[-1 if number == 2 else number]
    broker.manager.close()
    after = broker.file_system.crash()
    index = after.nodes[f"{PATH}/{segment.base_offset:020d}.timeindex"]
    good = bytes(index.content)
    if damage == "emptied":
        del index.content[:]
    elif damage == "cut":
        del index.content[-12:]
    elif damage == "zeroed":
        index.content[:] = bytes(len(good))
    else:
        index.content[-12:-4] = (NOW_MS + 500).to_bytes(8)
    restarted = Broker(config, after)
    found = [offset_for_timestamp(restarted.log, NOW_MS + offset) for offset in range(30)]
    assert [(NOW_MS + offset, offset) for offset in range(30)] == [each and each[:2] for each in found]
    newest = offset_for_max_timestamp(restarted.log)
    assert newest is not None
    assert (NOW_MS + 29, 29) == newest[:2]
    append(restarted.log, b"y", timestamp=NOW_MS + 30)
    restarted.manager.close()
    assert good == bytes(index.content)[: len(good)]


def test_an_append_after_a_start_does_not_doubt_the_time_index() -> None:
    """What is appended is newer than the index, which says nothing against it."""
    broker = Broker(LogConfig(index_interval_bytes=100))
    for offset in range(10):
        append(broker.log, b"x", timestamp=NOW_MS + offset)
    restarted = broker.stop()
    index = f"{PATH}/{0:020d}.timeindex"
    touched: list[str] = []
    restarted.file_system.fault = lambda operation, path: touched.append(operation) if path == index else None
    append(restarted.log, b"y", timestamp=NOW_MS + 10)
    assert "truncate" not in touched
    assert (NOW_MS + 10, 10) == restarted.log.segments[0].largest


def test_records_without_a_time_need_no_time_index() -> None:
    broker = Broker()
    append(broker.log, b"x", timestamp=-1)
    restarted = broker.stop()
    touched: list[str] = []
    restarted.file_system.fault = lambda operation, _: touched.append(operation)
    assert (-1, 0) == restarted.log.segments[0].largest
    assert "truncate" not in touched


def test_a_disk_that_fails_a_look_up_by_time_is_a_storage_error() -> None:
    broker = Broker()
    append(broker.log, b"x")
    restarted = broker.stop()

    def fail(operation: str, path: str) -> None:
        if operation == "read":
            raise OSError(errno.EIO, "the disk is gone", path)

    restarted.file_system.fault = fail
    with pytest.raises(LogStorageError):
        offset_for_timestamp(restarted.log, NOW_MS)
    with pytest.raises(LogStorageError):
        offset_for_max_timestamp(restarted.log)


def test_an_index_finds_entries_wherever_they_are() -> None:
    """In the file, in the window kept of it, in memory: lookups see one row."""
    index = OffsetIndex(FaultyFileSystem(), "/0.index", 0, 0, FifoCache(10_000))
    for number in range(1, 3 * PENDING_ENTRIES_MAX):
        index.append(10 * number, 100 * number)
        for asked in (1, number // 2, number):
            if asked:
                assert OffsetPosition(10 * asked, 100 * asked) == index.lookup(10 * asked + 9)
                assert OffsetPosition(10 * asked, 100 * asked) == index.first_at_position(100 * asked - 5)
    assert 2 * PENDING_ENTRIES_MAX == index.written


@pytest.mark.parametrize("entries", [511, 512, 513, 1024, 2000])
def test_a_long_index_is_searched_window_by_window(entries: int) -> None:
    file_system = FaultyFileSystem()
    index = OffsetIndex(file_system, "/0.index", 0, 0, FifoCache(10_000))
    for number in range(1, entries + 1):
        index.append(2 * number, 20 * number)
    index.write_pending()
    order = [*range(2 * entries + 3), *range(2 * entries + 2, -1, -1), *range(0, 2 * entries, 37)]
    reads: list[str] = []
    file_system.fault = lambda operation, path: reads.append(path) if operation == "read" else None
    for offset in order:
        found = offset // 2 if offset // 2 <= entries else entries
        assert OffsetPosition(2 * found, 20 * found) == index.lookup(offset)
    assert len(reads) < len(order) // 10 + 100
    assert index.first_at_position(20 * entries + 1) is None


def test_a_failed_index_write_is_made_up_for() -> None:
    file_system = FaultyFileSystem()
    index = OffsetIndex(file_system, "/0.index", 0, 0, FifoCache(10_000))
    for number in range(1, 200):
        file_system.space_left = 0 if number < 150 else None
        index.append(number, 10 * number)
    index.write_pending()
    assert 8 * 199 == len(file_system.nodes["/0.index"].content)
    assert OffsetPosition(77, 770) == index.lookup(77)


def test_a_torn_append_is_cut_off_the_file() -> None:
    broker = Broker()
    append(broker.log, b"a")
    size = broker.log.size
    broker.file_system.space_left = 10
    with pytest.raises(LogStorageError):
        append(broker.log, b"b")
    assert size == len(broker.file_system.nodes[f"{PATH}/{0:020d}.log"].content)


def test_short_writes_are_completed() -> None:
    """A write may take fewer bytes without an error; the rest follows."""
    broker = Broker()
    append(broker.log, b"a")
    taken: list[int] = []

    def take_little(size: int, grown: int) -> int:
        taken.append(min(size, 7))
        return min(size, 7)

    broker.file_system.take_space = take_little  # type: ignore[method-assign]  # the fault under test
    append(broker.log, b"b")
    assert len(taken) > 5
    assert [(0, b"a"), (1, b"b")] == read_all(broker.kill().log)


def test_a_marker_at_the_high_watermark_is_not_replicated_yet() -> None:
    log = Broker().log
    produce(log, 0, producer_id=1, transactional=True)
    end_transaction(log, ABORT, 1)
    log.advance_high_watermark(1)
    assert 0 == log.last_stable_offset
    log.advance_high_watermark(2)
    assert 2 == log.last_stable_offset


def test_an_open_transaction_below_the_start_holds_the_start() -> None:
    log = Broker().log
    produce(log, 0, producer_id=1, transactional=True)
    append(log, b"a")
    append(log, b"b")
    log.delete_records_before(2)
    assert 2 == log.last_stable_offset


def test_the_earliest_open_transaction_counts_after_a_restart() -> None:
    """A snapshot lists producers as they came, not as their transactions began."""
    broker = Broker()
    produce(broker.log, 0, producer_id=1)
    produce(broker.log, 0, producer_id=2, transactional=True)
    produce(broker.log, 1, producer_id=1, transactional=True)
    broker.log.advance_high_watermark(3)
    assert 1 == broker.log.last_stable_offset
    restarted = broker.stop()
    assert 1 == restarted.log.last_stable_offset
    end_transaction(restarted.log, ControlRecordType.COMMIT, 2)
    restarted.log.advance_high_watermark(4)
    assert 2 == restarted.log.last_stable_offset


def test_a_new_epoch_forgets_the_old_ones_batches() -> None:
    log = Broker().log
    for sequence in range(4):
        produce(log, sequence, epoch=0)
    produce(log, 0, epoch=1)
    with pytest.raises(OutOfOrderSequenceError):
        produce(log, 3, epoch=1)


def test_a_read_tells_only_of_aborts_that_it_may_touch() -> None:
    log = Broker(LogConfig(index_interval_bytes=0)).log
    for _ in range(10):
        append(log, b"x" * 50)
    produce(log, 0, producer_id=1, transactional=True)
    end_transaction(log, ABORT, 1)
    log.advance_high_watermark(log.log_end_offset)
    assert [] == log.read(0, 300, FetchIsolation.TXN_COMMITTED).aborted_transactions
    whole = log.read(0, 10_000, FetchIsolation.TXN_COMMITTED)
    assert [AbortedTransaction(1, 10, 11, 12)] == whole.aborted_transactions


def test_the_search_for_aborts_ends_where_all_was_stable() -> None:
    index = TransactionIndex(FaultyFileSystem(), "/0.txnindex", 0)
    index.append(AbortedTransaction(1, 0, 5, 3))
    index.append(AbortedTransaction(2, 3, 9, 10))
    found: list[AbortedTransaction] = []
    assert not index.collect(6, 20, found)
    assert [AbortedTransaction(2, 3, 9, 10)] == found
    assert index.collect(0, 3, found)


def test_snapshots_of_no_segment_are_removed_at_the_start() -> None:
    broker = Broker(SMALL)
    for sequence in range(20):
        produce(broker.log, sequence)
    broker.manager.close()
    after = broker.file_system.crash()
    after.nodes[f"{PATH}/{3:020d}.snapshot"] = Node(format_snapshot([]))
    restarted = Broker(SMALL, after)
    assert f"{3:020d}.snapshot" not in restarted.file_names()
    assert f"{20:020d}.snapshot" in restarted.file_names(), "the one that the clean stop left"


def test_a_moved_high_watermark_alone_is_checkpointed() -> None:
    broker = Broker()
    for _ in range(3):
        broker.log.append_as_leader(batch(b"x"), 0)
    broker.manager.checkpoint_high_watermarks()
    broker.log.advance_high_watermark(2)
    assert {PARTITION} == broker.manager.resources.moved
    broker.manager.checkpoint_high_watermarks()
    assert not broker.manager.resources.moved
    assert 2 == broker.kill().log.high_watermark


def test_a_failed_checkpoint_is_written_with_the_next_call() -> None:
    broker = Broker()
    path = f"{DIRECTORY}/replication-offset-checkpoint"
    append(broker.log, b"a")
    broker.file_system.space_left = 0
    broker.manager.checkpoint_high_watermarks()
    broker.file_system.space_left = None
    assert path not in broker.file_system.nodes
    broker.manager.checkpoint_high_watermarks()
    assert {PARTITION: 1} == read_offset_checkpoint(broker.file_system, path)


def test_a_checkpoint_that_waits_does_not_undo_the_one_of_the_stop() -> None:
    executor = QueueExecutor()
    broker = Broker(executor=executor)
    for _ in range(3):
        append(broker.log, b"x")
    broker.log.delete_records_before(1)
    broker.manager.checkpoint_log_start_offsets()
    broker.log.delete_records_before(2)
    broker.manager.close()
    executor.run()
    assert 2 == Broker(file_system=broker.file_system.crash()).log.log_start_offset


def test_a_deleted_partition_leaves_the_checkpoints() -> None:
    broker = Broker()
    append(broker.manager.get_or_create(TopicPartition("other", 1)), b"x")
    broker.manager.delete(PARTITION)
    broker.manager.checkpoint_high_watermarks()
    offsets = read_offset_checkpoint(broker.file_system, f"{DIRECTORY}/replication-offset-checkpoint")
    assert {TopicPartition("other", 1): 1} == offsets


def test_a_log_that_cannot_be_synced_at_the_stop_prevents_the_marker() -> None:
    broker = Broker()
    append(broker.log, b"a")

    def fail(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    other = TopicPartition("other", 0)
    append(broker.manager.get_or_create(other), b"b")
    broker.manager.get_or_create(other).flush()
    broker.file_system.fault = fail
    broker.manager.close()
    offsets = read_offset_checkpoint(broker.file_system, f"{DIRECTORY}/recovery-point-offset-checkpoint")
    assert {PARTITION: 0, other: 1} == offsets, "it may not claim what was not synced"
    assert f"{DIRECTORY}/.kafka_cleanshutdown" not in broker.file_system.nodes
