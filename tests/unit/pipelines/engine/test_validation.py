"""Checks of pipelines that need no cluster."""

from pathlib import Path

import pytest

pytest.importorskip("sqlglot")
pytest.importorskip("deltalake")

from kalda.pipelines.engine.validation import PlanReport, validate_pipelines
from kalda.pipelines.spec.parser import parse_pipeline_file

PUBLISH = """
name: p
storage: state
pipelines:
  - {name: publish, from: {table: lake.dim, changes: true}, to: {topic: dim, key: id}}
"""
FILL = """
  - {name: fill, from: {topic: orders}, to: {table: lake.dim}}
"""


def report_of_publish(text: str, directory: Path) -> PlanReport:
    file = parse_pipeline_file(text, str(directory / "p.yml"), directory=directory, variables={})
    (report,) = validate_pipelines(file, [each for each in file.pipelines if each.name == "publish"])
    return report


def test_a_table_that_nothing_creates_is_a_problem(tmp_path: Path) -> None:
    report = report_of_publish(PUBLISH, tmp_path)
    assert ((f"the table lake.dim does not exist at {tmp_path.as_uri()}/state/tables/lake/dim",), ()) == (
        report.problems,
        report.notes,
    )


def test_a_table_that_another_pipeline_of_the_file_creates_is_none(tmp_path: Path) -> None:
    """A new file with both would not validate before its first run otherwise."""
    report = report_of_publish(PUBLISH + FILL.lstrip("\n"), tmp_path)
    assert ((), ("the table lake.dim does not exist yet; fill creates it",)) == (
        report.problems,
        report.notes,
    )
