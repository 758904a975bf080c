"""Compaction as a reader sees it, over a file system in memory."""

import pytest

from kalda.records.batch import BatchHeader
from kalda.records.compression import Compression
from kalda.records.control import ControlRecordType
from kalda.storage.cleaner.cleaner_config import CleanerConfig
from kalda.storage.cleaner.offset_map import ENTRY_BYTES
from kalda.storage.log_types import FetchIsolation
from kalda.storage.offsets_for_times import offset_for_max_timestamp, offset_for_timestamp
from kalda.storage.unified_log import UnifiedLog
from tests.unit.storage.cleaning_fixtures import (
    COMPACT_AND_DELETE,
    CompactedBroker,
    compacted,
    contents,
    keyed_batch,
    records_of,
)
from tests.unit.storage.log_fixtures import NOW_MS, PARTITION


def headers_of(log: UnifiedLog) -> list[BatchHeader]:
    """The header of every batch in the log."""
    return [header for segment in log.segments for _, header in segment.records.iter_headers()]


def test_the_last_record_of_each_key_survives() -> None:
    """The reason for it all; offsets stay what they were."""
    broker = CompactedBroker()
    for number in range(60):
        broker.put((b"k%d" % (number % 7), b"v%d" % number))
    before = contents(records_of(broker.log))
    assert len(broker.log.segments) > 3
    clean_below = broker.log.segments[-1].base_offset

    assert broker.clean()

    expected = [
        each
        for each in before
        if each[0] >= clean_below
        or all(later[1] != each[1] for later in before if each[0] < later[0] < clean_below)
    ]
    assert expected == contents(records_of(broker.log))
    assert clean_below == broker.cleaner.clean_offset(PARTITION)
    assert not [name for name in broker.file_names() if name.endswith((".cleaned", ".swap"))]
    assert not broker.clean()
    again = broker.restarted()
    assert expected == contents(records_of(again.log))
    assert clean_below == again.cleaner.clean_offset(PARTITION)


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_lose_some_of_their_records(codec: Compression) -> None:
    """Whatever the codec, what stays keeps offset, time and headers of its batch."""
    broker = CompactedBroker()
    for number in range(10):
        pairs = [(b"k%d" % (key * number % 11), b"%d-%d" % (number, key) * 5) for key in range(8)]
        broker.put(*pairs, timestamp=NOW_MS + number, compression=codec)
    broker.roll()
    wanted = {record.key: record for record in records_of(broker.log)}

    assert broker.clean()

    assert sorted(wanted.values()) == records_of(broker.log)
    for header in headers_of(broker.log):
        assert header.compression is codec
        assert 7 == header.last_offset_delta
        assert header.max_timestamp == NOW_MS + header.base_offset // 8


def test_what_was_cleaned_is_cleaned_against_what_came_since() -> None:
    """Keys of the clean part are read again, and those that came again go, from compressed batches too."""
    for codec in (Compression.NONE, Compression.ZSTD):
        broker = CompactedBroker()
        long = b"a key that is longer than the table takes as it is: %d"
        for number in range(30):
            broker.put((long % number, b"1"), (b"s%d" % number, b"1"), compression=codec)
        broker.roll()
        assert broker.clean()
        for number in range(0, 30, 3):
            broker.put((long % number, b"2"), compression=codec)
        broker.roll()
        assert broker.clean()

        values = {record.key: record.value for record in records_of(broker.log)}
        assert 60 == len(values) == len(records_of(broker.log))
        assert all(values[long % number] == (b"1" if number % 3 else b"2") for number in range(30))


def test_a_tombstone_stays_for_its_retention_and_then_goes() -> None:
    """A reader slower than `delete.retention.ms` may miss it; one that is faster may not (KIP-534)."""
    broker = CompactedBroker()
    broker.put((b"gone", b"x"))
    broker.put((b"other", b"x"), (b"gone", None), timestamp=NOW_MS + 7)
    broker.roll()

    assert broker.clean()
    assert [(1, b"other", b"x"), (2, b"gone", None)] == contents(records_of(broker.log))
    assert [NOW_MS + 7] * 2 == [record.timestamp for record in records_of(broker.log)]
    [header] = [each for each in headers_of(broker.log) if each.record_count]
    assert NOW_MS + 1000 == header.delete_horizon_ms

    def clean_again(later_ms: int) -> list[tuple[int, bytes | None, bytes | None]]:
        broker.clock.advance((later_ms) / 1000)
        broker.put((b"tick", b"%d" % later_ms))
        broker.roll()
        assert broker.clean()
        return [each for each in contents(records_of(broker.log)) if each[1] != b"tick"]

    assert [(1, b"other", b"x"), (2, b"gone", None)] == clean_again(999)
    assert [(1, b"other", b"x")] == clean_again(1)


def test_records_without_a_key_go() -> None:
    """A topic that was made compacted later may hold some; nobody could ask for them by key."""
    broker = CompactedBroker(compacted(cleanup_policy=frozenset()))
    broker.put((None, b"1"), (b"k", b"2"), (None, b"3"))
    broker.roll()
    broker.log.update_config(compacted())

    assert broker.clean()
    assert [(1, b"k", b"2")] == contents(records_of(broker.log))


def test_a_table_that_is_too_small_takes_several_passes() -> None:
    """Each pass cleans as far as its keys fit; readers see a legal log after each."""
    broker = CompactedBroker(
        compacted(segment_bytes=600), cleaner_config=CleanerConfig(dedupe_buffer_bytes=ENTRY_BYTES * 20)
    )
    for number in range(80):
        broker.put((b"k%d" % (number % 40), b"%d" % number))
    broker.roll()
    wanted = {record.key: record for record in records_of(broker.log)}
    passes = 0
    while broker.clean():
        passes += 1
        assert wanted == {record.key: record for record in records_of(broker.log)}
    assert passes > 2
    # What a pass saw as the last one of its key was superseded above; a whole one finds that.
    broker.cleaner_config = CleanerConfig()
    broker.cleaner.on_truncation(PARTITION, 0)
    assert broker.clean()
    assert sorted(wanted.values()) == records_of(broker.log)


def test_small_segments_are_merged() -> None:
    """Or a compacted log would end as thousands of files; a group stays within `segment.bytes`."""
    broker = CompactedBroker(compacted(segment_bytes=1000))
    for number in range(300):
        broker.put((b"k%d" % (number % 3), b"%d" % number))
    before = len(broker.log.segments)
    while broker.clean():
        broker.cleaner.on_truncation(PARTITION, 0)
        if len(broker.log.segments) == 2:
            break
    assert before > 10
    assert 2 == len(broker.log.segments)
    assert {b"k0": b"297", b"k1": b"298", b"k2": b"299"} == {
        record.key: record.value for record in records_of(broker.log)
    }


def test_what_is_young_unstable_or_active_stays() -> None:
    """`min.compaction.lag.ms`, the high watermark, open transactions."""
    broker = CompactedBroker(compacted(min_compaction_lag_ms=5000))
    broker.put((b"k", b"1"))
    broker.put((b"k", b"2"))
    assert not broker.clean()
    broker.roll()
    assert not broker.clean()
    broker.clock.advance((5001) / 1000)
    assert broker.clean()
    assert [(1, b"k", b"2")] == contents(records_of(broker.log))

    broker = CompactedBroker()
    broker.put((b"k", b"open"), producer_id=1, epoch=0, sequence=0, transactional=True)
    broker.put((b"k", b"1"))
    broker.put((b"k", b"2"))
    broker.roll()
    assert not broker.clean()
    broker.mark(ControlRecordType.COMMIT, 1)
    assert broker.clean()


def test_a_log_is_cleaned_when_it_is_dirty_enough_or_overdue() -> None:
    """`min.cleanable.dirty.ratio` spares work, `max.compaction.lag.ms` bounds the wait (KIP-354)."""
    config = compacted(min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=60_000)
    broker = CompactedBroker(config)
    for number in range(20):
        broker.put((b"a%d" % number, b"x" * 50))
    broker.roll()
    assert broker.clean()
    broker.put((b"b", b"1"))
    broker.put((b"b", b"2"))
    broker.roll()
    assert not broker.clean()
    assert 0.0 < broker.cleaner.max_dirty_ratio < 0.5
    broker.clock.advance((60_001) / 1000)
    assert broker.clean()
    assert {0: 1} == broker.cleaner.last_delays_ms


def test_compact_and_delete_applies_both() -> None:
    """Retention waits for the cleaner, which then applies it itself."""
    broker = CompactedBroker(compacted(cleanup_policy=COMPACT_AND_DELETE, retention_ms=10_000))
    for number in range(20):
        broker.put((b"k%d" % (number % 2), b"%d" % number))
    broker.roll()
    broker.clock.advance((5_000) / 1000)
    for number in range(20):
        broker.put((b"k%d" % (number % 2), b"new %d" % number), timestamp=NOW_MS + 5_000)
    broker.roll()
    broker.clock.advance((6_000) / 1000)
    broker.log.is_being_cleaned = True
    assert broker.manager.retention_step()
    assert 0 == broker.log.log_start_offset
    broker.log.is_being_cleaned = False
    assert broker.clean()
    assert 20 <= broker.log.log_start_offset
    assert [b"new 18", b"new 19"] == [record.value for record in records_of(broker.log)]


def test_producers_keep_their_sequence_numbers() -> None:
    """A producer's last batch stays, without its records: a retry is known and the next batch fits."""
    broker = CompactedBroker()
    broker.put((b"k", b"1"), producer_id=7, epoch=3, sequence=0)
    broker.put((b"k", b"2"), (b"k", b"3"), producer_id=7, epoch=3, sequence=1)
    broker.put((b"k", b"other"))
    broker.roll()
    assert broker.clean()
    [empty] = [header for header in headers_of(broker.log) if header.producer_id == 7]
    assert (0, 1, 2) == (empty.record_count, empty.base_sequence, empty.last_sequence)

    broker.log.flush()
    for path in list(broker.file_system.nodes):
        if path.endswith(".snapshot"):
            broker.file_system.remove(path)
    again = broker.restarted()
    retried = keyed_batch((b"k", b"2"), (b"k", b"3"), producer_id=7, epoch=3, sequence=1)
    info = again.log.append_as_leader(retried, 0)
    assert info.duplicate
    assert 1 == info.first_offset
    following = keyed_batch((b"k", b"4"), producer_id=7, epoch=3, sequence=3)
    assert not again.log.append_as_leader(following, 0).duplicate


def test_a_commit_after_an_abort_that_was_cleaned_before_keeps_its_records() -> None:
    """The entry of the abort stays in the index for as long as its marker, far below what is dirty now."""
    broker = CompactedBroker(compacted(delete_retention_ms=10**9))
    broker.put((b"other", b"stays"))
    broker.put((b"a", b"aborted"), producer_id=1, epoch=0, sequence=0, transactional=True)
    broker.mark(ControlRecordType.ABORT, 1)
    broker.roll()
    assert broker.clean()
    broker.put((b"a", b"old"))
    committed = broker.put((b"a", b"new"), producer_id=1, epoch=0, sequence=1, transactional=True)
    broker.mark(ControlRecordType.COMMIT, 1)
    broker.roll()
    assert broker.clean()
    seen = contents(records_of(broker.log, isolation=FetchIsolation.TXN_COMMITTED))
    assert [(0, b"other", b"stays"), (committed, b"a", b"new")] == seen


def test_aborted_records_go_and_their_marker_follows() -> None:
    """They never count as the last of their key. The marker waits for the records, then for its horizon."""
    broker = CompactedBroker()
    committed = FetchIsolation.TXN_COMMITTED
    broker.put((b"k", b"good"))
    broker.put((b"k", b"bad"), producer_id=1, epoch=0, sequence=0, transactional=True)
    broker.mark(ControlRecordType.ABORT, 1)
    broker.put((b"c", b"in"), producer_id=2, epoch=0, sequence=0, transactional=True)
    broker.mark(ControlRecordType.COMMIT, 2)
    # They go on elsewhere, so that nothing must be kept for their sake.
    for producer_id in (1, 2):
        broker.put((b"p", b"x"), producer_id=producer_id, epoch=0, sequence=1, transactional=True)
        broker.mark(ControlRecordType.COMMIT, producer_id)
    expected = contents(records_of(broker.log, isolation=committed))
    broker.roll()

    assert broker.clean()
    after = contents(records_of(broker.log, isolation=committed))
    assert [each for each in expected if each[0] != 5] == after
    assert [0, 2, 3, 4, 5, 6, 7, 8] == [header.base_offset for header in headers_of(broker.log)]
    assert not any(record.value == b"bad" for record in records_of(broker.log))

    for later_ms in (0, 1000):
        broker.clock.advance((later_ms) / 1000)
        broker.put((b"tick", b"x"))
        broker.roll()
        assert broker.clean()
    offsets = {header.base_offset for header in headers_of(broker.log)}
    assert 2 not in offsets, "the abort marker's records are gone, and its time has passed"
    assert 4 in offsets, "the committed record is still there"
    assert after == [
        each for each in contents(records_of(broker.log, isolation=committed)) if each[1] != b"tick"
    ]


@pytest.mark.parametrize("at", ["log", "time"])
def test_reads_by_time_and_offset_after_cleaning(at: str) -> None:
    """ListOffsets and fetches use indexes that were made again."""
    broker = CompactedBroker(compacted(segment_bytes=2000))
    for number in range(100):
        broker.put((b"k%d" % (number % 30), b"%d" % number), timestamp=NOW_MS + 10 * number)
    broker.roll()
    assert broker.clean()
    left = records_of(broker.log)
    assert 30 == len(left)
    for broker_ in (broker, broker.restarted()):
        log = broker_.log
        if at == "time":
            for number in range(100):
                expected = next(record for record in left if record.timestamp >= NOW_MS + 10 * number)
                found = offset_for_timestamp(log, NOW_MS + 10 * number)
                assert found is not None
                assert (expected.timestamp, expected.offset) == (found.timestamp, found.offset)
            newest = offset_for_max_timestamp(log)
            assert newest is not None
            assert 99 == newest.offset
        else:
            for offset in range(100):
                expected_records = [record for record in left if record.offset >= offset]
                assert expected_records == records_of(log, offset)


def test_an_empty_log_is_left_by_a_log_of_deletions() -> None:
    """Where everything went, an empty segment keeps the place; a restart finds the end."""
    broker = CompactedBroker(compacted(delete_retention_ms=0))
    for number in range(20):
        broker.put((b"k%d" % number, b"x"))
        broker.put((b"k%d" % number, None))
    broker.roll()
    end = broker.log.log_end_offset
    assert broker.clean()
    broker.put((b"last", b"x"))
    broker.roll()
    assert broker.clean()
    for each in (broker, broker.restarted()):
        assert [(end, b"last", b"x")] == contents(records_of(each.log))
        assert end + 1 == each.log.log_end_offset


def test_a_checkpoint_above_the_end_counts_for_nothing() -> None:
    """Left by a log that lost its tail, or was made again while the broker was down."""
    broker = CompactedBroker()
    path = "/data/cleaner-offset-checkpoint"
    broker.put((b"k", b"1"))
    broker.put((b"k", b"2"))
    broker.roll()
    broker.file_system.replace(path, b"0\n2\norders 0 77\nother 3 5\n", sync=True)
    again = broker.restarted()
    again.log.advance_high_watermark(again.log.log_end_offset)
    assert 77 == again.cleaner.clean_offset(PARTITION)
    assert again.clean()
    assert 2 == again.cleaner.clean_offset(PARTITION)
    assert b"0\n1\norders 0 2\n" == again.file_system.read(path)


def test_a_checkpoint_in_a_full_directory_waits_for_room() -> None:
    """Each pass of the cleaner, every 15 s, used to log that it cannot be written."""
    broker = CompactedBroker()
    broker.put((b"k", b"1"))
    broker.put((b"k", b"2"))
    broker.roll()
    full = broker.manager.resources.failures.full
    full["/data"] = "No space left on device"
    assert broker.clean()
    assert not broker.file_system.exists("/data/cleaner-offset-checkpoint")
    full.clear()
    assert not broker.clean()
    assert b"0\n1\norders 0 2\n" == broker.file_system.read("/data/cleaner-offset-checkpoint")
