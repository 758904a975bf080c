"""The directory of a process, when the disk is against it."""

import errno
from pathlib import Path

import pytest

from kalda.broker.process.lifecycle import ProcessDirectory


def test_a_full_disk_does_not_stop_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a pid file the broker still starts: nobody else could delete a topic to make room."""

    def refuse(path: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_text", refuse)
    entered = False
    with ProcessDirectory(tmp_path / "data"):
        entered = True

    assert entered
    assert not (tmp_path / "data" / "pid").exists()
