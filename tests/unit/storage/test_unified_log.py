"""The log as the broker sees it: appends, reads, bounds, rolling, truncation, retention."""

import errno
import os
import struct
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from kalda.common.errors import ErrorCode
from kalda.records.batch import (
    TimestampType,
    read_header,
    set_log_append_time,
    set_max_timestamp,
    validate,
)
from kalda.records.crc import crc32c
from kalda.records.errors import CorruptRecordError, InvalidRecordError, InvalidTimestampError
from kalda.records.record import RecordBatchBuilder, iter_records
from kalda.storage.errors import (
    LogStorageError,
    MessageTooLargeError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
    UnexpectedAppendOffsetError,
)
from kalda.storage.log_config import CleanupPolicy, LogConfig, TimestampTypeConfig
from kalda.storage.log_types import FetchIsolation
from kalda.storage.offsets_for_times import offset_for_max_timestamp, offset_for_timestamp, offsets_before
from kalda.storage.unified_log import UnifiedLog
from tests.unit.storage.log_fixtures import NOW_MS, Broker, QueueExecutor, append, batch, read_all, values_of

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=0)


def test_appends_get_consecutive_offsets_and_read_back() -> None:
    log = Broker().log
    first = log.append_as_leader(batch(b"a", b"b"), 3)
    second = log.append_as_leader(batch(b"c"), 3)
    assert (0, 1, 2) == (first.first_offset, first.last_offset, first.record_count)
    assert (2, 2, False) == (second.first_offset, second.last_offset, second.duplicate)
    assert [(0, b"a"), (1, b"b"), (2, b"c")] == read_all(log)


def test_append_patches_base_offset_and_leader_epoch_and_keeps_the_rest() -> None:
    log = Broker().log
    append(log, b"before")
    sent = batch(b"x")
    untouched = bytes(sent[16:])
    log.append_as_leader(memoryview(sent), 7)
    stored = log.read(1, 1000, FetchIsolation.LOG_END).records.read()
    header = read_header(stored)
    assert (1, 7) == (header.base_offset, header.partition_leader_epoch)
    assert untouched == stored[16:]


def test_readers_stop_at_the_high_watermark() -> None:
    log = Broker().log
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(batch(value), 0)
    assert [] == read_all(log, isolation=FetchIsolation.HIGH_WATERMARK)
    log.advance_high_watermark(2)
    assert [b"a", b"b"] == values_of(read_all(log, isolation=FetchIsolation.HIGH_WATERMARK))
    assert [b"a", b"b", b"c"] == values_of(read_all(log))


def test_the_bound_holds_when_its_position_left_the_tail_cache() -> None:
    """A follower far behind holds the high watermark back while the leader goes on."""
    log = Broker(LogConfig(index_interval_bytes=0)).log
    for number in range(300):
        log.append_as_leader(batch(b"%d" % number), 0)
    log.advance_high_watermark(100)
    data = read_all(log, 0, FetchIsolation.HIGH_WATERMARK, max_bytes=1_000_000)
    assert list(range(100)) == [offset for offset, _ in data]


def test_high_watermark_never_passes_the_end_nor_goes_back() -> None:
    log = Broker().log
    append(log, b"a", b"b")
    assert 2 == log.high_watermark
    assert not log.advance_high_watermark(99)
    assert not log.advance_high_watermark(1)
    assert 2 == log.high_watermark


@pytest.mark.parametrize("offset", [-1, 3])
def test_offsets_outside_the_log_are_refused(offset: int) -> None:
    log = Broker().log
    append(log, b"a", b"b")
    with pytest.raises(OffsetOutOfRangeError) as raised:
        log.read(offset, 100)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_read_at_the_end_is_empty() -> None:
    log = Broker().log
    append(log, b"a")
    data = log.read(1, 100)
    assert (0, b"", 1) == (data.records.size, data.records.read(), data.high_watermark)


def test_one_batch_comes_however_large_if_asked_for() -> None:
    log = Broker().log
    append(log, b"x" * 5000)
    append(log, b"y")
    assert read_header(log.read(0, 10).records.read()).size == log.read(0, 10).records.size
    assert 0 == log.read(0, 10, min_one_batch=False).records.size


def test_a_read_inside_a_batch_begins_with_that_batch() -> None:
    log = Broker().log
    append(log, b"a", b"b", b"c")
    append(log, b"d")
    assert [(1, b"b"), (2, b"c"), (3, b"d")] == read_all(log, 1)


def test_reads_cross_segments_and_survive_their_deletion() -> None:
    broker = Broker(SMALL)
    for number in range(30):
        append(broker.log, b"%d" % number)
    assert len(broker.log.segments) > 3
    assert [b"%d" % number for number in range(30)] == values_of(read_all(broker.log))
    in_flight = broker.log.read(0, 1000).records
    broker.log.delete_records_before(25)
    broker.log.delete_old_segments()
    broker.clock.advance(61)
    broker.manager.deletion_step()
    assert b"0" == next(iter_records(in_flight.read())).value
    assert not any(name.endswith(".deleted") for name in broker.file_names())


def test_indexes_hold_kafkas_entries() -> None:
    """An entry names the batch's last offset and its position, and comes after more than the interval."""
    broker = Broker(LogConfig(index_interval_bytes=100))
    size = len(batch(b"a", b"b"))
    for number in range(5):
        append(broker.log, b"a", b"b", timestamp=NOW_MS + number)
    broker.log.segments[0].write_pending()
    index = broker.file_system.read(f"{broker.log.directory}/{0:020d}.index")
    words = [int.from_bytes(index[at : at + 4]) for at in range(0, len(index), 4)]
    assert 50 < size <= 100
    assert [5, 2 * size, 9, 4 * size] == words
    time_index = broker.file_system.read(f"{broker.log.directory}/{0:020d}.timeindex")
    assert (NOW_MS + 2).to_bytes(8) + (5).to_bytes(4) + (NOW_MS + 4).to_bytes(8) + (9).to_bytes(
        4
    ) == time_index


def test_too_large_a_batch_is_refused() -> None:
    log = Broker(LogConfig(max_message_bytes=100)).log
    with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes=100"):
        log.append_as_leader(batch(b"x" * 100), 0)
    assert 0 == log.log_end_offset


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = Broker(LogConfig(segment_bytes=100)).log
    with pytest.raises(RecordListTooLargeError) as raised:
        log.append_as_leader(batch(b"x" * 100), 0)
    assert raised.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_bad_crc_is_refused_and_leaves_nothing() -> None:
    log = Broker().log
    bad = batch(b"x")
    bad[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        log.append_as_leader(bad, 0)
    assert (0, 0) == (log.log_end_offset, log.size)


def test_an_append_of_two_batches_is_refused() -> None:
    log = Broker().log
    with pytest.raises(InvalidRecordError):
        log.append_as_leader(batch(b"x") + batch(b"y"), 0)


def test_log_append_time_replaces_the_producers_time() -> None:
    config = LogConfig(message_timestamp_type=TimestampTypeConfig.LOG_APPEND_TIME)
    log = Broker(config).log
    info = log.append_as_leader(batch(b"x", timestamp=5), 0)
    assert NOW_MS == info.log_append_time_ms
    (record,) = iter_records(log.read(0, 1000, FetchIsolation.LOG_END).records.read())
    assert NOW_MS == record.timestamp


def test_create_time_answers_no_append_time() -> None:
    assert -1 == Broker().log.append_as_leader(batch(b"x"), 0).log_append_time_ms


@pytest.mark.parametrize("timestamp", [NOW_MS - 1001, NOW_MS + 501])
def test_timestamps_outside_the_bounds_are_refused(timestamp: int) -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    log = Broker(config).log
    with pytest.raises(InvalidTimestampError):
        log.append_as_leader(batch(b"x", timestamp=timestamp), 0)
    log.append_as_leader(batch(b"x", timestamp=NOW_MS - 1000), 0)
    log.append_as_leader(batch(b"x", timestamp=NOW_MS + 500), 0)


def test_a_claim_of_log_append_time_is_taken_back_where_the_producer_sets_the_time() -> None:
    claimed = batch(b"x", timestamp=5)
    set_log_append_time(claimed, 0, 700)
    log = Broker().log
    log.append_as_leader(claimed, 0)
    stored = log.read(0, 1000, FetchIsolation.LOG_END).records.read()
    header = read_header(stored)
    validate(stored, 0, header)
    assert (TimestampType.CREATE_TIME, 700) == (header.timestamp_type, header.max_timestamp)


@pytest.mark.parametrize(
    ("timestamp_type", "claim"),
    [(TimestampTypeConfig.LOG_APPEND_TIME, NOW_MS), (TimestampTypeConfig.CREATE_TIME, -1)],
)
def test_other_claims_of_log_append_time_are_refused(timestamp_type: TimestampTypeConfig, claim: int) -> None:
    claimed = batch(b"x")
    set_log_append_time(claimed, 0, claim)
    with pytest.raises(InvalidTimestampError):
        Broker(LogConfig(message_timestamp_type=timestamp_type)).log.append_as_leader(claimed, 0)


@pytest.mark.parametrize(("position", "value"), [(57, -1), (57, 3), (57, 0), (23, -1), (23, 5)])
def test_counts_that_contradict_each_other_are_not_retriable(position: int, value: int) -> None:
    """A client would send a batch that is called corrupt again, for ever."""
    records = batch(b"x", b"y")
    struct.pack_into(">i", records, position, value)
    struct.pack_into(">I", records, 17, crc32c(records[21:]))
    with pytest.raises(InvalidRecordError):
        Broker().log.append_as_leader(records, 0)


@pytest.mark.parametrize(
    "settings", [{"cleanup_policy": frozenset({CleanupPolicy.COMPACT})}, {"compression_type": "zstd"}]
)
@pytest.mark.parametrize(
    ("position", "value"), [(61, b"\xff\xff\xff"), (61, b"\x7e"), (22, b"\x01"), (22, b"\x04")]
)
def test_nonsense_inside_a_sound_batch_is_not_retriable_where_batches_are_opened(
    settings: dict[str, Any], position: int, value: bytes
) -> None:
    records = batch(b"x", b"y", key=b"k")
    records[position : position + len(value)] = value
    struct.pack_into(">I", records, 17, crc32c(records[21:]))
    with pytest.raises(InvalidRecordError) as caught:
        Broker(LogConfig(**settings)).log.append_as_leader(records, 0)
    assert not caught.value.code.retriable


def test_compacted_topics_need_keys() -> None:
    log = Broker(LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))).log
    with pytest.raises(InvalidRecordError, match="key"):
        log.append_as_leader(batch(b"x"), 0)
    log.append_as_leader(batch(b"x", key=b"k"), 0)


def test_a_topics_own_codec_recompresses() -> None:
    log = Broker(LogConfig(compression_type="gzip")).log
    log.append_as_leader(batch(b"x" * 500), 0)
    stored = log.read(0, 1000, FetchIsolation.LOG_END).records.read()
    assert 1 == read_header(stored).attributes & 7
    assert [b"x" * 500] == [record.value for record in iter_records(stored)]


def test_segments_roll_by_size_and_are_named_by_base_offset() -> None:
    broker = Broker(SMALL)
    size = len(batch(b"x"))
    for _ in range(2 * (400 // size) + 1):
        append(broker.log, b"x")
    per_segment = 400 // size
    assert [0, per_segment, 2 * per_segment] == [segment.base_offset for segment in broker.log.segments]
    assert f"{per_segment:020d}.log" in broker.file_names()
    assert f"{per_segment:020d}.snapshot" in broker.file_names()


def test_segments_roll_by_the_records_time() -> None:
    """segment.ms counts in record time, from the first batch, as Kafka's rolling does."""
    log = Broker(LogConfig(segment_ms=1000)).log
    append(log, b"a", timestamp=NOW_MS)
    append(log, b"b", timestamp=NOW_MS + 1000)
    assert 1 == len(log.segments)
    append(log, b"c", timestamp=NOW_MS + 1001)
    assert [0, 2] == [segment.base_offset for segment in log.segments]


def test_segments_without_timestamps_roll_by_our_time() -> None:
    broker = Broker(LogConfig(segment_ms=1000))
    append(broker.log, b"a", timestamp=-1)
    broker.clock.advance(1)
    append(broker.log, b"b", timestamp=-1)
    broker.clock.advance(0.001)
    append(broker.log, b"c", timestamp=-1)
    assert [0, 2] == [segment.base_offset for segment in broker.log.segments]


def test_segments_roll_when_the_index_is_full() -> None:
    log = Broker(LogConfig(segment_index_bytes=48, index_interval_bytes=0)).log
    for _ in range(8):
        append(log, b"x")
    # 48 bytes are 4 time entries, of which the last is kept free: 3 entries, and the first batch has none.
    assert [0, 4] == [segment.base_offset for segment in log.segments]


def test_segments_roll_when_offsets_outgrow_an_int32() -> None:
    log = Broker().log
    far = batch(b"far")
    far[0:8] = (2**31).to_bytes(8)
    log.append_as_follower(batch(b"near"))
    log.append_as_follower(far)
    assert [0, 2**31] == [segment.base_offset for segment in log.segments]
    assert [(0, b"near"), (2**31, b"far")] == read_all(log)


def test_followers_take_offsets_and_epochs_as_given() -> None:
    leader, follower = Broker().log, Broker().log
    for epoch, value in ((1, b"a"), (1, b"b"), (4, b"c")):
        leader.append_as_leader(batch(value), epoch)
    data = leader.read(0, 10_000, FetchIsolation.LOG_END).records.read()
    info = follower.append_as_follower(bytearray(data) + data[:30])
    assert (0, 2, 3) == (info.first_offset, info.last_offset, info.record_count)
    assert ((1, 0), (4, 2)) == follower.leader_epochs.entries
    assert read_all(follower) == read_all(leader)
    with pytest.raises(UnexpectedAppendOffsetError):
        follower.append_as_follower(bytearray(data))


def test_a_new_leader_marks_where_it_begins() -> None:
    log = Broker().log
    append(log, b"a", leader_epoch=1)
    log.assign_leader_epoch(5)
    assert (1, 1) == log.end_offset_for_epoch(1)
    assert (5, 1) == log.end_offset_for_epoch(5)
    log.truncate_to(1)
    assert ((1, 0),) == log.leader_epochs.entries, "an epoch without records goes with the next truncation"


def test_find_by_timestamp() -> None:
    broker = Broker(SMALL)
    for number in range(20):
        append(broker.log, b"a", b"b", timestamp=NOW_MS + 10 * number)
    assert len(broker.log.segments) > 2
    for number in range(20):
        for asked in (NOW_MS + 10 * number, NOW_MS + 10 * number - 9):
            found = offset_for_timestamp(broker.log, asked)
            assert found is not None
            assert (
                NOW_MS + 10 * number,
                2 * number,
                0,
            ) == (found.timestamp, found.offset, found.leader_epoch)
    assert offset_for_timestamp(broker.log, NOW_MS + 191) is None


def test_find_by_timestamp_skips_what_was_deleted() -> None:
    log = Broker().log
    append(log, b"a", b"b", b"c")
    log.delete_records_before(2)
    found = offset_for_timestamp(log, 0)
    assert found is not None
    assert 2 == found.offset


def test_find_inside_a_batch_with_mixed_times() -> None:
    log = Broker().log
    builder = RecordBatchBuilder()
    for timestamp in (NOW_MS, NOW_MS + 50, NOW_MS + 20):
        builder.append(None, b"x", timestamp)
    log.append_as_leader(builder.build(), 0)
    found = offset_for_timestamp(log, NOW_MS + 10)
    newest = offset_for_max_timestamp(log)
    assert found is not None
    assert newest is not None
    assert (1, NOW_MS + 50) == (found.offset, found.timestamp)
    assert (1, NOW_MS + 50) == (newest.offset, newest.timestamp)


def test_an_empty_log_has_no_timestamps() -> None:
    log = Broker().log
    assert offset_for_timestamp(log, 0) is None
    assert offset_for_max_timestamp(log) is None


def test_the_largest_timestamp_may_be_in_an_old_segment() -> None:
    broker = Broker(SMALL)
    append(broker.log, b"newest", timestamp=NOW_MS + 1_000_000)
    for number in range(10):
        append(broker.log, b"%d" % number)
    found = offset_for_max_timestamp(broker.log)
    assert found is not None
    assert (0, NOW_MS + 1_000_000) == (found.offset, found.timestamp)


def test_legacy_offsets_before_a_time_are_segment_starts_newest_first() -> None:
    broker = Broker(SMALL)
    for _ in range(12):
        append(broker.log, b"x")
    starts = [segment.base_offset for segment in broker.log.segments]
    assert [12, *reversed(starts)] == offsets_before(broker.log, -1, broker.clock.time_ms(), 10)
    assert offsets_before(broker.log, -1, broker.clock.time_ms(), 2) == [12, starts[-1]]
    assert [0] == offsets_before(broker.log, -2, broker.clock.time_ms(), 10)


@pytest.mark.parametrize("offset", [0, 1, 5, 11, 12, 13, 19])
def test_truncation_keeps_what_lies_below(offset: int) -> None:
    broker = Broker(SMALL)
    for number in range(20):
        append(broker.log, b"%d" % number)
    assert broker.log.truncate_to(offset)
    assert [b"%d" % number for number in range(offset)] == values_of(read_all(broker.log))
    assert (offset, offset) == (broker.log.log_end_offset, broker.log.high_watermark)
    append(broker.log, b"after")
    expected = [*((number, b"%d" % number) for number in range(offset)), (offset, b"after")]
    assert expected == read_all(broker.log)
    assert expected == read_all(broker.kill().log)


def test_truncation_beyond_the_end_does_nothing() -> None:
    log = Broker().log
    append(log, b"a")
    assert not log.truncate_to(1)
    assert not log.truncate_to(9)
    assert 1 == log.log_end_offset


def test_a_log_restarts_at_any_offset() -> None:
    broker = Broker(SMALL)
    for number in range(20):
        append(broker.log, b"%d" % number)
    broker.log.truncate_fully_and_start_at(1000)
    assert (
        1000,
        1000,
        1000,
    ) == (broker.log.log_start_offset, broker.log.log_end_offset, broker.log.high_watermark)
    append(broker.log, b"new")
    assert [(1000, b"new")] == read_all(broker.kill().log)


def test_delete_records_moves_the_start_and_frees_segments() -> None:
    broker = Broker(SMALL)
    for number in range(20):
        append(broker.log, b"%d" % number)
    assert 13 == broker.log.delete_records_before(13)
    assert (13, b"13") == read_all(broker.log)[0]
    with pytest.raises(OffsetOutOfRangeError):
        broker.log.read(12, 100)
    with pytest.raises(OffsetOutOfRangeError):
        broker.log.delete_records_before(21)
    before = len(broker.log.segments)
    assert broker.log.delete_old_segments() > 0
    assert len(broker.log.segments) < before
    assert broker.log.segments[0].base_offset <= 13
    assert 20 == broker.log.delete_records_before(-1)


def test_retention_by_time_takes_the_active_segment_too() -> None:
    broker = Broker(LogConfig(segment_bytes=400, retention_ms=1000))
    for number in range(20):
        append(broker.log, b"%d" % number)
    broker.clock.advance(1.0)
    assert 0 == broker.log.delete_old_segments()
    broker.clock.advance(0.001)
    assert broker.log.delete_old_segments() > 1
    assert (20, 20, 0) == (broker.log.log_start_offset, broker.log.log_end_offset, broker.log.size)
    append(broker.log, b"new")
    assert [(20, b"new")] == read_all(broker.log)


def test_retention_by_size_leaves_at_least_the_bytes_asked_for() -> None:
    broker = Broker(LogConfig(segment_bytes=400, retention_bytes=800))
    for number in range(30):
        append(broker.log, b"%d" % number)
    broker.log.delete_old_segments()
    sizes = [segment.size for segment in broker.log.segments]
    assert sum(sizes) >= 800 > sum(sizes[1:])


def test_retention_never_passes_the_high_watermark() -> None:
    broker = Broker(LogConfig(segment_bytes=400, retention_ms=1))
    for number in range(20):
        broker.log.append_as_leader(batch(b"%d" % number), 0)
    broker.clock.advance(10)
    assert 0 == broker.log.delete_old_segments()
    broker.log.advance_high_watermark(10)
    broker.log.delete_old_segments()
    assert broker.log.log_start_offset <= 10
    assert [b"%d" % number for number in range(10, 20)] == values_of(read_all(broker.log, 10))


def test_only_compaction_keeps_everything() -> None:
    policy = frozenset({CleanupPolicy.COMPACT})
    broker = Broker(LogConfig(segment_bytes=400, retention_ms=1, cleanup_policy=policy))
    for _ in range(20):
        broker.log.append_as_leader(batch(b"x", key=b"k"), 0)
    broker.log.advance_high_watermark(20)
    broker.clock.advance(10)
    assert 0 == broker.log.delete_old_segments()


def test_flush_moves_the_recovery_point_when_the_sync_is_done() -> None:
    executor = QueueExecutor()
    broker = Broker(executor=executor)
    append(broker.log, b"a")
    flushed: list[int] = []
    broker.log.flush(lambda: flushed.append(broker.log.recovery_point))
    assert 0 == broker.log.recovery_point
    executor.run()
    append(broker.log, b"b")
    assert [1] == flushed
    assert [(0, b"a")] == read_all(broker.cut_power().log)


def test_flushes_under_way_are_shared() -> None:
    executor = QueueExecutor()
    log = Broker(LogConfig(flush_messages=1), executor=executor).log
    flushed: list[int] = []
    for number in range(50):
        append(log, b"x")
        log.flush(lambda number=number: flushed.append(number))  # type: ignore[misc]  # the default binds
    assert 1 == len(executor.queue)
    executor.run()
    assert list(range(50)) == flushed
    assert 50 == log.recovery_point


def test_truncation_during_a_flush_keeps_the_recovery_point_down() -> None:
    executor = QueueExecutor()
    log = Broker(executor=executor).log
    for _ in range(10):
        append(log, b"x")
    log.flush()
    log.truncate_to(4)
    append(log, b"y")
    executor.run()
    assert log.recovery_point <= 4


def test_a_full_disk_refuses_appends_and_serves_everything_else() -> None:
    broker = Broker(SMALL)
    for number in range(20):
        append(broker.log, b"%d" % number)
    expected = read_all(broker.log)
    broker.file_system.space_left = 30
    for _ in range(3):
        with pytest.raises(LogStorageError) as raised:
            append(broker.log, b"no room")
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert raised.value.code.retriable
    assert expected == read_all(broker.log)
    assert expected == read_all(broker.kill().log)
    broker.log.delete_records_before(15)
    assert broker.log.delete_old_segments() > 0
    broker.clock.advance(61)
    broker.manager.deletion_step()
    assert 20 == append(broker.log, b"room again")
    assert [b"19", b"room again"] == values_of(read_all(broker.log, 19))


def test_a_full_disk_at_a_roll_leaves_no_files_of_a_segment_that_is_not() -> None:
    """An empty segment left behind would later be taken for the log's end."""
    broker = Broker(SMALL)
    while len(broker.log.segments) == 1 and broker.log.size + len(batch(b"x")) <= 400:
        append(broker.log, b"x")
    end = broker.log.log_end_offset
    for space in range(0, 40, 3):
        broker.file_system.space_left = space
        with pytest.raises(LogStorageError):
            append(broker.log, b"x")
        logs = [name for name in broker.file_names() if name.endswith((".log", ".index", ".timeindex"))]
        assert len(logs) == 3 * len(broker.log.segments)
        assert end == broker.kill().log.log_end_offset
    broker.file_system.space_left = None
    assert end == append(broker.log, b"x")
    assert [0, end] == [segment.base_offset for segment in broker.log.segments]
    assert end + 1 == len(read_all(broker.kill().log))


def test_a_torn_write_that_cannot_be_cut_is_overwritten() -> None:
    """The disk fails the write halfway and then the truncation too."""
    broker = Broker()
    append(broker.log, b"a")
    broker.file_system.space_left = 10

    def fail_truncation(operation: str, _: str) -> None:
        if operation == "truncate":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    broker.file_system.fault = fail_truncation
    with pytest.raises(LogStorageError):
        append(broker.log, b"torn")
    assert [b"a"] == values_of(read_all(broker.log))
    assert [b"a"] == values_of(read_all(broker.kill().log))
    broker.file_system.fault = None
    broker.file_system.space_left = None
    append(broker.log, b"b")
    assert [b"a", b"b"] == values_of(read_all(broker.log))


def test_a_failed_sync_stops_appends_until_recovery() -> None:
    """After EIO the kernel may drop the pages: going on would acknowledge what no disk has."""
    broker = Broker()
    append(broker.log, b"a")

    def fail_sync(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    broker.file_system.fault = fail_sync
    broker.log.flush()
    with pytest.raises(LogStorageError, match="sync failed"):
        append(broker.log, b"b")
    assert [b"a"] == values_of(read_all(broker.log))


def test_a_failed_read_is_a_storage_error() -> None:
    broker = Broker(LogConfig(index_interval_bytes=0))
    for _ in range(100):
        append(broker.log, b"a")

    def fail(operation: str, _: str) -> NoReturn:
        raise OSError(errno.EIO, operation)

    broker.file_system.fault = fail
    with pytest.raises(LogStorageError):
        broker.log.read(0, 100)


def test_config_changes_apply_to_the_next_append() -> None:
    broker = Broker()
    append(broker.log, b"x" * 200)
    broker.manager.update_topic_config("orders", LogConfig(max_message_bytes=100))
    with pytest.raises(MessageTooLargeError):
        append(broker.log, b"x" * 200)


def test_preallocated_files_are_cut_at_roll_and_close() -> None:
    broker = Broker(LogConfig(segment_bytes=400, preallocate=True))
    path = f"{broker.log.directory}/{0:020d}.log"
    assert 400 == len(broker.file_system.nodes[path].content)
    for number in range(7):
        append(broker.log, b"%d" % number)
    assert len(broker.file_system.nodes[path].content) == broker.log.segments[0].size < 400
    broker = broker.stop()
    assert [b"%d" % number for number in range(7)] == values_of(read_all(broker.log))
    append(broker.log, b"7")
    assert [b"%d" % number for number in range(8)] == values_of(read_all(broker.kill().log))


def test_a_header_that_claims_to_be_older_than_its_records_is_corrected() -> None:
    """Lookups by time would pass over the batch, and retention would drop its segment too soon."""
    log = Broker().log
    records = batch(b"a", b"b", timestamp=NOW_MS)
    set_max_timestamp(records, 0, -1)
    log.append_as_leader(records, 0)
    found = offset_for_timestamp(log, NOW_MS)
    assert found is not None
    assert (NOW_MS, 0) == (found.timestamp, found.offset)
    written = bytearray(log.read(0, 1_000, FetchIsolation.LOG_END).records.read())
    header = read_header(written)
    assert NOW_MS == header.max_timestamp
    validate(written, 0, header)


def test_files_are_deleted_after_their_delay_whatever_the_wall_clock_does() -> None:
    broker = Broker(LogConfig(segment_bytes=120, file_delete_delay_ms=60_000))
    for _ in range(3):
        append(broker.log, b"x" * 50)
    broker.log.delete_records_before(2)
    assert 2 == broker.log.delete_old_segments()
    deleted = [name for name in broker.file_names() if name.endswith(".deleted")]
    assert deleted
    broker.clock.jump(3_600)
    broker.manager.deletion_step()
    assert [name for name in broker.file_names() if name.endswith(".deleted")] == deleted
    broker.clock.jump(-7_200)
    broker.clock.advance(60)
    broker.manager.deletion_step()
    assert not [name for name in broker.file_names() if name.endswith(".deleted")]


@pytest.mark.parametrize("truncate", [UnifiedLog.truncate_to, UnifiedLog.truncate_fully_and_start_at])
def test_a_truncation_that_fails_halfway_leaves_no_offset_above_the_end(
    truncate: Callable[[UnifiedLog, int], object],
) -> None:
    """A checkpoint or a read would use it before the truncation is tried again."""
    broker = Broker()
    for epoch in range(8):
        append(broker.log, b"value", leader_epoch=epoch)

    def fault(action: str, path: str) -> None:
        if path.endswith("leader-epoch-checkpoint"):
            raise OSError(errno.ENOSPC, "full")

    broker.file_system.fault = fault
    with pytest.raises(LogStorageError):
        truncate(broker.log, 4)
    assert (4, 4) == (broker.log.high_watermark, broker.log.log_end_offset)
    broker.manager.checkpoint_high_watermarks()
    broker.file_system.fault = None
    truncate(broker.log, 4)
    assert 4 == append(broker.log, b"value", leader_epoch=9)
