"""Log directories that fail (JBOD): which errors end their service, and what goes on without them."""

import errno
from collections.abc import Callable, Iterator

import pytest

from kalda.common.types import TopicPartition
from kalda.runtime.background import InlineExecutor
from kalda.runtime.clock import ManualClock
from kalda.storage.errors import LogDirectoryError, LogDirectoryLockedError, LogStorageError
from kalda.storage.log_config import LogConfig
from kalda.storage.log_manager import LogManager
from tests.unit.storage.faulty_file_system import FaultyFileSystem
from tests.unit.storage.log_fixtures import batch

A, B = "/disks/a", "/disks/b"


@pytest.fixture
def files() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def manager(files: FaultyFileSystem) -> Iterator[LogManager]:
    manager = make(files)
    manager.load()
    yield manager
    manager.close()


def make(files: FaultyFileSystem, *directories: str) -> LogManager:
    return LogManager(directories or (A, B), lambda _: LogConfig(), ManualClock(), files, InlineExecutor())


def partition(index: int) -> TopicPartition:
    return TopicPartition("orders", index)


def break_disk(files: FaultyFileSystem, directory: str, code: int, *actions: str) -> None:
    """Have every action on a directory's files fail."""

    def fault(action: str, path: str) -> None:
        if path.startswith(directory) and (not actions or action in actions):
            raise OSError(code, "broken")

    files.fault = fault


def log_in(manager: LogManager, directory: str, count: int = 2) -> TopicPartition:
    """Return a partition whose log is in a directory."""
    for index in range(count):
        manager.get_or_create(partition(index))
    return next(name for name, log in manager.logs().items() if log.directory.startswith(directory))


@pytest.mark.parametrize("action", ["write", "sync"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.EPERM, errno.EUCLEAN])
def test_a_broken_device_is_noticed_where_it_is_used(
    manager: LogManager, files: FaultyFileSystem, code: int, action: str
) -> None:
    told: list[str] = []
    manager.resources.failures.listen(on_failure=told.append)
    log = manager.logs()[log_in(manager, A)]
    break_disk(files, A, code, action)
    for _ in range(2):
        try:
            log.append_as_leader(memoryview(batch(b"a")), 0)
            log.flush()
        except LogStorageError:
            pass
    assert [A] == told


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE, errno.EDQUOT, errno.EACCES])
def test_what_passes_does_not_end_a_directorys_service(
    manager: LogManager, files: FaultyFileSystem, code: int
) -> None:
    log = manager.logs()[log_in(manager, A)]
    break_disk(files, A, code, "write")
    with pytest.raises(LogStorageError):
        log.append_as_leader(memoryview(batch(b"a")), 0)
    assert {} == manager.resources.failures.failed
    files.fault = None
    log.append_as_leader(memoryview(batch(b"a")), 0)


@pytest.mark.parametrize("action", ["truncate", "roll", "delete"])
def test_the_upkeep_notices_it_too(manager: LogManager, files: FaultyFileSystem, action: str) -> None:
    name = log_in(manager, A)
    log = manager.logs()[name]
    for value in (b"a", b"b"):
        log.append_as_leader(memoryview(batch(value)), 0)
    break_disk(files, A, errno.EIO)
    actions: dict[str, Callable[[], object]] = {
        "truncate": lambda: log.truncate_to(1),
        "roll": log.roll,
        "delete": lambda: manager.delete(name),
    }
    with pytest.raises(LogStorageError):
        actions[action]()
    assert [A] == list(manager.resources.failures.failed)


def test_a_checkpoint_that_cannot_be_written_notices_it(manager: LogManager, files: FaultyFileSystem) -> None:
    log_in(manager, A)
    break_disk(files, A, errno.EIO, "replace")
    manager.checkpoint_high_watermarks()
    assert [A] == list(manager.resources.failures.failed)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_directory_is_reported_once_and_apart_from_failed_ones(
    manager: LogManager, files: FaultyFileSystem, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    failures = manager.resources.failures
    failures.listen(on_full=told.append)
    log = manager.logs()[log_in(manager, A)]
    break_disk(files, A, code, "write")
    for _ in range(2):
        with pytest.raises(LogStorageError):
            log.append_as_leader(memoryview(batch(b"a")), 0)
    assert ([A], {}) == (told, failures.failed)
    assert not log.is_writable
    assert [] == caplog.records
    files.fault = None
    failures.full.clear()
    assert log.is_writable


def test_checkpoints_of_a_full_directory_wait_for_room(manager: LogManager, files: FaultyFileSystem) -> None:
    name = log_in(manager, A)
    manager.checkpoint_high_watermarks()
    manager.logs()[name].append_as_leader(memoryview(batch(b"a")), 0)
    manager.logs()[name].advance_high_watermark(1)
    written: list[str] = []
    files.fault = lambda action, path: written.append(path) if action == "replace" else None
    failures = manager.resources.failures
    failures.full[A] = "full"
    manager.checkpoint_high_watermarks()
    assert [] == written
    failures.full.clear()
    manager.checkpoint_high_watermarks()
    assert [f"{A}/replication-offset-checkpoint"] == written


def test_new_logs_go_to_directories_with_room_while_there_are_any(
    manager: LogManager, files: FaultyFileSystem
) -> None:
    manager.resources.failures.full[A] = "full"
    for index in range(2):
        assert manager.get_or_create(partition(index)).directory.startswith(B)
    manager.resources.failures.full[B] = "full"
    assert manager.get_or_create(partition(2)).directory.startswith(A)


def test_a_missing_file_is_no_failure_but_a_missing_directory_is(
    manager: LogManager, files: FaultyFileSystem
) -> None:
    failures = manager.resources.failures
    assert not failures.note(A, FileNotFoundError(errno.ENOENT, "no such file"))
    files.directories.discard(A)
    assert failures.note(A, FileNotFoundError(errno.ENOENT, "no such file"))


def test_a_directory_out_of_service_takes_its_logs_along(manager: LogManager) -> None:
    name = log_in(manager, A)
    log = manager.logs()[name]
    assert [name] == manager.take_offline(A)
    assert [] == manager.take_offline(A)
    assert (B,) == manager.live_directories
    assert name not in manager.logs()
    with pytest.raises(LogStorageError, match="offline"):
        log.append_as_leader(memoryview(batch(b"a")), 0)
    manager.checkpoint_recovery_points()
    manager.flush_step()


def test_new_logs_go_to_healthy_directories_the_emptiest_first(
    manager: LogManager, files: FaultyFileSystem
) -> None:
    for index in range(4):
        manager.get_or_create(partition(index))
    parents = [log.directory.rpartition("/")[0] for log in manager.logs().values()]
    assert [A, B, A, B] == parents
    manager.take_offline(A)
    for index in range(4, 7):
        assert manager.get_or_create(partition(index)).directory.startswith(B)


def test_a_directory_that_fails_at_a_creation_is_not_tried_again(
    manager: LogManager, files: FaultyFileSystem
) -> None:
    break_disk(files, A, errno.EIO)
    with pytest.raises(LogStorageError):
        manager.get_or_create(partition(0))
    assert manager.get_or_create(partition(0)).directory.startswith(B)
    break_disk(files, B, errno.EIO)
    with pytest.raises(LogStorageError):
        manager.get_or_create(partition(1))
    with pytest.raises(LogStorageError, match="every log directory"):
        manager.get_or_create(partition(1))


def test_a_start_leaves_out_a_broken_directory(files: FaultyFileSystem) -> None:
    before = make(files)
    before.load()
    for index in range(2):
        before.get_or_create(partition(index)).append_as_leader(memoryview(batch(b"a")), 0)
    before.close()
    break_disk(files, A, errno.EIO)
    manager = make(files)
    manager.load()
    assert ((B,), [A]) == (manager.live_directories, list(manager.offline_directories))
    assert [B] == [log.directory.rpartition("/")[0] for log in manager.logs().values()]
    manager.close()


def test_a_start_leaves_out_a_directory_that_breaks_while_it_is_read(files: FaultyFileSystem) -> None:
    before = make(files)
    before.load()
    for index in range(6):
        before.get_or_create(partition(index)).append_as_leader(memoryview(batch(b"a")), 0)
    after = files.crash()
    break_disk(after, f"{A}/orders-4", errno.EIO, "read", "open")
    manager = make(after)
    manager.load()
    assert (B,) == manager.live_directories
    assert {f"{B}/orders-{index}" for index in (1, 3, 5)} == {
        log.directory for log in manager.logs().values()
    }
    manager.close()


def test_a_start_with_no_directory_left_fails(files: FaultyFileSystem) -> None:
    break_disk(files, "/disks", errno.EIO)
    with pytest.raises(LogDirectoryError, match="/disks/b"):
        make(files).load()
    with pytest.raises(LogDirectoryError, match="/disks/a"):
        make(files, A).load()


def test_a_directory_of_another_process_is_an_error_all_the_same(files: FaultyFileSystem) -> None:
    """Two brokers with one data directory are a mistake, not a broken disk."""
    files.lock(f"{A}/.lock")
    with pytest.raises(LogDirectoryLockedError):
        make(files).load()


def test_a_log_of_an_earlier_topic_is_kept_but_never_opened_again(
    manager: LogManager, files: FaultyFileSystem
) -> None:
    name = log_in(manager, A)
    manager.logs()[name].append_as_leader(memoryview(batch(b"old")), 0)
    manager.set_aside(name, "a reason")
    assert 0 == manager.get_or_create(name).log_end_offset
    strays = [path for path in files.directories if path.endswith("-stray")]
    assert 1 == len(strays)
    again = make(files.crash())
    again.load()
    assert 0 == again.logs()[name].log_end_offset
    again.close()


def unclean_on_a_full_disk(*values: bytes) -> FaultyFileSystem:
    """Return files as a crash leaves them, with nothing left of the space that recovery needs."""
    before_files = FaultyFileSystem()
    before = make(before_files)
    before.load()
    for index in range(2):
        log = before.get_or_create(partition(index))
        for value in values:
            log.append_as_leader(memoryview(batch(value)), 0)
            log.advance_high_watermark(log.log_end_offset)
    before.checkpoint_high_watermarks()
    after = before_files.crash()
    full_disk(after)
    return after


def full_disk(files: FaultyFileSystem) -> None:
    """Have writes below the first directory fail as those to a full disk do."""

    def fault(action: str, path: str) -> None:
        if path.startswith(A) and action in ("write", "replace"):
            raise OSError(errno.ENOSPC, "full")

    files.fault = fault


def test_a_log_that_stays_closed_on_a_full_disk_is_found_in_a_second_directory() -> None:
    """Both would be the log of the same partition, with other records."""
    files = unclean_on_a_full_disk(b"a")
    files.make_directory(f"{B}/{partition(0)}")
    with pytest.raises(LogDirectoryError, match="orders-0 is in two log directories"):
        make(files).load()


def test_a_log_that_cannot_be_recovered_on_a_full_disk_stays_closed_until_there_is_room() -> None:
    """The broker must start, or nobody could delete a topic to make room."""
    files = unclean_on_a_full_disk(b"a", b"b")
    manager = make(files)
    manager.load()
    assert [partition(1)] == list(manager.logs())
    assert manager.has(partition(0))
    with pytest.raises(LogStorageError, match="No space left on device; free space on its volume"):
        manager.get_or_create(partition(0))
    manager.resources.failures.listen(on_full=lambda _: None)
    with pytest.raises(LogStorageError, match="No space left on device"):
        manager.get_or_create(partition(0))
    opened: list[str] = []
    files.fault = lambda action, path: opened.append(path) if action in ("open", "read") else None
    with pytest.raises(LogStorageError, match="No space left on device"):
        manager.get_or_create(partition(0))
    assert [] == opened
    files.fault = None
    manager.resources.failures.full.clear()
    log = manager.get_or_create(partition(0))
    assert (A, 2, 2) == (log.directory.rpartition("/")[0], log.log_end_offset, log.high_watermark)
    manager.close()


def test_a_closed_log_keeps_its_checkpoints_and_its_directory_is_not_called_clean() -> None:
    files = unclean_on_a_full_disk(b"a", b"b")
    manager = make(files)
    manager.load()
    files.fault = None
    manager.close()
    assert f"{A}/.kafka_cleanshutdown" not in files.nodes
    assert f"{B}/.kafka_cleanshutdown" in files.nodes
    assert b"orders 0 2" in files.read(f"{A}/replication-offset-checkpoint")


def test_a_closed_log_is_deleted_with_its_topic() -> None:
    """That is how room is made."""
    files = unclean_on_a_full_disk(b"a")
    manager = make(files)
    manager.load()
    assert manager.delete(partition(0))
    assert not manager.has(partition(0))
    assert not any(path.startswith(f"{A}/orders-0/") for path in files.nodes)
    manager.close()


def test_closed_logs_go_offline_with_their_directory() -> None:
    manager = make(unclean_on_a_full_disk(b"a"))
    manager.load()
    assert [partition(0)] == manager.take_offline(A)
    assert not manager.has(partition(0))
    manager.close()
