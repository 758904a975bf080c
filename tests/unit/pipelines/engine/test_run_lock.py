"""One process at a time runs a pipeline, and a killed one leaves nothing to clean up."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kalda.pipelines.engine.run_lock import PipelineRunsError, RunLock, RunLockError, is_locked

_HOLDER = """
import sys, time
from kalda.pipelines.engine.run_lock import RunLock
with RunLock(sys.argv[1], "orders"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_run_is_refused_and_learns_who_runs(tmp_path: Path) -> None:
    with RunLock(tmp_path.as_uri(), "orders"):
        with pytest.raises(
            PipelineRunsError, match=f"orders is being run by process {os.getpid()} on "
        ) as raised:
            RunLock(tmp_path.as_uri(), "orders").__enter__()
        assert f"{tmp_path}/locks/orders.lock" in str(raised.value)
        # Another pipeline of the file is not concerned.
        with RunLock(tmp_path.as_uri(), "returns"):
            pass
    with RunLock(tmp_path.as_uri(), "orders"):
        pass


def test_a_killed_run_leaves_no_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, tmp_path.as_uri()], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert b"held\n" == process.stdout.readline()
        with pytest.raises(PipelineRunsError, match=f"process {process.pid} on "):
            RunLock(tmp_path.as_uri(), "orders").__enter__()
        process.kill()
    with RunLock(tmp_path.as_uri(), "orders"):
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid":"x","host":"h","since":0}'])
def test_a_text_that_names_no_one_does_not_matter(tmp_path: Path, text: str) -> None:
    with RunLock(tmp_path.as_uri(), "orders"):
        (tmp_path / "locks" / "orders.lock").write_text(text)
        with pytest.raises(PipelineRunsError, match="being run by another process"):
            RunLock(tmp_path.as_uri(), "orders").__enter__()


def test_a_storage_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """`run` then ends with this line, before it starts Spark."""
    (tmp_path / "file").touch()
    with pytest.raises(RunLockError, match=r"storage of orders cannot be written: .*: Not a directory"):
        RunLock(f"file://{tmp_path}/file", "orders").__enter__()


def test_asking_does_not_keep_a_run_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`status --watch` beside a service manager that restarts a killed run must not make the start fail."""
    assert is_locked(tmp_path.as_uri(), "orders") is None
    with RunLock(tmp_path.as_uri(), "orders"):
        assert is_locked(tmp_path.as_uri(), "orders") is True
    assert is_locked(tmp_path.as_uri(), "orders") is False

    asking = os.open(tmp_path / "locks" / "orders.lock", os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    assert is_locked(tmp_path.as_uri(), "orders") is False
    monkeypatch.setattr(time, "sleep", lambda _: os.close(asking))
    with RunLock(tmp_path.as_uri(), "orders"):
        pass
