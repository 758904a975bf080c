"""What one run of a pipeline logs of its failures."""

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("sqlglot")

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

    errors: list[str | None]

    def __init__(self, *_: object) -> None:
        pass

    def run(self, *_: object) -> None:
        error = self.errors.pop(0)
        if error is not None:
            raise ValueError(error)


def test_each_distinct_error_has_one_traceback_until_a_batch_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A step that fails at each of twenty tries must not fill the log with the same page."""
    monkeypatch.setattr(module, "BatchRunner", Runner)
    Runner.errors = ["poison", "poison", "other", "poison", None, "poison"]
    text = FILE.format(storage=tmp_path / "state")
    file = parse_pipeline_file(text, str(tmp_path / "p.yml"), directory=tmp_path, variables={})
    logged: set[str] = set()
    for _ in range(6):
        run = PipelineRun(
            SimpleNamespace(),  # type: ignore[arg-type]  # a stand-in
            plans_of(file)[0],
            file,
            is_once=False,
            report=lambda _: None,
            logged=logged,
        )
        try:
            run._batch(SimpleNamespace(), 7)  # type: ignore[arg-type]  # a stand-in
        except ValueError:
            assert run.failure is not None
    traced = [str(each.exc_info[1]) for each in caplog.records if each.exc_info]
    assert ["poison", "other", "poison"] == traced
