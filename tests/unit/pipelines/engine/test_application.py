from pathlib import Path

import pytest

pytest.importorskip("sqlglot")

from kalda.pipelines.engine.application import session_settings
from kalda.pipelines.spec.parser import parse_pipeline_file

FILE = """
name: p
storage: /tmp/state
cluster: {{bootstrap.servers: "h:1"}}
spark: {{settings: {{{settings}}}}}
pipelines:
  - {{name: a, from: {{topic: t}}, to: {{topic: u}}}}
"""


def settings_of(text: str, directory: Path) -> dict[str, str]:
    text = FILE.format(settings=text)
    file = parse_pipeline_file(text, str(directory / "p.yml"), directory=directory, variables={})
    return session_settings(file)


def test_the_settings_of_the_file_win(tmp_path: Path) -> None:
    assert "5" == settings_of("spark.ui.retainedJobs: 5", tmp_path)["spark.ui.retainedJobs"]


def test_ended_jobs_are_dropped_unless_the_user_interface_shows_them(tmp_path: Path) -> None:
    """Nobody sees the plans of the last thousand queries, and the driver's memory would hold them."""
    assert "20" == settings_of("", tmp_path)["spark.sql.ui.retainedExecutions"]
    assert "spark.sql.ui.retainedExecutions" not in settings_of("spark.ui.enabled: true", tmp_path)
