"""The broker's logs together: start, creation, deletion, upkeep, clean stop, locks."""

import errno
import itertools
import os
import uuid
from pathlib import Path

import pytest

from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.runtime.clock import ManualClock
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.storage.checkpoints import parse_partition_metadata, read_offset_checkpoint
from kalda.storage.errors import (
    InconsistentTopicIdError,
    LogDirectoryError,
    LogDirectoryLockedError,
    LogStorageError,
)
from kalda.storage.log_caches import LogCaches
from kalda.storage.log_config import LogConfig
from kalda.storage.log_manager import LogManager
from kalda.storage.log_types import FetchIsolation
from tests.unit.storage.faulty_file_system import FaultyFileSystem
from tests.unit.storage.log_fixtures import DIRECTORY, PARTITION, Broker, append, batch, read_all


def manager_at(
    directory: Path, config: LogConfig | None = None, caches: LogCaches | None = None
) -> LogManager:
    manager = LogManager([str(directory)], lambda _: config or LogConfig(), SystemClock(), caches=caches)
    manager.load()
    return manager


def test_a_real_directory_holds_kafkas_files(tmp_path: Path) -> None:
    manager = manager_at(tmp_path)
    log = manager.get_or_create(PARTITION, uuid.UUID(int=5))
    append(log, b"a", b"b")
    manager.close(broker_epoch=42)
    assert '{"version":0,"brokerEpoch":42}' == (tmp_path / ".kafka_cleanshutdown").read_text()
    assert "0\n1\norders 0 2\n" == (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert "0\n1\norders 0 2\n" == (tmp_path / "replication-offset-checkpoint").read_text()
    assert "0\n0\n" == (tmp_path / "log-start-offset-checkpoint").read_text()
    assert [
        f"{0:020d}.index",
        f"{0:020d}.log",
        f"{0:020d}.timeindex",
        f"{2:020d}.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ] == sorted(path.name for path in (tmp_path / "orders-0").iterdir())
    again = manager_at(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    loaded = again.get(PARTITION)
    assert loaded is not None
    assert [(0, b"a"), (1, b"b")] == read_all(loaded)
    assert (uuid.UUID(int=5), 2, 2) == (loaded.topic_id, loaded.high_watermark, loaded.recovery_point)
    again.close()


def test_a_slice_can_be_sent_from_its_descriptor(tmp_path: Path) -> None:
    manager = manager_at(tmp_path)
    log = manager.get_or_create(PARTITION)
    append(log, b"a")
    append(log, b"b")
    records = log.read(1, 1000).records
    assert os.pread(records.fileno(), records.size, records.position) == records.read()
    manager.delete(PARTITION)
    assert len(records.read()) == records.size
    manager.close()


def test_a_second_process_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    manager = manager_at(tmp_path)
    with pytest.raises(LogDirectoryLockedError, match=rf"{tmp_path} is in use by process {os.getpid()}"):
        manager_at(tmp_path)
    manager.close()
    manager_at(tmp_path).close()


@pytest.mark.parametrize("name", ["00000000000000000000.log", "partition.metadata"])
def test_recovery_does_not_change_what_a_link_points_to(name: str, tmp_path: Path) -> None:
    """Recovery of a log cuts off what is no batch: that was the content of a file elsewhere."""
    victim, logs = tmp_path / "victim", tmp_path / "logs"
    victim.write_bytes(b"no batch " * 20)
    (logs / "orders-0").mkdir(parents=True)
    (logs / "orders-0" / name).symlink_to(victim)
    with pytest.raises(LogDirectoryError, match=r"cannot open partition orders-0 .* Is a symbolic link"):
        manager_at(logs)
    assert b"no batch " * 20 == victim.read_bytes()


def test_directory_of_a_partition_behind_a_link_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere, logs = tmp_path / "elsewhere", tmp_path / "logs"
    for each in (elsewhere, logs):
        each.mkdir()
    (logs / "orders-0").symlink_to(elsewhere)
    (tmp_path / "by-link").symlink_to(logs)
    manager = manager_at(tmp_path / "by-link")
    assert "orders-0 is not opened: it is a link or a file" in caplog.text
    with pytest.raises(LogStorageError, match="Is a symbolic link, not a directory"):
        manager.get_or_create(TopicPartition("orders", 0))
    assert [] == list(elsewhere.iterdir())
    assert (logs / "orders-0").is_symlink()
    manager.close()


def test_a_failed_start_lets_go_of_the_lock(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "partition.metadata").write_text("version: 1\n")
    with pytest.raises(LogDirectoryError, match="orders-0"):
        manager_at(tmp_path)
    (tmp_path / "orders-0" / "partition.metadata").unlink()
    manager_at(tmp_path).close()


def test_a_file_in_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(LogDirectoryError, match=str(tmp_path / "data")):
        manager_at(tmp_path / "data")


def test_other_directories_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    manager = manager_at(tmp_path)
    assert not manager.logs()
    manager.close()
    assert "mine" == (tmp_path / "notes.txt").read_text()


def test_topic_names_may_hold_dashes_and_digits() -> None:
    broker = Broker()
    name = TopicPartition("a-1.b_2-3", 12)
    append(broker.manager.get_or_create(name), b"x")
    loaded = broker.stop().manager.get(name)
    assert loaded is not None
    assert [(0, b"x")] == read_all(loaded)


def test_deletion_renames_at_once_and_unlinks_later() -> None:
    broker = Broker(LogConfig(file_delete_delay_ms=1000))
    append(broker.log, b"a")
    log = broker.log
    assert broker.manager.delete(PARTITION)
    assert not broker.manager.delete(PARTITION)
    assert broker.manager.get(PARTITION) is None
    (renamed,) = (name for name in broker.file_system.directories if name.endswith("-delete"))
    assert renamed.startswith(f"{DIRECTORY}/orders-0.")
    with pytest.raises(LogStorageError, match="deleted"):
        log.append_as_leader(batch(b"late"), 0)
    recreated = broker.manager.get_or_create(PARTITION)
    assert 0 == recreated.log_end_offset
    broker.clock.advance(0.999)
    broker.manager.deletion_step()
    assert renamed in broker.file_system.directories
    broker.clock.advance(0.001)
    broker.manager.deletion_step()
    assert renamed not in broker.file_system.directories
    assert broker.manager.get(PARTITION) is recreated


def test_a_stop_does_not_wait_for_the_deletion_of_thousands_of_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deletion of 36,000 partitions held a stop up for 6 seconds; the next start continues it."""
    broker = Broker()
    for number in range(300):
        broker.manager.get_or_create(TopicPartition("many", number))
        broker.manager.delete(TopicPartition("many", number))
    remove_tree = broker.file_system.remove_tree

    def slow(path: str) -> None:
        broker.clock.advance(0.005)
        remove_tree(path)

    monkeypatch.setattr(broker.file_system, "remove_tree", slow)
    broker.manager.close()

    def left() -> list[str]:
        return [name for name in broker.file_system.directories if name.endswith("-delete")]

    assert 190 <= len(left()) <= 210
    manager = LogManager([DIRECTORY], lambda _: LogConfig(), ManualClock(), broker.file_system)
    manager.load()
    manager.deletion_step()
    assert [] == left()


def test_an_interrupted_deletion_is_finished_after_the_start() -> None:
    broker = Broker()
    append(broker.log, b"a")
    broker.manager.delete(PARTITION)
    after = broker.file_system.crash()
    manager = LogManager([DIRECTORY], lambda _: LogConfig(), ManualClock(), after)
    manager.load()
    assert manager.get(PARTITION) is None
    manager.deletion_step()
    assert not any("delete" in name for name in after.directories | set(after.nodes))


def test_the_longest_topic_name_can_be_deleted(tmp_path: Path) -> None:
    manager = manager_at(tmp_path)
    name = TopicPartition("t" * 249, 0)
    manager.get_or_create(name)
    assert manager.delete(name)
    manager.close()
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_another_topic_id_is_refused() -> None:
    broker = Broker()
    broker.manager.get_or_create(PARTITION, uuid.UUID(int=5))
    assert broker.manager.get_or_create(PARTITION, uuid.UUID(int=5)) is broker.log
    with pytest.raises(InconsistentTopicIdError) as raised:
        broker.manager.get_or_create(PARTITION, uuid.UUID(int=6))
    assert raised.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_topic_without_an_id_gets_the_log_that_is_there() -> None:
    """The zero id is no id: a log without one takes the first id that comes, and keeps it."""
    broker = Broker()
    assert broker.manager.get_or_create(PARTITION, ZERO_UUID).topic_id is None
    assert not broker.file_system.exists(f"{DIRECTORY}/orders-0/partition.metadata")
    assert uuid.UUID(int=5) == broker.manager.get_or_create(PARTITION, uuid.UUID(int=5)).topic_id
    assert uuid.UUID(int=5) == broker.manager.get_or_create(PARTITION, ZERO_UUID).topic_id


def test_a_file_with_the_zero_id_is_removed_at_the_start(tmp_path: Path) -> None:
    """Earlier versions wrote it; Kafka does not start with it."""
    manager = manager_at(tmp_path)
    append(manager.get_or_create(PARTITION), b"a")
    manager.close()
    path = tmp_path / "orders-0" / "partition.metadata"
    path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")
    manager = manager_at(tmp_path)
    assert not path.exists()
    log = manager.get_or_create(PARTITION, uuid.UUID(int=5))
    assert [(0, b"a")] == read_all(log)
    assert uuid.UUID(int=5) == parse_partition_metadata(path.read_bytes())
    manager.close()


def test_partitions_spread_over_the_directories() -> None:
    manager = LogManager(["/a", "/b"], lambda _: LogConfig(), ManualClock(), FaultyFileSystem())
    manager.load()
    for partition in range(6):
        manager.get_or_create(TopicPartition("t", partition))
    parents = [os.path.dirname(log.directory) for log in manager.logs().values()]
    assert ["/a"] * 3 + ["/b"] * 3 == sorted(parents)


def test_cordoned_directories_get_no_new_logs() -> None:
    """KIP-1066. Where all are cordoned, the broker must still host what the cluster gives to it."""
    cordoned: set[str] = set()
    manager = LogManager(
        ["/a", "/b", "/c"],
        lambda _: LogConfig(),
        ManualClock(),
        FaultyFileSystem(),
        cordoned=lambda: cordoned,
    )
    manager.load()
    numbers = itertools.count()

    def place() -> str:
        log = manager.get_or_create(TopicPartition("t", next(numbers)))
        return os.path.dirname(log.directory)

    cordoned |= {"/a", "/c"}
    assert ["/b"] * 3 == [place() for _ in range(3)]
    cordoned -= {"/a"}
    assert ["/a"] * 3 == [place() for _ in range(3)]
    cordoned |= {"/a", "/b"}
    assert "/c" == place()


def test_a_partition_in_two_directories_stops_the_start() -> None:
    file_system = FaultyFileSystem()
    file_system.make_directory("/a/orders-0")
    file_system.make_directory("/b/orders-0")
    manager = LogManager(["/a", "/b"], lambda _: LogConfig(), ManualClock(), file_system)
    with pytest.raises(LogDirectoryError, match=r"/a/orders-0 and /b/orders-0"):
        manager.load()


def test_a_full_disk_refuses_new_partitions_and_leaves_none_behind() -> None:
    broker = Broker()
    broker.file_system.space_left = 0
    other = TopicPartition("new", 0)
    with pytest.raises(LogStorageError):
        broker.manager.get_or_create(other)
    assert broker.manager.get(other) is None
    assert f"{DIRECTORY}/new-0" not in broker.file_system.directories
    broker.file_system.space_left = None
    assert 0 == append(broker.manager.get_or_create(other), b"a")


def test_only_dirty_logs_are_flushed_by_time() -> None:
    broker = Broker(LogConfig(flush_ms=1000))
    append(broker.log, b"a")
    broker.manager.get_or_create(TopicPartition("idle", 0))
    assert {PARTITION} == broker.manager.resources.dirty
    broker.clock.advance(0.999)
    broker.manager.flush_step()
    assert 0 == broker.log.recovery_point
    broker.clock.advance(0.001)
    broker.manager.flush_step()
    assert 1 == broker.log.recovery_point
    assert not broker.manager.resources.dirty


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_flushes_by_time_do_not_go_by_the_wall_clock(seconds: int) -> None:
    """Set back, what was appended would have waited for an hour."""
    broker = Broker(LogConfig(flush_ms=1000))
    append(broker.log, b"a")
    broker.clock.jump(seconds)
    broker.manager.flush_step()
    assert 0 == broker.log.recovery_point
    broker.clock.advance(1)
    broker.manager.flush_step()
    assert 1 == broker.log.recovery_point


def test_retention_goes_over_all_logs_in_steps() -> None:
    broker = Broker(LogConfig(retention_ms=10))
    for partition in range(120):
        append(broker.manager.get_or_create(TopicPartition("many", partition)), b"x")
    broker.clock.advance(1)
    assert [False, False, True] == [broker.manager.retention_step() for _ in range(3)]
    assert all(log.size == 0 for log in broker.manager.logs().values())
    assert not broker.manager.retention_step(), "the next pass begins anew"


def test_unchanged_checkpoints_are_not_written_again() -> None:
    broker = Broker()
    append(broker.log, b"a")
    broker.log.flush()
    written: list[str] = []
    broker.file_system.fault = lambda operation, path: (
        written.append(path) if operation == "replace" else None
    )
    for _ in range(3):
        broker.manager.checkpoint_recovery_points()
    assert [f"{DIRECTORY}/recovery-point-offset-checkpoint"] == written
    assert {PARTITION: 1} == read_offset_checkpoint(broker.file_system, written[0])


def test_a_failed_close_leaves_no_marker() -> None:
    broker = Broker()
    append(broker.log, b"a")
    broker.file_system.space_left = 0
    broker.manager.close()
    assert f"{DIRECTORY}/.kafka_cleanshutdown" not in broker.file_system.nodes
    broker.file_system.space_left = None
    assert [(0, b"a")] == read_all(broker.kill().log)


def test_corrupt_checkpoints_are_ignored() -> None:
    broker = Broker()
    append(broker.log, b"a")
    broker.manager.close()
    after = broker.file_system.crash()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        after.nodes[f"{DIRECTORY}/{name}"].content[:] = b"0\n7\nx"
    assert [(0, b"a")] == read_all(Broker(file_system=after).log)


def test_open_files_stay_below_the_bound(tmp_path: Path) -> None:
    caches = LogCaches(open_files_max=10)
    manager = manager_at(tmp_path, caches=caches)
    logs = [manager.get_or_create(TopicPartition("t", partition)) for partition in range(50)]
    for turn in range(3):
        for log in logs:
            assert turn == append(log, b"%d" % turn)
    assert len(caches.files) <= 10
    opened = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    directory = f"{tmp_path.resolve()}/"
    assert sum(path.startswith(directory) and path.endswith(".log") for path in opened) <= 10
    assert all(len(read_all(log)) == 3 for log in logs)
    manager.close()


def test_a_log_opens_its_file_where_connections_have_taken_every_descriptor() -> None:
    """The logs live on with the descriptors that they have: one is closed for the one to be opened."""
    broker = Broker()
    logs = [broker.log, *(broker.manager.get_or_create(TopicPartition("t", index)) for index in range(3))]
    for log in logs:
        append(log, b"a")
    files = broker.manager.resources.caches.files
    files.forget(logs[0].segments[0].records)
    logs[0].segments[0].records.release()
    held = len(files)

    def refuse(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(".log") and len(files) >= held:
            raise OSError(errno.EMFILE, "Too many open files", path)

    broker.file_system.fault = refuse
    for turn in range(2):
        for log in logs:
            append(log, b"%d" % turn)
    assert all(len(read_all(log)) == 3 for log in logs)
    assert held == len(files)


def test_index_bytes_in_memory_stay_below_the_bound() -> None:
    config = LogConfig(segment_bytes=20_000, index_interval_bytes=0)
    broker = Broker(config)
    for number in range(1000):
        broker.log.append_as_leader(batch(b"%d" % number), 0)
    indexes = broker.manager.resources.caches.indexes
    indexes.cost_max = 9000  # type: ignore[misc]  # the bound under test
    for offset in range(0, 1000, 7):
        broker.log.read(offset, 100, FetchIsolation.LOG_END)
    assert 0 < indexes.cost <= 9000


def test_the_lock_of_a_dead_holder_is_free(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("99999")
    manager_at(tmp_path).close()
    assert (tmp_path / ".lock").read_text() == str(os.getpid())


def test_replace_leaves_the_old_content_if_it_fails(tmp_path: Path) -> None:
    file_system = OsFileSystem()
    path = str(tmp_path / "checkpoint")
    file_system.replace(path, b"old", sync=True)
    os.mkdir(path + ".d")
    with pytest.raises(OSError, match="directory"):
        file_system.replace(path + ".d", b"new", sync=True)
    assert ["checkpoint", "checkpoint.d"] == sorted(os.listdir(tmp_path))
    assert b"old" == file_system.read(path)
