"""What one run of a pipeline logs of its failures."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("sqlglot")
pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from kalda.pipelines.engine import pipeline_run as module
from kalda.pipelines.engine.pipeline_run import PipelineRun
from kalda.pipelines.engine.planner import plans_of
from kalda.pipelines.spec.parser import parse_pipeline_file

FILE = """
name: p
storage: {storage}
cluster: {{bootstrap.servers: "h:1"}}
pipelines:
  - {{name: a, from: {{topic: t}}, to: {{topic: u}}}}
"""


class Runner:
    """Fails with the errors, one for each batch; None is a batch that succeeds."""

    errors: list[str | Exception | None]

    def __init__(self, *_: object) -> None:
        pass

    def run(self, *_: object) -> None:
        error = self.errors.pop(0)
        if error is not None:
            raise error if isinstance(error, Exception) else ValueError(error)


def new_run(directory: Path, logged: set[str]) -> PipelineRun:
    text = FILE.format(storage=directory / "state")
    file = parse_pipeline_file(text, str(directory / "p.yml"), directory=directory, variables={})
    return PipelineRun(
        SimpleNamespace(),  # type: ignore[arg-type]  # a stand-in
        plans_of(file)[0],
        file,
        is_once=False,
        report=lambda _: None,
        logged=logged,
    )


def test_each_distinct_error_has_one_traceback_until_a_batch_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A step that fails at each of twenty tries must not fill the log with the same page."""
    monkeypatch.setattr(module, "BatchRunner", Runner)
    Runner.errors = ["poison", "poison", "other", "poison", None, "poison"]
    logged: set[str] = set()
    for _ in range(6):
        run = new_run(tmp_path, logged)
        try:
            run._batch(SimpleNamespace(), 7)  # type: ignore[arg-type]  # a stand-in
        except ValueError:
            assert run.failure is not None
    traced = [str(each.exc_info[1]) for each in caplog.records if each.exc_info]
    assert ["poison", "other", "poison"] == traced


def test_a_traceback_of_spark_is_for_debugging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has a hundred frames of Java and of Spark's workers; the supervisor reports its last line."""
    monkeypatch.setattr(module, "BatchRunner", Runner)
    Runner.errors = [
        PySparkException("An error occurred while calling o1.x.\n: java.lang.Exception\n\tat a.b(c)")
    ]
    caplog.set_level(logging.DEBUG)
    with pytest.raises(PySparkException):
        new_run(tmp_path, set())._batch(SimpleNamespace(), 7)  # type: ignore[arg-type]  # a stand-in
    assert [logging.DEBUG] == [each.levelno for each in caplog.records if each.exc_info]


def test_an_interrupted_batch_has_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error is the stop that was asked for, of which a line is in the log."""
    run = new_run(tmp_path, set())

    class Interrupted(Runner):
        def run(self, *_: object) -> None:
            run.request_stop()
            raise ValueError("java.lang.InterruptedException")

    run._runner = Interrupted()  # type: ignore[misc,assignment]  # a stand-in
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ValueError, match="Interrupted"):
        run._batch(SimpleNamespace(), 7)  # type: ignore[arg-type]  # a stand-in
    assert [] == [each for each in caplog.records if each.exc_info]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (143, "a ended with Java; the next start repeats the batch that ran"),
        (None, "a does not stop: Error while sending or receiving"),
    ],
)
def test_a_stop_behind_the_end_of_java_says_what_it_means(
    code: int | None,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`timeout` and systemd send SIGTERM to Java too, which breaks Python's connection to it."""

    class Query:
        def stop(self) -> None:
            raise ConnectionResetError("Error while sending or receiving")

    monkeypatch.setattr(module, "exit_code_of_java", lambda *_: code)
    run = new_run(tmp_path, set())
    run._query = Query()  # type: ignore[assignment]  # a stand-in
    run.stop(0.0)
    assert [line] == [each.getMessage() for each in caplog.records]
