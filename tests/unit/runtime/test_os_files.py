"""The files of the operating system: what stands under a name of a data directory is not trusted."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kalda.runtime.filesystem import FileKindError
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.runtime.system.portable import PORTABLE

CONTENT = b"belongs to somebody else"

FILES = OsFileSystem()


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file outside the data directory, which must stay as it is whatever a test does."""
    path = tmp_path / "victim"
    path.write_bytes(CONTENT)
    os.utime(path, ns=(0, 0))
    yield path
    assert CONTENT == path.read_bytes()
    assert 0 == path.stat().st_mtime_ns


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir()
    return path


NAMES = {"link": "symbolic link", "dangling link": "symbolic link", "fifo": "FIFO"}

ACTIONS: dict[str, Callable[[str], object]] = {
    "open": lambda path: FILES.open(path).truncate(0),
    "create": lambda path: FILES.open(path, create=True).truncate(0),
    "read": FILES.read,
    "sync": FILES.sync_file,
    "lock": FILES.lock,
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize("kind", ["link", "dangling link", "fifo", "socket", "directory", "device"])
def test_what_is_no_regular_file_is_refused(
    action: Callable[[str], object], kind: str, directory: Path, victim: Path
) -> None:
    """Recovery truncated the target of a segment that was a link, and would wait for a FIFO for ever."""
    path = directory / "00000000000000000000.log"
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "dangling link":
        path.symlink_to(directory.parent / "absent")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        os.mknod(path, stat.S_IFSOCK | 0o600)
    elif kind == "device":
        path = Path("/dev/null")
    else:
        path.mkdir()
    with pytest.raises(FileKindError, match=f"Is a {NAMES.get(kind, kind)}, not a regular file"):
        action(str(path))
    assert not (directory.parent / "absent").exists()


@pytest.mark.parametrize("action", ["open", "create", "lock"])
def test_what_would_be_written_must_have_no_other_links(action: str, directory: Path, victim: Path) -> None:
    """A hard link to a file elsewhere looks like a file; recovery cut the victim to nothing."""
    path = directory / "00000000000000000000.log"
    path.hardlink_to(victim)
    with pytest.raises(FileKindError, match="Is one of 2 hard links to a file, not a file of its own"):
        ACTIONS[action](str(path))
    assert CONTENT == FILES.read(str(path))


@pytest.mark.parametrize("left", ["00.checkpoint.tmp", "00.checkpoint"])
def test_replaced_file_takes_the_place_of_a_link(left: str, directory: Path, victim: Path) -> None:
    (directory / left).symlink_to(victim)
    FILES.replace(str(directory / "00.checkpoint"), b"new", sync=True)
    assert b"new" == FILES.read(str(directory / "00.checkpoint"))
    assert ["00.checkpoint"] == os.listdir(directory)


def test_removal_of_a_directory_follows_no_link(directory: Path, victim: Path) -> None:
    """Neither one inside it nor one in its place."""
    doomed = directory / "t-0.x-delete"
    (doomed / "below").mkdir(parents=True)
    (doomed / "below" / "file").write_bytes(b"")
    (doomed / "out").symlink_to(victim.parent)
    (doomed / "file").symlink_to(victim)
    FILES.remove_tree(str(doomed))
    FILES.remove_tree(str(doomed))
    assert [] == os.listdir(directory)
    doomed.symlink_to(victim.parent)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        FILES.remove_tree(str(doomed))


def test_directory_is_not_made_through_a_link(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (directory / "t-0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="Is a symbolic link, not a directory"):
        FILES.make_directory(str(directory / "t-0"))
    FILES.make_directory(str(directory / "t-1"))
    FILES.make_directory(str(directory / "t-1"))


def test_times_and_sizes_are_those_of_a_link_itself(directory: Path, victim: Path) -> None:
    link = directory / "link"
    link.symlink_to(victim)
    (directory / "loop").symlink_to("loop")
    FILES.set_modified(str(link), 5_000)
    entries = {entry.name: entry for entry in FILES.list_directory(str(directory))}
    assert {"link", "loop"} == entries.keys()
    assert 5_000 == entries["link"].modified_ms
    assert not entries["link"].is_directory


def test_bytes_are_read_into_memory_of_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"0123456789")
    file = OsFileSystem().open(str(path))
    buffer = bytearray(b"......")
    assert 4 == file.read_into(memoryview(buffer)[1:5], 3)
    assert b".3456." == buffer
    assert 2 == file.read_into(buffer, 8)
    assert b"89456." == buffer
    assert 0 == file.read_into(buffer, 10)


_LOCKER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux" or PORTABLE, reason="the locks of Linux")
def test_brokers_of_apache_kafka_and_kalda_exclude_each_other(tmp_path: Path) -> None:
    """Java's locks are record locks. A broker that starts cuts off what another one has just written."""
    path = tmp_path / ".lock"
    path.write_bytes(b"4711")
    command = [sys.executable, "-c", _LOCKER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as java:
        assert java.stdin is not None
        assert java.stdout is not None
        assert b"locked\n" == java.stdout.readline()
        assert java.pid == OsFileSystem().lock(str(path)), "not the process of an earlier start"
        java.stdin.close()
        java.wait()
    lock = OsFileSystem().lock(str(path))
    assert not isinstance(lock, int)
    # The directory is locked against the other process though this one opens and closes the file.
    path.read_bytes()
    assert os.getpid() == OsFileSystem().lock(str(path))
    assert 0 != subprocess.run(command, input=b"", capture_output=True, check=False).returncode
    lock.release()
    assert 0 == subprocess.run(command, input=b"", capture_output=True, check=False).returncode


def test_a_file_of_a_terabyte_is_not_read_as_a_whole(directory: Path) -> None:
    """A checkpoint whose size is damaged ended the broker by want of memory, without its name."""
    path = directory / "leader-epoch-checkpoint"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match=r"too large.*leader-epoch-checkpoint"):
        FILES.read(str(path))
