"""What `kalda pipeline status` says of drivers that run, have ended, or were killed."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from kalda.cli import main
from kalda.pipelines.engine.run_lock import RunLock
from kalda.pipelines.engine.status import PipelineStatus, RunState, StatusFiles
from kalda.tools.pipeline.status_table import age_text

FILE = """
name: shop
storage: {storage}
cluster: {{bootstrap.servers: "127.0.0.1:1"}}
pipelines:
  - {{name: orders, from: {{topic: orders}}, to: {{table: lake.orders, format: parquet}}}}
"""
_DRIVER = """
import sys, time
from kalda.tools.pipeline.status_table import age_text
from kalda.pipelines.engine.run_lock import RunLock
from kalda.pipelines.engine.status import PipelineStatus, RunState, StatusFiles
with RunLock(sys.argv[1], "orders"):
    status = PipelineStatus("orders", "table", "direct", "lake.orders", state=RunState.RUNNING)
    status.updated_ms = time.time_ns() // 1_000_000
    StatusFiles(sys.argv[1]).write(status)
    print("runs", flush=True)
    time.sleep(600)
"""


class Shop:
    """A pipeline file, and the command on it."""

    def __init__(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.storage = f"file://{directory}/state"
        self._path = directory / "shop.yml"
        self._path.write_text(FILE.format(storage=self.storage))
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def status(self, *options: str) -> str:
        """Run `kalda pipeline status` and return what it prints."""
        self._monkeypatch.setattr(sys, "argv", ["kalda", "pipeline", "status", str(self._path), *options])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        return self._capsys.readouterr().out

    def written(self, **known: object) -> None:
        """Write a status as a driver does."""
        status = PipelineStatus("orders", "table", "direct", "lake.orders", state=RunState.RUNNING)
        status.updated_ms = time.time_ns() // 1_000_000
        for name, value in known.items():
            setattr(status, name, value)
        StatusFiles(self.storage).write(status)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shop:
    return Shop(tmp_path, monkeypatch, capsys)


def test_a_killed_driver_is_dead_at_once(shop: Shop) -> None:
    """Also before its parent has read its exit code, while its process id still exists."""
    command = [sys.executable, "-c", _DRIVER, shop.storage]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert b"runs\n" == driver.stdout.readline()
        assert " running " in shop.status()
        driver.kill()
        os.waitid(os.P_PID, driver.pid, os.WEXITED | os.WNOWAIT)
        assert " dead " in shop.status()
        (found,) = json.loads(shop.status("--json"))["pipelines"]
        assert (True, False) == (found["is_dead"], found["is_responding"])


@pytest.mark.parametrize(
    ("known", "is_locked", "state"),
    [
        ({}, True, "running"),
        ({}, False, "dead"),
        ({"state": RunState.STOPPED}, False, "stopped"),
        ({"state": RunState.FAILED}, False, "failed"),
        ({"host": "another.example"}, False, "running"),
        ({"host": "another.example", "updated_ms": 1}, False, "not responding"),
        ({"updated_ms": 1}, True, "not responding"),
        ({"updated_ms": 1}, False, "dead"),
    ],
)
def test_the_lock_decides_on_this_host_and_the_age_elsewhere(
    shop: Shop, known: dict[str, object], is_locked: bool, state: str
) -> None:
    shop.written(**known)
    with ExitStack() as stack:
        lock = stack.enter_context(RunLock(shop.storage, "orders"))
        if not is_locked:
            lock.__exit__(None, None, None)
        assert f" {state} " in shop.status()


def test_without_a_lock_file_the_process_decides(shop: Shop) -> None:
    """An object store has no locks."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    shop.written()
    assert " running " in shop.status()
    shop.written(pid=process.pid)
    assert " dead " in shop.status()


def test_watching_repeats_until_it_is_interrupted(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.written()
    pauses = iter([None, KeyboardInterrupt])

    def sleep(_: float) -> None:
        shop.written(state=RunState.STOPPED)
        if (error := next(pauses)) is not None:
            raise error

    monkeypatch.setattr(time, "sleep", sleep)
    first, second = map(json.loads, shop.status("--watch", "--json").splitlines())
    assert ["running", "stopped"] == [each["pipelines"][0]["state"] for each in (first, second)]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0s"),
        (2.43, "2.4s"),
        (59.9, "59.9s"),
        (61.5, "1m 1s"),
        (3_600.0, "1h 0m"),
        (830_445.24, "9d 14h"),
        (27_957_975.69, "323d 14h"),
        (-5.0, "-5.0s"),
        (-7_260.0, "-2h 1m"),
    ],
)
def test_a_freshness_is_readable(seconds: float, text: str) -> None:
    """An event time in the future is negative."""
    assert text == age_text(seconds)
