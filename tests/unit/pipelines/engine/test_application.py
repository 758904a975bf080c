import logging
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("sqlglot")

from kalda.pipelines.engine import application as module
from kalda.pipelines.engine.application import Application, session_settings
from kalda.pipelines.spec.model import PipelineFile
from kalda.pipelines.spec.parser import parse_pipeline_file
from kalda.spark.java_output import JavaStartError

FILE = """
name: p
storage: /tmp/state
cluster: {{bootstrap.servers: "h:1"}}
spark: {{settings: {{{settings}}}}}
pipelines:
  - {{name: a, from: {{topic: t}}, to: {{topic: u}}}}
"""


def file_with(settings: str, directory: Path) -> PipelineFile:
    text = FILE.format(settings=settings)
    return parse_pipeline_file(text, str(directory / "p.yml"), directory=directory, variables={})


def settings_of(text: str, directory: Path) -> dict[str, str]:
    return session_settings(file_with(text, directory))


def test_the_settings_of_the_file_win(tmp_path: Path) -> None:
    assert "5" == settings_of("spark.ui.retainedJobs: 5", tmp_path)["spark.ui.retainedJobs"]


def test_ended_jobs_are_dropped_unless_the_user_interface_shows_them(tmp_path: Path) -> None:
    """Nobody sees the plans of the last thousand queries, and the driver's memory would hold them."""
    assert "20" == settings_of("", tmp_path)["spark.sql.ui.retainedExecutions"]
    assert "spark.sql.ui.retainedExecutions" not in settings_of("spark.ui.enabled: true", tmp_path)


def test_ctrl_c_stays_with_the_caller_when_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark takes SIGINT, cancels the batches that run and raises KeyboardInterrupt; `run` promises to end
    each pipeline after its batch.
    """

    class StartedError(Exception):
        pass

    class Session:
        @property
        def sparkContext(self) -> object:  # as PySpark spells it
            assert handler is signal.getsignal(signal.SIGINT)
            raise StartedError

    def handler(*_: object) -> None:
        pass

    def build_session(*_: object, **__: object) -> Session:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return Session()

    monkeypatch.setattr(module, "plans_of", lambda *_: [])
    monkeypatch.setattr(module, "build_session", build_session)
    monkeypatch.setattr(module, "_stop_session", lambda _: None)
    file = file_with("", tmp_path)
    file = replace(file, storage=f"file://{tmp_path}")
    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(StartedError):
            Application(file, file.pipelines).run(lambda _: None, note=lambda _: None)
    finally:
        signal.signal(signal.SIGINT, before)


def test_pyspark_does_not_print_errors_that_the_supervisor_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark's own loggers write an error of SQL as JSON, with every frame of Java."""
    from pyspark.logger import PySparkLogger

    quiet: list[object] = []
    monkeypatch.setattr(module, "build_session", lambda *_, is_quiet: quiet.append(is_quiet))
    loggers = [PySparkLogger.getLogger(name) for name in module._PYSPARK_LOGGERS]
    for each in loggers:
        monkeypatch.setattr(each, "level", logging.NOTSET)
    module.logger.setLevel(logging.DEBUG)
    try:
        module.start_session(file_with("", tmp_path), "local[1]")
        assert all(each.level == logging.NOTSET for each in loggers)
    finally:
        module.logger.setLevel(logging.NOTSET)
    module.start_session(file_with("", tmp_path), "local[1]")
    assert [False, True] == quiet
    assert all(each.level == logging.CRITICAL for each in loggers)


def test_a_session_that_does_not_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.errors import PySparkRuntimeError

    def build_session(*_: object, **__: object) -> None:
        raise PySparkRuntimeError("no port\nJVM stacktrace:\n\tat a.b(c)")

    monkeypatch.setattr(module, "build_session", build_session)
    with pytest.raises(JavaStartError, match=r"^Spark does not start: .*no port$"):
        module.start_session(file_with("", tmp_path), "local[1]")


def test_a_session_whose_java_has_ended_is_stopped_without_an_error() -> None:
    """A signal to all processes of the application reaches Java before Python has stopped the session."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(143)"])

    class Session:
        sparkContext = SimpleNamespace(_gateway=SimpleNamespace(proc=process))  # as PySpark spells it

        def stop(self) -> None:
            raise ConnectionRefusedError("Connection refused")

    module._stop_session(Session())  # type: ignore[arg-type]  # a stand-in
    assert 143 == process.returncode
