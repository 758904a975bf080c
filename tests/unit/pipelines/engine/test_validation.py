"""Checks of pipelines that need no cluster."""

from pathlib import Path

import pytest

pytest.importorskip("sqlglot")
pytest.importorskip("deltalake")

import pyarrow as pa

from kalda.pipelines.engine.validation import PlanReport, _target_problems, validate_pipelines
from kalda.pipelines.spec.parser import parse_pipeline_file
from kalda.pipelines.tables import open_table

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


ROWS = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def problems_of(
    directory: Path, to: str, rows: pa.Schema | None, table: pa.Schema | None = None
) -> list[str]:
    text = (
        f"name: p\nstorage: state\npipelines:\n  - {{name: a, from: {{topic: t}}, to: {{table: u, {to}}}}}\n"
    )
    (spec,) = parse_pipeline_file(text, "p.yml", directory=directory, variables={}).pipelines
    if table is not None:
        open_table(spec.target).prepare_schema(table)  # type: ignore[arg-type]  # it is a table
    return _target_problems(spec, rows)


@pytest.mark.parametrize(
    ("to", "problem"),
    [
        ("partition_by: [day(TS)]", "partition_by: there is no column TS, but ts, which differs by case"),
        ("event_time: TS", "event_time: there is no column TS, but ts, which differs by case"),
        (
            "mode: upsert, keys: [ID]",
            "keys: there is no column ID, but id, which differs by case; write keys: id",
        ),
    ],
)
def test_a_setting_that_differs_by_case_from_its_column_is_a_problem(
    tmp_path: Path, to: str, problem: str
) -> None:
    """The pipeline stops at its first batch, unless the table has a column of that name."""
    (found,) = problems_of(tmp_path, to, ROWS)
    assert found.startswith(problem)


def test_the_name_of_the_tables_column_is_no_problem(tmp_path: Path) -> None:
    table = pa.schema([("id", pa.int64()), ("TS", pa.timestamp("us", "UTC"))])
    assert [] == problems_of(tmp_path, "event_time: TS, format: iceberg", ROWS, table)


def test_what_a_table_forbids_is_known_without_the_columns_of_the_rows(tmp_path: Path) -> None:
    """The pipeline stops at its start, whatever the records are."""
    assert [] == problems_of(tmp_path, "partition_by: [id], format: iceberg", None, ROWS)
    (found,) = problems_of(tmp_path, "partition_by: [ts], format: iceberg", None)
    assert "it is partitioned by ['identity(id)'], but partition_by is ['ts']" in found
    (found,) = problems_of(tmp_path / "plain", "partition_by: [day(_ts)], format: parquet", None)
    assert "partition_by names '_ts_day', which names directories of the plain Parquet table u" in found
