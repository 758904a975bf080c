"""In which order pipelines run once."""

from pathlib import Path

import pytest

pytest.importorskip("sqlglot")

from kalda.pipelines.engine import supervisor as module
from kalda.pipelines.engine.run_order import writers_before
from kalda.pipelines.engine.supervisor import Managed, Supervisor
from kalda.pipelines.spec.model import PipelineFile
from kalda.pipelines.spec.parser import parse_pipeline_file

FILE = """
name: p
storage: {directory}/state
warehouse: {directory}/tables
cluster: {{bootstrap.servers: "h:1"}}
pipelines:
  - {{name: publish, from: {{table: a.rows}}, to: {{topic: out, value: json}}}}
  - {{name: rows, from: {{topic: clean, value: {{format: json, schema: "id int"}}}}, to: {{table: a.rows}}}}
  - {{name: clean, from: {{topic: raw}}, to: {{topic: clean}}}}
  - {{name: ping, from: {{topic: pongs}}, to: {{topic: pings}}}}
  - {{name: pong, from: {{topic: pings}}, to: {{topic: pongs}}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> PipelineFile:
    text = FILE.format(directory=tmp_path)
    return parse_pipeline_file(text, str(tmp_path / "p.yml"), directory=tmp_path, variables={})


def test_a_pipeline_waits_for_those_that_write_what_it_reads(file: PipelineFile) -> None:
    """Those in a circle wait for nobody, or none would start."""
    assert {
        "publish": frozenset({"rows"}),
        "rows": frozenset({"clean"}),
        "clean": frozenset(),
        "ping": frozenset(),
        "pong": frozenset(),
    } == writers_before(file.pipelines)


class EndedRun:
    """A run that has nothing to do."""

    batch_id = None
    is_active = False

    def start(self) -> None:
        pass

    def error(self) -> None:
        pass

    def request_stop(self) -> None:
        pass

    def wait(self, seconds: float) -> None:
        pass

    def stop(self, wait_s: float) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("is_once", "expected"),
    [(True, ["clean", "rows", "publish"]), (False, ["publish", "rows", "clean"])],
)
def test_once_publishes_what_another_pipeline_wrote_in_the_same_command(
    is_once: bool, expected: list[str], file: PipelineFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Side by side, the publisher ended with the rows that the table had when it looked."""
    started: list[str] = []

    def new_run(managed: Managed) -> EndedRun:
        started.append(managed.status.pipeline)
        if len(started) == 3:
            supervisor.request_stop()
        return EndedRun()

    monkeypatch.setattr(module, "ship_modules", lambda *_: None)
    monkeypatch.setattr(Managed, "_new_run", new_run)
    monkeypatch.setattr(Managed, "_look_at_lag", lambda *_: None)
    monkeypatch.setattr(Managed, "is_starting", lambda *_: False)
    supervisor = Supervisor(None, file, file.pipelines[:3], is_once=is_once)
    supervisor.run()
    assert expected == started
