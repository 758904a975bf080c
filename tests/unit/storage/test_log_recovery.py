"""What a start finds after a crash, and what it makes of it."""

import logging
import random
import uuid

import pytest

from kalda.storage.checkpoints import format_leader_epochs
from kalda.storage.errors import LogDirectoryError
from kalda.storage.log_config import LogConfig
from kalda.storage.log_types import FetchIsolation
from kalda.storage.offsets_for_times import offset_for_timestamp
from tests.unit.storage.faulty_file_system import FaultyFileSystem, Node
from tests.unit.storage.log_fixtures import DIRECTORY, NOW_MS, Broker, append, batch, read_all, values_of

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=0)
PATH = f"{DIRECTORY}/orders-0"


def filled(count: int = 20, config: LogConfig = SMALL) -> Broker:
    broker = Broker(config)
    for number in range(count):
        append(broker.log, b"%d" % number, timestamp=NOW_MS + number)
    return broker


def expected(count: int) -> list[tuple[int, bytes | None]]:
    return [(number, b"%d" % number) for number in range(count)]


def active_path(broker: Broker) -> str:
    return f"{PATH}/{broker.log.segments[-1].base_offset:020d}.log"


def test_a_killed_log_has_everything_that_was_written() -> None:
    broker = filled().kill()
    assert expected(20) == read_all(broker.log)
    assert 20 == append(broker.log, b"20")
    assert expected(21) == read_all(broker.kill().log)


def test_a_torn_tail_is_cut_at_every_byte() -> None:
    broker = filled(18)
    path = active_path(broker)
    base = broker.log.segments[-1].base_offset
    size = len(broker.file_system.nodes[path].content)
    batch_size = size // (18 - base)
    for cut in range(size):
        after = broker.file_system.crash()
        del after.nodes[path].content[cut:]
        restarted = Broker(SMALL, after)
        kept = base + cut // batch_size
        assert kept == restarted.log.log_end_offset
        assert expected(kept) == read_all(restarted.log)
        assert cut // batch_size * batch_size == len(after.nodes[path].content)


def test_nonsense_after_the_tail_is_cut() -> None:
    broker = filled(18)
    path = active_path(broker)
    random_bytes = random.Random(1)
    for length in (1, 11, 12, 26, 27, 61, 62, 100, 5000):
        for junk in (bytes(length), b"\xff" * length, random_bytes.randbytes(length)):
            after = broker.file_system.crash()
            after.nodes[path].content += junk
            restarted = Broker(SMALL, after)
            assert expected(18) == read_all(restarted.log)
            assert 18 == append(restarted.log, b"18")
            assert expected(19) == read_all(restarted.kill().log)


def test_a_flipped_bit_costs_its_batch_only() -> None:
    """Good batches behind the bad one were acknowledged; only sizes in headers lead to them."""
    broker = filled(18)
    path = active_path(broker)
    base = broker.log.segments[-1].base_offset
    size = len(broker.file_system.nodes[path].content)
    batch_size = size // (18 - base)
    for position in range(size):
        after = broker.file_system.crash()
        after.nodes[path].content[position] ^= 0x10
        bad = base + position // batch_size
        restarted = Broker(SMALL, after)
        records = read_all(restarted.log)
        # The leader epoch and the low bits of the base offset lie outside the CRC.
        if position % batch_size >= 16:
            assert records == [record for record in expected(18) if record[0] != bad]
            assert (17 if bad == 17 else 18) == restarted.log.log_end_offset
            assert records == read_all(restarted.kill().log)
        else:
            assert expected(bad) == records[:bad]


def test_an_older_batch_in_the_tail_is_cut() -> None:
    """A stale block of the same file can come back after a power cut: valid, but not next."""
    broker = filled(18)
    path = active_path(broker)
    after = broker.file_system.crash()
    stale = batch(b"stale")
    stale[0:8] = (17).to_bytes(8)
    after.nodes[path].content += stale
    assert expected(18) == read_all(Broker(SMALL, after).log)


def test_segments_after_a_bad_batch_stay() -> None:
    broker = filled()
    bases = [segment.base_offset for segment in broker.log.segments]
    after = broker.file_system.crash()
    after.nodes[f"{PATH}/{bases[1]:020d}.log"].content[-1] ^= 1
    restarted = Broker(SMALL, after)
    assert read_all(restarted.log) == [each for each in expected(20) if each[0] != bases[2] - 1]
    assert [segment.base_offset for segment in restarted.log.segments] == bases
    assert 20 == append(restarted.log, b"20")


def test_what_lies_below_the_recovery_point_is_not_read_again() -> None:
    """Recovery of a large log is bound by what was not synced, not by its size."""
    broker = filled()
    broker.log.flush()
    broker.manager.checkpoint_recovery_points()
    assert 20 == broker.log.recovery_point
    read: list[str] = []
    after = broker.file_system.crash()
    after.fault = lambda operation, path: read.append(path) if operation == "read" else None
    restarted = Broker(SMALL, after)
    assert 20 == restarted.log.log_end_offset
    # Of the others the last batch is looked at, and nothing else.
    below = [path for path in read if path.endswith(".log") and path != active_path(broker)]
    assert len(below) == len(set(below)) == len(broker.log.segments) - 1


def test_a_power_cut_keeps_what_was_synced() -> None:
    broker = filled(10)
    broker.log.flush()
    for number in range(10, 20):
        append(broker.log, b"%d" % number)
    after = broker.cut_power()
    records = read_all(after.log)
    assert records == expected(len(records))
    assert len(records) >= 10
    assert after.log.topic_partition == broker.log.topic_partition


def test_a_power_cut_between_log_and_index_rebuilds_the_index() -> None:
    broker = filled()
    broker.log.flush()
    after = broker.file_system.cut_power()
    for path in [path for path in after.nodes if path.endswith((".index", ".timeindex"))]:
        after.nodes[path].content[:] = b"\x00" * 7
    restarted = Broker(SMALL, after)
    assert expected(20) == read_all(restarted.log)
    found = offset_for_timestamp(restarted.log, NOW_MS + 13)
    assert found is not None
    assert 13 == found.offset


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_missing_indexes_are_rebuilt_even_after_a_clean_stop(suffix: str) -> None:
    broker = filled()
    broker.manager.close()
    after = broker.file_system.crash()
    before = {path: bytes(node.content) for path, node in after.nodes.items() if path.endswith(suffix)}
    for path in before:
        del after.nodes[path]
    restarted = Broker(SMALL, after)
    assert expected(20) == read_all(restarted.log)
    assert {path: bytes(after.nodes[path].content) for path in before} == before


def test_recovery_rebuilds_the_very_same_indexes() -> None:
    broker = filled(200, LogConfig(segment_bytes=4000, index_interval_bytes=300))
    broker.manager.close()
    clean = broker.file_system.crash()
    killed = broker.file_system.crash()
    del killed.nodes[f"{DIRECTORY}/.kafka_cleanshutdown"]
    del killed.nodes[f"{DIRECTORY}/recovery-point-offset-checkpoint"]
    Broker(broker.config, killed)
    indexes = [path for path in clean.nodes if path.endswith((".index", ".timeindex"))]
    assert len(indexes) > 4
    assert {path: killed.nodes[path].content for path in indexes} == {
        path: clean.nodes[path].content for path in indexes
    }


def test_indexes_without_a_log_are_removed() -> None:
    broker = filled()
    broker.manager.close()
    after = broker.file_system.crash()
    after.nodes[f"{PATH}/{99:020d}.index"] = Node(b"")
    after.nodes[f"{PATH}/{99:020d}.timeindex"] = Node(b"")
    restarted = Broker(SMALL, after)
    assert f"{99:020d}.index" not in restarted.file_names()
    assert expected(20) == read_all(restarted.log)


def test_leftovers_of_deletion_and_compaction_are_removed() -> None:
    broker = filled()
    broker.manager.close()
    after = broker.file_system.crash()
    names = [
        f"{0:020d}.log.deleted",
        f"{0:020d}.log.cleaned",
        f"{0:020d}.index.cleaned",
        f"{0:020d}.log.swap",
        "leader-epoch-checkpoint.tmp",
    ]
    for name in names:
        after.nodes[f"{PATH}/{name}"] = Node(b"junk")
    restarted = Broker(SMALL, after)
    assert not set(names) & set(restarted.file_names())
    assert expected(20) == read_all(restarted.log)


def test_an_interrupted_swap_of_compaction_is_finished() -> None:
    """Two segments were compacted into one: the swap file replaces both, whichever are still there."""
    broker = filled()
    bases = [segment.base_offset for segment in broker.log.segments]
    broker.manager.close()
    after = broker.file_system.crash()
    merged = b"".join(bytes(after.nodes[f"{PATH}/{base:020d}.log"].content) for base in bases[:2])
    after.nodes[f"{PATH}/{0:020d}.log.swap"] = Node(merged)
    after.nodes[f"{PATH}/{0:020d}.index.swap"] = Node(b"")
    after.nodes[f"{PATH}/{0:020d}.timeindex.swap"] = Node(b"")
    restarted = Broker(SMALL, after)
    assert [segment.base_offset for segment in restarted.log.segments] == [0, *bases[2:]]
    assert expected(20) == read_all(restarted.log)
    assert not any(name.endswith(".swap") for name in restarted.file_names())


@pytest.mark.parametrize("damage", ["nonsense", "torn", "flipped", "empty", "of another segment"])
def test_a_damaged_swap_does_not_replace_records_that_are_whole(damage: str) -> None:
    """The originals are retired in order: while the first is there, all of them are."""
    broker = filled()
    bases = [segment.base_offset for segment in broker.log.segments]
    broker.manager.close()
    after = broker.file_system.crash()
    whole = [bytes(after.nodes[f"{PATH}/{base:020d}.log"].content) for base in bases[:2]]
    merged = bytearray(whole[0] + whole[1])
    match damage:
        case "nonsense":
            merged = bytearray(b"nonsense" * 100)
        case "torn":
            merged.pop()
        case "flipped":
            merged[-1] ^= 1
        case "empty":
            merged.clear()
        case _:
            merged = bytearray(whole[1] + whole[0])
    after.nodes[f"{PATH}/{0:020d}.log.swap"] = Node(bytes(merged))
    after.nodes[f"{PATH}/{0:020d}.index.swap"] = Node(b"")
    after.nodes[f"{PATH}/{0:020d}.timeindex.swap"] = Node(b"")
    restarted = Broker(SMALL, after)
    assert expected(20) == read_all(restarted.log)
    assert bases == [segment.base_offset for segment in restarted.log.segments]
    assert not any(name.endswith(".swap") for name in restarted.file_names())


def test_the_log_of_a_damaged_swap_goes_after_its_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes that a kill left without it replaced those of the records that stay."""
    broker = filled()
    broker.manager.close()
    after = broker.file_system.crash()
    for suffix in (".log", ".index", ".timeindex"):
        after.nodes[f"{PATH}/{0:020d}{suffix}.swap"] = Node(b"nonsense")
    removed: list[str] = []
    remove = after.remove

    def noted_remove(path: str) -> None:
        removed.append(path)
        remove(path)

    monkeypatch.setattr(after, "remove", noted_remove)
    Broker(SMALL, after)
    swaps = [path for path in removed if path.endswith(".swap")]
    assert 3 == len(swaps)
    assert f"{PATH}/{0:020d}.log.swap" == swaps[-1]


@pytest.mark.parametrize("suffix", [".snapshot", ".index", ".log"])
def test_a_file_of_the_last_offset_of_64_bits_is_none_of_the_log(suffix: str) -> None:
    """A log continued at the offset of such a snapshot, where no record fits."""
    broker = filled()
    broker.manager.close()
    after = broker.file_system.crash()
    after.nodes[f"{PATH}/{2**63 - 1:020d}{suffix}"] = Node(b"")
    restarted = Broker(SMALL, after)
    assert expected(20) == read_all(restarted.log)
    assert 20 == append(restarted.log, b"20")


def test_an_empty_active_segment_is_the_logs_end() -> None:
    broker = filled()
    broker.log.roll()
    for restarted in (broker.kill(), broker.stop()):
        assert 20 == restarted.log.log_end_offset
        assert 20 == append(restarted.log, b"20")


def test_a_start_offset_above_the_end_begins_anew() -> None:
    broker = filled(5)
    broker.log.delete_records_before(5)
    broker.manager.checkpoint_log_start_offsets()
    after = broker.file_system.crash()
    del after.nodes[active_path(broker)].content[100:]
    restarted = Broker(SMALL, after)
    assert (5, 5) == (restarted.log.log_start_offset, restarted.log.log_end_offset)
    assert 5 == append(restarted.log, b"5")


def test_a_deleted_start_stays_deleted() -> None:
    broker = filled()
    broker.log.delete_records_before(7)
    broker.manager.checkpoint_log_start_offsets()
    assert 7 == broker.kill().log.log_start_offset
    assert 7 == broker.stop().log.log_start_offset


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_empty_checkpoint_is_an_empty_list(caplog: pytest.LogCaptureFixture, *, is_clean: bool) -> None:
    """Kafka leaves such files for logs without records. After a crash it may be what is left of a list."""
    broker = Broker(SMALL)
    for number in range(8):
        append(broker.log, b"%d" % number, leader_epoch=number // 4)
    if is_clean:
        broker.manager.close()
    after = broker.file_system.crash()
    after.nodes[f"{PATH}/leader-epoch-checkpoint"].content[:] = b""
    after.nodes[f"{DIRECTORY}/recovery-point-offset-checkpoint"] = Node(b"")
    caplog.clear()
    entries = Broker(SMALL, after).log.leader_epochs.entries
    assert (() if is_clean else ((0, 0), (1, 4))) == entries
    assert [] == [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_leader_epochs_come_back_from_the_log() -> None:
    broker = Broker(SMALL)
    for number in range(20):
        append(broker.log, b"%d" % number, leader_epoch=number // 4)
    entries = broker.log.leader_epochs.entries
    assert ((0, 0), (1, 4), (2, 8), (3, 12), (4, 16)) == entries
    after = broker.file_system.crash()
    after.nodes[f"{PATH}/leader-epoch-checkpoint"].content[:] = b"nonsense"
    assert entries == Broker(SMALL, after).log.leader_epochs.entries


def test_leader_epochs_that_are_newer_than_the_log_go() -> None:
    """A power failure brings back what the log had before a truncation, and the file of epochs is newer."""
    broker = Broker(SMALL)
    for number in range(12):
        append(broker.log, b"%d" % number, leader_epoch=0)
    after = broker.file_system.crash()
    after.nodes[f"{PATH}/leader-epoch-checkpoint"].content[:] = format_leader_epochs([(0, 0), (3, 11)])
    log = Broker(SMALL, after).log
    assert 12 == log.log_end_offset
    assert ((0, 0),) == log.leader_epochs.entries
    assert 0 == log.leader_epochs.latest_epoch


def test_leader_epochs_of_a_cut_tail_go() -> None:
    broker = Broker(SMALL)
    for number in range(3):
        append(broker.log, b"%d" % number, leader_epoch=number)
    after = broker.file_system.crash()
    del after.nodes[f"{PATH}/{0:020d}.log"].content[-1:]
    assert ((0, 0), (1, 1)) == Broker(SMALL, after).log.leader_epochs.entries


def test_the_high_watermark_comes_back_from_its_checkpoint() -> None:
    broker = Broker(SMALL)
    for number in range(10):
        broker.log.append_as_leader(batch(b"%d" % number), 0)
    broker.log.advance_high_watermark(6)
    broker.manager.checkpoint_high_watermarks()
    assert 6 == broker.kill().log.high_watermark


def test_a_killed_start_can_be_started_again() -> None:
    """Recovery itself may be killed at any write; the next one must come to the same end."""
    broker = filled(18)
    crashed = broker.file_system.crash()
    crashed.nodes[active_path(broker)].content += b"junk" * 30
    for steps in range(60):
        after = crashed.crash()
        left = [steps]

        def kill(operation: str, _: str, left: list[int] = left) -> None:
            if operation in ("write", "truncate", "remove", "rename", "replace"):
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt

        after.fault = kill
        try:
            Broker(SMALL, after)
        except KeyboardInterrupt:
            after.fault = None
            assert expected(18) == read_all(Broker(SMALL, after.crash()).log)
        else:
            return
    pytest.fail("the start never got through")


def test_a_partition_of_another_topics_id_names_the_file() -> None:
    file_system = FaultyFileSystem()
    file_system.make_directory(PATH)
    file_system.nodes[f"{PATH}/partition.metadata"] = Node(b"version: 9\ntopic_id: x")
    with pytest.raises(LogDirectoryError, match=r"orders-0.*partition\.metadata"):
        Broker(SMALL, file_system)


@pytest.mark.parametrize("left", [b"", b"ver", b"version: 0\ntopic_id: AAAA", bytes(44)])
def test_a_torn_topic_id_does_not_stop_the_start(left: bytes) -> None:
    """Power failed before the first flush of a new log; a controller sends the id again."""
    broker = Broker()
    broker.log.assign_topic_id(uuid.UUID(int=5))
    append(broker.log, b"a")
    broker.file_system.nodes[f"{PATH}/partition.metadata"] = Node(left)
    started = broker.kill()
    assert started.log.topic_id is None
    started.log.assign_topic_id(uuid.UUID(int=5))
    assert [b"a"] == values_of(read_all(started.log))


def test_committed_reads_after_recovery_stop_at_the_open_transaction() -> None:
    broker = Broker()
    append(broker.log, b"plain")
    broker.log.append_as_leader(batch(b"open", producer_id=1, epoch=0, sequence=0, transactional=True), 0)
    killed = broker.kill()
    killed.log.advance_high_watermark(2)
    assert [b"plain"] == values_of(read_all(killed.log, isolation=FetchIsolation.TXN_COMMITTED))


def test_the_topic_id_survives_a_power_cut_after_the_first_flush() -> None:
    """An empty ``partition.metadata`` would stop the next start."""
    broker = Broker()
    broker.log.assign_topic_id(uuid.UUID(int=5))
    append(broker.log, b"a")
    broker.log.flush()
    assert uuid.UUID(int=5) == broker.cut_power().log.topic_id


def test_a_topic_id_that_is_assigned_later_survives_a_power_cut() -> None:
    broker = Broker()
    append(broker.log, b"a")
    broker.log.flush()
    broker.log.assign_topic_id(uuid.UUID(int=5))
    append(broker.log, b"b")
    broker.log.flush()
    assert uuid.UUID(int=5) == broker.cut_power().log.topic_id
