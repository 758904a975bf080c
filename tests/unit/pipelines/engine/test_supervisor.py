"""What the supervisor does when Spark itself ends beneath its pipelines."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("sqlglot")

from kalda.pipelines.engine import supervisor as module
from kalda.pipelines.engine.errors import SparkEndedError
from kalda.pipelines.engine.status import StatusFiles
from kalda.pipelines.engine.supervisor import Managed, Supervisor
from kalda.pipelines.spec.model import PipelineFile
from kalda.pipelines.spec.parser import parse_pipeline_file

FILE = """
name: p
storage: {storage}
cluster: {{bootstrap.servers: "h:1"}}
pipelines:
  - {{name: a, from: {{topic: t}}, to: {{topic: u}}}}
  - {{name: b, from: {{topic: t}}, to: {{topic: v}}}}
"""


class LostRun:
    """A run whose every call to Spark fails, as Py4J's do without a virtual machine."""

    batch_id = 3

    def start(self) -> None:
        pass

    @property
    def is_active(self) -> bool:
        raise ConnectionRefusedError("Connection refused")

    def request_stop(self) -> None:
        pass

    def stop(self, wait_s: float) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PipelineFile:
    monkeypatch.setattr(module, "ship_modules", lambda *_: None)
    monkeypatch.setattr(Managed, "_new_run", lambda _: LostRun())
    monkeypatch.setattr(Managed, "wait", lambda *_: None)
    text = FILE.format(storage=tmp_path / "state")
    return parse_pipeline_file(text, str(tmp_path / "p.yml"), directory=tmp_path, variables={})


def session_of(process: "subprocess.Popen[bytes]") -> SimpleNamespace:
    return SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=process)))


def test_the_end_of_java_is_one_error_of_each_pipeline(file: PipelineFile) -> None:
    """The system kills the largest process when memory runs out; a page of Py4J's traces hides that, and a
    status of `stopped` would be that of a regular end.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    )
    session = session_of(process)
    errors = Supervisor(session, file, file.pipelines, is_once=False).run()  # type: ignore[arg-type]  # a stand-in
    assert [SparkEndedError] * 2 == [type(each) for each in errors]
    assert "Spark's Java virtual machine ended by signal 9 (Killed)" in str(errors[0])
    statuses = [StatusFiles(file.storage).read(each.name) for each in file.pipelines]
    assert ["failed"] * 2 == [each.state for each in statuses if each is not None]
    assert [str(errors[0])] * 2 == [each.error for each in statuses if each is not None]


def test_the_end_of_java_is_no_error_of_a_run_that_is_stopped(
    file: PipelineFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systemd sends SIGTERM to Java too; the run ends regularly, and the next start repeats the batches."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"]
    )
    supervisor = Supervisor(session_of(process), file, file.pipelines, is_once=False)  # type: ignore[arg-type]  # a stand-in

    def wait(*_: object) -> None:
        supervisor.request_stop()
        raise ConnectionRefusedError("Connection refused")

    monkeypatch.setattr(Managed, "wait", wait)
    monkeypatch.setattr(module, "exit_code_of_java", lambda _, wait_s: process.wait() if wait_s else None)
    assert [] == supervisor.run()
    status = StatusFiles(file.storage).read("a")
    assert status is not None
    assert ("stopped", None) == (status.state, status.error)


def test_another_fault_passes_through_and_is_in_the_status(
    file: PipelineFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of the program keeps its traceback; the status must not say that all is well."""
    monkeypatch.setattr(module, "_JAVA_END_WAIT_S", 0.0)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        session = session_of(process)
        with pytest.raises(ConnectionRefusedError):
            Supervisor(session, file, file.pipelines, is_once=False).run()  # type: ignore[arg-type]  # a stand-in
    finally:
        process.communicate(b"\n")
    status = StatusFiles(file.storage).read("a")
    assert status is not None
    assert ("failed", "Connection refused") == (status.state, status.error)
