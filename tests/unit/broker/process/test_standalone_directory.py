"""The directory of a process, when the disk is against it."""

import errno
import os
from pathlib import Path

import pytest

from kalda.broker.process.errors import ProcessError
from kalda.broker.process.lifecycle import ProcessDirectory
from kalda.runtime.filesystem import Buffer
from kalda.runtime.system.filesystem import OsFileSystem


def test_a_full_disk_does_not_stop_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a pid file the broker still starts: nobody else could delete a topic to make room."""

    def refuse(files: OsFileSystem, path: str, data: Buffer, *, sync: bool, is_private: bool = False) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(OsFileSystem, "replace", refuse)
    entered = False
    with ProcessDirectory(tmp_path / "data"):
        entered = True

    assert entered
    assert not (tmp_path / "data" / "pid").exists()


def test_pid_and_lock_are_not_written_through_links(tmp_path: Path) -> None:
    victim, directory = tmp_path / "victim", tmp_path / "data"
    victim.write_text("belongs to somebody else")
    directory.mkdir()
    (directory / "pid").symlink_to(victim)
    with ProcessDirectory(directory):
        assert f"{os.getpid()}\n" == (directory / "pid").read_text()
        assert not (directory / "pid").is_symlink()
    (directory / ".lock").unlink()
    (directory / ".lock").symlink_to(victim)
    with pytest.raises(ProcessError, match="Is a symbolic link, not a regular file"):
        ProcessDirectory(directory).__enter__()
    assert "belongs to somebody else" == victim.read_text()
