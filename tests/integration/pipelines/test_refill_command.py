"""`kalda pipeline replay` and `backfill` as far as they need no Spark: what they would do, and refuse."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from kalda.pipelines.spec.model import TableSpec
from kalda.pipelines.spec.parser import read_pipeline_file
from kalda.pipelines.tables import TaskId, open_table
from tests.integration.pipelines.numbers import produce_numbers
from tests.integration.tools.commands import Commands
from tests.unit.pipelines.tables.table_cases import account


def test_a_rebuild_refuses_a_table_with_rows(
    bootstrap: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Its rows would be there twice; the command says what to delete, in one line."""
    topic = topic_name("refilled")
    produce_numbers(bootstrap, topic, 30)
    file = tmp_path / "pipelines.yml"
    file.write_text(f"""
name: refilled
storage: state
cluster: {{bootstrap.servers: "{bootstrap}"}}
pipelines:
  - {{name: {topic}, from: {{topic: {topic}}}, to: {{table: lake.rows, format: parquet}}}}
  - {{name: without, from: {{topic: {topic}}}, to: {{table: lake.rows, format: parquet}}, ledger: false}}
""")
    kalda = Commands(bootstrap)

    done = kalda("pipeline", "replay", file, topic, "--from", 10, "--to", 25, "--dry-run", "--json")
    assert (15, 0) == (done.json["offsets"], done.json["skipped_offsets"])

    target = read_pipeline_file(file).pipelines[0].target
    assert isinstance(target, TableSpec)
    table, rows = open_table(target), pa.RecordBatch.from_pydict({"value": [b"1"]})
    table.prepare_schema(rows.schema)
    table.commit(account(0, 1), table.writer(rows.schema).write([rows], TaskId("q", 0, 0)))
    done = kalda.run("pipeline", "backfill", file, topic, "--rebuild")
    assert (
        1,
        f"kalda: lake.rows has rows; delete {target.path}, or name another table, before it is rebuilt",
    ) == (
        done.code,
        done.stderr.strip(),
    )
    done = kalda.run("pipeline", "backfill", file, "without", "--dry-run")
    assert 1 == done.code
    assert (
        "without has `ledger: false`, and the ledger says which offsets the table has already" in done.stderr
    )
