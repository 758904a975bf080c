"""What a log does about records that damage on disk has taken."""

import logging

import pytest

from kalda.records.batch import iter_headers
from kalda.records.control import ControlRecordType
from kalda.runtime.filesystem import TEMPORARY_SUFFIX
from kalda.storage.checkpoints import format_leader_epochs
from kalda.storage.errors import RecordsMissingError, UnexpectedAppendOffsetError
from kalda.storage.file_names import CLEAN_SHUTDOWN_FILE, CLEANED_SUFFIX
from kalda.storage.log_config import CleanupPolicy, LogConfig
from kalda.storage.log_types import FetchIsolation
from kalda.storage.missing_filler import GapFiller
from kalda.storage.missing_offsets import MissingOffsets, OffsetRange
from kalda.storage.producer_state_manager import AppendOrigin
from tests.unit.storage.faulty_file_system import FaultyFileSystem, Node
from tests.unit.storage.log_fixtures import DIRECTORY, PARTITION, Broker, append, batch, marker, read_all

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=0)
PATH = f"{DIRECTORY}/orders-0"


def stopped(broker: Broker) -> FaultyFileSystem:
    broker.manager.close()
    return broker.file_system.crash()


def filled(config: LogConfig = SMALL) -> tuple[FaultyFileSystem, list[int]]:
    """Return the files of a log of 20 records that was stopped, and where its segments begin."""
    broker = Broker(config)
    for number in range(20):
        append(broker.log, b"%d" % number)
    bases = [segment.base_offset for segment in broker.log.segments]
    return stopped(broker), bases


def cut(files: FaultyFileSystem, base_offset: int, size: int = 100) -> None:
    del files.nodes[f"{PATH}/{base_offset:020d}.log"].content[size:]


def test_ranges_are_merged_cut_and_kept_on_disk() -> None:
    files = FaultyFileSystem()
    files.make_directory(PATH)
    missing = MissingOffsets(files, PATH)
    missing.add([(30, 40), (10, 20), (20, 25), (7, 7)])
    assert ((10, 25), (30, 40)) == missing.ranges
    missing.remove(15, 35)
    assert ((10, 15), (35, 40)) == missing.ranges
    assert (10, True, False) == (missing.count, missing.holds(14), missing.holds(15))
    again = MissingOffsets(files, PATH)
    again.load()
    assert again.ranges == missing.ranges
    again.keep_between(12, 36)
    assert ((12, 15), (35, 36)) == again.ranges
    again.keep_between(0, 0)
    assert not files.exists(again.path)


def test_a_cut_middle_segment_keeps_what_follows_and_says_what_is_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A clean start used to drop every later segment, and gave acknowledged offsets to other records."""
    files, bases = filled()
    cut(files, bases[1])
    with caplog.at_level(logging.ERROR):
        broker = Broker(SMALL, files)
    first = bases[1] + 1
    assert broker.log.missing.ranges == (OffsetRange(first, bases[2]),)
    assert [offset for offset, _ in read_all(broker.log)] == [*range(first), *range(bases[2], 20)]
    assert (20, 20) == (broker.log.log_end_offset, broker.log.high_watermark)
    assert 20 == append(broker.log, b"20")
    lines = [record.getMessage() for record in caplog.records]
    assert 1 == len(lines)
    assert f"orders-0: offsets {first} to {bases[2] - 1} are missing: segment {bases[1]:020d}.log" in lines[0]


def test_what_is_missing_is_known_at_the_next_start_too(caplog: pytest.LogCaptureFixture) -> None:
    config = LogConfig(segment_bytes=400, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    broker = Broker(config)
    for number in range(20):
        broker.log.append_as_leader(batch(b"v", key=b"%d" % number), 0)
    bases = [segment.base_offset for segment in broker.log.segments]
    files = stopped(broker)
    cut(files, bases[1], 150)
    broker = Broker(config, files)
    ranges = broker.log.missing.ranges
    assert [each.end for each in ranges] == [bases[2]]
    caplog.clear()
    assert ranges == broker.stop().log.missing.ranges
    levels = [record.levelno for record in caplog.records if "are missing" in record.getMessage()]
    assert [logging.WARNING] == levels, "an ERROR when it is found, a WARNING from then on"


def test_gaps_that_compaction_left_are_not_missing() -> None:
    """Also where the topic is not compacted any more: the cleaner's checkpoint tells."""
    files, bases = filled()
    for suffix in (".log", ".index", ".timeindex"):
        del files.nodes[f"{PATH}/{bases[1]:020d}{suffix}"]
    files.replace(f"{DIRECTORY}/cleaner-offset-checkpoint", b"0\n1\norders 0 20\n", sync=True)
    assert not Broker(SMALL, files).log.missing.ranges


def test_a_tail_that_is_gone_leaves_its_offsets_used() -> None:
    files, bases = filled()
    cut(files, bases[-1], 0)
    broker = Broker(SMALL, files)
    assert broker.log.missing.ranges == ((bases[-1], 20),)
    assert 20 == append(broker.log, b"20")
    assert broker.kill().log.missing.ranges == ((bases[-1], 20),)


def test_an_epoch_and_a_producer_of_lost_records_stay_known() -> None:
    broker = Broker(SMALL)
    for number in range(20):
        records = batch(b"%d" % number, producer_id=7, epoch=0, sequence=number)
        broker.log.append_as_leader(records, number // 4)
        broker.log.advance_high_watermark(number + 1)
    epochs, bases = broker.log.leader_epochs.entries, [each.base_offset for each in broker.log.segments]
    files = stopped(broker)
    cut(files, bases[1], 0)
    cut(files, bases[-1], 0)
    log = Broker(SMALL, files).log
    assert epochs == log.leader_epochs.entries
    again = log.append_as_leader(batch(b"19", producer_id=7, epoch=0, sequence=19), 9)
    assert (True, 19) == (again.duplicate, again.first_offset)


def transactions() -> tuple[FaultyFileSystem, Broker]:
    """Return a log whose second segment begins with the marker that aborts what the first one holds."""
    broker = Broker(LogConfig(segment_bytes=10_000, index_interval_bytes=0))
    log = broker.log
    log.append_as_leader(batch(b"bad", producer_id=1, epoch=0, sequence=0, transactional=True), 0)
    append(log, b"good")
    log.roll()
    append(log, b"good")
    log.append_as_leader(marker(ControlRecordType.ABORT, 1), 0, origin=AppendOrigin.COORDINATOR)
    append(log, b"good")
    log.roll()
    append(log, b"good")
    return broker.file_system, broker


def aborted_of(broker: Broker, offset: int = 0) -> list[tuple[int, int]]:
    log = broker.log
    found = log.read(offset, 10_000, FetchIsolation.TXN_COMMITTED).aborted_transactions or []
    return [(each.first_offset, each.last_offset) for each in found]


def test_an_abort_whose_marker_is_lost_stays_known() -> None:
    """Else readers of committed records would take the transaction for committed."""
    _, broker = transactions()
    source, before = broker.log, aborted_of(broker)
    assert [(0, 3)] == before
    files = stopped(broker)
    cut(files, 2, 60)
    broker = Broker(broker.config, files)
    assert ((2, 5),) == broker.log.missing.ranges
    assert before == aborted_of(broker)
    assert source.log_end_offset == broker.log.log_end_offset

    original = Broker(broker.config, transactions()[1].file_system.crash())
    filler = GapFiller(broker.log, broker.manager.resources, broker.log.missing.ranges[0])
    filler.append(original.log.read(2, 10_000, FetchIsolation.LOG_END).records.read())
    filler.install(lambda error: None)
    assert before == aborted_of(broker)
    assert before == aborted_of(broker.stop())


@pytest.mark.parametrize("size", [0, 60])
def test_an_abort_stays_known_while_its_marker_is_still_missing(size: int) -> None:
    """Another replica may have committed only the records in front of the marker."""
    _, broker = transactions()
    before = aborted_of(broker)
    files = stopped(broker)
    cut(files, 2, size)
    broker = Broker(broker.config, files)
    original = Broker(broker.config, transactions()[1].file_system.crash())
    for end in (3, 5):
        [gap] = broker.log.missing.ranges
        records = original.log.read(gap.first, 10_000, FetchIsolation.LOG_END).records.read()
        wanted = [(at, header) for at, header in iter_headers(records) if header.base_offset < end]
        filler = GapFiller(broker.log, broker.manager.resources, gap)
        filler.append(records[: wanted[-1][0] + wanted[-1][1].size])
        errors: list[Exception | None] = []
        filler.install(errors.append)
        assert [None] == errors
        assert before == aborted_of(broker)
        assert before == aborted_of(broker.kill())
        broker = broker.stop()
        assert before == aborted_of(broker)
    assert not broker.log.missing.ranges


def lost_in_the_middle() -> tuple[Broker, Broker]:
    """Return a log without a commit and the begin of an aborted transaction, and the same log as a whole.

    The abort's marker was appended while these records were missing.
    """
    config = LogConfig(segment_bytes=10_000, index_interval_bytes=0)
    brokers = [Broker(config), Broker(config)]
    for broker in brokers:
        log = broker.log
        log.append_as_leader(batch(b"good", producer_id=1, epoch=0, sequence=0, transactional=True), 0)
        log.roll()
        log.append_as_leader(marker(ControlRecordType.COMMIT, 1), 0, origin=AppendOrigin.COORDINATOR)
        log.append_as_leader(batch(b"bad", producer_id=1, epoch=0, sequence=1, transactional=True), 0)
        log.advance_high_watermark(3)
    damaged, whole = brokers
    files = stopped(damaged)
    # As after a loss of power: the snapshot of an orderly stop is not there either.
    files.remove(f"{DIRECTORY}/{CLEAN_SHUTDOWN_FILE}")
    files.remove(f"{PATH}/{3:020d}.snapshot")
    cut(files, 1, 0)
    damaged = Broker(config, files)
    for broker in (damaged, whole):
        broker.log.append_as_leader(
            marker(ControlRecordType.ABORT, 1, epoch=1), 0, origin=AppendOrigin.COORDINATOR
        )
        append(broker.log, b"more")
    return damaged, whole


def test_a_transaction_that_ends_behind_what_was_missing_begins_where_it_did() -> None:
    """Else readers of committed records skip those of the transaction before."""
    damaged, whole = lost_in_the_middle()
    [gap] = damaged.log.missing.ranges
    assert (1, 3) == gap
    filler = GapFiller(damaged.log, damaged.manager.resources, gap)
    filler.append(whole.log.read(1, 10_000, FetchIsolation.LOG_END).records.read())
    errors: list[Exception | None] = []
    filler.install(errors.append)
    assert [None] == errors
    for offset, expected in ((0, []), (2, [(2, 3)])):
        assert expected == aborted_of(whole, offset)
        assert expected == aborted_of(damaged, offset)
    assert [(2, 3)] == aborted_of(damaged.stop(), 2)


def test_records_of_an_epoch_that_the_log_has_forgotten_are_put_back() -> None:
    """A loss of power takes the newest entry of the file of epochs along with the records."""
    brokers = [Broker(SMALL), Broker(SMALL)]
    for broker in brokers:
        log = broker.log
        for epoch, count in ((0, 2), (1, 3)):
            log.assign_leader_epoch(epoch)
            for _ in range(count):
                log.append_as_leader(batch(b"x"), epoch)
            log.roll()
        log.advance_high_watermark(5)
    damaged, whole = brokers
    epochs = whole.log.leader_epochs.entries
    assert ((0, 0), (1, 2)) == epochs
    files = stopped(damaged)
    files.remove(f"{DIRECTORY}/{CLEAN_SHUTDOWN_FILE}")
    files.nodes[f"{PATH}/leader-epoch-checkpoint"] = Node(format_leader_epochs(epochs[:1]))
    cut(files, 2, 0)
    damaged = Broker(SMALL, files)
    [gap] = damaged.log.missing.ranges
    assert (2, 5) == gap
    filler = GapFiller(damaged.log, damaged.manager.resources, gap, leader_epoch=1)
    filler.append(whole.log.read(2, 10_000, FetchIsolation.LOG_END).records.read())
    errors: list[Exception | None] = []
    filler.install(errors.append)
    assert [None] == errors
    assert epochs == damaged.log.leader_epochs.entries
    assert not damaged.log.missing.ranges


def test_only_what_is_missing_is_put_back() -> None:
    files, bases = filled()
    cut(files, bases[1], 0)
    broker = Broker(SMALL, files)
    gap = broker.log.missing.ranges[0]
    other = Broker(SMALL)
    for number in range(20):
        other.log.append_as_leader(batch(b"%d" % number), 0)
    filler = GapFiller(broker.log, broker.manager.resources, gap)
    with pytest.raises(UnexpectedAppendOffsetError, match="is not what is missing"):
        filler.append(other.log.read(0, 60, FetchIsolation.LOG_END).records.read())
    later = other.log.read(gap.first + 1, 60, FetchIsolation.LOG_END).records.read()
    assert filler.append(later) == gap.first + 1, "where to begin another filler"
    assert not filler.has_records
    filler.abandon()
    assert (gap,) == broker.log.missing.ranges
    assert not [name for name in broker.file_names() if name.endswith(TEMPORARY_SUFFIX)]


def test_records_that_are_put_back_are_not_taken_for_leftovers_of_the_cleaner() -> None:
    """It removed them while they were collected; the log showed records that were not on disk."""
    files, bases = filled()
    cut(files, bases[1], 0)
    broker = Broker(SMALL, files)
    [gap] = broker.log.missing.ranges
    other = Broker(SMALL)
    for number in range(20):
        other.log.append_as_leader(batch(b"%d" % number), 0)
    filler = GapFiller(broker.log, broker.manager.resources, gap)
    assert filler.append(other.log.read(gap.first, 60, FetchIsolation.LOG_END).records.read()) is None
    assert filler.has_records
    assert not [name for name in broker.file_names() if name.endswith(CLEANED_SUFFIX)]
    filler.abandon()
    assert not [name for name in broker.file_names() if name.endswith(TEMPORARY_SUFFIX)]


def test_records_that_another_replica_may_have_are_not_skipped() -> None:
    files, bases = filled()
    cut(files, bases[1], 0)
    log = Broker(SMALL, files).log
    log.missing.is_withheld = True
    with pytest.raises(RecordsMissingError):
        log.read(bases[1], 1_000)
    assert log.read(0, 1_000).records.size
    log.truncate_to(bases[1])
    assert not log.missing.ranges
    assert 0 == log.read(bases[1], 1_000).records.size


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_topic_that_is_made_again_does_not_inherit_offsets(is_restarted: bool) -> None:
    """The checkpoints of a killed broker may still name the partition that was deleted before."""
    broker = Broker(SMALL)
    for number in range(20):
        append(broker.log, b"%d" % number)
    broker.log.flush()
    broker.log.delete_records_before(10)
    manager = broker.manager
    manager.checkpoint_recovery_points()
    manager.checkpoint_high_watermarks()
    manager.checkpoint_log_start_offsets()
    manager.delete(PARTITION)
    file_system = broker.file_system
    if is_restarted:
        file_system = file_system.crash()
        log = Broker(SMALL, file_system).log
    else:
        log = manager.get_or_create(PARTITION)
    append(log, b"new")
    killed = Broker(SMALL, file_system.crash()).log
    assert (0, 1) == (killed.log_start_offset, killed.log_end_offset)
    assert [(0, b"new")] == read_all(killed)
