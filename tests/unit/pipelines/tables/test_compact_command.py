"""`kalda pipeline compact` on the tables of a file."""

import json
import sys
from pathlib import Path

import pytest

from kalda.cli import main
from kalda.pipelines.spec.parser import read_pipeline_file
from kalda.pipelines.tables import open_table
from tests.unit.pipelines.tables.table_cases import append, ids_of, orders

FILE = """
name: shop
storage: {storage}
cluster: {{bootstrap.servers: "127.0.0.1:1"}}
pipelines:
  - name: bronze
    from: {{topic: orders}}
    to: {{table: lake.orders, format: parquet, partition_by: [country], schema: {{evolve: add}}}}
  - name: silver
    from: {{topic: orders}}
    to: {{table: lake.silver, format: delta}}
"""


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """Run `kalda` and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["kalda", *arguments])
    try:
        main()
    except SystemExit as end:
        return end.code or 0
    return 0


def test_the_small_files_of_a_pipeline_s_table_are_joined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.format(storage=f"{tmp_path}/state"))
    spec = read_pipeline_file(path).pipelines[0].target
    table = open_table(spec)  # type: ignore[arg-type]  # a table, as the file says
    for batch_id in range(3):
        append(table, batch_id, orders(batch_id * 10, 10))

    assert 0 == run(monkeypatch, "pipeline", "compact", str(path), "--newest", "0", "--json")
    (row,) = json.loads(capsys.readouterr().out)
    assert ("bronze", "lake.orders", 9, 3) == (
        row["pipeline"],
        row["table"],
        row["filesJoined"],
        row["filesWritten"],
    )
    assert list(range(30)) == ids_of(table)

    assert 0 != run(monkeypatch, "pipeline", "compact", str(path), "gold")
    assert "has no pipeline gold that writes a table; it has bronze, silver" in capsys.readouterr().err


def test_a_retention_of_no_time_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would delete the files of a batch that a running pipeline has not committed yet."""
    assert 2 == run(monkeypatch, "pipeline", "compact", "f.yml", "--retention", "0")
    assert "--retention=0 is not allowed: it takes an int, at least 1" in capsys.readouterr().err
